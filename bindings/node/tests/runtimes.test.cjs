// The package on each supported version of Node, on Bun and on Deno, which bindings/node/setup installs.
"use strict";

const assert = require("node:assert/strict");
const { execFile } = require("node:child_process");
const { existsSync, readFileSync } = require("node:fs");
const { join } = require("node:path");
const { test } = require("node:test");
const { promisify } = require("node:util");

const { localStore } = require("./support/local.cjs");
const { withRedis } = require("./support/redis.cjs");

const place = join(__dirname, "../../../target/node-runtimes");
const { optionalDependencies: wanted } = require("../runtimes/package.json");

/** The programs in the packages, and what they are called with before the program that they run. */
const RUNTIMES = {
  node18: { program: "bin/node", parameters: [] },
  node20: { program: "bin/node", parameters: [] },
  node22: { program: "bin/node", parameters: [] },
  node24: { program: "bin/node", parameters: [] },
  bun: { program: "bin/bun", parameters: [] },
  deno: { program: "deno", parameters: ["run", "--quiet", "--allow-all", "--no-lock"] },
};

/** The variables of child processes. A process that runs tests leaves one that would keep another from running any. */
const { NODE_TEST_CONTEXT: _, ...inherited } = process.env;
const env = { ...inherited, NODE_NO_WARNINGS: "1", NODE_OPTIONS: "" };

/** The path of a runtime's program; `undefined` where it could not be installed. */
function programOf(name) {
  const program = join(place, "node_modules", `${name}-${process.arch}`, RUNTIMES[name].program);
  return existsSync(program) ? program : undefined;
}

function whyMissing(name) {
  if (wanted[`${name}-${process.arch}`] === undefined) return `there is no package of it for ${process.arch}`;
  const problem = join(place, "problem");
  const said = existsSync(problem) ? readFileSync(problem, "utf8").trim().split("\n").pop() : "";
  return said || "npm has not installed its package: run bindings/node/setup";
}

const SEEN = {
  memory: { decisions: [true, true, true, false, false], remaining: 0, source: "store" },
  local: { decisions: [true, true, true, false, false], remaining: 0, source: "store" },
  redis: { decisions: [true, true, true, false, false], remaining: 0, source: "store" },
  checkSync: 99,
  cost: 90,
  reserved: true,
  errors: ["invalid_argument", "invalid_argument", "invalid_argument"],
  document: [true, true, false],
  express: [200, 200, 429],
  fastify: [[200, 200, 429], [200, 429], [429]],
  hono: [200, 200, 429],
  fetch: [
    [200, "q=2"],
    [200, "q=2"],
    [429, "q=2"],
  ],
  worker: true,
};

for (const [name, { parameters }] of Object.entries(RUNTIMES)) {
  const version = wanted[`${name}-x64`].split("@").pop();
  const title = `${name.replace(/\d+$/, "")} ${version}`;
  const program = programOf(name);
  const skip = program === undefined && whyMissing(name);
  test(`${title}: the package works as on every runtime, and the process ends`, { skip }, async () => {
    const { url: local, remove } = localStore();
    try {
      await withRedis(async ({ url }) => {
        const script = join(__dirname, "programs", "runtime.cjs");
        const run = promisify(execFile)(program, [...parameters, script, url, local], {
          cwd: join(__dirname, ".."),
          env,
          timeout: 120_000,
        });
        const { stdout } = await run;
        assert.deepEqual(JSON.parse(stdout), SEEN);
      });
    } finally {
      remove();
    }
  });
}

// The runner of Node's own tests exists in each version; those of Bun and Deno have other rules.
const TESTS = ["limiter", "guard", "fetch", "express", "fastify_versions", "hono_versions", "koa"];
for (const name of ["node18", "node22", "node24"]) {
  const program = programOf(name);
  const skip = program === undefined && whyMissing(name);
  test(`node ${wanted[`${name}-x64`].split("@").pop()}: tests that ran on this Node`, { skip }, async () => {
    const files = TESTS.map((file) => join(__dirname, `${file}.test.cjs`));
    const run = promisify(execFile)(program, [join(__dirname, "run.cjs"), ...files], {
      env,
      maxBuffer: 2 ** 24,
    });
    const { stdout } = await run.catch((failed) => failed);
    assert.match(stdout, /^test result: ok\. \d\d+ passed; 0 failed;$/m, stdout.replace(/^ok: .*\n/gm, ""));
  });
}
