// The dashboard in a real browser, over real servers and a real Redis.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { endAll, publish, redis, serve, tokens, until } from "./servers.js";

// The browser's driver is that of the site's test.
const { chromium } = createRequire(join(import.meta.dirname, "..", "..", "site", "browser", "package.json"))("playwright-core");

const DOCUMENT = 'polylimit = 1\n[policies.api]\nquotas = "5/hour"\n[lists]\ndeny = ["client 203.0.113.0/24"]\n';
const VIEWS = ["policies", "keys", "lists", "store", "processes", "document"];
let browser;

before(async () => {
  browser = await chromium.launch({ executablePath: process.env.POLYLIMIT_BROWSER });
});
after(async () => {
  await browser?.close();
  await endAll();
});

/** A reader of a server's dashboard. What a script complains about, or what the policy of contents blocks, fails the test. */
async function reader(server, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 }, ...options });
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
  const open = (name) => page.locator(`nav a[href="#${name}"]`).click();
  return { page, open, shot, end };
}

/** A server with a published document, and the Redis. */
async function published(...options) {
  const store = await redis();
  const server = await serve("--store", store.url, ...options);
  await publish(server, DOCUMENT, 0);
  return { store, server };
}

test("every view shows what there is, on wide and narrow screens, by the keyboard, too", async () => {
  const { server } = await published();
  for (let at = 0; at < 400; at += 1) await server.post("/v1/check", { policy: "api", key: `user:${at % 4}` });
  await server.post("/v1/take", { policy: "api", key: "user:9", cost: 2 });
  const { page, open, shot, end } = await reader(server);
  await page.getByRole("row", { name: /^api 5\/hour/ }).waitFor();
  await page.locator(".uplot canvas").waitFor();
  await page.getByRole("button", { name: "api" }).click();
  await page.getByText("api: decisions a second").waitFor();
  await shot("policies");

  await open("keys");
  await page.getByRole("heading", { name: "Denied most often" }).waitFor();
  await page.getByLabel("key begins with").fill("user:9");
  await page.getByRole("button", { name: "List" }).click();
  const found = page.getByRole("region", { name: "Keys" }).getByRole("row", { name: /^user:9 api 40 %/ });
  await found.getByRole("button", { name: "Explain" }).click();
  await page.getByText("would be admitted now").waitFor();
  await found.getByRole("button", { name: "Reset" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Reset" }).click();
  await page.getByText("No such key has anything used.").waitFor();
  await page.getByLabel("key begins with").fill("user:1");
  await page.getByRole("button", { name: "List" }).click();
  await page.getByRole("row", { name: /^user:1 api 100 %/ }).getByRole("button", { name: "Block" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Block" }).click();
  await page.getByText("The key is blocked.").waitFor();
  await shot("keys");

  await open("lists");
  await page.getByRole("row", { name: /client 203.0.113.0\/24/ }).getByText("in the document").waitFor();
  await page.getByLabel(/^item/).fill("key api mallory");
  await page.getByLabel("why").fill("scans");
  await page.getByRole("button", { name: "Add" }).click();
  const added = page.getByRole("row", { name: /key api mallory.*scans/ });
  await added.waitFor();
  assert.equal((await server.post("/v1/check", { policy: "api", key: "mallory" })).cause, "deny_list");
  await shot("lists");
  await added.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("dialog").getByLabel("why").fill("over");
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await added.waitFor({ state: "detached" });
  await page.getByRole("row", { name: /^user:1 api/ }).getByRole("button", { name: "Unblock" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Unblock" }).click();
  await page.getByText("No key is blocked.").waitFor();

  await open("store");
  await page.getByText("answers", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Examine" }).click();
  await page.getByRole("region", { name: "Findings" }).or(page.getByText("Fine: the store answers")).waitFor();
  await shot("store");

  await open("processes");
  await page.getByRole("region", { name: "Processes" }).getByRole("row", { name: new RegExp(`, ${server.pid} `) }).waitFor();
  await page.getByRole("heading", { name: "Denied most often" }).waitFor();
  await shot("processes");

  // From the link of the view before, by the keyboard alone.
  await page.locator('nav a[href="#processes"]').focus();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "History" }).waitFor();
  await page.getByText("document 1", { exact: true }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), "view");
  await shot("document");

  for (const colorScheme of ["light", "dark"]) {
    const narrow = await reader(server, { viewport: { width: 400, height: 800 }, colorScheme });
    for (const name of VIEWS) {
      await narrow.open(name);
      await narrow.page.locator("main h1").waitFor();
      await until(async () => (await narrow.page.getByText("Loading …").count()) === 0, `${name} is loaded`);
      await narrow.shot(`narrow-${colorScheme}-${name}`);
      const width = await narrow.page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(width <= 400, `${name} is ${width} px wide`);
    }
    await narrow.end();
  }
  await end();
});

test("a limit that is changed in the page is in force in a second process within a second", async () => {
  const { store, server } = await published();
  const second = await serve("--store", store.url);
  const limit = async () => (await second.post("/v1/peek", { policy: "api", key: "k" })).limit;
  await until(async () => (await limit()) === 5, "the second process follows");
  const { page, open, shot, end } = await reader(server);
  await open("document");
  const text = page.getByRole("textbox", { name: "The document of limits" });
  await text.fill((await text.inputValue()).replace("5/hour", "often"));
  await page.getByRole("button", { name: "Check and compare" }).click();
  await page.getByRole("alert").filter({ hasText: "often" }).waitFor();
  await text.fill((await text.inputValue()).replace("often", "9/hour"));
  await page.getByRole("button", { name: "Check and compare" }).click();
  await page.locator("pre .added").filter({ hasText: "9/hour" }).waitFor();
  await shot("difference");
  await page.getByLabel("why, for the log").fill("more for all");
  const since = Date.now();
  await page.getByRole("button", { name: "Publish" }).click();
  await until(async () => (await limit()) === 9, "the second process has the new limit");
  const took = Date.now() - since;
  assert.ok(took < 1_000, `${took} ms`);
  await page.getByRole("row", { name: /document 2 more for all/ }).waitFor();

  // Another operator publishes meanwhile: nothing is lost.
  await publish(server, DOCUMENT.replace("5/", "7/"), 2);
  await text.fill((await text.inputValue()).replace("9/hour", "11/hour"));
  await page.getByLabel("why, for the log").fill("even more");
  await page.getByRole("button", { name: "Publish" }).click();
  await page.getByText("Another document was published meanwhile").waitFor();
  assert.ok((await text.inputValue()).includes("11/hour"));
  await page.getByRole("button", { name: "load it" }).click();
  await page.getByRole("row", { name: /document 1 / }).getByRole("button", { name: "Roll back" }).click();
  await page.getByRole("dialog").getByLabel("why").fill("as before");
  await page.getByRole("dialog").getByRole("button", { name: "Roll back" }).click();
  await until(async () => (await limit()) === 5, "the second process has the first limit again");
  await end();
});

test("a key that is markup stays text", async () => {
  const server = await serve("--show-keys", "plain");
  const key = "<script>alert(1)</script><img src=x onerror=alert(2)>";
  for (let at = 0; at < 100; at += 1) await server.post("/v1/check", { policy: "3/hour", key });
  const { page, open, end } = await reader(server);
  await open("keys");
  await page.getByRole("button", { name: "List" }).click();
  const shown = page.getByRole("region", { name: "Keys" }).getByText(key, { exact: true });
  await shown.waitFor();
  await page.getByRole("button", { name: "Explain" }).first().click();
  await page.getByText("would be denied now").waitFor();
  assert.equal(await page.locator("main script, main img").count(), 0);
  await end();
  const hidden = await serve("--show-keys", "hash");
  await hidden.post("/v1/take", { policy: "3/hour", key: "alice" });
  const other = await reader(hidden);
  await other.open("keys");
  await other.page.getByRole("button", { name: "List" }).click();
  await other.page.getByText("#2bd806c97f0e00af").waitFor();
  await other.end();
});

test("the token says what may be done, and stays in its tab", async () => {
  const server = await serve("--tokens", await tokens());
  const { page, open, shot, end } = await reader(server);
  const sign = async (token) => {
    await page.getByLabel("token").fill(token);
    await page.getByRole("button", { name: "Sign in" }).click();
  };
  await sign("wrong");
  await page.getByText("The token is missing or not known").waitFor();
  await shot("sign-in");
  await sign("check");
  await page.getByText("This token may ask for decisions, and no more").waitFor();
  await sign("read");
  await page.getByText("a-read, read").waitFor();
  await open("keys");
  await page.getByText("Your token has the role read").waitFor();
  await page.reload();
  await page.getByText("a-read, read").waitFor();
  const kept = await page.evaluate(() => [location.href, document.cookie, localStorage.length, sessionStorage.token]);
  assert.deepEqual(kept, [`${server.admin}/#keys`, "", 0, "read"]);
  await page.getByRole("button", { name: "Forget token" }).click();
  await sign("admin");
  await page.getByText("a-admin, admin").waitFor();
  await open("lists");
  await page.getByText("this limiter has no configuration").first().waitFor();
  await shot("no-document");
  await end();
});

test("a store that does not answer is told, and does not end the page", async () => {
  const { store, server } = await published();
  const { page, open, shot, end } = await reader(server);
  await page.getByRole("row", { name: /^api/ }).waitFor();
  await store.end();
  // A limiter notices that its store is away when it asks.
  await until(async () => {
    await server.post("/v1/check", { policy: "api", key: "k" });
    return page.getByText("The store does not answer: the outage policies decide.").isVisible();
  }, "the page tells the outage");
  await shot("outage");
  await open("lists");
  await page.locator("main .refusal").first().waitFor();
  await open("document");
  await page.locator("main .refusal").first().waitFor();
  await shot("outage-document");
  await open("policies");
  await page.getByRole("row", { name: /^api/ }).waitFor();
  await end();
});

test("ten thousand keys come page by page", async () => {
  const server = await serve();
  for (let thousand = 0; thousand < 10; thousand += 1) {
    const requests = Array.from({ length: 1_000 }, (_, at) => ({ policy: "9/hour", key: `user:${thousand}-${at}` }));
    await server.post("/v1/take", { requests });
  }
  const { page, open, end } = await reader(server);
  await open("keys");
  await page.getByRole("button", { name: "List" }).click();
  const rows = page.getByRole("region", { name: "Keys" }).getByRole("row");
  await rows.nth(50).waitFor();
  const first = await rows.count();
  assert.ok(first < 5_000, `${first} rows`);
  await page.getByRole("button", { name: "More" }).click();
  await rows.nth(first + 10).waitFor();
  await page.getByLabel("key begins with").fill("user:7-123");
  await page.getByRole("button", { name: "List" }).click();
  await page.getByRole("row", { name: /^user:7-123 / }).waitFor();
  assert.equal(await rows.count(), 2);
  await end();
});
