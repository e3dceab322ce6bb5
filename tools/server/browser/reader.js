// A reader of the dashboard: a page of a real browser.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before } from "node:test";
import { endAll, until } from "./servers.js";

// The browser's driver is that of the site's test.
const { chromium } = createRequire(join(import.meta.dirname, "..", "..", "site", "browser", "package.json"))("playwright-core");

export const VIEWS = ["policies", "blocked", "keys", "lists", "store", "processes", "document"];

/** Starts the browser before the tests of a file, and ends it and every server after them; gives a function that makes readers. */
export function openBrowser() {
  let browser;
  before(async () => {
    browser = await chromium.launch({ executablePath: process.env.POLYLIMIT_BROWSER });
  });
  after(async () => {
    await browser?.close();
    await endAll();
  });
  return (server, options) => reader(browser, server, options);
}

/** A reader of a server's dashboard. What a script complains about, or what the policy of contents blocks, fails the test. */
async function reader(browser, server, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(60_000);
  const complaints = [];
  context.on("weberror", (error) => complaints.push(error.error().message));
  context.on("console", (message) => {
    // A refusal, which the page tells in words, is in the console as well.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) complaints.push(message.text());
  });
  context.on("dialog", (dialog) => complaints.push(dialog.message()));
  const page = await context.newPage();
  await page.goto(server.admin);
  const end = async () => {
    assert.deepEqual(complaints, []);
    await context.close();
  };
  const shot = async (name) => {
    const place = process.env.POLYLIMIT_SCREENSHOTS;
    if (place) await page.screenshot({ path: join(place, `${name}.png`), fullPage: true });
  };
  /** The view before stands in the page until the browser tells of the new address. */
  const open = async (name) => {
    const link = page.locator(`nav a[href="#${name}"]`);
    await link.click();
    await page.getByRole("heading", { level: 1, name: await link.textContent(), exact: true }).waitFor();
  };
  /** Waits until a view has everything that it asks the server for. */
  const loaded = async () => {
    await page.locator("main h1").waitFor();
    await until(async () => (await page.getByText(/^(Loading|Waiting for)/).count()) === 0, "the view is loaded");
  };
  /** A page that is wider than its screen has to be moved sideways to be read. */
  const fits = async (name) => {
    const [width, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(width <= screen, `${name} is ${width} px wide on a screen of ${screen} px`);
    // However long a text is, its row leaves the others on the screen.
    const heights = await page.locator("main tbody tr").evaluateAll((rows) => rows.map((row) => row.clientHeight));
    assert.ok(heights.every((height) => height < 200), `${name} has rows of ${heights} px`);
  };
  const signIn = async (token) => {
    await page.getByLabel("token").fill(token);
    await page.getByRole("button", { name: "Sign in" }).click();
  };
  return { page, open, loaded, fits, shot, signIn, end };
}
