import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";

const require = createRequire(import.meta.url);
const description = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));

test("import and require load the same instance of every entry", async () => {
  const entries = Object.keys(description.exports).filter((entry) => entry !== "./package.json");
  assert.equal(entries.length, 13);
  for (const entry of entries) {
    const name = entry.replace(/^\./, "polylimit");
    const [imported, required] = [await import(name), require(name)];
    assert.deepEqual(Object.keys(imported).sort(), Object.keys(required).sort(), name);
    assert.ok(Object.keys(imported).length > 0, name);
    for (const [member, value] of Object.entries(required)) assert.equal(imported[member], value, `${name} ${member}`);
  }
});

test("the addon imports only Node-API symbols from Node", () => {
  const { execFileSync } = require("node:child_process");
  const { readdirSync } = require("node:fs");
  const folder = new URL("../build/", import.meta.url);
  const addon = readdirSync(folder).find((name) => name.endsWith(".node"));
  const symbols = execFileSync("nm", ["--dynamic", "--undefined-only", new URL(addon, folder).pathname], {
    encoding: "utf8",
  });
  const foreign = symbols.split("\n").filter((line) => /\b(uv_|v8|_ZN2v8|_ZN4node)/.test(line));
  assert.deepEqual(foreign, []);
});

test("the package has no install scripts", () => {
  const hooks = Object.keys(description.scripts ?? {}).filter((name) => /install|prepare/.test(name));
  assert.deepEqual(hooks, []);
  assert.equal(description.dependencies, undefined);
});
