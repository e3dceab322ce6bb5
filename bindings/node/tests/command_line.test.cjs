// The command line tool as `npx polylimit` runs it, with the package @polylimit/cli: real processes, with a debug build of the program.
"use strict";

const assert = require("node:assert/strict");
const { execFileSync, spawn } = require("node:child_process");
const { once } = require("node:events");
const { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } = require("node:fs");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { after, before, test } = require("node:test");

const { Limiter } = require("polylimit");

const { bin, version } = require("../package.json");
const { localStore } = require("./support/local.cjs");
const { redisCommand, withRedis } = require("./support/redis.cjs");
const { until } = require("./support/until.cjs");

const ROOT = join(__dirname, "..");
const PROGRAM = join(ROOT, bin.polylimit);
const PROJECT = join(ROOT, "..", "..");
const PLATFORM = `cli-${process.platform}-${process.arch}`;

const folder = mkdtempSync(join(tmpdir(), "polylimit-command-"));
const modules = join(folder, "installed", "node_modules");
const scope = join(modules, "@polylimit");

before(() => {
  execFileSync(join(PROJECT, "tests", "build"), ["polylimit-cli"]);
  // It leaves the files of the package in a folder. That with the program would take seconds to pack: tools/packages/check does so.
  execFileSync(process.execPath, [join(ROOT, "scripts", "pack_cli.cjs"), folder]);
  mkdirSync(join(scope, PLATFORM), { recursive: true });
  renameSync(join(folder, "cli"), join(scope, "cli"));
  const { CARGO_TARGET_DIR: target = join(PROJECT, "target") } = process.env;
  symlinkSync(join(target, "debug", "polylimit"), join(scope, PLATFORM, "polylimit"));
});

after(() => rmSync(folder, { recursive: true, force: true }));

/** Starts the program; `options.node` are arguments of Node itself, `options.path` where it finds packages. */
function start(parameters, { store, node = [], path = modules, program = PROGRAM, ...options } = {}) {
  const env = { ...process.env, NODE_PATH: path };
  if (store !== undefined) env.POLYLIMIT_STORE = store;
  const stdio = ["ignore", "pipe", "pipe"];
  const child = spawn(process.execPath, [...node, program, ...parameters], { env, stdio, ...options });
  const output = { out: "", err: "" };
  for (const [name, stream] of [
    ["out", child.stdout],
    ["err", child.stderr],
  ]) {
    stream?.setEncoding("utf8").on("data", (text) => {
      output[name] += text;
    });
  }
  const ended = once(child, "close").then(([code, signal]) => ({ code, signal, ...output }));
  return { child, ended };
}

const run = (parameters, options) => start(parameters, options).ended;

/** Runs `body` with the URL of a local store. */
async function withLocalStore(body) {
  const { url, remove } = localStore();
  try {
    return await body(url);
  } finally {
    remove();
  }
}

test("the exit status is the answer, as of the program in Rust", async () => {
  await withLocalStore(async (store) => {
    const check = ["check", "1/day fixed_window", "ann"];
    const allowed = await run(check, { store });
    assert.deepEqual([allowed.code, allowed.err], [0, ""]);
    assert.match(allowed.out, /^allowed\n {2}1\/day fixed_window: 0 of 1 left/);
    const denied = await run(check, { store });
    assert.deepEqual([denied.code, denied.err], [1, ""]);
    assert.match(denied.out, /^denied \(quota\), again in /);
    const quiet = await run([...check, "--quiet"], { store });
    assert.deepEqual(quiet, { code: 1, signal: null, out: "", err: "" });
    const mistaken = await run(["check", "1/dya", "ann"], { store });
    assert.deepEqual([mistaken.code, mistaken.out], [64, ""]);
    assert.match(mistaken.err, /^polylimit: .*dya/);
  });
  const away = await run(["check", "1/day", "ann"], { store: "redis://127.0.0.1:1" });
  assert.equal(away.code, 2, away.err);
  await withRedis(async ({ port }) => {
    assert.match(await redisCommand(port, "ACL SETUSER clerk on >secret ~* &* +@all -eval -evalsha"), /^\+OK/);
    const refused = await run(["check", "1/day", "ann"], { store: `redis://clerk:secret@127.0.0.1:${port}` });
    assert.equal(refused.code, 3, refused.err);
  });
});

test("--json is what the limiter of the same store returns", async () => {
  await withLocalStore(async (store) => {
    const limiter = new Limiter(store);
    await limiter.check("größer", "3/hour");
    const { code, out } = await run(["peek", "3/hour", "größer", "--json"], { store });
    const { key, allowed, remaining, quotas } = JSON.parse(out);
    assert.deepEqual([code, key, allowed, remaining, quotas.length], [0, "größer", true, 2, 1]);
    const explained = await run(["explain", "3/hour", "größer", "--json"], { store });
    const { quotas: told } = JSON.parse(explained.out);
    assert.equal(told[0].words, (await limiter.admin().explain("größer", "3/hour")).quotas[0].words);
    limiter.close();
  });
});

test("help and mistakes in arguments are reported", async () => {
  const help = await run(["--help"]);
  assert.deepEqual([help.code, help.err], [0, ""]);
  assert.match(help.out, /Usage: polylimit /);
  assert.deepEqual(await run(["--version"]), { code: 0, signal: null, out: `polylimit ${version}\n`, err: "" });
  const mistaken = await run(["chekc"]);
  assert.deepEqual([mistaken.code, mistaken.out], [64, ""]);
  assert.match(mistaken.err, /chekc/);
  assert.equal((await run([])).code, 64);
});

