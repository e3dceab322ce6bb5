// Express during an outage of Redis, and with decisions that are made without asking Redis.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const http = require("node:http");
const { test } = require("node:test");

const { Limiter } = require("polylimit");
const { rateLimit } = require("polylimit/express");

const { withRedis } = require("./support/redis.cjs");
const { request, requests, statuses } = require("./support/request.cjs");
const { until } = require("./support/until.cjs");
const { versionsOf } = require("./support/versions.cjs");

/** Serves an application while `body` runs. */
async function serving(app, body) {
  const server = http.createServer(app).listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    return await body(server.address().port);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

for (const { name: version, load } of versionsOf("express")) {
  const express = load("express");

  test(`${version}: requests are decided while Redis is stopped, and by Redis again after its restart`, async () => {
    await withRedis(async (server) => {
      const policies = {
        api: { quotas: "1000/day", outage: "fallback" },
        strict: { quotas: "1000/day", outage: "deny" },
      };
      const limiter = new Limiter(server.url, { policies, deadline: "5s", reconnectMax: 20 });
      const app = express();
      const never = () => assert.fail("nothing is over its limit");
      const heard = [];
      const onOutage = ({ error, outcomes: [{ policy, decision }] }) => {
        heard.push([error, policy, decision.source, typeof decision.degraded]);
      };
      const onDenied = ({ status, problem, rateLimit: { source, degraded } }, _, response) =>
        response.json({ status, title: problem.title, source, reason: typeof degraded });
      app.get("/api", rateLimit({ limiter, policy: "api", onDenied: never }), (req, response) =>
        response.send(req.rateLimit.source),
      );
      app.get("/strict", rateLimit({ limiter, policy: "strict" }), (req, response) =>
        response.send(req.rateLimit.source),
      );
      app.get("/told", rateLimit({ limiter, policy: "strict", onDenied, onOutage }), (_, response) =>
        response.send("told"),
      );
      await serving(app, async (port) => {
        await limiter.ready(10_000);
        assert.equal((await request(port, "/api")).text, "store");
        assert.equal((await request(port, "/strict")).text, "store");
        assert.equal((await request(port, "/told")).text, "told");
        await server.kill();
        const local = await until(async () => {
          const answer = await request(port, "/api");
          return answer.text === "fallback" && answer;
        }, "this process decides");
        assert.equal(local.status, 200);
        const strict = await request(port, "/strict");
        assert.equal(strict.status, 503);
        assert.equal(
          JSON.parse(strict.text).type,
          "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        );
        assert.ok(Number(strict.headers["retry-after"]) >= 1);
        const told = await request(port, "/told");
        assert.deepEqual(
          [told.status, JSON.parse(told.text)],
          [503, { status: 503, title: JSON.parse(strict.text).title, source: "deny", reason: "string" }],
        );
        assert.deepEqual(heard, [[undefined, "strict", "deny", "string"]]);
        await server.begin();
        await until(async () => (await request(port, "/strict")).text === "store", "Redis decides again");
        assert.deepEqual(statuses(await requests(port, 50, "/strict")), { 200: 50 });
      });
      limiter.close();
    });
  });

  test(`${version}: a cached denial and a lease decide without calling onOutage`, async () => {
    await withRedis(async ({ url }) => {
      const policies = { one: "1/day", busy: { quotas: "1000/day", lease: "100" } };
      const limiter = new Limiter(url, { policies, deadline: "10s", denialCacheMax: "1h" });
      const app = express();
      const onOutage = () => assert.fail("the store was asked");
      const onDenied = ({ rateLimit: { source } }, _, response) => response.send(source);
      for (const policy of Object.keys(policies)) {
        app.get(`/${policy}`, rateLimit({ limiter, policy, onDenied, onOutage }), (req, response) =>
          response.send(req.rateLimit.source),
        );
      }
      await serving(app, async (port) => {
        const asked = async (path) => {
          const { status, text } = await request(port, path);
          return `${status} ${text}`;
        };
        assert.equal(await asked("/one"), "200 store");
        assert.equal(await asked("/one"), "429 store");
        await until(async () => (await asked("/one")) === "429 denial_cache", "it is known to be denied");
        await until(async () => (await asked("/busy")) === "200 lease", "units are leased");
      });
      limiter.close();
    });
  });
}
