// Records what a test measured for a row of docs/faults.md.
"use strict";

const { execFileSync } = require("node:child_process");
const { join, relative } = require("node:path");

const root = join(__dirname, "../../../..");

/** As tests/faults/record; `file` is the test's. */
function record(file, row, name, measured) {
  const pairs = Object.entries(measured).map(([what, value]) => `${what}=${value}`);
  execFileSync(join(root, "tests/faults/record"), [relative(root, file), row, name, ...pairs]);
}

module.exports = { record };
