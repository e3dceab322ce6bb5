// Runs the test files, prints each result, and ends with a line in cargo's form: run.cjs FILE...
// With POLYLIMIT_TESTS, only the tests whose names match this expression.
"use strict";

const { run } = require("node:test");

let [passed, failed] = [0, 0];

/** Why a test is skipped that does not match the expression. */
const NOT_NAMED = "test name does not match pattern";

/** A test that runs longer has failed. */
const TIMEOUT_MS = 900_000;

const pattern = process.env.POLYLIMIT_TESTS;
const testNamePatterns = pattern === undefined ? undefined : [new RegExp(pattern)];

run({ files: process.argv.slice(2), concurrency: 2, timeout: TIMEOUT_MS, testNamePatterns })
  .on("test:pass", ({ name, nesting, skip, todo }) => {
    if (nesting > 0) return;
    const reason = skip ?? todo;
    if (reason === NOT_NAMED) return;
    if (reason !== undefined) {
      console.log(`skipped: ${name}: ${typeof reason === "string" ? reason : "it is marked so"}`);
      return;
    }
    passed += 1;
    console.log(`ok: ${name}`);
  })
  .on("test:fail", ({ name, nesting, details: { error } }) => {
    if (nesting > 0) return;
    failed += 1;
    console.log(`FAILED: ${name}\n${(error.cause ?? error).stack ?? error}`);
  })
  .on("test:stderr", ({ message }) => process.stderr.write(message))
  .on("end", () => {
    console.log(`test result: ${failed === 0 ? "ok" : "FAILED"}. ${passed} passed; ${failed} failed;`);
    process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
  })
  // The stream of results ends only when it has been read.
  .resume();
