// Runs the tests of express-rate-limit and rate-limit-redis on PolylimitStore, in memory and on Redis:
//   node suites/run.cjs [suite]
// The packages that npm has contain no tests, so that the sources are those of their repositories, at a release. Where GitHub cannot be
// reached, POLYLIMIT_SUITE_SOURCES names a folder with a clone of each, by the name of the suite. A test may fail only if refused.cjs
// names it. Ends in cargo's form.
"use strict";

const { spawnSync } = require("node:child_process");
const { cpSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } = require("node:fs");
const { join } = require("node:path");

const { withRedis } = require("../tests/support/redis.cjs");
const { REFUSED } = require("./refused.cjs");

const HERE = __dirname;
const BINDING = join(HERE, "..");
const TARGET = join(BINDING, "..", "..", "target", "node-suites");
const PACKAGES = join(TARGET, "packages");

/** By suite: its release, and which modules stand for others. */
const SUITES = {
  "express-rate-limit": {
    tag: "v8.6.2",
    tests: "**/test/library/**/*-test.ts",
    replaced: {
      "^\\.\\./\\.\\./source/memory-store\\.js$": "memory_store.cjs",
      "^\\./memory-store\\.js$": "memory_store.cjs",
    },
  },
  "rate-limit-redis": {
    tag: "v5.0.0",
    tests: "**/test/**/*-test.ts",
    replaced: { "^\\.\\./source/index\\.js$": "redis_store.cjs", "^ioredis-mock$": "redis_client.cjs" },
  },
};

function execute(command, parameters, options = {}) {
  const { status, error } = spawnSync(command, parameters, { stdio: "inherit", ...options });
  if (status !== 0) throw error ?? new Error(`${command} ${parameters.join(" ")} failed`);
}

/** Installs the packages that only the suites import. */
function install() {
  mkdirSync(PACKAGES, { recursive: true });
  for (const file of ["package.json", "package-lock.json"]) cpSync(join(HERE, file), join(PACKAGES, file));
  const installed = join(PACKAGES, ".installed");
  const wanted = readFileSync(join(HERE, "package-lock.json"), "utf8");
  if (existsSync(installed) && readFileSync(installed, "utf8") === wanted) return;
  const options = ["--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"];
  execute("npm", ["install", "--prefix", PACKAGES, ...options]);
  // The suites find this package as their own dependency.
  const link = join(PACKAGES, "node_modules", "polylimit");
  rmSync(link, { force: true });
  symlinkSync(BINDING, link);
  writeFileSync(installed, wanted);
}

/** The folder with the sources of a suite. */
function source(name, tag) {
  const folder = join(PACKAGES, `${name}-${tag}`);
  if (existsSync(folder)) return folder;
  const clones = process.env.POLYLIMIT_SUITE_SOURCES;
  const url = clones === undefined ? `https://github.com/express-rate-limit/${name}` : join(clones, name);
  const unfinished = `${folder}.new`;
  rmSync(unfinished, { recursive: true, force: true });
  execute("git", ["clone", "--quiet", "--branch", tag, "--config", "advice.detachedHead=false", url, unfinished]);
  execute("mv", [unfinished, folder]);
  return folder;
}

/** Runs a suite on a store: its tests with their status, and the messages of those that failed. */
function results(name, url) {
  const { tag, tests, replaced } = SUITES[name];
  const folder = source(name, tag);
  const moduleNameMapper = Object.fromEntries(
    Object.entries(replaced).map(([imported, file]) => [imported, join(HERE, file)]),
  );
  const tsconfig = { module: "commonjs", target: "es2022", esModuleInterop: true, isolatedModules: true };
  const config = {
    rootDir: folder,
    testMatch: [tests],
    testTimeout: 30_000,
    transform: { "^.+\\.ts$": ["ts-jest", { diagnostics: false, tsconfig }] },
    moduleNameMapper: { ...moduleNameMapper, "^(\\.{1,2}/.*)\\.js$": "$1" },
    moduleDirectories: ["node_modules", join(PACKAGES, "node_modules")],
  };
  const [configured, written] = ["config", "results"].map((file) => join(TARGET, `${name}.${file}.json`));
  writeFileSync(configured, JSON.stringify(config));
  rmSync(written, { force: true });
  const jest = join(PACKAGES, "node_modules", "jest", "bin", "jest.js");
  const parameters = [jest, "--config", configured, "--json", "--outputFile", written, "--silent", "--runInBand"];
  const env = { ...process.env, POLYLIMIT_SUITE_STORE: url, NODE_NO_WARNINGS: "1" };
  spawnSync(process.execPath, parameters, { env, cwd: folder, stdio: "ignore" });
  const { testResults } = JSON.parse(readFileSync(written, "utf8"));
  for (const { message, assertionResults } of testResults) {
    if (assertionResults.length === 0) throw new Error(`${name}: a file of tests did not run: ${message}`);
  }
  return testResults.flatMap(({ assertionResults }) => assertionResults);
}

/** Compares what has failed with what may fail; prints the differences. Returns the number of tests that passed, and of differences. */
function compare(name, store, url) {
  const all = results(name, url).filter(({ status }) => status === "passed" || status === "failed");
  const refused = REFUSED[name].filter(({ stores }) => stores === undefined || stores.includes(store));
  const unused = new Set(refused);
  let [passed, differences] = [0, 0];
  for (const { fullName, status, failureMessages } of all) {
    const expected = refused.find(({ test }) => fullName.endsWith(test));
    if (status === "passed") passed += 1;
    if (expected !== undefined && status === "failed") {
      unused.delete(expected);
      console.log(`refused: ${fullName}: ${expected.reason}`);
    } else if (status === "failed") {
      differences += 1;
      const message = failureMessages.join("\n").split("\n").slice(0, 12);
      console.log(`FAILED: ${fullName}\n${message.join("\n")}`);
    }
  }
  for (const { test } of unused) {
    differences += 1;
    console.log(`FAILED: refused.cjs names a test that passes, or that does not exist: ${test}`);
  }
  console.log(`== ${name} ${SUITES[name].tag}, ${store}: ${passed} of ${all.length} passed`);
  return { passed, differences };
}

async function main() {
  const chosen = process.argv.slice(2);
  const names = Object.keys(SUITES).filter((name) => chosen.length === 0 || chosen.includes(name));
  if (names.length === 0) throw new Error(`usage: run.cjs [${Object.keys(SUITES).join(" | ")}]`);
  install();
  const compared = names.map((name) => compare(name, "memory", "memory:"));
  await withRedis(({ url }) => {
    for (const name of names) compared.push(compare(name, "redis", `${url}?deadline=10s&outage=deny`));
  });
  const sum = (of) => compared.reduce((total, one) => total + one[of], 0);
  const [passed, differences] = [sum("passed"), sum("differences")];
  console.log(`test result: ${differences === 0 ? "ok" : "FAILED"}. ${passed} passed; ${differences} failed;`);
  process.exitCode = differences === 0 ? 0 : 1;
}

main();
