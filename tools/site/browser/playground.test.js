// The playground in a real browser, served over HTTP as a site is: documents with and without mistakes, traffic, charts, themes.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const site = join(import.meta.dirname, "..", "..", "..", "target", "site");
const TYPES = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
  ".wasm": "application/wasm",
  ".svg": "image/svg+xml",
};
let browser;
let server;
let origin;

before(async () => {
  server = createServer(async (request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url, "http://site").pathname));
    try {
      const contents = await readFile(join(site, path));
      response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream" }).end(contents);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${server.address().port}`;
  browser = await chromium.launch({ executablePath: process.env.POLYLIMIT_BROWSER });
});
after(async () => {
  await browser.close();
  server.close();
});

/** The page with the playground at work, for a reader of its own. An error of a script and a request to another host fail the test. */
async function playground(options) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(180_000);
  context.on("weberror", (error) => {
    throw error.error();
  });
  const elsewhere = [];
  context.on("request", (request) => {
    if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(origin)) elsewhere.push(request.url());
  });
  const page = await context.newPage();
  await page.goto(`${origin}/docs/playground.html`);
  await page.locator("#playground-app canvas").first().waitFor();
  assert.deepEqual(elsewhere, []);
  assert.equal(await page.locator("main h1").textContent(), "Playground");
  assert.equal(await page.getByText("The playground needs scripts.").count(), 0);
  return { page, close: () => context.close() };
}

/** The numbers of the summary: all requests, and those admitted and denied. */
async function counts(page) {
  const text = await page.locator(".playground-summary[aria-live]").textContent();
  const [, all, admitted, denied] = /^([\d,]+) requests: ([\d,]+) admitted.*?, ([\d,]+) denied/.exec(text);
  return [all, admitted, denied].map((number) => Number(number.replaceAll(",", "")));
}

/** Runs the example with this name. */
async function choose(page, name) {
  await page.getByLabel("example").selectOption({ label: name });
}

