// The dashboard in a real browser, over real servers and a real Redis.

import assert from "node:assert/strict";
import { test } from "node:test";
import { openBrowser, VIEWS } from "./reader.js";
import { publish, redis, serve, until } from "./servers.js";

const DOCUMENT = 'polylimit = 1\n[policies.api]\nquotas = "5/hour"\n[lists]\ndeny = ["client 203.0.113.0/24"]\n';
const reader = openBrowser();

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
  await page.getByRole("row", { name: /^api\s*5\/hour/ }).waitFor();
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
  await open("blocked");
  await page.getByRole("row", { name: /^user:1 api blocked by hand/ }).waitFor();
  await shot("blocked");
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
    for (const width of [1280, 400]) {
      const other = await reader(server, { viewport: { width, height: 900 }, colorScheme });
      for (const name of VIEWS) {
        await other.open(name);
        await other.loaded();
        await other.shot(`${name}-${colorScheme}-${width}`);
        await other.fits(name);
      }
      await other.end();
    }
  }
  await end();
});

test("a limit that is changed in the page is active in a second process within a second", async () => {
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

test("a second process that starts later appears among the processes, and one that ends leaves them", async () => {
  const { store, server } = await published("--report", "1s");
  const { page, open, loaded, shot, end } = await reader(server);
  await open("processes");
  await loaded();
  const processes = page.getByRole("region", { name: "Processes" });
  await processes.getByRole("row", { name: new RegExp(`, ${server.pid} `) }).waitFor();
  const second = await serve("--store", store.url, "--report", "1s");
  for (let at = 0; at < 8; at += 1) await second.post("/v1/check", { policy: "api", key: "k" });
  // 5 are admitted, whichever process is asked, and 3 are denied.
  const row = processes.getByRole("row", { name: new RegExp(`, ${second.pid} .* answers 1 5 3 0 `) });
  await row.waitFor();
  await shot("two-processes");
  assert.equal(await processes.locator("tbody tr").count(), 2);
  await second.end();
  await row.waitFor({ state: "detached" });
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
  // By their places: a search by role would go over the buttons of every row.
  const list = page.locator("main form button");
  await list.click();
  const rows = page.locator('[aria-label="Keys"] tbody tr');
  await rows.nth(49).waitFor();
  let shown = await rows.count();
  assert.ok(shown < 1_000, `${shown} rows at first`);
  const more = page.locator("main p.quiet button");
  while (await more.count()) {
    const before = shown;
    await more.click();
    shown = await until(async () => {
      const now = await rows.count();
      return now > before && now;
    }, "another page");
  }
  const names = await rows.evaluateAll((all) => all.map((row) => row.querySelector(".key").textContent));
  assert.deepEqual([names.length, new Set(names).size], [10_000, 10_000]);
  await page.locator('main input[placeholder="user:"]').fill("user:7-123");
  await list.click();
  await until(async () => (await rows.count()) === 1, "the list is short again");
  await page.getByRole("row", { name: /^user:7-123 / }).waitFor();
  assert.equal(await rows.count(), 1);
  await end();
});
