// Express 4 and 5 with polylimit in every place that it can have.
"use strict";

const { once } = require("node:events");

const { counter, HANDLERS, limited, load, ruled, say, separate, waitForDriver } = require("../../backend/node.cjs");

const { rateLimit } = load("polylimit/express");
const methodOverride = load("method-override");
const versions = load("./support/versions.cjs").versionsOf("express");
const { load: loadOf, version } = versions.at({ oldest: 0, newest: -1 }[process.argv[2]]);
const express = loadOf("express");

const pass = (_req, _res, next) => next();

/** The handlers; `of` returns the middleware of a route by the name of its handler. */
function addHandlers(app, of = () => pass, users = express.Router()) {
  const run = counter();
  const handler = (name) => (req, res) => {
    res.set("x-runs", run(name, req.get("x-client")));
    res.send(name);
  };
  app.post("/login", of("login"), handler("login"));
  app.get("/report", of("report"), handler("report"));
  users.get("/users/:id", of("user"), handler("user"));
  app.use("/v1", users);
}

async function listen(site, handlers, app) {
  // Express does not log errors in this mode.
  app.set("env", "test");
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  say("listening", site, server.address().port, handlers);
}

/** A site with middlewares before all routes. */
async function withMiddleware(site, ...middlewares) {
  const app = express();
  for (const middleware of middlewares) app.use(middleware);
  addHandlers(app);
  await listen(site, HANDLERS, app);
}

async function separateHandlers() {
  const options = separate();
  const text = (_, res) => res.send("");
  const limit = rateLimit(options);
  const routes = express.Router().get("/:id", limit, text);
  const used = express.Router().use(limit).get("/:id", text);
  const mounted = express().get("/:id", limit, text);
  const app = express();
  for (const [name, router] of Object.entries({ route: routes, use: used, app: mounted })) {
    app.use(`/${name}-a`, router);
    app.use(`/${name}-b`, router);
    app.use(`/${name}-c`, express.Router().use("/deep", router));
  }
  for (const path of ["/path-a", "/path-b"]) app.use(path, rateLimit(options), text);
  app.get("/methods", limit, text);
  app.post("/methods", limit, text);
  const names = [
    "route-a",
    "route-b",
    "route-c/deep",
    "use-a",
    "use-b",
    "use-c/deep",
    "app-a",
    "app-b",
    "path-a",
    "path-b",
  ];
  await listen("separate", [...names.map((name) => `GET:/${name}/1`), "GET:/methods", "POST:/methods"].join(","), app);
}

async function main() {
  await withMiddleware("global", rateLimit(limited()));
  await withMiddleware("methods", rateLimit({ ...limited(), methods: ["get", "post"] }));
  await withMiddleware("path_rules", rateLimit(ruled("path")));
  const override = methodOverride((req) => req.get("x-http-method-override") ?? req.get("x-http-method"), {
    methods: null,
  });
  await withMiddleware("override", override, methodOverride("_method", { methods: null }), rateLimit(ruled("path")));

  const strict = express();
  strict.enable("case sensitive routing").enable("strict routing");
  strict.use(rateLimit(ruled("path")));
  addHandlers(strict, undefined, express.Router({ caseSensitive: true, strict: true }));
  await listen("path_rules_strict", HANDLERS, strict);

  const routes = express();
  const limit = rateLimit(limited());
  addHandlers(routes, () => limit);
  await listen("route", HANDLERS, routes);

  const ruledRoutes = express();
  const rules = rateLimit(ruled("route"));
  addHandlers(ruledRoutes, () => rules);
  await listen("route_rules", HANDLERS, ruledRoutes);

  const router = express();
  addHandlers(router, undefined, express.Router().use(rateLimit(limited())));
  await listen("router", "user", router);

  const mounts = express();
  for (const path of ["/login", "/report", "/v1"]) mounts.use(path, rateLimit(limited()));
  addHandlers(mounts);
  await listen("use_path", HANDLERS, mounts);

  const outer = express();
  const inner = express();
  inner.use(rateLimit(ruled("path")));
  addHandlers(inner);
  outer.use("/", inner);
  await listen("application", HANDLERS, outer);

  await separateHandlers();
  say("note route on routes; middleware before them does not know it");
  say("note ignores case and a slash at the end, unless its settings say otherwise");
  say("version express", version);
  say("ready");
  waitForDriver();
}

main();
