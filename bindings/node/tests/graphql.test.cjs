// The plug-ins for GraphQL, in real servers of Apollo and Yoga, the oldest and the newest version of each.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const http = require("node:http");
const { test } = require("node:test");

const { buildSchema, parse } = require("graphql");
const { Limiter } = require("polylimit");
const { apolloRateLimit, queryCost, yogaRateLimit } = require("polylimit/graphql");

const costs = {
  "{ a }": 1,
  "{ a b c }": 3,
  "{ users(first: 10) { name posts(last: 5) { title } } }": 71,
  "{ users(limit: 3) { name } more: users(limit: 3) { name } }": 8,
  "{ users(first: 2, last: 7) { name } }": 8,
  "{ users { name } }": 2,
  "{ users(first: 0) { name } }": 1,
  "{ users(first: -5) { name } }": 1,
  "{ users(first: 4) { ... on User { name } ...rest } } fragment rest on User { id mail }": 13,
  "{ __schema { types { name } } __typename }": 1,
  "{ a { ...loop } } fragment loop on A { b { ...loop } }": 2,
  "{ a(first: 1000000) { b(first: 1000000) { c(first: 1000000) { d } } } }": 1_000_000_000_000,
};
for (const [query, units] of Object.entries(costs)) {
  test(`${query} costs ${units}`, () => assert.equal(queryCost(parse(query)), units));
}

test("fragments that double each other are read once", () => {
  const fragments = Array.from({ length: 200 }, (_, at) => `fragment f${at} on A { ...f${at + 1} ...f${at + 1} }`);
  const query = `{ ...f0 } ${fragments.join(" ")} fragment f200 on A { a }`;
  assert.equal(queryCost(parse(query)), 1_000_000_000_000);
});

test("variables say how many elements a list has, and the name which operation it is", () => {
  const document = parse("query A($n: Int) { users(first: $n) { name } } query B { a b }");
  assert.equal(queryCost(document, { operationName: "A", variables: { n: 20 } }), 21);
  assert.equal(queryCost(document, { operationName: "A" }), 2);
  assert.equal(queryCost(document, { operationName: "B" }), 2);
  assert.equal(queryCost(document, { operationName: "C" }), 1);
  assert.equal(queryCost(parse("{ users(top: 5) { name } }"), { sizeArguments: ["top"] }), 6);
});

const schema = `
  type User { name: String, friends(first: Int): [User] }
  type Query { me: User, users(first: Int): [User] }
`;
const user = { name: "alice", friends: ({ first }) => Array.from({ length: first }, () => user) };

/** Serves with Apollo Server: returns the port and what ends it. */
const apollo = (name) => async (options, runs) => {
  const { ApolloServer } = require(name);
  const { startStandaloneServer } = require(`${name}/standalone`);
  const resolvers = {
    Query: {
      me: () => {
        runs.push("me");
        return user;
      },
      users: (_, { first }) => Array.from({ length: first }, () => user),
    },
    User: { friends: (parent, given) => parent.friends(given) },
  };
  const server = new ApolloServer({ typeDefs: schema, resolvers, plugins: [apolloRateLimit(options)] });
  const context = async ({ req }) => ({ client: req.headers["x-client"] });
  const { url } = await startStandaloneServer(server, { context, listen: { port: 0, host: "127.0.0.1" } });
  return [url, () => server.stop()];
};

const yoga = (name) => async (options, runs) => {
  const { createSchema, createYoga } = require(name);
  const resolvers = {
    Query: {
      me: () => {
        runs.push("me");
        return user;
      },
      users: (_, { first }) => Array.from({ length: first }, () => user),
    },
    User: { friends: (parent, given) => parent.friends(given) },
  };
  const server = http.createServer(
    createYoga({
      schema: createSchema({ typeDefs: schema, resolvers }),
      plugins: [yogaRateLimit(options)],
      context: ({ request }) => ({ client: request.headers.get("x-client") }),
      logging: false,
    }),
  );
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return [`http://127.0.0.1:${server.address().port}/graphql`, () => server.close()];
};

const servers = {
  "Apollo Server 4.0.0": apollo("apollo4-oldest"),
  "Apollo Server 5.5.1": apollo("@apollo/server"),
  "Yoga 5.0.0": yoga("yoga5-oldest"),
  "Yoga 5.24.1": yoga("graphql-yoga"),
};

