// Fastify 4 and 5 with polylimit as a plugin, as options of routes, and as a hook.
"use strict";

const { counter, HANDLERS, limited, load, ruled, say, separate, waitForDriver } = require("../../backend/node.cjs");

const { rateLimit, rateLimitHook } = load("polylimit/fastify");
const fastify = load({ oldest: "fastify4-oldest", newest: "fastify" }[process.argv[2]]);

/** The handlers; `of` returns the options of a route by the name of its handler. */
function addHandlers(app, of = () => ({}), withUsers = (_) => {}) {
  const run = counter();
  const handler = (name) => async (request, reply) => {
    reply.header("x-runs", run(name, request.headers["x-client"]));
    return name;
  };
  app.post("/login", of("login"), handler("login"));
  app.get("/report", of("report"), handler("report"));
  const users = async (context) => {
    withUsers(context);
    context.get("/users/:id", of("user"), handler("user"));
  };
  app.register(users, { prefix: "/v1" });
}

async function listen(site, handlers, app) {
  // The driver sends forms, which Fastify refuses without a parser.
  if (!app.hasContentTypeParser("*"))
    app.addContentTypeParser("*", (_request, payload, done) => {
      payload.resume().on("end", () => done(null));
    });
  await app.listen({ port: 0, host: "127.0.0.1" });
  say("listening", site, app.server.address().port, handlers);
}

/** A site whose plugin limits every request. */
async function withPlugin(site, options, settings) {
  const app = fastify(settings);
  app.register(rateLimit, options);
  addHandlers(app);
  await listen(site, HANDLERS, app);
}

/** A site with a limit at each handler; the plugin itself limits nothing. */
async function onRoutes(site, of) {
  const app = fastify();
  app.register(rateLimit, { ...limited(), policy: () => undefined });
  addHandlers(app, of);
  await listen(site, HANDLERS, app);
}

async function separateHandlers() {
  const app = fastify();
  const options = separate();
  const hook = { onRequest: rateLimitHook(options) };
  const byId = (routes) => async (context) => void context.get("/:id", routes, async () => "");
  app.register(byId(hook), { prefix: "/hook-a" });
  app.register(byId(hook), { prefix: "/hook-b" });
  for (const version of ["1.0.0", "2.0.0"]) app.get("/version", { constraints: { version }, ...hook }, async () => "");
  app.register(async (own) => {
    own.register(rateLimit, options);
    const route = { config: { rateLimit: { policy: options.policy } } };
    own.register(byId(route), { prefix: "/option-a" });
    own.register(byId(route), { prefix: "/option-b" });
  });
  const limitedContext = async (own) => {
    own.register(rateLimit, options);
    own.register(byId({}));
  };
  app.register(limitedContext, { prefix: "/plugin-a" });
  app.register(limitedContext, { prefix: "/plugin-b" });
  app.post("/hook", hook, async () => "");
  app.get("/hook", hook, async () => "");
  const paths = ["hook-a", "hook-b", "option-a", "option-b", "plugin-a", "plugin-b"].map((name) => `GET:/${name}/1`);
  const versions = ["1.0.0", "2.0.0"].map((version) => `GET:/version@accept-version=${version}`);
  await listen("separate", [...paths, ...versions, "GET:/hook", "POST:/hook"].join(","), app);
}

async function main() {
  await withPlugin("global", limited());
  await withPlugin("methods", { ...limited(), methods: ["get", "post"] });
  await withPlugin("path_rules", ruled("path"));
  await withPlugin("route_rules", ruled("route"));
  const loose = { caseSensitive: false, ignoreTrailingSlash: true, ignoreDuplicateSlashes: true };
  await withPlugin("path_rules_loose", ruled("path"), { ...loose, useSemicolonDelimiter: true });
  await withPlugin("route_rules_loose", ruled("route"), { ...loose, useSemicolonDelimiter: true });
  const { policy, ...rest } = limited();
  await onRoutes("route_option", () => ({ config: { rateLimit: { policy, key: rest.key } } }));
  const hook = rateLimitHook(limited());
  await onRoutes("route", () => ({ onRequest: hook }));
  await onRoutes("route_pre_handler", () => ({ preHandler: hook }));
  const app = fastify();
  addHandlers(app, undefined, (context) => context.register(rateLimit, limited()));
  await listen("router", "user", app);
  await separateHandlers();
  say("note route yes, in every hook");
  say("note ignores", "case, slashes and `;` by its settings");
  say("version fastify", app.version);
  say("ready");
  waitForDriver();
}

main();
