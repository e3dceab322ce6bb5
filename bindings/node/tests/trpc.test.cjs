// The middleware for tRPC, with real procedures and a real server, in the oldest and the newest version.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const Module = require("node:module");
const { test } = require("node:test");

const { Limiter } = require("polylimit");

/** Loads the middleware as a program does that has this version of tRPC. */
function loaded(name) {
  const resolve = Module._resolveFilename;
  const path = require.resolve("polylimit/trpc");
  delete require.cache[path];
  Module._resolveFilename = (request, ...more) => resolve(request === "@trpc/server" ? name : request, ...more);
  try {
    return require("polylimit/trpc");
  } finally {
    Module._resolveFilename = resolve;
    delete require.cache[path];
  }
}

for (const name of ["trpc10", "@trpc/server"]) {
  const { initTRPC, TRPCError } = require(name);
  const { createHTTPServer } = require(`${name}/adapters/standalone`);
  const { version } = require(`${require.resolve(name).split("/dist/")[0]}/package.json`);
  const { rateLimit, RateLimitExceeded } = loaded(name);

  const routed = (t, options, { policies = { api: "2/hour fixed_window" }, isShared = false } = {}) => {
    const limiter = new Limiter("memory:", { policies });
    t.after(() => limiter.close());
    const trpc = initTRPC.context().create({
      errorFormatter: ({ shape, error }) => ({
        ...shape,
        data: { ...shape.data, retryAfterMs: error.cause?.retryAfterMs ?? null },
      }),
    });
    const limit = rateLimit({
      limiter,
      key: ({ ctx }) => ctx.client,
      ...(isShared ? {} : { policy: "api" }),
      ...options,
    });
    const procedure = trpc.procedure.use(limit);
    const seen = [];
    const router = trpc.router({
      one: procedure.query(({ ctx }) => {
        seen.push(ctx.rateLimit?.remaining);
        return ctx.client;
      }),
      two: procedure.mutation(() => "two"),
      fails: procedure.query(() => {
        throw new TRPCError({ code: "NOT_FOUND" });
      }),
    });
    const caller = (client) => {
      const ctx = { client };
      return trpc.createCallerFactory ? trpc.createCallerFactory(router)(ctx) : router.createCaller(ctx);
    };
    return { caller, limiter, router, seen };
  };
  const codeOf = (promise) =>
    promise.then(
      () => "OK",
      (error) => error.code,
    );

  test(`tRPC ${version}: a call over its limit is TOO_MANY_REQUESTS, with the wait in its cause`, async (t) => {
    const { caller, seen } = routed(t, {});
    assert.equal(await caller("a").one(), "a");
    assert.equal(await caller("a").two(), "two");
    const denied = await caller("a")
      .one()
      .then(assert.fail, (error) => error);
    assert.ok(denied instanceof TRPCError);
    assert.equal(denied.code, "TOO_MANY_REQUESTS");
    assert.ok(denied.cause instanceof RateLimitExceeded);
    assert.equal(denied.cause.status, 429);
    assert.ok(denied.cause.retryAfterMs > 0 && denied.cause.retryAfterMs <= 3_600_000);
    assert.ok(denied.cause.fields.some(([name]) => name === "retry-after"));
    assert.equal(await caller("b").one(), "b");
    assert.deepEqual(seen, [1, 1]);
  });

  test(`tRPC ${version}: clients of a server get the status 429, and each call of a batch counts`, async (t) => {
    const { router } = routed(t, {});
    const server = createHTTPServer({ router, createContext: () => ({ client: "a" }) });
    const listening = server.server ?? server;
    listening.listen(0, "127.0.0.1");
    await once(listening, "listening");
    t.after(() => listening.close());
    const answer = await fetch(`http://127.0.0.1:${listening.address().port}/one,one,one?batch=1&input=%7B%7D`);
    assert.equal(answer.status, 207);
    const results = await answer.json();
    assert.equal(results.filter(({ result }) => result).length, 2);
    const { data } = results.find(({ error }) => error).error;
    assert.equal(data.httpStatus, 429);
    assert.ok(data.retryAfterMs > 0);
  });

  test(`tRPC ${version}: quotas without a name belong to each procedure`, async (t) => {
    const { caller } = routed(t, { policy: "1/hour fixed_window" });
    assert.equal(await codeOf(caller("a").one()), "OK");
    assert.equal(await codeOf(caller("a").two()), "OK");
    assert.equal(await codeOf(caller("a").one()), "TOO_MANY_REQUESTS");
  });

  test(`tRPC ${version}: what does not count is given back, and places are free when the call is done`, async (t) => {
    const { caller, limiter } = routed(t, { count: (result) => result?.ok === true });
    for (let each = 0; each < 4; each += 1) assert.equal(await codeOf(caller("a").fails()), "NOT_FOUND");
    assert.equal((await limiter.peek("a", "api")).remaining, 2);
    const held = routed(t, {}, { policies: { api: "1 concurrent" } });
    for (const name of ["one", "fails", "one", "two"]) {
      assert.notEqual(await codeOf(held.caller("a")[name]()), "TOO_MANY_REQUESTS", name);
    }
  });

  test(`tRPC ${version}: the rules of a document see procedure and user`, async (t) => {
    const document = `
      polylimit = 1
      policies.one.quotas = "1/hour fixed_window"
      lists.deny = ["user mallory"]
      rules = [{ match = { route = "one" }, apply = [{ policy = "one", key = "{user}" }] }]
    `;
    const limiter = new Limiter("memory:", { document });
    t.after(() => limiter.close());
    const { caller } = routed(
      t,
      { limiter, key: undefined, attributes: ({ ctx }) => ({ user: ctx.client }) },
      { isShared: true },
    );
    assert.equal(await codeOf(caller("a").one()), "OK");
    assert.equal(await codeOf(caller("a").two()), "OK");
    assert.equal(await codeOf(caller("a").one()), "TOO_MANY_REQUESTS");
    assert.equal(await codeOf(caller("mallory").one()), "FORBIDDEN");
  });

  test(`tRPC ${version}: errors of the program are no denials`, async (t) => {
    const { caller } = routed(t, { cost: () => -1 });
    assert.equal(await codeOf(caller("a").one()), "INTERNAL_SERVER_ERROR");
  });
}
