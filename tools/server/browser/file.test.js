// The dashboard of a server whose limits come from a file, under load: what cannot be changed here is marked, and all of it can be read.

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { openBrowser, VIEWS } from "./reader.js";
import { folder, serve, until } from "./servers.js";

const DOCUMENT = `polylimit = 1
[policies.api]
quotas = "5/hour"
[policies.search]
quotas = "2/hour"
mode = "shadow"
[policies.login]
quotas = "3/minute"
penalty = { denials = 20, within = "1h", block = "1h" }
[policies.model]
quotas = "1000/minute"
candidate = { quotas = "10/minute", compare = 1000 }
[lists]
deny = ["client 192.0.2.0/24", "user mallory until 2199-01-01T00:00:00Z"]
allow = ["plan internal"]
`;
const CONTROL = "k\u001b[31m\u202egpj.exe";
const SHOWN = "k\\u{1b}[31m\\u{202e}gpj.exe";
const LONG = "x".repeat(120);
const reader = openBrowser();

/** A server with a document in a file, that denies clients now. */
async function loaded() {
  const path = join(await folder(), "limits.toml");
  await writeFile(path, DOCUMENT);
  const server = await serve("--policies", path);
  const ask = async (policy, key, times) => {
    // One in sixteen denials is counted, at random.
    for (let at = 0; at < times; at += 200) {
      await server.post("/v1/check", { requests: Array.from({ length: 200 }, () => ({ policy, key })) });
    }
  };
  await ask("api", "alice", 800);
  await ask("api", CONTROL, 800);
  await ask("login", LONG, 800);
  await ask("search", "bob", 200);
  await ask("model", "bot", 200);
  const blocked = await fetch(`${server.admin}/v1/block`, { method: "POST", body: JSON.stringify({ policy: "api", key: "mallory", for_us: 3.6e9 }) });
  assert.equal(blocked.status, 200);
  return { server, path };
}

test("a server with limits from a file shows who is denied now, and what cannot be changed there with the reason", async () => {
  const { server, path } = await loaded();
  const { page, open, loaded: ready, shot, end } = await reader(server);
  const denied = page.getByRole("region", { name: "Denied now" });
  const row = denied.getByRole("row").filter({ hasText: "alice" });
  await row.getByText(/over 5\/hour, again in/).waitFor();
  assert.equal(await denied.getByText(SHOWN, { exact: true }).count(), 1);
  await denied.getByRole("row").filter({ hasText: LONG }).getByText(/blocked by the penalty, again in/).waitFor();
  // A policy in shadow shows what it would have denied.
  await page.getByRole("region", { name: "Policies" }).getByRole("row", { name: /^search in shadow: denies nothing.* 198 \(99 %\)/ }).waitFor();
  // A long key leaves the other columns on one line.
  const times = await denied.locator(".whole").evaluateAll((all) => all.map((time) => time.getClientRects().length));
  assert.ok(times.length >= 3 && times.every((lines) => lines === 1), String(times));
  const actions = await denied.locator("tbody tr .actions").evaluateAll((all) => all.map((buttons) => buttons.clientHeight));
  assert.ok(actions.every((height) => height < 40), String(actions));
  await row.getByRole("button", { name: "Reset" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Reset" }).click();
  await row.getByText("would be admitted now").waitFor();
  await shot("file-policies");

  // One click away.
  await page.getByRole("link", { name: "Blocked keys" }).click();
  await page.getByRole("row", { name: /^mallory api blocked by hand/ }).waitFor();
  await page.getByRole("row", { name: new RegExp(`^${LONG} login blocked by the penalty`) }).getByRole("button", { name: "Unblock" }).waitFor();

  // A blocked key can be unblocked where keys are listed, too, and a candidate is named by its policy.
  await open("keys");
  await page.getByRole("button", { name: "List" }).click();
  const keys = page.getByRole("region", { name: "Keys" });
  await keys.getByRole("row", { name: /^bot model, its candidate 100 %/ }).waitFor();
  await keys.getByRole("row", { name: /^mallory api blocked/ }).getByRole("button", { name: "Unblock" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Unblock" }).click();
  await page.getByText("The block has ended.").waitFor();
  await keys.getByRole("row", { name: /^mallory api blocked/ }).waitFor({ state: "detached" });

  await open("lists");
  await ready();
  await page.getByText(`The limits come from file:${path}: change them there.`).waitFor();
  const lists = page.getByRole("region", { name: "Denied" });
  await lists.getByRole("row", { name: /^client 192\.0\.2\.0\/24 +in the document$/ }).waitFor();
  await lists.getByRole("row", { name: /^user mallory .*2199.* in the document$/ }).waitFor();
  await page.getByRole("region", { name: "Admitted" }).getByRole("row", { name: "plan internal" }).waitFor();
  assert.equal(await page.getByRole("button", { name: /Add|Remove/ }).count(), 0);
  await open("document");
  await ready();
  await page.getByText(`The document comes from file:${path}: change it there.`).waitFor();
  const text = page.getByRole("textbox", { name: "The document of limits" });
  assert.deepEqual([await text.inputValue(), await text.isEditable()], [DOCUMENT, false]);
  await page.getByText("Only limits in the store have a history.").waitFor();
  assert.equal(await page.getByRole("button", { name: /Publish|Roll back/ }).count(), 0);
  // Its store is another one than Redis, which is no mistake.
  await open("processes");
  await page.getByText("Processes report through a store in Redis, and this server has another one").waitFor();
  assert.equal(await page.locator("main").getByRole("alert").count(), 0);
  await end();
});

test("every view can be read on a telephone, and in light and dark its texts stand out", async () => {
  const { server } = await loaded();
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1280, 390]) {
      const { page, open, loaded: ready, fits, isNarrow, faint, shot, end } = await reader(server, { viewport: { width, height: 844 }, colorScheme });
      for (const name of VIEWS) {
        await open(name);
        await ready();
        if (name === "policies") await page.getByRole("region", { name: "Denied now" }).waitFor();
        if (name === "keys") {
          await page.getByRole("button", { name: "List" }).click();
          const keys = page.getByRole("region", { name: "Keys" });
          await keys.getByRole("button", { name: "Explain" }).first().click();
          await page.getByRole("heading", { name: "Explanation" }).waitFor();
        }
        await shot(`file-${name}-${colorScheme}-${width}`);
        await (width === 390 ? isNarrow : fits)(name);
        const texts = await faint();
        assert.deepEqual(texts, [], `${name} in ${colorScheme}`);
      }
      await end();
    }
  }
});
