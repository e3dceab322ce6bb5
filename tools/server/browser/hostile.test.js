// Texts that callers and other processes choose, in every place of the dashboard that shows them: they stay text.

import assert from "node:assert/strict";
import { test } from "node:test";
import { openBrowser, VIEWS } from "./reader.js";
import { publish, redis, serve } from "./servers.js";

const reader = openBrowser();

const MARKUP = "<script>globalThis.hit=1</script><img src=x onerror=globalThis.hit=2>";
const QUOTES = `"'\`><svg onload=globalThis.hit=3> & &lt; \${globalThis.hit=4}`;
// Right-to-left text, an override of its direction, an emoji of several code points, and a combining character.
const UNICODE = "ключ 密钥 مفتاح \u202egpj.exe 👩‍👩‍👧 e\u0301";
const LONG = `long:${"x".repeat(120)}`;
const KEYS = [MARKUP, QUOTES, UNICODE, LONG];
/** A text as the page shows it: characters that cannot be seen are written out. */
const seen = (text) => text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (hidden) => `\\u{${hidden.codePointAt(0).toString(16)}}`);
const SEEN = KEYS.map(seen).toSorted();
// Of keys as long as this the limiter keeps a digest.
const LONGEST = "z".repeat(4_000);
// What a policy may be called: a token of HTTP, which has quotes and names that every object of JavaScript has.
const POLICIES = ["a'b`c$d&e", "constructor", "__proto__", "p".repeat(64)];
// A client sends such a key in a field; an item of a list has spaces and bytes beyond ASCII as %XX.
const word = (key) => [...new TextEncoder().encode(key)].map((byte) => (byte > 32 && byte < 127 && byte !== 37 ? String.fromCharCode(byte) : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`)).join("");

/** Nothing of a text has become an element, or has run. */
async function isText(page) {
  assert.equal(await page.locator("main script, main img, main svg, main [onerror], main [onload]").count(), 0);
  assert.equal(await page.evaluate(() => globalThis.hit), undefined);
}

/** The texts of a column, of a table's rows. */
const column = (table, at) => table.locator("tbody tr").evaluateAll((rows, at) => rows.map((row) => row.children[at].textContent), at);

test("hostile keys stay text in lists, explanations and the keys that are denied most often", async () => {
  const server = await serve("--show-keys", "plain");
  // One in sixteen denials is counted, at random: with this number, none of a key is as good as impossible.
  for (const key of [...KEYS, LONGEST]) {
    for (let at = 0; at < 2; at += 1) {
      await server.post("/v1/check", { requests: Array.from({ length: 200 }, () => ({ policy: "3/hour", key })) });
    }
  }
  const { page, open, loaded, fits, shot, end } = await reader(server);
  await open("keys");
  await loaded();
  /** The rows are those of every key, and that of the longest has its digest. */
  const showsEveryKey = async (region) => {
    const table = page.getByRole("region", { name: region });
    await table.waitFor();
    const names = await column(table, 0);
    assert.deepEqual(names.filter((name) => !/^#[0-9a-f]{40,64}$/.test(name)).toSorted(), SEEN);
    assert.equal(names.length, KEYS.length + 1);
    return table;
  };
  const denied = await showsEveryKey("denials");
  for (const count of await column(denied, 2)) assert.match(count, /^[0-9]/);
  await page.getByRole("button", { name: "List" }).click();
  const keys = await showsEveryKey("Keys");
  for (const key of KEYS) {
    const row = keys.getByRole("row").filter({ has: page.getByText(seen(key), { exact: true }) });
    await row.getByRole("button", { name: "Explain" }).click();
    const explained = page.locator("#explained .key");
    await explained.filter({ hasText: seen(key).slice(0, 20) }).waitFor();
    assert.ok((await explained.textContent()).endsWith(seen(key)));
    await page.getByText("would be denied now").waitFor();
    await row.getByRole("button", { name: "Block" }).click();
    assert.ok((await page.getByRole("dialog").locator(".key").textContent()).includes(seen(key)));
    await isText(page);
    await page.getByRole("dialog").getByRole("button", { name: "Block" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
  }
  await shot("hostile-keys");
  await fits("keys");
  await open("blocked");
  const blocked = page.getByRole("region", { name: "Blocked keys" });
  await blocked.waitFor();
  assert.deepEqual((await column(blocked, 0)).toSorted(), SEEN);
  await isText(page);
  await end();
});

test("hostile names of policies stay text, and are policies like others", async () => {
  const store = await redis();
  const server = await serve("--store", store.url);
  const tables = POLICIES.map((name) => `[policies.${JSON.stringify(name)}]\nquotas = "5/hour"\n`);
  await publish(server, `polylimit = 1\n${tables.join("")}`, 0);
  const { page, open, loaded, fits, end } = await reader(server);
  const policies = page.getByRole("region", { name: "Policies" });
  await policies.waitFor();
  // Those that decide for the first time while the page is open are in one snapshot and not in the one before.
  for (const policy of POLICIES) await server.post("/v1/check", { policy, key: "k" });
  for (const policy of POLICIES) {
    const row = policies.getByRole("row").filter({ has: page.getByRole("button", { name: policy, exact: true }) });
    await row.getByText("5/hour").waitFor();
    await row.getByRole("cell", { name: "0 %" }).waitFor();
    assert.doesNotMatch(await row.textContent(), /NaN|undefined/);
    await row.getByRole("button").click();
    await page.getByText(`${policy}: decisions a second`).waitFor();
  }
  for (const name of VIEWS) {
    await open(name);
    await loaded();
    await fits(name);
    assert.doesNotMatch(await page.locator("main").textContent(), /NaN|undefined/);
  }
  await end();
});

test("hostile items of lists, reasons and authors stay text in lists and history", async () => {
  const store = await redis();
  const server = await serve("--store", store.url);
  const texts = [MARKUP, QUOTES, UNICODE, "y".repeat(250)];
  await publish(server, 'polylimit = 1\n[policies.api]\nquotas = "5/hour"\n', 0, { why: MARKUP, by: QUOTES });
  const items = [];
  for (const [at, text] of texts.entries()) {
    const item = `key api ${word(KEYS[at])}`;
    items.push(item);
    const told = await fetch(`${server.admin}/v1/lists/add`, {
      method: "POST",
      body: JSON.stringify({ list: "deny", item, why: text, by: texts[(at + 1) % texts.length] }),
    });
    assert.equal(told.status, 200, await told.text());
  }
  for (const viewport of [{ width: 1280, height: 900 }, { width: 400, height: 800 }]) {
    const { page, open, loaded, fits, shot, end } = await reader(server, { viewport });
    await open("lists");
    await loaded();
    const denied = page.getByRole("region", { name: "Denied" });
    assert.deepEqual((await column(denied, 0)).toSorted(), items.toSorted());
    for (const [at, name] of [[2, "by"], [3, "why"]]) {
      const told = (await column(denied, at)).join("\n");
      for (const text of texts) assert.ok(told.includes(seen(text)), `${name}: ${told}`);
    }
    await isText(page);
    await shot(`hostile-lists-${viewport.width}`);
    await fits("lists");
    // Removing one names it again.
    const row = denied.getByRole("row").filter({ hasText: items[0] });
    await row.getByRole("button", { name: "Remove" }).click();
    assert.ok((await page.getByRole("dialog").textContent()).includes(items[0]));
    await isText(page);
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    await open("document");
    await loaded();
    const history = page.getByRole("region", { name: "History" });
    for (const at of [2, 4]) {
      const told = (await column(history, at)).join("\n");
      for (const text of texts) assert.ok(told.includes(seen(text)), told);
    }
    await isText(page);
    await shot(`hostile-document-${viewport.width}`);
    await fits("document");
    await end();
  }
});

test("hostile reports of other processes stay text", async () => {
  const store = await redis();
  const server = await serve("--store", store.url);
  const hex = (text) => Buffer.from(text).toString("hex");
  const at_ms = Date.now();
  const reports = [MARKUP, QUOTES, UNICODE, LONG].map((text, at) => ({
    instance: `000000000000000${at}`,
    host: text,
    pid: 4_000 + at,
    version: text,
    started_at_ms: at_ms,
    at_ms,
    every_ms: 10_000,
    configuration_version: 0,
    configuration_error: text,
    store_up: true,
    policies: [{ policy: text, allowed: 1, denied: 2, outage: 0 }],
    denied: [{ policy: text, key: hex(text), is_digest: false, count: 7 + at }],
  }));
  // What a process of any version, or another program that can write to this Redis, may have written.
  for (const report of [...reports, { instance: "not-a-report", host: 5 }]) {
    await store.command("SET", `polylimit:1:{fleet}:report:${report.instance}`, JSON.stringify(report), "PX", "600000");
    await store.command("ZADD", "polylimit:1:{fleet}:instances", String(at_ms), report.instance);
  }
  for (const viewport of [{ width: 1280, height: 900 }, { width: 400, height: 800 }]) {
    const { page, open, loaded, fits, shot, end } = await reader(server, { viewport });
    await open("processes");
    await loaded();
    const processes = page.getByRole("region", { name: "Processes" });
    const names = await column(processes, 0);
    for (const { host, pid } of reports) assert.ok(names.includes(`${seen(host)}, ${pid}`), names.join("\n"));
    // A text that turns the direction of writing does not turn what stands behind it.
    const turned = processes.getByRole("row", { name: "gpj.exe" }).locator("th > .foreign");
    assert.deepEqual(await turned.evaluate((text) => [text.textContent, getComputedStyle(text).unicodeBidi]), [`${seen(UNICODE)}, 4002`, "isolate"]);
    const denied = page.getByRole("region", { name: "Denied keys" });
    assert.deepEqual((await column(denied, 0)).toSorted(), SEEN);
    assert.deepEqual((await column(denied, 1)).toSorted(), SEEN);
    await isText(page);
    await shot(`hostile-processes-${viewport.width}`);
    await fits("processes");
    await end();
  }
});

test("keys are shown as digests where the operator says so", async () => {
  const server = await serve("--show-keys", "hash");
  await server.post("/v1/take", { policy: "3/hour", key: "alice" });
  const { page, open, end } = await reader(server);
  await open("keys");
  await page.getByRole("button", { name: "List" }).click();
  await page.getByText("#2bd806c97f0e00af").waitFor();
  assert.ok(!(await page.content()).includes("alice"));
  await end();
});
