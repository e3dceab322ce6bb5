"use strict";

const assert = require("node:assert/strict");
const { execFile } = require("node:child_process");
const { join } = require("node:path");
const { test } = require("node:test");
const { promisify } = require("node:util");
const vm = require("node:vm");

const { withBlackHole } = require("./support/blackhole.cjs");

const root = join(__dirname, "..");

test("in Jest's realm, errors are instances of Error and values compare as equal", async () => {
  await withBlackHole(async (blackHole) => {
    const options = ["--rootDir", join(root, "tests", "jest"), "--testMatch", "**/*.test.cjs", "--ci", "--json"];
    const jest = [join(root, "node_modules", "jest", "bin", "jest.js"), "--runInBand", "--watchman=false", ...options];
    const environment = { ...process.env, blackHole, NODE_OPTIONS: "" };
    const run = promisify(execFile)(process.execPath, jest, { cwd: root, env: environment, timeout: 120_000 });
    const { stdout, stderr } = await run.catch((failed) => failed);
    const { success, numPassedTests, numTotalTests } = JSON.parse(stdout);
    assert.ok(success && numPassedTests === numTotalTests && numTotalTests === 17, stderr);
  });
});

test("an error of the addon becomes an error of the caller's realm", () => {
  const foreign = vm.runInNewContext('Object.assign(new Error("why"), { code: "closed" })');
  assert.ok(!(foreign instanceof Error));
  const { toPublicError } = require("../dist/errors.js");
  const { PolylimitError } = require("polylimit");
  assert.ok(toPublicError(foreign) instanceof PolylimitError);
  assert.deepEqual({ ...toPublicError(foreign) }, { code: "closed", name: "PolylimitError" });
});
