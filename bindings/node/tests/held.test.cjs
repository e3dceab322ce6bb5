// Requests that hold a reservation until their response is done: web sockets, clients that leave, and what a response has spent.
// The rules that all frameworks share are in guard.test.cjs.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const http = require("node:http");
const http2 = require("node:http2");
const net = require("node:net");
const { test } = require("node:test");

const { getRequestListener } = require("@hono/node-server");
const express = require("express");
const fastify = require("fastify");
const { Hono } = require("hono");
const Koa = require("koa");
const { rateLimit: expressRateLimit } = require("polylimit/express");
const { rateLimit: fastifyRateLimit } = require("polylimit/fastify");
const { rateLimit: honoRateLimit } = require("polylimit/hono");
const { rateLimit: koaRateLimit } = require("polylimit/koa");

const { becomes, left, limiterOf } = require("./support/held.cjs");
const { withRedis } = require("./support/redis.cjs");
const { open, request } = require("./support/request.cjs");
const { until } = require("./support/until.cjs");

/** Serves while `body` runs. */
async function serving(server, body) {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    return await body(server.address().port);
  } finally {
    server.closeAllConnections?.();
    server.close();
  }
}

/** For each framework a listener with a limit, whose handler never responds. */
const SILENT = {
  express: (options, arrived) =>
    express()
      .use(expressRateLimit(options))
      .use(() => arrived()),
  fastify: async (options, arrived) => {
    const app = fastify();
    app.register(fastifyRateLimit, options);
    app.get("/", () => {
      arrived();
      return new Promise(() => {});
    });
    await app.ready();
    return (req, res) => app.routing(req, res);
  },
  koa: (options, arrived) => {
    const app = new Koa();
    app.use(koaRateLimit(options));
    app.use(() => {
      arrived();
      return new Promise(() => {});
    });
    return app.callback();
  },
  hono: (options, arrived) => {
    const app = new Hono();
    app.use(honoRateLimit(options));
    app.get("/", () => {
      arrived();
      return new Promise(() => {});
    });
    return getRequestListener(app.fetch);
  },
};

for (const [framework, build] of Object.entries(SILENT)) {
  test(`${framework}: a client that leaves before there is a response has spent the cost`, async () => {
    const limiter = limiterOf();
    const asked = [];
    const options = { limiter, key: () => "k", cost: 10, spent: () => asked.push("spent") };
    let arrived;
    const arrival = new Promise((resolve) => {
      arrived = resolve;
    });
    await serving(http.createServer(await build(options, arrived)), async (port) => {
      const client = net.connect(port, "127.0.0.1");
      client.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
      await arrival;
      assert.equal(await left(limiter), "90 units, 1 slots");
      client.destroy();
      await becomes(limiter, "90 units, 2 slots");
      assert.deepEqual(asked, []);
    });
    limiter.close();
  });
}

/** For each framework a server that upgrades connections behind a limit, as libraries for web sockets do. */
const UPGRADING = {
  express: (options) => {
    const app = express();
    app.use(expressRateLimit(options));
    app.use((req, res) => {
      res.detachSocket(req.socket);
      accept(req.socket);
    });
    const server = http.createServer(app);
    return server.on("upgrade", (req, socket) => {
      const response = new http.ServerResponse(req);
      // As in README.md: without its socket, the response to a denied handshake would not be sent.
      response.assignSocket(socket);
      app(req, response);
    });
  },
  koa: (options) => {
    const app = new Koa();
    app.use(koaRateLimit(options));
    app.use((context) => {
      context.respond = false;
      accept(context.req.socket);
    });
    const server = http.createServer();
    return server.on("upgrade", (req) => app.callback()(req, new http.ServerResponse(req)));
  },
  fastify: async (options) => {
    const app = fastify();
    app.register(fastifyRateLimit, options);
    app.get("/", (req, reply) => {
      reply.hijack();
      accept(req.raw.socket);
    });
    await app.ready();
    const server = http.createServer();
    return server.on("upgrade", (req, socket) => {
      const response = new http.ServerResponse(req);
      response.assignSocket(socket);
      app.routing(req, response);
    });
  },
  hono: (options) => {
    const app = new Hono();
    app.use(honoRateLimit(options));
    app.get("/", (context) => {
      accept(context.env.incoming.socket);
      return new Response();
    });
    const server = http.createServer();
    return server.on("upgrade", (incoming) => app.request("http://host/", {}, { incoming }));
  },
};

