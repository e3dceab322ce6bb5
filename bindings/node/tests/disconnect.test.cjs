// Clients that disconnect before the response.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { mkdtempSync, rmSync } = require("node:fs");
const http = require("node:http");
const http2 = require("node:http2");
const net = require("node:net");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { test } = require("node:test");

const { getRequestListener } = require("@hono/node-server");
const fastify = require("fastify");
const { Hono } = require("hono");
const { Limiter } = require("polylimit");
const { rateLimit: expressRateLimit } = require("polylimit/express");
const { rateLimit: fastifyRateLimit } = require("polylimit/fastify");
const { rateLimit: honoRateLimit } = require("polylimit/hono");

const { until } = require("./support/until.cjs");
const { versionsOf } = require("./support/versions.cjs");

/** For each framework a server that reports what its handler or its error handler received. */
const SERVERS = {
  ...Object.fromEntries(
    versionsOf("express").map(({ name, load }) => [name, (options, tell) => onExpress(load("express"), options, tell)]),
  ),
  fastify: async (options, tell) => {
    const app = fastify();
    app.register(fastifyRateLimit, options);
    app.get("/", async () => tell("handled") ?? "");
    app.setErrorHandler((error, _, reply) => {
      tell(error);
      reply.code(500).send("");
    });
    await app.ready();
    return (req, res) => app.routing(req, res);
  },
  hono: (options, tell) => {
    const app = new Hono();
    app.use(honoRateLimit({ ...options, skip: options.skip && (({ env }) => options.skip(env.incoming)) }));
    app.get("/", (context) => tell("handled") ?? context.text(""));
    app.onError((error, context) => tell(error) ?? context.text("", 500));
    return getRequestListener(app.fetch);
  },
};

function onExpress(express, options, tell) {
  const app = express();
  app.use(expressRateLimit(options));
  app.get("/", (_, res) => {
    tell("handled");
    res.end();
  });
  // Express recognizes an error handler by its four parameters.
  app.use((error, _req, res, _next) => {
    tell(error);
    res.status(500).end();
  });
  return app;
}

/** Serves while `body` runs; `told` settles with the framework's first report. */
async function serving(framework, options, listen, body) {
  let tell;
  const told = new Promise((resolve) => {
    tell = resolve;
  });
  const listener = await SERVERS[framework](options, (what) => void tell(what));
  const server = http.createServer(listener).listen(listen);
  await once(server, "listening");
  try {
    return await body(server.address(), told);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** A middleware that decides after the client has disconnected. */
async function skip(request) {
  const { socket } = request.raw ?? request;
  if (!socket.destroyed) await once(socket, "close");
  return false;
}

for (const framework of Object.keys(SERVERS)) {
  test(`${framework}: a disconnected client is neither limited as this host nor trusted as a proxy on it`, async () => {
    for (const clientAddress of [undefined, { trust: "loopback", header: "x-forwarded-for" }]) {
      const limiter = new Limiter("memory:", { policies: { api: "9/minute" } });
      const options = { limiter, skip, ...(clientAddress && { clientAddress }) };
      await serving(framework, options, { port: 0, host: "127.0.0.1" }, async ({ port }, told) => {
        const client = net.connect({ port, host: "127.0.0.1", localAddress: "127.0.0.2" });
        client.write("GET / HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 203.0.113.7\r\n\r\n", () => client.destroy());
        const { code, message } = await told;
        assert.deepEqual([code, limiter.admin().keys], ["invalid_argument", 0]);
        assert.match(message, /^the client has hung up/);
      });
    }
  });

  test(`${framework}: the client of a Unix socket is this host`, async () => {
    const folder = mkdtempSync(join(tmpdir(), "polylimit-"));
    try {
      const limiter = new Limiter("memory:", { policies: { api: "9/minute" } });
      const path = join(folder, "socket");
      await serving(framework, { limiter }, { path }, async (_, told) => {
        const [response] = await once(http.get({ socketPath: path }), "response");
        response.resume();
        assert.deepEqual([await told, response.statusCode], ["handled", 200]);
        assert.equal((await limiter.peek("127.0.0.1")).remaining, 8);
      });
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
}

/** A limiter that counts responses with status 401, and an application that responds with a delay. */
async function logIns(options, status, body) {
  const limiter = new Limiter("memory:", { policies: { login: "5/minute" } });
  const app = fastify(options);
  app.register(fastifyRateLimit, { limiter, key: () => "k", count: (_, reply) => reply.statusCode === 401 });
  const answered = [];
  app.get("/", (_, reply) => {
    const left = once(reply.raw, "close");
    answered.push(left.then(() => void reply.code(status).send("")));
  });
  app.get("/large", async () => Buffer.alloc(100_000_000));
  await app.listen({ port: 0, host: "127.0.0.1" });
  try {
    await body(app.server.address().port, { limiter, answered });
  } finally {
    await app.close();
  }
}

test("a request counts when its client disconnects before the response, with HTTP/2 too", async () => {
  await logIns({ http2: true }, 401, async (port, { limiter, answered }) => {
    const client = http2.connect(`http://127.0.0.1:${port}`);
    for (let attempt = 1; attempt <= 3; attempt++) {
      const sent = client.request({ ":path": "/" });
      sent.end();
      await until(() => answered.length === attempt, "it has arrived");
      sent.close(http2.constants.NGHTTP2_CANCEL);
      await answered[attempt - 1];
    }
    assert.equal((await limiter.peek("k")).remaining, 2);
    client.destroy();
  });
  await logIns({}, 401, async (port, { limiter, answered }) => {
    const client = net.connect(port, "127.0.0.1");
    client.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    await until(() => answered.length === 1, "it has arrived");
    client.destroy();
    await answered[0];
    assert.equal((await limiter.peek("k")).remaining, 4);
  });
});

test("the cost is refunded when a client disconnects in the middle of a response that does not count", async () => {
  for (const [options, connect] of [
    [{}, (port) => net.connect(port, "127.0.0.1").setNoDelay().end("GET /large HTTP/1.1\r\nhost: x\r\n\r\n")],
    [{ http2: true }, (port) => http2.connect(`http://127.0.0.1:${port}`).request({ ":path": "/large" }).end()],
  ]) {
    await logIns(options, 200, async (port, { limiter }) => {
      const client = connect(port);
      await once(client, "data");
      (client.session ?? client).destroy();
      await until(async () => (await limiter.peek("k")).remaining === 5, "it is given back");
    });
  }
});