/** Waits until a function of the page's counts holds. */
async function until(page, holds) {
  const end = Date.now() + 30_000;
  for (;;) {
    const seen = await counts(page);
    if (holds(...seen)) return seen;
    assert.ok(Date.now() < end, `the counts are ${seen}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const editor = (page) => page.getByLabel("Policy document, in TOML or JSON");
const stale = (page) => page.locator(".playground-stale").count();

test("bursts get what a bucket holds, and other quotas get others", async () => {
  const { page, close } = await playground();
  await choose(page, "A token bucket under bursts");
  // Bursts of 60, seven seconds apart: the bucket has 40 tokens again each time.
  const [all, admitted, denied] = await until(page, (all) => all % 60 === 0);
  assert.ok(all >= 480 && all <= 540, `${all} requests`);
  assert.equal(admitted * 60, all * 40);
  assert.equal(admitted + denied, all);
  const document = await editor(page).inputValue();
  await editor(page).fill(document.replace("burst=40", "burst=25"));
  await until(page, (all, admitted) => admitted * 60 === all * 25);
  await page.getByLabel("requests at once").fill("20");
  await until(page, (all, admitted, denied) => all === admitted && denied === 0);
  await close();
});

test("rules see the attributes of requests: plans have quotas of their own", async () => {
  const { page, close } = await playground();
  await choose(page, "Plans");
  await page.locator("#playground-app td", { hasText: "paying" }).first().waitFor();
  const [[admitted, denied], [, ofPaying]] = await page.evaluate(() =>
    [...document.querySelector("#playground-app table").tBodies[0].rows].map(({ cells }) => [
      Number(cells[1].textContent),
      Number(cells[2].textContent),
    ]),
  );
  // 30 a minute for five minutes, and what fixed windows admit at their edges; 90 a minute are asked for.
  assert.ok(admitted >= 150 && admitted <= 180, `${admitted} admitted`);
  assert.ok(denied > 200, `${denied} denied`);
  assert.equal(ofPaying, 0);
  await close();
});

test("a mistake is shown with its line and column, and its place is selected", async () => {
  const { page, close } = await playground();
  await choose(page, "A token bucket under bursts");
  const right = await editor(page).inputValue();
  await editor(page).fill(right.replace("10/second", "10/secund"));
  const place = page.locator("#playground-problem button");
  await place.waitFor();
  assert.match(await place.textContent(), /^line 4, column \d+$/);
  assert.match(await page.locator("#playground-problem").textContent(), /secund/);
  assert.equal(await page.locator(".playground-lines .is-wrong").textContent(), "4");
  assert.equal(await stale(page), 1);
  await place.click();
  const line = await page.evaluate(() => {
    const { value, selectionStart } = document.activeElement;
    return value.slice(0, selectionStart).split("\n").length;
  });
  assert.equal(line, 4);
  await editor(page).fill(right);
  await page.locator("#playground-problem").waitFor({ state: "hidden" });
  assert.equal(await stale(page), 0);
  await close();
});

test("traffic without requests is reported, too", async () => {
  const { page, close } = await playground();
  await page.getByLabel("rate of each").first().fill("often");
  await page.getByText(/traffic, group 1: .*often/).waitFor();
  await close();
});

/** How many pixels of the first chart have each of these colours, as in "rgb(1, 2, 3)". */
const pixels = (page) =>
  page.evaluate(() => {
    const canvas = document.querySelector("#playground-app canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const probe = document.createElement("span");
    document.querySelector("#playground-app").append(probe);
    const found = ["--admitted", "--denied"].map((name) => {
      probe.style.color = `var(${name})`;
      const wanted = getComputedStyle(probe).color.match(/\d+/g).map(Number);
      let number = 0;
      for (let at = 0; at < data.length; at += 4) {
        if (wanted.every((part, offset) => data[at + offset] === part)) number += 1;
      }
      return number;
    });
    probe.remove();
    return found;
  });

test("the chart shows what is admitted and denied, in the colours of each theme", async () => {
  for (const colorScheme of ["light", "dark"]) {
    const { page, close } = await playground({ colorScheme });
    await choose(page, "A token bucket under bursts");
    await until(page, (all) => all % 60 === 0);
    const [admitted, denied] = await pixels(page);
    assert.ok(admitted > 500 && denied > 250, `${colorScheme}: ${admitted} and ${denied} pixels`);
    assert.ok(admitted > denied, `${colorScheme}: ${admitted} and ${denied} pixels`);
    await close();
  }
});

test("on a telephone nothing is wider than the page", async () => {
  const { page, close } = await playground({ viewport: { width: 360, height: 740 } });
  const [width, room] = await page.evaluate(() => {
    const text = document.querySelector("main");
    return [text.scrollWidth, text.clientWidth];
  });
  assert.ok(width <= room, `${width} px of ${room}`);
  await close();
});

test("a site on a disk says what is missing", async () => {
  const page = await browser.newPage();
  await page.goto(pathToFileURL(join(site, "docs", "playground.html")).href);
  await page.getByText("Browsers load modules over HTTP only.").waitFor();
  await page.close();
});

/** For a person to look at, in the folder of $POLYLIMIT_SCREENSHOTS; without it, none are made. */
const place = process.env.POLYLIMIT_SCREENSHOTS;
const picture = place ? test : () => {};
picture("pictures: light, dark, narrow, and a mistake", async () => {
  for (const [name, options] of [
    ["light", { viewport: { width: 1280, height: 900 } }],
    ["dark", { viewport: { width: 1280, height: 900 }, colorScheme: "dark" }],
    ["narrow", { viewport: { width: 360, height: 740 } }],
    ["narrow-dark", { viewport: { width: 360, height: 740 }, colorScheme: "dark" }],
  ]) {
    const { page, close } = await playground(options);
    await page.screenshot({ path: join(place, `playground-${name}.png`), fullPage: true });
    const document = await editor(page).inputValue();
    await editor(page).fill(document.replace("sliding_log", "sliding_lag"));
    await page.locator("#playground-problem button").waitFor();
    await page.screenshot({ path: join(place, `playground-${name}-mistake.png`), fullPage: false });
    await close();
  }
});
