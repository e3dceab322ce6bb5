// Pages of other origins: preflights, and what a browser needs to read a denial.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const cors = require("cors");
const { Limiter } = require("polylimit");
const { rateLimit: onExpress } = require("polylimit/express");
const { rateLimit: onKoa } = require("polylimit/koa");
const { RateLimitGuard } = require("polylimit/nest");

const { controllerOf, nestApplication } = require("./support/nest.cjs");
const { request } = require("./support/request.cjs");
const { serving } = require("./support/serving.cjs");
const { versionsOf } = require("./support/versions.cjs");

const ORIGIN = "https://app.example";
const HOUR = "3/hour fixed_window";

function optionsOf(more = {}) {
  return { limiter: new Limiter("memory:"), policy: HOUR, key: () => "k", ...more };
}

/** Sends what a browser sends for a POST of a page of another origin, a number of times; returns the answers to the POSTs. */
async function posts(port, count, origin = ORIGIN) {
  const answers = [];
  for (let at = 0; at < count; at++) {
    await request(port, "/", { method: "OPTIONS", headers: { origin, "access-control-request-method": "POST" } });
    answers.push(await request(port, "/", { method: "POST", headers: { origin } }));
  }
  return answers;
}

const statuses = (answers) => answers.map(({ status }) => status);
const EXPOSED = /(^|, )retry-after(,|$)/i;

for (const { name, load } of versionsOf("express")) {
  const express = load("express");
  const appOf = (...middlewares) => {
    const app = express();
    for (const middleware of middlewares) app.use(middleware);
    app.post("/", (_, res) => res.send("in"));
    return app;
  };

  test(`${name}: preflights are free before and after cors, and the denial can be read`, async () => {
    const limit = () => onExpress(optionsOf({ corsOrigins: [ORIGIN] }));
    for (const app of [appOf(limit(), cors()), appOf(cors(), limit()), appOf(limit())]) {
      const answers = await serving(app, (port) => posts(port, 5));
      assert.deepEqual(statuses(answers), [200, 200, 200, 429, 429]);
      const { headers } = answers[3];
      assert.ok([ORIGIN, "*"].includes(headers["access-control-allow-origin"]));
    }
    const { headers } = (await serving(appOf(limit(), cors()), (port) => posts(port, 4)))[3];
    assert.equal(headers["access-control-allow-origin"], ORIGIN);
    assert.match(headers["access-control-expose-headers"], EXPOSED);
    assert.match(headers["access-control-expose-headers"], /ratelimit/i);
    assert.equal(headers.vary, "origin, accept");
  });

  test(`${name}: only pages of the origins of the options may read a denial`, async () => {
    const fieldsFor = async (corsOrigins, origin) => {
      const app = appOf(onExpress(optionsOf({ corsOrigins, policy: "0/hour" })));
      const { headers } = (await serving(app, (port) => posts(port, 1, origin)))[0];
      return [headers["access-control-allow-origin"], headers.vary];
    };
    assert.deepEqual(await fieldsFor([ORIGIN], "https://evil.example"), [undefined, "accept"]);
    assert.deepEqual(await fieldsFor(undefined, ORIGIN), [undefined, "accept"]);
    assert.equal((await fieldsFor("*", "https://any.example"))[0], "*");
    assert.equal(
      (await fieldsFor([ORIGIN, "http://localhost:3000"], "http://localhost:3000"))[0],
      "http://localhost:3000",
    );
  });

  test(`${name}: an own denial has the fields, too`, async () => {
    const onDenied = (_denial, _req, res) => res.end("own");
    const app = appOf(onExpress(optionsOf({ corsOrigins: ORIGIN, policy: "0/hour", onDenied })));
    const [{ text, headers }] = await serving(app, (port) => posts(port, 1));
    assert.deepEqual([text, headers["access-control-allow-origin"]], ["own", ORIGIN]);
  });

  test(`${name}: preflights count where an option asks for it, and on a route`, async () => {
    for (const more of [{ countPreflights: true }, { methods: ["options", "post"] }]) {
      const answers = await serving(appOf(onExpress(optionsOf(more))), (port) => posts(port, 3));
      assert.deepEqual(statuses(answers), [200, 429, 429]);
    }
    const app = express();
    let runs = 0;
    app.options("/", onExpress(optionsOf()), (_, res) => res.send(`${++runs}`));
    await serving(app, (port) => posts(port, 5));
    assert.equal(runs, 3);
    // OPTIONS without a requested method, or without an origin, is no preflight.
    const other = appOf(onExpress(optionsOf()));
    await serving(other, async (port) => {
      const found = [];
      for (const headers of [{ origin: ORIGIN }, { "access-control-request-method": "POST" }, {}, {}]) {
        found.push((await request(port, "/", { method: "OPTIONS", headers })).status);
      }
      assert.deepEqual(found, [200, 200, 200, 429]);
    });
  });
}

for (const { name, load } of versionsOf("koa")) {
  test(`${name}: preflights are free, and the denial can be read`, async () => {
    const app = new (load("koa"))();
    app.use(onKoa(optionsOf({ corsOrigins: [ORIGIN] }))).use((context) => {
      context.body = "in";
    });
    const answers = await serving(app.callback(), (port) => posts(port, 4));
    assert.deepEqual(statuses(answers), [200, 200, 200, 429]);
    assert.equal(answers[3].headers["access-control-allow-origin"], ORIGIN);
    assert.match(answers[3].headers["access-control-expose-headers"], EXPOSED);
    assert.equal(answers[3].headers.vary, "origin, accept");
  });
}

for (const platform of ["express", "fastify"]) {
  test(`nest on ${platform}: preflights do not reach a guard, and the denial can be read`, async () => {
    const controller = await controllerOf("", { in: { method: "Post", path: "", handle: () => "in" } });
    const app = await nestApplication(platform, [controller]);
    app.useGlobalGuards(new RateLimitGuard(optionsOf({ corsOrigins: [ORIGIN] })));
    await app.listen(0, "127.0.0.1");
    try {
      const answers = await posts(app.getHttpServer().address().port, 4);
      assert.deepEqual(statuses(answers), [201, 201, 201, 429]);
      assert.equal(answers[3].headers["access-control-allow-origin"], ORIGIN);
      assert.match(answers[3].headers["access-control-expose-headers"], EXPOSED);
    } finally {
      await app.close();
    }
  });
}
