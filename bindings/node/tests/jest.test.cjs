"use strict";

const assert = require("node:assert/strict");
const { execFile } = require("node:child_process");
const { join } = require("node:path");
const { test } = require("node:test");
const { promisify } = require("node:util");
const vm = require("node:vm");

const { withBlackHole } = require("./support/blackhole.cjs");

const root = join(__dirname, "..");

test("under Jest, errors are Errors there, and values are equal to its own", async () => {
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

test("what the addon threw is an error of the realm that asks", () => {
  const foreign = vm.runInNewContext('Object.assign(new Error("why"), { code: "closed" })');
  assert.ok(!(foreign instanceof Error));
  const { failure } = require("../dist/failure.js");
  const { PolylimitError } = require("polylimit");
  assert.ok(failure(foreign) instanceof PolylimitError);
  assert.deepEqual({ ...failure(foreign) }, { code: "closed", name: "PolylimitError" });
});