test("the package of the command line runs it alone, and says what is missing", async () => {
  const program = join(scope, "cli", "index.js");
  assert.deepEqual(await run(["--version"], { program, path: "" }), {
    code: 0,
    signal: null,
    out: `polylimit ${version}\n`,
    err: "",
  });
  const without = await run(["--version"], { path: "" });
  assert.deepEqual([without.code, without.out], [127, ""]);
  assert.equal(
    without.err,
    "polylimit: the command line is not installed: npm install @polylimit/cli, or npx @polylimit/cli\n",
  );
  const path = join(folder, "incomplete");
  mkdirSync(join(path, "@polylimit"), { recursive: true });
  execFileSync("cp", ["-r", join(scope, "cli"), join(path, "@polylimit")]);
  const incomplete = await run(["--version"], { path });
  assert.deepEqual([incomplete.code, incomplete.out], [127, ""]);
  assert.match(
    incomplete.err,
    new RegExp(`^polylimit: the program cannot be found: its package @polylimit/${PLATFORM} is not installed`),
  );
  const other = join(folder, "other.cjs");
  writeFileSync(other, 'Object.defineProperty(process, "arch", { value: "mips" });\n');
  const unknown = await run(["--version"], { node: ["--require", other] });
  assert.equal(unknown.code, 127);
  assert.match(unknown.err, /there is none for this platform: there are @polylimit\/cli-linux-x64, /);
  writeFileSync(join(path, "@polylimit", "cli", "index.js"), 'require("no-such-package");\n');
  const broken = await run(["--version"], { path });
  assert.deepEqual(
    [broken.code, /no-such-package/.test(broken.err), /not installed/.test(broken.err)],
    [1, true, false],
  );
});

test("a program that the system refuses is reported", async () => {
  const path = join(folder, "refused");
  mkdirSync(join(path, "@polylimit", PLATFORM), { recursive: true });
  execFileSync("cp", ["-r", join(scope, "cli"), join(path, "@polylimit")]);
  writeFileSync(join(path, "@polylimit", PLATFORM, "polylimit"), "no program", { mode: 0o644 });
  const refused = await run(["--version"], { path });
  assert.deepEqual([refused.code, refused.out], [126, ""]);
  assert.match(refused.err, /^polylimit: the program cannot be run: .*EACCES/);
});

/** A measurement that goes on for an hour unless it is ended. */
const BENCH = ["bench", "1000000/second", "--seconds", "3600"];

// The program ends a measurement itself at an interrupt, and reports it.
for (const [signal, code, report] of [
  ["SIGINT", 2, / checks in /],
  ["SIGTERM", null, /^$/],
]) {
  test(`${signal} reaches the program, and this process ends as the program does`, async () => {
    await withRedis(async ({ port, url }) => {
      const { child, ended } = start(BENCH, { store: `${url}?deadline=30s` });
      await until(async () => !(await redisCommand(port, "DBSIZE")).startsWith(":0"), "the command decides");
      await new Promise((resolve) => setTimeout(resolve, 100));
      child.kill(signal);
      const seen = await ended;
      assert.deepEqual([seen.code, seen.signal, seen.err], [code, code === null ? signal : null, ""]);
      assert.match(seen.out, report);
    });
  });
}

/** A program that runs the command with its own standard streams, as npx does, after it has made them non-blocking. */
const PARENT = `
  const { spawnSync } = require("node:child_process");
  process.stdout.write("");
  process.exitCode = spawnSync(process.execPath, process.argv.slice(1), { stdio: "inherit" }).status;
`;

test("a slow reader gets all of a long output, also over a pipe of another process of Node", async () => {
  const { url, remove } = localStore();
  const store = url.replace("size=1MiB", "size=16MiB");
  try {
    const limiter = new Limiter(store);
    const keys = Array.from({ length: 6000 }, (_, number) => ({ key: `user:${number}`, policy: "100/day" }));
    await limiter.checkMany(keys);
    limiter.close();
    const parameters = ["--eval", PARENT, PROGRAM, "list", "100/day", "--most", "100000", "--json"];
    const env = { ...process.env, NODE_PATH: modules, POLYLIMIT_STORE: store };
    const child = spawn(process.execPath, parameters, { env, stdio: ["ignore", "pipe", "inherit"] });
    const ended = once(child, "exit");
    await until(() => child.stdout.readableLength > 0, "the command writes");
    // The command has to fill the pipe meanwhile.
    await new Promise((resolve) => setTimeout(resolve, 500));
    let out = "";
    for await (const text of child.stdout.setEncoding("utf8")) out += text;
    assert.deepEqual(await ended, [0, null]);
    const listed = out
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line).key);
    assert.equal(new Set(listed).size, keys.length);
  } finally {
    remove();
  }
});

test("a reader that goes ends the output in silence", async () => {
  for (const parameters of [["man"], ["completions", "bash"], ["--help"]]) {
    const { child, ended } = start(parameters);
    child.stdout.destroy();
    assert.deepEqual(await ended, { code: 0, signal: null, out: "", err: "" }, parameters.join(" "));
  }
});
