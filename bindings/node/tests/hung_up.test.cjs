// Clients that do not wait for the answer.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { mkdtempSync, rmSync } = require("node:fs");
const http = require("node:http");
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

/** What serves requests by a framework, and tells what its handler or its error handler was told. */
const SERVERS = {
  express4: (options, tell) => onExpress("express4", options, tell),
  express: (options, tell) => onExpress("express", options, tell),
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

function onExpress(version, options, tell) {
  const app = require(version)();
  app.use(expressRateLimit(options));
  app.get("/", (_, res) => {
    tell("handled");
    res.end();
  });
  // Express knows one by its four parameters.
  app.use((error, _req, res, _next) => {
    tell(error);
    res.status(500).end();
  });
  return app;
}

/** Serves while a body runs; `told` is settled with what the framework told first. */
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

/** Decides once the client has gone. */
async function skip(request) {
  const { socket } = request.raw ?? request;
  if (!socket.destroyed) await once(socket, "close");
  return false;
}

for (const framework of Object.keys(SERVERS)) {
  test(`${framework}: who has hung up is not counted as this host, nor believed like a proxy on it`, async () => {
    for (const clientAddress of [undefined, { trust: "loopback", header: "x-forwarded-for" }]) {
      const limiter = new Limiter("memory:", { policies: { api: "9/minute" } });
      const options = { limiter, skip, ...(clientAddress && { clientAddress }) };
      await serving(framework, options, { port: 0, host: "127.0.0.1" }, async ({ port }, told) => {
        const client = net.connect({ port, host: "127.0.0.1", localAddress: "127.0.0.2" });
        client.write("GET / HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 203.0.113.7\r\n\r\n", () => client.destroy());
        const { code, message } = await told;
        assert.deepEqual([code, limiter.keys], ["invalid_argument", 0]);
        assert.match(message, /^the client has hung up/);
      });
    }
  });

  test(`${framework}: on a Unix socket the client is this host`, async () => {
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
