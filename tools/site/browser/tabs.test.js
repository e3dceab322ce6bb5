// The built site in a real browser: tabs show one language on all pages, and no page is wider than a telephone.

import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const site = join(import.meta.dirname, "..", "..", "..", "target", "site");
const address = (page) => pathToFileURL(join(site, page)).href;
let browser;

before(async () => {
  browser = await chromium.launch({ executablePath: process.env.POLYLIMIT_BROWSER });
});
after(() => browser.close());

/** A new reader, whose browser remembers nothing. An error of a script fails the test. */
async function reader(options) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(60_000);
  context.on("weberror", (error) => {
    throw error.error();
  });
  return context;
}

/** The names of the tabs whose contents are visible. */
async function shown(page) {
  const visible = [];
  for (const button of await page.locator(".tabs > input").all()) {
    const content = button.locator("xpath=following-sibling::div[1]");
    if (await content.isVisible()) visible.push(await button.getAttribute("value"));
  }
  return visible;
}

/** Pages with all that a page has: tabs, code, tables, drawings and a picture of a terminal. */
const LOOKED_AT = [
  "index",
  "docs/start",
  "docs/concepts",
  "docs/recipes/login",
  "docs/packages",
  "docs/comparison",
  "docs/operating",
];

/** For a person to look at, in the folder of $POLYLIMIT_SCREENSHOTS; without it, none are made. */
const place = process.env.POLYLIMIT_SCREENSHOTS;
const picture = place ? test : () => {};
picture("pictures of pages at the widths of a desk and a telephone", async () => {
  for (const [width, height] of [
    [1280, 900],
    [360, 740],
  ]) {
    const context = await reader({ viewport: { width, height } });
    const page = await context.newPage();
    for (const name of LOOKED_AT) {
      await page.goto(address(`${name}.html`));
      await page.screenshot({ path: join(place, `site-${name.replaceAll("/", "-")}-${width}.png`), fullPage: true });
    }
    await context.close();
  }
});

test("a click shows the tab of a language, and the next page shows the same language", async () => {
  const context = await reader();
  const page = await context.newPage();
  await page.goto(address("docs/start.html"));
  assert.deepEqual(await shown(page), ["Python"]);
  await page.getByText("Node", { exact: true }).and(page.locator("label")).click();
  assert.deepEqual(await shown(page), ["Node"]);
  assert.ok(await page.getByText('require("polylimit/express")').first().isVisible());
  await page.goto(address("docs/recipes/login.html"));
  assert.deepEqual(await shown(page), ["Node"]);
  await context.close();
});

test("without scripts the tabs work, too", async () => {
  const context = await reader({ javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(address("docs/start.html"));
  assert.deepEqual(await shown(page), ["Python"]);
  await page.getByText("Rust", { exact: true }).and(page.locator("label")).click();
  assert.deepEqual(await shown(page), ["Rust"]);
  await context.close();
});

test("the arrow keys choose a tab and do not turn the page", async () => {
  const context = await reader();
  const page = await context.newPage();
  await page.goto(address("docs/start.html"));
  await page.locator(".tabs > input").first().focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  assert.deepEqual(await shown(page), ["Go"]);
  assert.equal(page.url(), address("docs/start.html"));
  await context.close();
});

test("no page is wider than a telephone", async () => {
  const context = await reader({ viewport: { width: 360, height: 640 } });
  const page = await context.newPage();
  const files = (await readdir(site, { recursive: true })).filter(
    (file) => file.endsWith(".html") && file !== "toc.html",
  );
  assert.ok(files.length > 50, `only ${files.length} pages`);
  const wide = [];
  for (const file of files) {
    await page.goto(address(file));
    // Code and tables scroll by themselves; what is wider than the page's text besides would hide behind its edge.
    const [width, room] = await page.evaluate(() => {
      const text = document.querySelector("main");
      return [text.scrollWidth, text.clientWidth];
    });
    assert.ok(room > 300 && room <= 360, `${file} has ${room} px for its text`);
    if (width > room) wide.push(`${file}: ${width} px of ${room}`);
  }
  assert.deepEqual(wide, []);
  await context.close();
});
