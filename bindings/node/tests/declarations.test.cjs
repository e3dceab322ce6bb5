// The published types, compiled with and without the check of declaration files, by the oldest and the newest compiler in use.
"use strict";

const assert = require("node:assert/strict");
const { execFile } = require("node:child_process");
const { join } = require("node:path");
const { test } = require("node:test");
const { promisify } = require("node:util");

const root = join(__dirname, "..");

/** What the compiler complains about in a program of tests/types. */
async function complaints(compiler, program, skipLibCheck) {
  const tsc = join(root, "node_modules", compiler, "bin", "tsc");
  const parameters = [tsc, "-p", join(__dirname, "types", `${program}.json`), "--skipLibCheck", String(skipLibCheck)];
  return promisify(execFile)(process.execPath, parameters).then(
    () => "",
    ({ stdout, stderr }) => stdout + stderr,
  );
}

for (const [program, what] of [
  ["all", "every entry of the package"],
  ["fastify_alone", "the options of routes of Fastify"],
  ["fastify_and_other", "the options of routes in a program with @fastify/rate-limit"],
]) {
  test(`types: ${what} compile, declaration files checked or not`, async () => {
    for (const compiler of ["typescript5", "typescript"]) {
      for (const skips of [false, true]) assert.equal(await complaints(compiler, program, skips), "", compiler);
    }
  });
}
