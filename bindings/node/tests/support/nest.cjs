// Nest applications in plain JavaScript, whose decorators are applied by hand.
"use strict";

const { versionsOf } = require("./versions.cjs");

/** The newest version. */
const newest = versionsOf("nest").at(-1);

/**
 * A controller with handlers `(request, response) => body`, each `{ method = "Get", path, handle, decorators = [] }`, where
 * `method` is the name of Nest's decorator.
 */
async function controllerOf(path, handlers, decorators = [], version = newest) {
  const nest = await version.import("@nestjs/common");
  const type = class {};
  for (const [name, { method = "Get", path = name, handle, decorators = [] }] of Object.entries(handlers)) {
    type.prototype[name] = (req, res) => handle(req, res);
    nest.Req()(type.prototype, name, 0);
    nest.Res({ passthrough: true })(type.prototype, name, 1);
    const descriptor = Object.getOwnPropertyDescriptor(type.prototype, name);
    for (const decorator of [nest[method](path), ...decorators]) decorator(type.prototype, name, descriptor);
  }
  for (const decorator of [nest.Controller(path), ...decorators]) decorator(type);
  return type;
}

/** An application, not yet initialized, on Express or Fastify. */
async function nestApplication(platform, controllers, providers = [], version = newest) {
  const { Module } = await version.import("@nestjs/common");
  const { NestFactory } = await version.import("@nestjs/core");
  const { ExpressAdapter } = await version.import("@nestjs/platform-express");
  const { FastifyAdapter } = await version.import("@nestjs/platform-fastify");
  const Application = class {};
  Module({ controllers, providers })(Application);
  const adapter = platform === "express" ? new ExpressAdapter() : new FastifyAdapter();
  return NestFactory.create(Application, adapter, { logger: false, abortOnError: false });
}

module.exports = { controllerOf, nestApplication };
