// The cases of guard.json, guard_reservations.json, guard_meters.json and guard_waiting.json in tests/conformance through each framework, with
// its real server.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { openSync, closeSync, chmodSync, readFileSync, rmSync } = require("node:fs");
const http = require("node:http");
const { join } = require("node:path");
const { PassThrough, Readable } = require("node:stream");
const { test } = require("node:test");

const { getRequestListener } = require("@hono/node-server");
const fastify = require("fastify");
const { Hono } = require("hono");
const { Limiter, ManualClock } = require("polylimit");
const { rateLimit: expressRateLimit } = require("polylimit/express");
const { rateLimit: fastifyRateLimit } = require("polylimit/fastify");
const { rateLimit: fetchRateLimit } = require("polylimit/fetch");
const { rateLimit: honoRateLimit } = require("polylimit/hono");
const { rateLimit: koaRateLimit } = require("polylimit/koa");
const { RateLimitGuard } = require("polylimit/nest");

const { controllerOf, nestApplication } = require("./support/nest.cjs");
const { open, request } = require("./support/request.cjs");
const { until } = require("./support/until.cjs");
const { versionsOf } = require("./support/versions.cjs");

const FILES = ["guard.json", "guard_reservations.json", "guard_meters.json", "guard_waiting.json"].map((name) => {
  const { cases } = JSON.parse(readFileSync(join(__dirname, "../../../tests/conformance", name), "utf8"));
  return { name, cases };
});

/** A body as a web stream, or the text. */
const webBody = ({ body }) => (typeof body === "string" ? body : Readable.toWeb(body));

function onExpress(express, guards, handle) {
  const app = express();
  app.set("env", "test");
  for (const guard of guards)
    app.use(
      expressRateLimit(
        guard({
          header: (name, req) => req.headers[name],
          sent: (name, _, res) => res.getHeader(name),
          status: (_, res) => res.statusCode,
          respond: ({ status, body }, _, res) => res.status(status).end(body),
        }),
      ),
    );
  app.use((_, res) => {
    const { status, fields, body } = handle();
    res.status(status).set(fields);
    if (typeof body === "string") res.end(body);
    else body.pipe(res);
  });
  // Express recognizes an error handler by its four parameters.
  app.use((_error, _req, res, _next) => res.status(500).end());
  return app;
}

async function onNest(version, platform, guards, handle) {
  const reading = {
    header: (name, req) => req.headers[name],
    sent: (name, _, res) => res.getHeader(name),
    status: (_, res) => res.statusCode,
    respond: ({ status, body }, _, res) =>
      platform === "express" ? res.status(status).end(body) : res.status(status) && body,
  };
  const { StreamableFile } = await version.import("@nestjs/common");
  const all = async (_, res) => {
    const { status, fields, body } = handle();
    res.status(status);
    for (const [name, value] of Object.entries(fields)) res.header(name, value);
    return typeof body === "string" ? body : new StreamableFile(body);
  };
  const controller = await controllerOf("", { all: { method: "All", path: "", handle: all } }, [], version);
  const app = await nestApplication(platform, [controller], [], version);
  app.useGlobalGuards(...guards.map((guard) => new RateLimitGuard(guard(reading))));
  await app.init();
  const server = app.getHttpAdapter().getInstance();
  if (platform === "express") return server;
  await server.ready();
  return (req, res) => server.routing(req, res);
}

function onKoa(Koa, guards, handle) {
  const app = new Koa();
  app.silent = true;
  for (const guard of guards) {
    const options = guard({
      header: (name, { req }) => req.headers[name],
      // `response.get` returns an empty text for an absent field in Koa 2.
      sent: (name, { res }) => res.getHeader(name),
      status: ({ status }) => status,
      respond: ({ status, body }, context) => Object.assign(context, { body, status }),
    });
    app.use(koaRateLimit(options));
  }
  app.use((context) => {
    const { status, fields, body } = handle();
    context.status = status;
    context.set(fields);
    context.body = body;
  });
  return app.callback();
}

