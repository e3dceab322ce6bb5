// Services that admit two POST requests of a client in an hour, with CORS, in the frameworks of Node.
"use strict";

const { once } = require("node:events");
const http = require("node:http");
const { createRequire } = require("node:module");
const { join } = require("node:path");

/** Loads a package as the tests of the Node binding do, polylimit among them. */
const load = createRequire(join(__dirname, "../../bindings/node/tests/package.json"));

const { Limiter } = load("polylimit");

/** The settings of the layer for CORS: browsers keep the answer to a preflight for some seconds unless its age is zero. */
const layer = (origin, more) => ({ origin, maxAge: 0, ...more });

/**
 * The applications by framework. Each is a function of the options of the limit and of CORS, and of which of the two comes first;
 * it returns the listener of a server.
 */
const applications = {
  async express(limit, cors, limitFirst) {
    const express = load("express");
    const layers = [load("polylimit/express").rateLimit(limit), load("cors")(cors)];
    const app = express();
    app.use(limitFirst ? layers : layers.reverse());
    app.post("/", (_, response) => response.send("done"));
    return app;
  },
  async fastify(limit, { exposedHeaders, ...cors }, limitFirst) {
    let listener;
    const serverFactory = (handler) => {
      listener = handler;
      return http.createServer(handler);
    };
    const app = load("fastify")({ serverFactory });
    const layers = [
      [load("polylimit/fastify").rateLimit, limit],
      [load("@fastify/cors"), { ...cors, exposedHeaders: exposedHeaders ?? [] }],
    ];
    for (const [plugin, options] of limitFirst ? layers : layers.reverse()) app.register(plugin, options);
    app.post("/", async () => "done");
    await app.ready();
    return listener;
  },
  async hono(limit, { exposedHeaders: exposeHeaders, ...cors }, limitFirst) {
    const app = new (load("hono").Hono)();
    const layers = [load("polylimit/hono").rateLimit(limit), load("hono/cors").cors({ ...cors, exposeHeaders })];
    app.use(...(limitFirst ? layers : layers.reverse()));
    app.post("/", (context) => context.text("done"));
    return load("@hono/node-server").getRequestListener(app.fetch);
  },
};

/** Serves something on an origin of its own: its URL, and a function that ends it. */
async function serve(listener) {
  const server = http.createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  const end = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}`, end };
}

/** A service for pages of an origin, with the number of preflights that it was sent. */
async function serviceOf(framework, origin, { limit = {}, cors = {}, limitFirst }) {
  const options = { limiter: new Limiter("memory:"), policy: "2/hour sliding_log", ...limit };
  const application = await applications[framework](options, layer(origin, cors), limitFirst);
  let preflights = 0;
  const { url, end } = await serve((request, response) => {
    if (request.method === "OPTIONS") preflights += 1;
    application(request, response);
  });
  return { url, end, preflights: () => preflights };
}

module.exports = { frameworks: Object.keys(applications), serve, serviceOf };