function accept(socket) {
  socket.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
  socket.on("data", (data) => socket.write(data));
  // The sockets of a server of HTTP stay open until both sides have ended.
  socket.on("end", () => socket.end());
  socket.on("error", () => {});
}

for (const [framework, build] of Object.entries(UPGRADING)) {
  test(`${framework}: a web socket holds its slot until it is closed, and commits what was spent`, async () => {
    const limiter = limiterOf();
    let messages = 0;
    const server = await build({ limiter, key: () => "k", cost: 10, spent: () => messages });
    await serving(server, async (port) => {
      const client = net.connect(port, "127.0.0.1");
      client.write("GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
      const [head] = await once(client, "data");
      assert.match(String(head), /^HTTP\/1.1 101/);
      for (const text of ["one", "two", "three"]) {
        client.write(text);
        const [echo] = await once(client, "data");
        assert.equal(String(echo), text);
        messages += 1;
        assert.equal(await left(limiter), "90 units, 1 slots");
      }
      client.destroy();
      await becomes(limiter, "97 units, 2 slots");
    });
    limiter.close();
  });
}

test("a stream of HTTP/2 holds its slot until its client resets it", async () => {
  const limiter = limiterOf();
  const app = fastify({ http2: true });
  app.register(fastifyRateLimit, { limiter, key: () => "k", cost: 10, spent: () => 3 });
  app.get("/", (_, reply) => {
    reply.hijack();
    reply.raw.writeHead(200);
    reply.raw.write("first");
  });
  await app.ready();
  await serving(app.server, async (port) => {
    const client = http2.connect(`http://127.0.0.1:${port}`);
    const sent = client.request({ ":path": "/" });
    await once(sent, "data");
    assert.equal(await left(limiter), "90 units, 1 slots");
    sent.close(http2.constants.NGHTTP2_CANCEL);
    await becomes(limiter, "97 units, 2 slots");
    client.destroy();
  });
  await app.close();
  limiter.close();
});

test("a client that left during the decision holds nothing", async () => {
  const limiter = limiterOf();
  const app = express();
  const key = async (req) => {
    if (!req.socket.destroyed) await once(req.socket, "close");
    return "k";
  };
  let handled = 0;
  app.use(expressRateLimit({ limiter, key, cost: 10 }));
  app.use(() => {
    handled += 1;
  });
  await serving(http.createServer(app), async (port) => {
    const client = net.connect(port, "127.0.0.1");
    client.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n", () => client.destroy());
    await until(() => handled === 1, "the request is handled");
    assert.equal(await left(limiter), "90 units, 2 slots");
  });
  limiter.close();
});

test("spent may be a promise; its failure and units that are not allowed commit the cost with a warning", async () => {
  const limiter = limiterOf();
  const warnings = [];
  const onWarning = ({ message }) => warnings.push(message);
  process.on("warning", onWarning);
  const results = {
    "/late": async () => 3,
    "/none": () => null,
    "/fails": () => {
      throw new Error("it throws");
    },
    "/rejects": async () => {
      throw new Error("it rejects");
    },
    "/fraction": () => 1.5,
    "/text": () => "5",
    "/large": () => 1e12 + 1,
  };
  const app = express();
  app.use(expressRateLimit({ limiter, key: () => "k", cost: 10, spent: (req) => results[req.path]() }));
  app.use((_, res) => res.end());
  let units = 100;
  await serving(http.createServer(app), async (port) => {
    for (const path of Object.keys(results)) {
      assert.equal((await request(port, path)).status, 200);
      units -= path === "/late" ? 3 : 10;
      await becomes(limiter, `${units} units, 2 slots`);
    }
  });
  await until(() => warnings.length === 5, "each failure is a warning");
  process.off("warning", onWarning);
  const expected = [
    /^it throws/,
    /^it rejects/,
    /^the result of spent is 1.5: /,
    /^the result of spent is a string: /,
    /1000000000001/,
  ];
  for (const [at, message] of expected.entries()) assert.match(warnings[at], message);
  limiter.close();
});

test("a slow count decides before what was spent is committed", async () => {
  const limiter = limiterOf();
  const count = async (_, res) => {
    await once(res, "close");
    return false;
  };
  const app = express();
  app.use(expressRateLimit({ limiter, key: () => "k", cost: 10, count, spent: () => 7 }));
  app.use((_, res) => res.end("done"));
  await serving(http.createServer(app), async (port) => {
    await request(port);
    await becomes(limiter, "100 units, 2 slots");
  });
  limiter.close();
});

test("requests that come between two limits of a request do not end what it holds", async () => {
  const limiter = limiterOf();
  limiter.setPolicy("all", "1000/day");
  const released = [];
  const app = express();
  const options = { limiter, key: () => "k", policy: "model" };
  app.use(expressRateLimit({ ...options, cost: 10 }));
  app.use(async (req, _, next) => {
    if (req.path === "/slow") await new Promise((resolve) => released.push(resolve));
    next();
  });
  app.use(expressRateLimit({ limiter, key: () => "other", policy: "all" }));
  app.use(expressRateLimit({ ...options, cost: 10, spent: () => 4 }));
  app.use((_, res) => res.end("done"));
  await serving(http.createServer(app), async (port) => {
    const slow = request(port, "/slow");
    await until(() => released.length === 1, "the first limit has decided");
    for (let times = 0; times < 5; times++) await request(port, "/fast");
    // The outer limit has no function of the response, so that its cost is spent.
    await becomes(limiter, "40 units, 1 slots");
    released[0]();
    await slow;
    await becomes(limiter, "40 units, 2 slots");
  });
  assert.equal((await limiter.peek("other", "all")).remaining, 994);
  limiter.close();
});

test("slots and units are held in Redis too", async () => {
  await withRedis(async ({ url }) => {
    const limiter = limiterOf(url, { deadline: "10s", outage: "deny" });
    limiter.setPolicy("wide", "5 concurrent");
    const app = express();
    const options = { limiter, key: () => "k", cost: 10, spent: (_, res) => Number(res.getHeader("x-spent")) };
    app.use(expressRateLimit({ ...options, policy: ["wide", "model"] }));
    app.use((_, res) => {
      res.setHeader("x-spent", "4");
      res.write("first");
    });
    await serving(http.createServer(app), async (port) => {
      const clients = [await open(port), await open(port)];
      assert.equal(await left(limiter), "80 units, 0 slots");
      const denied = await request(port);
      assert.deepEqual([denied.status, JSON.parse(denied.text)["violated-policies"]], [429, ["model:1"]]);
      // What the first policy had reserved for the denied request is cancelled.
      assert.equal((await limiter.peek("k", "wide")).remaining, 3);
      for (const { leave } of clients) leave();
      await becomes(limiter, "92 units, 2 slots");
      await until(async () => (await limiter.peek("k", "wide")).remaining === 5, "all slots are free");
    });
    limiter.close();
  });
});

test("options of reservations are checked when a middleware is created", () => {
  const limiter = limiterOf();
  const refused = (options, message) => {
    const expected = { name: "PolylimitError", code: "invalid_argument", message };
    assert.throws(() => expressRateLimit({ limiter, ...options }), expected);
  };
  refused({ spent: 5 }, 'spent is 5: allowed is a function, or text such as "usage:total"');
  refused({ ttlMs: "5s" }, "ttlMs is a string: allowed is a number of milliseconds");
  refused({ ttlMs: 0.5 }, /ttl/);
  refused({ maxAgeMs: -1 }, /^maxAgeMs is -1/);
  limiter.setPolicy("queue", "5/s leaky_bucket");
  refused({ policy: "queue", spent: () => 1 }, /leaky_bucket/);
  limiter.close();
});

test("a denied handshake of a web socket is answered by 429", async () => {
  const limiter = limiterOf();
  await limiter.charge("k", { cost: 100 });
  const server = await UPGRADING.express({ limiter, key: () => "k" });
  await serving(server, async (port) => {
    const client = net.connect(port, "127.0.0.1");
    client.write("GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
    const [head] = await once(client, "data");
    assert.match(String(head), /^HTTP\/1.1 429 /);
    client.destroy();
  });
  limiter.close();
});