/** For each framework its options of a guard, and a listener that passes requests through guards to a handler. */
const FRAMEWORKS = {
  ...Object.fromEntries(
    versionsOf("express").map(({ name, load }) => [
      name,
      (guards, handle) => onExpress(load("express"), guards, handle),
    ]),
  ),
  fastify: async (guards, handle) => {
    const app = fastify();
    for (const guard of guards) {
      const options = guard({
        header: (name, req) => req.headers[name],
        sent: (name, _, reply) => reply.getHeader(name),
        status: (_, reply) => reply.statusCode,
        respond: ({ status, body }, _, reply) => reply.code(status) && body,
      });
      await app.register(fastifyRateLimit, options);
    }
    app.all("/", async (_, reply) => {
      const { status, fields, body } = handle();
      reply.code(status).headers(fields);
      return body;
    });
    await app.ready();
    return (req, res) => app.routing(req, res);
  },
  hono: (guards, handle) => {
    const app = new Hono();
    for (const guard of guards) {
      const options = guard({
        header: (name, { req }) => req.header(name),
        sent: (name, { res }) => res.headers.get(name),
        status: ({ res }) => res.status,
        respond: ({ status, body }) => new Response(body, { status }),
      });
      app.use(honoRateLimit(options));
    }
    app.all("/", (context) => {
      const answer = handle();
      return context.body(webBody(answer), answer.status, answer.fields);
    });
    app.onError((_, context) => context.text("", 500));
    return getRequestListener(app.fetch);
  },
  ...Object.fromEntries(
    versionsOf("koa").map(({ name, load }) => [name, (guards, handle) => onKoa(load("koa"), guards, handle)]),
  ),
  ...Object.fromEntries(
    versionsOf("nest").flatMap((version) =>
      ["express", "fastify"].map((platform) => [
        `${version.name} on ${platform}`,
        (guards, handle) => onNest(version, platform, guards, handle),
      ]),
    ),
  ),
  fetch: (guards, handle) => {
    let handler = async () => {
      const answer = handle();
      return new Response(webBody(answer), { status: answer.status, headers: answer.fields });
    };
    for (const guard of [...guards].reverse()) {
      const options = guard({
        header: (name, { headers }) => headers.get(name),
        sent: (name, { headers }) => headers.get(name),
        status: ({ status }) => status,
        respond: ({ status, body }) => new Response(body, { status }),
      });
      handler = fetchRateLimit(handler, { ...options, peer: (_, { incoming }) => incoming.socket.remoteAddress });
    }
    const failed = () => new Response("", { status: 500 });
    return getRequestListener((req, env) => handler(req, env).catch(failed));
  },
};

/** The policies of a guard, each with its own cost and what its response reports, where the case has these. */
function policiesOf({ policy, costs, spent }) {
  if (costs === undefined && !Array.isArray(spent)) return policy;
  return policy.map((one, at) => ({ policy: one, cost: costs?.[at], spent: spent?.[at] ?? undefined }));
}

/** The options of a guard of a case, in a framework that reads a request with these functions. */
function optionsOf(given, limiter, { header, sent, status, respond }) {
  const read = (option, convert = (text) => text) =>
    option &&
    ((...context) => {
      const text = header(option.header, ...context);
      return text === null || text === undefined ? undefined : convert(text);
    });
  const options = { limiter };
  for (const [name, value] of Object.entries(given)) {
    if (name === "policies_of") {
      const plan = read(value);
      options.policy = (...context) => (plan(...context) === undefined ? given.policy : value.plans[plan(...context)]);
    } else if (name === "policy") options.policy ??= policiesOf(given);
    else if (name === "key") options.key = read(value);
    else if (name === "key_parts") options.key = value;
    else if (name === "missing_key") options.missingKey = value;
    else if (name === "cost") options.cost = value.header === undefined ? value : read(value, Number);
    else if (name === "skip") options.skip = (...context) => read(value)(...context) !== undefined;
    else if (name === "count") {
      const { status_from: from = 0, status_below: below = 600 } = value;
      options.count = (...finished) => status(...finished) >= from && status(...finished) < below;
    } else if (typeof value === "string" && name === "spent") options.spent = value;
    else if (name === "spent" && value.header !== undefined) {
      options.spent = (...finished) => {
        const text = sent(value.header, ...finished);
        return text === null || text === undefined ? undefined : Number(text);
      };
    } else if (name === "ttl_ms") options.ttlMs = value;
    else if (name === "wait_ms") options.waitMs = value;
    else if (name === "max_waiting") options.maxWaiting = value;
    else if (name === "dry_run") options.dryRun = value;
    else if (name === "separate_head") options.separateHead = value;
    else if (name === "cors_origins") options.corsOrigins = value;
    else if (name === "on_denied") options.onDenied = (_, ...context) => respond(value, ...context);
    else if (name === "on_outage") options.onOutage = () => (value === "leave" ? undefined : value);
    else if (!["store", "costs", "spent"].includes(name)) options[name] = value;
  }
  return options;
}

let count = 0;

/** A local store that cannot be opened, because other users may read its file. */
function brokenStore() {
  const name = `node-guard-${process.pid}-${++count}`;
  const path = `/dev/shm/polylimit-${process.getuid()}-${name}`;
  closeSync(openSync(path, "w", 0o640));
  chmodSync(path, 0o640);
  return { url: `local:${name}`, remove: () => rmSync(path, { force: true }) };
}

