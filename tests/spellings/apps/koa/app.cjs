// Koa 2 and 3 with @koa/router, and with polylimit in every place that it can have.
"use strict";

const { once } = require("node:events");

const { counter, HANDLERS, limited, load, ruled, say, separate, waitForDriver } = require("../../backend/node.cjs");

const { rateLimit } = load("polylimit/koa");
const mount = load("koa-mount");
const versions = load("./support/versions.cjs").versionsOf("koa");
const { load: loadOf, version } = versions.at({ oldest: 0, newest: -1 }[process.argv[2]]);
const Koa = loadOf("koa");
const loaded = loadOf("@koa/router");
const Router = loaded.Router ?? loaded;

const pass = (_, next) => next();

/** Has a router use a middleware as the page of Koa says. */
function useForAll(router, middleware) {
  if (process.argv[2] === "oldest") router.use(middleware);
  else router.use("{/*rest}", middleware);
}

/** The handlers; `of` returns the middleware of a route by the name of its handler. */
function addHandlers(app, { of = () => pass, before, settings = {} } = {}) {
  const run = counter();
  const handler = (name) => (context) => {
    context.set("x-runs", run(name, context.get("x-client")));
    context.body = name;
  };
  const router = new Router(settings);
  router.post("/login", of("login"), handler("login"));
  router.get("/report", of("report"), handler("report"));
  const users = new Router(settings);
  if (before !== undefined) useForAll(users, before);
  users.get("/users/:id", of("user"), handler("user"));
  router.use("/v1", users.routes());
  app.use(router.routes());
}

async function listen(site, handlers, app) {
  app.silent = true;
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  say("listening", site, server.address().port, handlers);
}

/** A site with a middleware before all routes. */
async function withMiddleware(site, middleware, settings) {
  const app = new Koa();
  app.use(middleware);
  addHandlers(app, { settings });
  await listen(site, HANDLERS, app);
}

async function separateHandlers() {
  const options = separate();
  const limit = rateLimit(options);
  const text = (context) => {
    context.body = "";
  };
  const app = new Koa();
  for (const name of ["a", "b"]) {
    const outer = new Router();
    outer.use(`/route-${name}`, new Router().get("/:id", limit, text).routes());
    app.use(outer.routes());
    const used = new Router({ prefix: `/use-${name}` });
    useForAll(used, limit);
    used.get("/:id", text);
    app.use(used.routes());
    app.use(mount(`/mount-${name}`, rateLimit(options)));
    app.use(mount(`/mount-${name}`, text));
    app.use(mount(`/mounted-${name}`, new Router().get("/:id", limit, text).routes()));
  }
  const methods = new Router().get("/methods", limit, text).post("/methods", limit, text);
  app.use(methods.routes());
  const names = ["route", "use", "mount", "mounted"].flatMap((name) => [`${name}-a`, `${name}-b`]);
  await listen("separate", [...names.map((name) => `GET:/${name}/1`), "GET:/methods", "POST:/methods"].join(","), app);
}

async function main() {
  await withMiddleware("global", rateLimit(limited()));
  await withMiddleware("methods", rateLimit({ ...limited(), methods: ["get", "post"] }));
  await withMiddleware("path_rules", rateLimit(ruled("path")));
  await withMiddleware("path_rules_strict", rateLimit(ruled("path")), { sensitive: true, strict: true });

  for (const [site, options] of [
    ["route", limited()],
    ["route_rules", ruled("route")],
    ["route_path_rules", ruled("path")],
  ]) {
    const app = new Koa();
    const limit = rateLimit(options);
    addHandlers(app, { of: () => limit });
    await listen(site, HANDLERS, app);
  }

  const router = new Koa();
  addHandlers(router, { before: rateLimit(limited()) });
  await listen("router", "user", router);

  const mounts = new Koa();
  const inner = new Koa();
  inner.use(rateLimit(ruled("path")));
  addHandlers(inner);
  mounts.use(mount("/", inner));
  await listen("mounted", HANDLERS, mounts);

  await separateHandlers();
  say("note route in a router; middleware before it does not know it");
  say("note ignores case and a slash at the end, unless the router's settings say otherwise");
  say("version koa", version);
  say("ready");
  waitForDriver();
}

main();
