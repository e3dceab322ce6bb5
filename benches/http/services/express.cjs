// An Express service with the middleware that the environment selects: VARIANT, STORE.
"use strict";

const express = require("express");

const { DAY, FIELDS, QUOTA, VARIANT, polylimit, rateLimitOptions, redisClient } = require("./polylimit.cjs");

const app = express();

if (VARIANT === "fields") {
  app.use((_, response, next) => {
    for (const [name, value] of FIELDS) response.setHeader(name, value);
    next();
  });
} else if (VARIANT === "polylimit") {
  app.use(polylimit("express").rateLimit(rateLimitOptions()));
} else if (VARIANT === "peer") {
  const { rateLimit } = require("express-rate-limit");
  const { RedisStore } = require("rate-limit-redis");
  const client = redisClient();
  const store = client && new RedisStore({ sendCommand: (...command) => client.call(...command) });
  app.use(rateLimit({ windowMs: DAY * 1000, limit: QUOTA, store }));
}

if (VARIANT === "round_trip") {
  const client = redisClient();
  app.get("/", async (_, response) => {
    await client.get("missing");
    response.send("hello");
  });
} else {
  app.get("/", (_, response) => response.send("hello"));
}

const server = app.listen(0, "127.0.0.1", (error) => {
  if (error) throw error;
  // A connection is idle while other services have their turns.
  server.keepAliveTimeout = 600_000;
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
