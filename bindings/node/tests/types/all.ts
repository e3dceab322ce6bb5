// Compiled, and never run: every entry of the package.

export * as limits from "polylimit";
export * as express from "polylimit/express";
export * as store from "polylimit/express-rate-limit";
export * as fastify from "polylimit/fastify";
export * as fetch from "polylimit/fetch";
export * as client from "polylimit/fetch-client";
export * as hono from "polylimit/hono";
export * as koa from "polylimit/koa";
export * as nest from "polylimit/nest";
export * as opentelemetry from "polylimit/opentelemetry";
export * as prometheus from "polylimit/prometheus";
