"use strict";

const assert = require("node:assert/strict");
const { execFile } = require("node:child_process");
const { mkdtemp, readFile, rm, symlink, writeFile } = require("node:fs/promises");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { test } = require("node:test");
const { promisify } = require("node:util");

const run = promisify(execFile);
const root = join(__dirname, "..");

test("the packed packages install into an empty folder, and every snippet of the README runs there", async () => {
  const folder = await mkdtemp(join(tmpdir(), "polylimit-package-"));
  try {
    const { stdout } = await run(process.execPath, [join(root, "scripts", "pack.cjs"), join(folder, "packed")]);
    const files = stdout.trim().split("\n");
    assert.equal(files.length, 2);
    await writeFile(join(folder, "package.json"), '{ "private": true }');
    const install = [
      "install",
      "--offline",
      "--omit=optional",
      "--omit=peer",
      "--ignore-scripts",
      "--no-audit",
      "--no-fund",
    ];
    await run("npm", [...install, ...files], { cwd: folder });
    // The frameworks are those of the tests.
    for (const framework of ["express", "fastify", "hono", "express-rate-limit"]) {
      await symlink(join(root, "node_modules", framework), join(folder, "node_modules", framework));
    }
    const readme = await readFile(join(folder, "node_modules", "polylimit", "README.md"), "utf8");
    const snippets = [...readme.matchAll(/^```js\n(.*?)^```/gms)].map(([, code]) => code);
    assert.equal(snippets.length, 5);
    for (const [number, code] of snippets.entries()) {
      const name = join(folder, `snippet-${number}.${code.includes("require(") ? "cjs" : "mjs"}`);
      await writeFile(name, code);
      const { stdout: written, stderr } = await run(process.execPath, [name], { cwd: folder });
      assert.equal(stderr, "", code);
      const expected = [...code.matchAll(/; \/\/ (.+)$/gm)].map(([, text]) => `${text}\n`).join("");
      assert.equal(written, expected, code);
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
