// What the services in JavaScript have in common: the variant that the environment selects, and the builds of polylimit.
"use strict";

const { join } = require("node:path");

const { VARIANT, STORE, POLYLIMIT_NODE } = process.env;
const QUOTA = 1_000_000_000;
const DAY = 86_400;

/** The fields that the middleware of constant fields sets. */
const FIELDS = [
  ["ratelimit-policy", `"all";q=${QUOTA};w=${DAY}`],
  ["ratelimit", `"all";r=${QUOTA - 1};t=${DAY}`],
];

/** A module of polylimit: index, express or fastify. */
function polylimit(name) {
  return require(join(POLYLIMIT_NODE, "dist", `${name}.js`));
}

/** The options of polylimit's middlewares. */
function rateLimitOptions() {
  const { Limiter } = polylimit("index");
  return { limiter: new Limiter(STORE, { policies: { all: `${QUOTA}/day` } }) };
}

/** A client of the Redis server; `undefined` if the store is in memory. */
function redisClient() {
  if (!STORE.startsWith("redis:")) return undefined;
  const { Redis } = require("ioredis");
  return new Redis(STORE);
}

module.exports = { DAY, FIELDS, QUOTA, VARIANT, polylimit, rateLimitOptions, redisClient };
