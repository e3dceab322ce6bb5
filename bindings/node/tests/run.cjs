// Runs the test files, prints each result, and ends with a line in cargo's form: run.cjs FILE...
"use strict";

const { run } = require("node:test");

let [passed, failed] = [0, 0];

/** A test that runs longer has failed. */
const TIMEOUT_MS = 900_000;

run({ files: process.argv.slice(2), concurrency: 2, timeout: TIMEOUT_MS })
  .on("test:pass", ({ name, nesting, skip, todo }) => {
    if (nesting > 0) return;
    const reason = skip ?? todo;
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