assert.ok(buildSchema(schema));
for (const [name, serve] of Object.entries(servers)) {
  const served = async (t, options, quotas = "20/hour fixed_window") => {
    const limiter = new Limiter("memory:", { policies: { api: quotas } });
    const runs = [];
    const [url, stop] = await serve({ limiter, policy: "api", key: ({ context }) => context.client, ...options }, runs);
    t.after(async () => {
      await stop();
      limiter.close();
    });
    const ask = async (query, { client = "a", ...more } = {}) => {
      const response = await fetch(url, {
        method: "POST",
        headers: { "content-type": "application/json", "x-client": client },
        body: JSON.stringify({ query, ...more }),
      });
      return { status: response.status, fields: response.headers, ...(await response.json()) };
    };
    return { ask, limiter, runs };
  };

  test(`${name}: an operation spends its cost, and one over the limit is an error with the wait and the status 429`, async (t) => {
    const { ask, runs } = await served(t, {});
    const first = await ask("query($n: Int) { users(first: $n) { name } }", { variables: { n: 10 } });
    assert.equal(first.status, 200);
    assert.equal(first.data.users.length, 10);
    assert.equal(first.fields.get("ratelimit").split(";t")[0], '"api";r=9');
    const denied = await ask("{ me { name friends(first: 8) { name } } }");
    assert.equal(denied.status, 429);
    assert.deepEqual(runs, []);
    const [{ message, extensions }] = denied.errors;
    assert.match(message, /./);
    assert.equal(extensions.code, "RATE_LIMITED");
    assert.equal(extensions.cost, 11);
    assert.ok(extensions.retryAfter > 0 && extensions.retryAfter <= 3600, `${extensions.retryAfter}`);
    assert.equal(denied.fields.get("retry-after"), `${extensions.retryAfter}`);
    assert.equal(denied.fields.get("ratelimit-policy"), '"api";q=20;w=3600');
    assert.equal((await ask("{ me { name } }")).data.me.name, "alice");
    assert.equal((await ask("{ me { name friends(first: 8) { name } } }", { client: "b" })).status, 200);
  });

  test(`${name}: an operation that is not valid costs nothing`, async (t) => {
    const { ask, limiter } = await served(t, {});
    for (const query of ["{ nothing }", "{ me {"]) assert.ok((await ask(query)).errors);
    assert.equal((await limiter.peek("a", "api")).remaining, 20);
  });

  test(`${name}: quotas without a name belong to each operation, and a cost of the program replaces the one of the query`, async (t) => {
    const { ask } = await served(t, { policy: "2/hour fixed_window", cost: 1 });
    const both = "query A { me { name } } query B { me { name } }";
    for (const status of [200, 200, 429]) assert.equal((await ask(both, { operationName: "A" })).status, status);
    assert.equal((await ask(both, { operationName: "B" })).status, 200);
  });

  test(`${name}: what cannot be counted is answered by 400 or 503, and an error of the program by 500`, async (t) => {
    const refused = await served(t, { key: () => undefined, missingKey: "refuse" });
    assert.equal((await refused.ask("{ me { name } }")).status, 400);
    const broken = await served(t, { cost: () => -1 });
    const answer = await broken.ask("{ me { name } }");
    assert.ok(answer.errors, JSON.stringify(answer));
    assert.deepEqual(broken.runs, []);
    const lost = new Limiter("redis://127.0.0.1:1?deadline=50ms&doctor_after=0", {
      policies: { api: { quotas: "1/hour", outage: "deny" } },
    });
    t.after(() => lost.close());
    assert.equal((await (await served(t, { limiter: lost })).ask("{ me { name } }")).status, 503);
  });
}

test("a key is required, and what has no meaning is refused", () => {
  const limiter = new Limiter("memory:", { policies: { api: "1/hour" } });
  assert.throws(() => apolloRateLimit({ limiter, policy: "api" }), {
    code: "invalid_argument",
    message: /^key is missing/,
  });
  assert.throws(() => yogaRateLimit({ limiter, policy: "api", key: () => "a", onDenied: () => {} }), {
    code: "invalid_argument",
  });
  limiter.close();
});
