// NestJS on Express and on Fastify, with the guard in every place that it can have.
"use strict";

const { counter, HANDLERS, limited, load, ruled, say, separate, waitForDriver } = require("../../backend/node.cjs");

const { RateLimit, RateLimitGuard } = load("polylimit/nest");
const { controllerOf, nestApplication } = load("./support/nest.cjs");
const versions = load("./support/versions.cjs").versionsOf("nest");
const version = versions.at({ oldest: 0, newest: -1 }[process.argv[2]]);

/** A controller for each prefix; `of` returns the decorators of a handler by its name. */
async function controllers(of = () => [], decorators = []) {
  const { HttpCode } = await version.import("@nestjs/common");
  const run = counter();
  const handler = (name, more) => ({
    handle: (request, response) => {
      response.header("x-runs", run(name, request.headers["x-client"]));
      return name;
    },
    decorators: [HttpCode(200), ...of(name)],
    ...more,
  });
  const top = { login: handler("login", { method: "Post" }), report: handler("report") };
  const users = { user: handler("user", { path: "users/:id" }) };
  return [await controllerOf("", top, [], version), await controllerOf("v1", users, decorators, version)];
}

async function listen(site, handlers, app) {
  await app.listen(0, "127.0.0.1");
  say("listening", site, app.getHttpServer().address().port, handlers);
}

async function sitesOn(platform) {
  const { UseGuards, Version, VersioningType } = await version.import("@nestjs/common");
  const serve = async (site, handlers, types, guard) => {
    const app = await nestApplication(platform, types, [], version);
    if (guard !== undefined) app.useGlobalGuards(guard);
    await listen(`${site}_on_${platform}`, handlers, app);
  };
  const global = (site, options) =>
    controllers().then((types) => serve(site, HANDLERS, types, new RateLimitGuard(options)));

  await global("global", limited());
  await global("methods", { ...limited(), methods: ["get", "post"] });
  await global("path_rules", ruled("path"));
  await global("route_rules", ruled("route"));

  const handlerGuard = UseGuards(new RateLimitGuard(limited()));
  await serve("handler_guard", HANDLERS, await controllers(() => [handlerGuard]));
  const controllerGuard = UseGuards(new RateLimitGuard(limited()));
  await serve("controller_guard", "user", await controllers(undefined, [controllerGuard]));
  const { limiter, ...own } = limited();
  const lax = new RateLimitGuard({ limiter, policy: () => undefined });
  await serve("decorator", HANDLERS, await controllers(() => [RateLimit(own)]), lax);

  const guards = [UseGuards(new RateLimitGuard(separate()))];
  const handle = () => "";
  const one = { one: { path: ":id", handle }, both: { path: ["x/list", "x/other"], handle } };
  const byVersion = ["1", "2"].map((name) => [`v${name}`, { path: "cats", handle, decorators: [Version(name)] }]);
  const types = [
    await controllerOf("a", one, guards, version),
    await controllerOf("b", one, guards, version),
    await controllerOf("", Object.fromEntries(byVersion), guards, version),
  ];
  const app = await nestApplication(platform, types, [], version);
  app.enableVersioning({ type: VersioningType.HEADER, header: "x-version" });
  const names = ["GET:/a/1", "GET:/b/1", "GET:/a/x/list", "GET:/cats@x-version=1", "GET:/cats@x-version=2"];
  // The driver knows one site of this name.
  if (platform === "express") await listen("separate", names.join(","), app);
  else await listen("separate_on_fastify", names.join(","), app);
}

async function main() {
  await sitesOn("express");
  await sitesOn("fastify");
  say("note route yes, in every guard");
  say("note ignores as Express or Fastify");
  say("version nest", version.version);
  say("ready");
  waitForDriver();
}

main();
