// A Fastify service with the plugin that the environment selects: VARIANT, STORE.
"use strict";

const fastify = require("fastify");

const { DAY, FIELDS, QUOTA, VARIANT, polylimit, rateLimitOptions, redisClient } = require("./polylimit.cjs");

async function main() {
  // A connection is idle while other services have their turns.
  const app = fastify({ keepAliveTimeout: 600_000 });

  if (VARIANT === "fields") {
    app.addHook("onRequest", (_, reply, done) => {
      for (const [name, value] of FIELDS) reply.header(name, value);
      done();
    });
  } else if (VARIANT === "polylimit") {
    await app.register(polylimit("fastify").rateLimit, rateLimitOptions());
  } else if (VARIANT === "peer") {
    await app.register(require("@fastify/rate-limit"), { max: QUOTA, timeWindow: DAY * 1000, redis: redisClient() });
  }

  if (VARIANT === "round_trip") {
    const client = redisClient();
    app.get("/", async () => {
      await client.get("missing");
      return "hello";
    });
  } else {
    app.get("/", async () => "hello");
  }
  console.log(`listening on ${await app.listen({ port: 0, host: "127.0.0.1" })}`);
}

main();
