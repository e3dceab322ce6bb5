// What a page of a browser sees of a limited service on another origin. docs/cors.md says the same in words.
"use strict";

const assert = require("node:assert/strict");
const { createRequire } = require("node:module");
const { join } = require("node:path");
const { after, before, test } = require("node:test");

const { frameworks, serve, serviceOf } = require("./services.cjs");

// The browser's driver is that of the site's test.
const { chromium } = createRequire(join(__dirname, "../../tools/site/browser/package.json"))("playwright-core");

let browser;
let site;

before(async () => {
  browser = await chromium.launch({ executablePath: process.env.POLYLIMIT_BROWSER });
  site = await serve((_, response) => response.setHeader("content-type", "text/html").end("<title>a page</title>"));
});
after(async () => {
  await browser?.close();
  site?.end();
});

/** What a script of a page sees of a POST request that needs a preflight: the response, or that there is none for it. */
function post({ url, credentials }) {
  const headers = { "content-type": "application/json" };
  return fetch(url, { method: "POST", headers, body: "{}", credentials }).then(
    (response) => {
      const fields = ["retry-after", "ratelimit", "ratelimit-policy"].map((name) => response.headers.get(name));
      return { status: response.status, fields };
    },
    ({ name }) => ({ failed: name }),
  );
}

/** Three requests to a service of which it admits two, and how many preflights there were. */
async function visit(framework, options, credentials = "same-origin") {
  const service = await serviceOf(framework, site.url, options);
  const page = await browser.newPage();
  try {
    await page.goto(site.url);
    const seen = [];
    for (let at = 0; at < 3; at++) seen.push(await page.evaluate(post, { url: service.url, credentials }));
    return { seen, denial: seen[2], preflights: service.preflights() };
  } finally {
    await page.close();
    service.end();
  }
}

const FAILED = { failed: "TypeError" };
const EXPOSED = { exposedHeaders: ["retry-after", "ratelimit", "ratelimit-policy"] };

function isReadable({ status, fields }) {
  assert.equal(status, 429);
  const [retryAfter, ratelimit, policy] = fields;
  assert.match(retryAfter, /^\d{1,4}$/);
  assert.match(ratelimit, /;r=0;t=\d+$/);
  assert.match(policy, /;q=2;w=3600$/);
}

for (const framework of frameworks) {
  test(`${framework}: with CORS in front of the limit a page reads the denial, and the fields that CORS exposes`, async () => {
    const { seen, denial, preflights } = await visit(framework, { cors: EXPOSED });
    assert.deepEqual(
      seen.map(({ status }) => status),
      [200, 200, 429],
    );
    isReadable(denial);
    assert.equal(preflights, 3);
    const plain = await visit(framework, {});
    assert.deepEqual(plain.denial, { status: 429, fields: [null, null, null] });
  });

  test(`${framework}: with the limit in front of CORS a page cannot read the denial`, async () => {
    const { seen, denial, preflights } = await visit(framework, { limitFirst: true, cors: EXPOSED });
    // Both admitted requests are the page's own: none of the three preflights is counted.
    assert.deepEqual(
      seen.slice(0, 2).map(({ status }) => status),
      [200, 200],
    );
    assert.equal(preflights, 3);
    assert.deepEqual(denial, FAILED);
  });

  test(`${framework}: with the limit in front of CORS, corsOrigins makes the denial readable`, async () => {
    for (const corsOrigins of [[site.url], "*"]) {
      const { denial } = await visit(framework, { limitFirst: true, limit: { corsOrigins } });
      isReadable(denial);
    }
    const { denial } = await visit(framework, { limitFirst: true, limit: { corsOrigins: ["https://app.example"] } });
    assert.deepEqual(denial, FAILED);
  });

  test(`${framework}: a request with credentials can be read by a page of a listed origin`, async () => {
    const cors = { credentials: true };
    const options = (corsOrigins) => ({ limitFirst: true, cors, limit: { corsOrigins } });
    const { seen, denial } = await visit(framework, options(site.url), "include");
    assert.deepEqual(
      seen.slice(0, 2).map(({ status }) => status),
      [200, 200],
    );
    isReadable(denial);
    assert.deepEqual((await visit(framework, options("*"), "include")).denial, FAILED);
  });

  test(`${framework}: preflights that count are denied, and the page's request is not sent`, async () => {
    const { seen } = await visit(framework, { limitFirst: true, limit: { countPreflights: true } });
    assert.deepEqual(seen, [{ status: 200, fields: seen[0].fields }, FAILED, FAILED]);
  });
}
