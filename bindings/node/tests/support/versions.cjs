// The versions of the frameworks that the tests run with: the oldest and the newest of each major version. `matrix` sets
// POLYLIMIT_FRAMEWORK to a framework and a folder with the packages of a version in between (express=/tmp/x), which then is the
// only one.
"use strict";

const { createRequire } = require("node:module");
const { join } = require("node:path");

const node_modules = join(__dirname, "..", "..", "node_modules");
const ownFolder = (name) => join(__dirname, "..", "..", "versions", name);

const VERSIONS = {
  express: [
    { express: "express4-oldest" },
    { express: "express4" },
    { folder: ownFolder("express5-oldest") },
    { express: "express" },
  ],
  koa: [
    { koa: "koa2-oldest", "@koa/router": "koa-router8" },
    { koa: "koa2", "@koa/router": "koa-router8" },
    { koa: "koa3-oldest", "@koa/router": "@koa/router" },
    { koa: "koa", "@koa/router": "@koa/router" },
  ],
  fastify: [
    { fastify: "fastify4-oldest" },
    { fastify: "fastify4" },
    { fastify: "fastify5-oldest" },
    { fastify: "fastify" },
  ],
  hono: [{ hono: "hono4-oldest" }, { hono: "hono" }],
  nest: [{ folder: ownFolder("nest10") }, { folder: ownFolder("nest11") }, {}],
};

/**
 * The versions of a framework: its name with the version, where it is, and what loads its packages.
 *
 * @param {"express" | "fastify" | "hono" | "koa" | "nest"} framework
 */
function versionsOf(framework) {
  const [only, folder] = process.env.POLYLIMIT_FRAMEWORK?.split("=") ?? [];
  const versions = framework === only ? [{ folder }] : VERSIONS[framework];
  return versions.map(({ folder, ...aliases }) => {
    const loader = createRequire(join(folder ?? join(__dirname, "..", ".."), "package.json"));
    const aliased = (name) => aliases[name] ?? name;
    const main = framework === "nest" ? "@nestjs/core" : framework;
    const { version } = require(
      join(folder ? join(folder, "node_modules") : node_modules, aliased(main), "package.json"),
    );
    return {
      name: `${framework} ${version}`,
      version,
      major: Number(version.split(".")[0]),
      path: loader.resolve(aliased(main)),
      load: (name) => loader(aliased(name)),
      import: (name) => import(loader.resolve(aliased(name))),
    };
  });
}

module.exports = { versionsOf };
