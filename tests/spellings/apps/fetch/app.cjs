// Functions of Request and Response on Node's server, with polylimit around one of them or around all.
"use strict";

const { once } = require("node:events");

const { counter, HANDLERS, limited, load, ruled, say, separate, waitForDriver } = require("../../backend/node.cjs");

const { rateLimit } = load("polylimit/fetch");
const { serve } = load("@hono/node-server");

/** A function that calls the handler of a request; `of` wraps each handler by its name. */
function application(of = (_, handler) => handler) {
  const run = counter();
  const handler = (name) =>
    of(name, (request) => {
      return new Response(name, { headers: { "x-runs": run(name, request.headers.get("x-client")) } });
    });
  const [login, report, user] = HANDLERS.split(",").map(handler);
  return (request) => {
    const { pathname } = new URL(request.url);
    const isRead = request.method === "GET" || request.method === "HEAD";
    if (request.method === "POST" && pathname === "/login") return login(request);
    if (isRead && pathname === "/report") return report(request);
    if (isRead && /^\/v1\/users\/[^/]+$/.test(pathname)) return user(request);
    return new Response(null, { status: 404 });
  };
}

async function listen(site, handlers, fetch) {
  const server = serve({ fetch, port: 0, hostname: "127.0.0.1" });
  if (!server.listening) await once(server, "listening");
  say("listening", site, server.address().port, handlers);
}

async function main() {
  await listen("global", HANDLERS, rateLimit(application(), limited()));
  await listen("methods", HANDLERS, rateLimit(application(), { ...limited(), methods: ["get", "post"] }));
  await listen("path_rules", HANDLERS, rateLimit(application(), ruled("path")));
  await listen(
    "handler",
    HANDLERS,
    application((_, handler) => rateLimit(handler, limited())),
  );
  const of = (scope) => rateLimit(() => new Response(), { ...separate(), scope });
  const handlers = { "/a": of("a"), "/b": of("b") };
  await listen("separate", "GET:/a,GET:/b", (request) => handlers[new URL(request.url).pathname](request));
  say("note route no: a function has no route");
  say("version fetch", process.versions.node);
  say("ready");
  waitForDriver();
}

main();
