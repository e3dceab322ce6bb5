// Hono 4 on Node's server, with polylimit in every place that it can have.
"use strict";

const { once } = require("node:events");

const { counter, HANDLERS, limited, load, ruled, say, separate, waitForDriver } = require("../../backend/node.cjs");

const { rateLimit } = load("polylimit/hono");
const { serve } = load("@hono/node-server");
const name = { oldest: "hono4-oldest", newest: "hono" }[process.argv[2]];
const { Hono } = load(name);
const about = load(`../node_modules/${name}/package.json`);

const pass = (_, next) => next();

/** The handlers; `of` returns the middleware of a route by the name of its handler. */
function addHandlers(app, of = () => pass, users = new Hono()) {
  const run = counter();
  const handler = (name) => (context) => {
    context.header("x-runs", run(name, context.req.header("x-client")));
    return context.text(name);
  };
  app.post("/login", of("login"), handler("login"));
  app.get("/report", of("report"), handler("report"));
  users.get("/users/:id", of("user"), handler("user"));
  app.route("/v1", users);
}

async function listen(site, handlers, { fetch }) {
  const server = serve({ fetch, port: 0, hostname: "127.0.0.1" });
  if (!server.listening) await once(server, "listening");
  say("listening", site, server.address().port, handlers);
}

/** A site with middlewares before all routes. */
async function withMiddleware(site, middlewares, settings) {
  const app = new Hono(settings);
  for (const middleware of [middlewares].flat()) app.use(middleware);
  addHandlers(app);
  await listen(site, HANDLERS, app);
}

async function separateHandlers() {
  const options = separate();
  const text = (context) => context.text("");
  const limit = rateLimit(options);
  const users = new Hono();
  users.get("/:id", limit, text);
  const limitedUsers = new Hono();
  limitedUsers.use(limit);
  limitedUsers.get("/:id", text);
  const app = new Hono();
  for (const path of ["/route-a", "/route-b"]) app.route(path, users);
  for (const path of ["/use-a", "/use-b"]) app.route(path, limitedUsers);
  for (const path of ["/path-a", "/path-b"]) {
    app.use(`${path}/*`, rateLimit(options));
    app.get(`${path}/:id`, text);
  }
  app.get("/methods", limit, text);
  app.post("/methods", limit, text);
  const paths = ["route-a", "route-b", "use-a", "use-b", "path-a", "path-b"].map((path) => `GET:/${path}/1`);
  await listen("separate", [...paths, "GET:/methods", "POST:/methods"].join(","), app);
}

async function main() {
  await withMiddleware("global", rateLimit(limited()));
  await withMiddleware("methods", rateLimit({ ...limited(), methods: ["get", "post"] }));
  await withMiddleware("path_rules", rateLimit(ruled("path")));
  await withMiddleware("path_rules_loose", rateLimit(ruled("path")), { strict: false });
  await withMiddleware("route_rules", rateLimit(ruled("route")));
  if ("./method-override" in about.exports) {
    const { methodOverride } = load(`${name}/method-override`);
    const app = new Hono();
    app.use(methodOverride({ app, header: "X-HTTP-Method-Override" }));
    app.use(rateLimit(ruled("path")));
    addHandlers(app);
    await listen("override", HANDLERS, app);
  }
  const routes = new Hono();
  addHandlers(routes, () => rateLimit(limited()));
  await listen("route", HANDLERS, routes);
  const users = new Hono();
  users.use(rateLimit(limited()));
  const router = new Hono();
  addHandlers(router, undefined, users);
  await listen("router", "user", router);
  const paths = new Hono();
  for (const path of ["/login", "/report", "/v1/*"]) paths.use(path, rateLimit(limited()));
  addHandlers(paths);
  await listen("use_path", HANDLERS, paths);
  await separateHandlers();
  say("note route yes, in every position");
  say("note ignores", "a slash at the end by its settings");
  say("version hono", about.version);
  say("ready");
  waitForDriver();
}

main();
