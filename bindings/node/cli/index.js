#!/usr/bin/env node
// Runs the program `polylimit`, which lies in a package of this platform, such as @polylimit/cli-linux-x64.
"use strict";

const { spawn } = require("node:child_process");

/** What shells return for a command that they do not find, and for one that cannot be run. */
const NOT_FOUND = 127;
const NOT_RUN = 126;
/** What ends a program, or has it read its files again, and may be sent to this process alone. */
const FORWARDED = ["SIGINT", "SIGTERM", "SIGHUP"];

function complain(status, message) {
  console.error(`polylimit: ${message}`);
  process.exitCode = status;
}

/** The path of the program, or the name of the package that is missing. */
function find() {
  const { platform, arch } = process;
  const name = `@polylimit/cli-${platform}-${arch}`;
  try {
    return { path: require.resolve(`${name}/${platform === "win32" ? "polylimit.exe" : "polylimit"}`) };
  } catch {
    return { missing: name };
  }
}

/** Runs the program with the arguments and the streams of this process, which then ends as the program has ended. */
function run() {
  const { path, missing } = find();
  if (missing !== undefined) {
    const { optionalDependencies: all } = require("./package.json");
    const advice = Object.hasOwn(all, missing)
      ? `its package ${missing} is not installed: install @polylimit/cli with optional dependencies, on this platform`
      : `there is none for this platform: there are ${Object.keys(all).join(", ")}`;
    complain(NOT_FOUND, `the program cannot be found: ${advice}`);
    return;
  }
  const child = spawn(path, process.argv.slice(2), { argv0: "polylimit", stdio: "inherit" });
  child.on("error", (error) => complain(NOT_RUN, `the program cannot be run: ${error.message}`));
  for (const signal of FORWARDED) process.on(signal, () => child.kill(signal));
  child.on("exit", (status, signal) => {
    if (signal === null) {
      process.exitCode = status;
      return;
    }
    // Ends by the same signal, so that a shell sees what has happened.
    for (const name of FORWARDED) process.removeAllListeners(name);
    process.kill(process.pid, signal);
  });
}

module.exports = { run };

if (require.main === module) run();
