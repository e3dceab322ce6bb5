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
    // A refusal, which the page describes in words, is in the console as well.
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
  /** The view before stands in the page until the browser reports the new address. */
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
    // However long a text is, its row leaves others on the screen; where rows are cards, one other.
    const most = screen > 640 ? 200 : 400;
    const heights = await page.locator("main tbody tr").evaluateAll((rows) => rows.map((row) => row.clientHeight));
    assert.ok(heights.every((height) => height < most), `${name} has rows of ${heights} px`);
  };
  /** On a narrow screen each row of a table is a card, so that nothing of it has to be moved sideways. */
  const isNarrow = async (name) => {
    await fits(name);
    const tables = await page.locator("main .scroll").evaluateAll((all) => all.map((table) => [table.ariaLabel, table.scrollWidth - table.clientWidth]));
    for (const [label, hidden] of tables) assert.ok(hidden <= 0, `${name}: ${hidden} px of the table ${label} are hidden`);
  };
  /** The texts whose contrast with what is behind them is too low for people with weak sight (WCAG 2, AA). */
  const faint = () => page.evaluate(faintTexts);
  const signIn = async (token) => {
    await page.getByLabel("token").fill(token);
    await page.getByRole("button", { name: "Sign in" }).click();
  };
  return { page, open, loaded, fits, isNarrow, faint, shot, signIn, end };
}

/** Runs in the page. Controls that cannot be used may be faint. */
function faintTexts() {
  const parts = (colour) => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d");
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (front, back) => [0, 1, 2].map((at) => front[at] * front[3] + back[at] * (1 - front[3]));
  const ground = (element) => {
    if (!element) return [255, 255, 255];
    const own = parts(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, ground(element.parentElement));
  };
  const luminance = (colour) => {
    const [red, green, blue] = colour.slice(0, 3).map((part) => (part <= 10 ? part / 3294.6 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== "");
    if (!hasText || !element.checkVisibility() || element.matches(":disabled, script")) continue;
    const back = ground(element);
    const front = over(parts(getComputedStyle(element).color), back);
    const [dark, bright] = [luminance(front), luminance(back)].toSorted((one, other) => one - other);
    const contrast = (bright + 0.05) / (dark + 0.05);
    if (contrast < 4.5) found.push(`${contrast.toFixed(2)}: ${element.textContent.trim().slice(0, 60)}`);
  }
  return found;
}
