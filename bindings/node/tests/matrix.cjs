// Runs the tests of each framework with the newest release of every minor version that package.json names:
// matrix.cjs [FRAMEWORK...]. The oldest release of each framework is among them. Called by ../matrix.
"use strict";

const { execFileSync, spawnSync } = require("node:child_process");
const { mkdirSync, writeFileSync } = require("node:fs");
const { join } = require("node:path");

const { devDependencies, peerDependencies } = require("../package.json");

const FOLDER = join(__dirname, "../../../target/node-matrix");
const COMMON = ["guard", "cors"];

/** A release for each minor version, the packages that belong to one, and the tests that examine it. */
const FRAMEWORKS = {
  express: {
    of: "express",
    packages: (version) => ({ express: version }),
    tests: ["express", "express_routes", "express_outage", "scope", "startup", "disconnect", ...COMMON],
  },
  fastify: {
    of: "fastify",
    packages: (version) => ({ fastify: version }),
    tests: ["fastify_versions"],
  },
  hono: {
    of: "hono",
    packages: (version) => ({ hono: version }),
    tests: ["hono_versions", "cors_fetch"],
  },
  koa: {
    of: "koa",
    packages: (version) => ({
      koa: version,
      "@koa/router": version.startsWith("2.") ? "8.0.0" : devDependencies["@koa/router"],
    }),
    tests: ["koa_routes", ...COMMON],
  },
  router: {
    of: "@koa/router",
    name: "koa",
    packages: (version) => ({ koa: devDependencies.koa, "@koa/router": version }),
    tests: ["koa_routes"],
  },
  nest: {
    of: "@nestjs/core",
    // The packages of a release do not always have the same patch number, and a minor version may lack one of them.
    packages: (version) => {
      const [major, minor] = version.split(".").map(Number);
      const range = `>=${major}.0.0 <${major}.${minor + 1}.0`;
      const packages = ["common", "platform-express", "platform-fastify"].map((name) => `@nestjs/${name}`);
      const own = Object.fromEntries(packages.map((name) => [name, range]));
      const metadata = major === 10 && minor < 3 ? "^0.1.12" : devDependencies["reflect-metadata"];
      return { "@nestjs/core": version, ...own, "reflect-metadata": metadata, rxjs: devDependencies.rxjs };
    },
    tests: ["nest", ...COMMON],
  },
};

/** The newest release of each minor version in the ranges of package.json (`>=4.18.0 <6 || >=7.0.0 <8`), oldest first. */
function releasesOf(name) {
  const ranges = peerDependencies[name].split(" || ").map((range) => {
    const [, major, minor, end] = /^>=(\d+)\.(\d+)\.\d+ <(\d+)$/.exec(range).map(Number);
    return ([one, other]) => one < end && (one > major || (one === major && other >= minor));
  });
  const all = JSON.parse(execFileSync("npm", ["view", name, "versions", "--json"], { encoding: "utf8" }));
  const newest = new Map();
  for (const version of all.filter((one) => /^\d+\.\d+\.\d+$/.test(one))) {
    const numbers = version.split(".").map(Number);
    const key = `${numbers[0]}.${numbers[1]}`;
    const patch = Number(newest.get(key)?.split(".")[2] ?? -1);
    if (ranges.some((has) => has(numbers)) && numbers[2] > patch) newest.set(key, version);
  }
  return [...newest.values()].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
}

function install(folder, dependencies) {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, dependencies }));
  writeFileSync(join(folder, ".npmrc"), "omit-lockfile-registry-resolved=true\n");
  const { status, stderr } = spawnSync(
    "npm",
    ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder],
    {
      encoding: "utf8",
    },
  );
  return status === 0 ? undefined : stderr;
}

let [passed, failed] = [0, 0];
const chosen = process.argv.slice(2);
for (const unknown of chosen.filter((name) => FRAMEWORKS[name] === undefined)) {
  console.error(`matrix: unknown framework ${unknown}: allowed are ${Object.keys(FRAMEWORKS).join(", ")}`);
  process.exit(2);
}
for (const [framework, { of, name = framework, packages, tests }] of Object.entries(FRAMEWORKS)) {
  if (chosen.length > 0 && !chosen.includes(framework)) continue;
  for (const version of releasesOf(of)) {
    const folder = join(FOLDER, `${framework}-${version}`);
    const problem = install(folder, packages(version));
    if (problem !== undefined) {
      failed += 1;
      console.log(`FAILED: ${of} ${version} cannot be installed\n${problem}`);
      continue;
    }
    const files = tests.map((test) => join(__dirname, `${test}.test.cjs`));
    const env = { ...process.env, POLYLIMIT_FRAMEWORK: `${name}=${folder}`, POLYLIMIT_TESTS: `^${name} \\d` };
    const { stdout } = spawnSync(process.execPath, [join(__dirname, "run.cjs"), ...files], {
      env,
      encoding: "utf8",
      maxBuffer: 1 << 28,
    });
    const [, ok, bad] = /(\d+) passed; (\d+) failed;\s*$/.exec(stdout) ?? [undefined, 0, 1];
    passed += Number(ok);
    failed += Number(bad) + (Number(ok) + Number(bad) === 0 ? 1 : 0);
    console.log(`${of} ${version}: ${ok} passed, ${bad} failed`);
    if (Number(bad) > 0) console.log(stdout.replace(/^(ok|skipped): .*\n/gm, ""));
  }
}
console.log(`test result: ${failed === 0 ? "ok" : "FAILED"}. ${passed} passed; ${failed} failed;`);
process.exitCode = failed === 0 ? 0 : 1;
