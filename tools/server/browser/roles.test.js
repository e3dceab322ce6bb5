// What readers with different tokens may do.

import assert from "node:assert/strict";
import { test } from "node:test";
import { openBrowser, VIEWS } from "./reader.js";
import { publish, redis, serve, tokens } from "./servers.js";

const reader = openBrowser();

/** The buttons that change something. */
const CHANGES = /^(Reset|Block|Unblock|Remove|Add|Publish|Roll back)$/;

test("a token that may only look finds every change disabled, and a forged one is refused and reported", async () => {
  const store = await redis();
  const server = await serve("--store", store.url, "--tokens", await tokens());
  const as = (role) => ({ authorization: `Bearer ${role}` });
  const document = 'polylimit = 1\n[policies.api]\nquotas = "5/hour"\n';
  await publish(server, document, 0, { why: "first", by: "me" }, as("admin"));
  await publish(server, document.replace("5/", "6/"), 1, { why: "second", by: "me" }, as("admin"));
  const change = (path, body, role) =>
    fetch(`${server.admin}${path}`, { method: "POST", headers: as(role), body: JSON.stringify(body) });
  const item = { list: "deny", item: "key api mallory", why: "scans" };
  assert.equal((await change("/v1/lists/add", item, "admin")).status, 200);
  assert.equal((await change("/v1/block", { policy: "api", key: "blocked", for_us: 3_600_000_000 }, "admin")).status, 200);
  for (let at = 0; at < 2; at += 1) {
    const requests = Array.from({ length: 200 }, () => ({ policy: "api", key: "busy" }));
    await server.post("/v1/check", { requests }, as("check"));
  }

  /** The names of the buttons that change something, in all views, with whether they are disabled. */
  const changes = async ({ page, open, loaded }) => {
    const found = new Map();
    for (const view of VIEWS) {
      await open(view);
      await loaded();
      if (view === "keys") {
        await page.getByRole("button", { name: "List" }).click();
        await page.getByRole("region", { name: "Keys" }).waitFor();
      }
      for (const button of await page.locator("main").getByRole("button").all()) {
        const name = await button.textContent();
        // Whom the first view shows is a matter of the moment.
        if (CHANGES.test(name) && view !== "policies") found.set(`${view}: ${name}`, await button.isDisabled());
      }
    }
    return found;
  };
  const admin = await reader(server);
  await admin.signIn("admin");
  await admin.page.getByText("a-admin, admin").waitFor();
  const enabled = await changes(admin);
  const everywhere = ["blocked: Unblock", "blocked: Reset", "keys: Reset", "keys: Block", "keys: Unblock", "lists: Add", "lists: Remove", "document: Publish", "document: Roll back"];
  // In which order keys are listed is chance.
  assert.deepEqual([...enabled].toSorted(), everywhere.map((name) => [name, false]).toSorted());
  await admin.end();

  const only = await reader(server);
  const { page, open, loaded, shot } = only;
  await only.signIn("read");
  await page.getByText("a-read, read").waitFor();
  const disabled = await changes(only);
  // The forms for a new item and a new document are left out: what they would send cannot be typed.
  assert.deepEqual([...disabled].toSorted(), everywhere.filter((name) => !/Add|Publish/.test(name)).map((name) => [name, true]).toSorted());
  assert.equal(await page.getByRole("textbox", { name: "The document of limits" }).isEditable(), false);
  for (const view of ["keys", "lists", "document"]) {
    await open(view);
    await loaded();
    await page.getByText("Your token has the role read").waitFor();
  }

  // The page does not decide: buttons that are enabled by hand lead to refusals, which are shown.
  const forge = (name) => page.getByRole("button", { name, exact: true }).first().evaluate((button) => (button.disabled = false));
  const refused = page.getByRole("dialog").getByRole("alert").filter({ hasText: "You may not do this: the caller has the role read, and this needs admin" });
  const dismiss = async () => {
    await refused.waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
  };
  await open("keys");
  await page.getByRole("button", { name: "List" }).click();
  await page.getByRole("region", { name: "Keys" }).waitFor();
  for (const name of ["Reset", "Block"]) {
    await forge(name);
    await page.getByRole("button", { name, exact: true }).first().click();
    await page.getByRole("dialog").getByRole("button", { name }).click();
    await shot(`refused-${name}`);
    await dismiss();
  }
  await open("lists");
  await loaded();
  await forge("Remove");
  await page.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("dialog").getByLabel("why").fill("over");
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await dismiss();
  await open("document");
  await loaded();
  await forge("Roll back");
  await page.getByRole("button", { name: "Roll back" }).click();
  await page.getByRole("dialog").getByLabel("why").fill("over");
  await page.getByRole("dialog").getByRole("button", { name: "Roll back" }).click();
  await dismiss();

  // Requests as a script in the page could send them, to every path that changes something.
  const statuses = await page.evaluate(async (item) => {
    const send = async (path, method, body, headers = {}) => {
      const response = await fetch(path, { method, body, headers: { authorization: `Bearer ${sessionStorage.token}`, ...headers } });
      return response.status;
    };
    const key = JSON.stringify({ policy: "api", key: "busy" });
    return [
      await send("v1/reset", "POST", key),
      await send("v1/block", "POST", JSON.stringify({ policy: "api", key: "busy", for_us: 0 })),
      await send("v1/lists/add", "POST", JSON.stringify(item)),
      await send("v1/lists/remove", "POST", JSON.stringify(item)),
      await send("v1/rollback", "POST", JSON.stringify({ version: 1, why: "over" })),
      await send("v1/policies?why=x", "PUT", "polylimit = 1", { "if-match": '"2"' }),
      await send("v1/nothing", "POST", "{}"),
    ];
  }, item);
  assert.deepEqual(statuses, [403, 403, 403, 403, 403, 403, 403]);
  await only.end();

  // Nothing has changed.
  assert.equal((await server.post("/v1/peek", { policy: "api", key: "busy" }, as("check"))).limit, 6);
  assert.equal((await server.post("/v1/check", { policy: "api", key: "mallory" }, as("check"))).cause, "deny_list");
  assert.equal((await server.post("/v1/peek", { policy: "api", key: "blocked" }, as("check"))).allowed, false);
  assert.equal((await server.post("/v1/peek", { policy: "api", key: "busy" }, as("check"))).allowed, false);
});

test("the token says what may be done, and stays in its tab", async () => {
  const server = await serve("--tokens", await tokens());
  const { page, open, signIn, shot, end } = await reader(server);
  await signIn("wrong");
  await page.getByText("The token is missing or not known").waitFor();
  await shot("sign-in");
  await signIn("check");
  await page.getByText("This token may ask for decisions, and no more").waitFor();
  await signIn("read");
  await page.getByText("a-read, read").waitFor();
  await open("keys");
  await page.getByText("Your token has the role read").waitFor();
  await page.reload();
  await page.getByText("a-read, read").waitFor();
  const kept = await page.evaluate(() => [location.href, document.cookie, localStorage.length, sessionStorage.token]);
  assert.deepEqual(kept, [`${server.admin}/#keys`, "", 0, "read"]);
  await page.getByRole("button", { name: "Forget token" }).click();
  await signIn("admin");
  await page.getByText("a-admin, admin").waitFor();
  await open("lists");
  await page.getByText("This server has no document of limits").first().waitFor();
  await shot("no-document");
  await end();
});
