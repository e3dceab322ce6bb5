// Runs a program of tests/programs in a new process.
"use strict";

const { spawn } = require("node:child_process");
const { once } = require("node:events");
const { join } = require("node:path");

/** Its exit code or signal, and its output. */
async function run(name, ...parameters) {
  const program = join(__dirname, "..", "programs", name);
  // events.test.cjs tests the warnings of limiters.
  const env = { ...process.env, NODE_NO_WARNINGS: "1" };
  const stdio = ["ignore", "pipe", "pipe"];
  const child = spawn(process.execPath, ["--expose-gc", program, ...parameters], { stdio, env });
  let [out, err] = ["", ""];
  child.stdout.on("data", (data) => {
    out += data;
  });
  child.stderr.on("data", (data) => {
    err += data;
  });
  const [code, signal] = await once(child, "close");
  return { code, signal, out, err };
}

module.exports = { run };