async function run({ name, policies = {}, store, outage, guards, requests = [], left = [], error }, framework) {
  const broken = brokenStore();
  const clock = new ManualClock(1_789_948_800_000_000);
  const isUsed = (one) => guards.some((guard) => (guard.store ?? store ?? "memory") === one);
  const withOutage = Object.entries(policies).map(([policy, quotas]) => [policy, outage ? { quotas, outage } : quotas]);
  const limiters = {
    memory: new Limiter("memory:", { policies, clock }),
    // Nothing listens on port 1.
    ...(isUsed("down") && {
      down: new Limiter("redis://127.0.0.1:1?doctor_after=0", { policies: Object.fromEntries(withOutage) }),
    }),
    ...(isUsed("broken") && { broken: new Limiter(broken.url, { policies }) }),
  };
  const build = guards.map(
    (guard) => (reading) => optionsOf(guard, limiters[guard.store ?? store ?? "memory"], reading),
  );
  let current;
  let handled;
  /** The responses that are not sent to their end, by name: their bodies, and their clients. */
  const [bodies, clients] = [{}, {}];
  const handle = () => {
    handled = true;
    const { fail, respond: status = 200, spent, open: name, content_type: type, body } = current;
    if (fail) throw new Error("the handler fails");
    const fields = spent === undefined ? {} : { "x-spent": String(spent) };
    if (type !== undefined) fields["content-type"] = type;
    // One part is a text, which frameworks send by `end`; several are a stream.
    if (body !== undefined)
      return { status, fields, body: body.length === 1 ? body[0] : Readable.from(body.map(Buffer.from)) };
    if (name === undefined) return { status, fields, body: "handled" };
    bodies[name] = new PassThrough();
    bodies[name].write("handled");
    return { status, fields, body: bodies[name] };
  };
  const send = async (port) => {
    const options = { headers: current.headers, method: current.method };
    const { elapse_ms: elapseMs } = current;
    // Time passes while the request is under way, so that a guard that holds it does so first.
    const timer = elapseMs && setInterval(() => clock.advanceMs(elapseMs), 100);
    if (current.open === undefined) return request(port, "/", options).finally(() => clearInterval(timer));
    clients[current.open] = await open(port, "/", options);
    return clients[current.open].answer;
  };
  const step = async (port, what) => {
    if (current.close !== undefined) {
      bodies[current.close].end();
      await clients[current.close].ended;
    } else if (current.leave !== undefined) clients[current.leave].leave();
    else compare(what, current.expect, { ...(await send(port)), handled });
    for (const { policy, key, remaining } of current.then ?? []) {
      // A check ends after its client has read the response.
      const isSo = async () => (await limiters.memory.peek(key, policy)).remaining === remaining;
      await until(isSo, `${what}: ${remaining} of ${policy} remain for ${key}`);
    }
  };
  try {
    if (error !== undefined) {
      await assert.rejects(async () => FRAMEWORKS[framework](build, handle), { code: error });
      return;
    }
    const server = http.createServer(await FRAMEWORKS[framework](build, handle)).listen(0, "127.0.0.1");
    await once(server, "listening");
    try {
      for (const [at, one] of requests.entries()) {
        [current, handled] = [one, false];
        await step(server.address().port, `${name}, request ${at}`);
      }
    } finally {
      server.closeAllConnections();
      server.close();
    }
    for (const { policy, key, remaining } of left) {
      assert.equal((await limiters.memory.peek(key, policy)).remaining, remaining, `${name}: ${policy} ${key}`);
    }
  } finally {
    for (const limiter of Object.values(limiters)) limiter.close();
    for (const body of Object.values(bodies)) body.destroy();
    broken.remove();
  }
}

function compare(what, { status, handled, fields = {}, problem, text }, answer) {
  assert.deepEqual([answer.status, answer.handled], [status, handled], `${what}: ${answer.text}`);
  for (const [name, value] of Object.entries(fields)) {
    assert.equal(answer.headers[name] ?? null, value, `${what}: ${name}`);
  }
  if (text !== undefined) assert.equal(answer.text, text, what);
  for (const [member, value] of Object.entries(problem ?? {})) {
    const found = JSON.parse(answer.text)[member === "violated" ? "violated-policies" : member];
    assert.deepEqual(found, value, `${what}: ${member}`);
  }
}

for (const framework of Object.keys(FRAMEWORKS)) {
  for (const { name, cases } of FILES) {
    test(`${framework}: all ${cases.length} cases of ${name} agree`, async (t) => {
      for (const one of cases) await t.test(one.name, () => run(one, framework));
    });
  }
}
