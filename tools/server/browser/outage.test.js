// The dashboard while Redis is away: in the middle, when the server starts, and when the page is loaded.

import { test } from "node:test";
import assert from "node:assert/strict";
import { openBrowser, VIEWS } from "./reader.js";
import { freePort, publish, redis, redisUrl, serve, until } from "./servers.js";

const DOCUMENT = 'polylimit = 1\n[policies.api]\nquotas = "5/hour"\n';
const OUTAGE = "The store does not answer: the outage policies decide.";
const reader = openBrowser();

/** Every view ends loading, and shows what the server has by itself or says that the store does not answer. */
async function reads({ page, open, loaded, shot, fits }, name) {
  for (const view of VIEWS) {
    await open(view);
    await loaded();
    await shot(`${name}-${view}`);
    await fits(view);
    const text = await page.locator("main").textContent();
    assert.doesNotMatch(text, /NaN|undefined|This page has a mistake/, view);
  }
  for (const view of ["lists", "processes"]) {
    await open(view);
    await page.locator("main").getByRole("alert").first().waitFor();
    assert.match(await page.locator("main").getByRole("alert").first().textContent(), /^The store does not answer now: /);
  }
  await open("store");
  await page.locator("dd.bad", { hasText: /does not answer|cannot be reached/ }).waitFor();
}

/** Decisions until the limiter has noticed the outage, which it does when it asks. */
const noticed = (server, page) =>
  until(async () => {
    await server.post("/v1/check", { policy: "3/hour", key: "k" });
    return page.getByText(OUTAGE).isVisible();
  }, "the page shows the outage");

test("a store that goes away is shown in every view, and the page goes on when it is back", async () => {
  const port = await freePort();
  const store = await redis(port);
  const server = await serve("--store", store.url);
  await publish(server, DOCUMENT, 0);
  const first = await reader(server);
  const { page, open } = first;
  await page.getByRole("row", { name: /^api/ }).waitFor();
  await store.end();
  await noticed(server, page);
  await reads(first, "outage");
  // A page that is loaded now shows the same, and the limits from before.
  const second = await reader(server);
  await second.page.getByText(OUTAGE).waitFor();
  await second.page.getByRole("row", { name: /^api 5\/hour/ }).waitFor();
  await reads(second, "outage-at-load");
  await second.end();

  const again = await redis(port);
  await until(async () => {
    await server.post("/v1/check", { policy: "3/hour", key: "k" });
    return !(await page.getByText(OUTAGE).isVisible());
  }, "the page shows that the store is back");
  await open("processes");
  await page.getByRole("region", { name: "Processes" }).getByRole("row", { name: new RegExp(`, ${server.pid} `) }).waitFor();
  await first.end();
  await again.end();
});

test("a server that starts without its Redis shows a page that names the reason, and the limits once they can be read", async () => {
  const port = await freePort();
  const server = await serve("--store", redisUrl(port));
  const first = await reader(server);
  const { page, open, loaded } = first;
  await page.getByText("No limits are active: their source has not been reached since the start").waitFor();
  await reads(first, "outage-at-start");
  await open("document");
  await loaded();
  await page.locator("main").getByRole("alert").first().waitFor();

  await redis(port);
  // The server looks for its limits by itself.
  await page.getByText("No limits are active: no document is published").waitFor();
  await publish(server, DOCUMENT, 0);
  await open("policies");
  await page.getByRole("row", { name: /^api 5\/hour/ }).waitFor();
  await page.locator("#notice").waitFor({ state: "hidden" });
  await first.end();
});
