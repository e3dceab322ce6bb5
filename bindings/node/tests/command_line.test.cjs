// The command line tool as `npx polylimit` runs it: real processes of the program in package.json.
"use strict";

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const { once } = require("node:events");
const { existsSync, mkdtempSync, rmSync, writeFileSync } = require("node:fs");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { test } = require("node:test");

const { Limiter } = require("polylimit");

const { bin, version } = require("../package.json");
const { localStore } = require("./support/local.cjs");
const { redisCommand, withRedis } = require("./support/redis.cjs");
const { until } = require("./support/until.cjs");

const PROGRAM = join(__dirname, "..", bin.polylimit);

/** Starts the program; `options.node` are arguments of Node itself. */
function start(parameters, { store, node = [], ...options } = {}) {
  const env = { ...process.env };
  if (store !== undefined) env.POLYLIMIT_STORE = store;
  const stdio = ["ignore", "pipe", "pipe"];
  const child = spawn(process.execPath, [...node, PROGRAM, ...parameters], { env, stdio, ...options });
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

/** Runs `body` with the URL of a local store, and a function that says whether a process has opened it. */
async function withLocalStore(body) {
  const { url, remove } = localStore();
  const file = `/dev/shm/polylimit-${process.getuid()}-${url.slice("local:".length).split("?")[0]}`;
  try {
    return await body(url, () => existsSync(file));
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

test("--json is what the limiter of the same store tells", async () => {
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

test("help and mistakes in arguments are told", async () => {
  const help = await run(["--help"]);
  assert.deepEqual([help.code, help.err], [0, ""]);
  assert.match(help.out, /Usage: polylimit /);
  assert.deepEqual(await run(["--version"]), { code: 0, signal: null, out: `polylimit ${version}\n`, err: "" });
  const mistaken = await run(["chekc"]);
  assert.deepEqual([mistaken.code, mistaken.out], [64, ""]);
  assert.match(mistaken.err, /chekc/);
  assert.equal((await run([])).code, 64);
});

/** A bench that goes on for an hour unless it is ended. */
const BENCH = ["bench", "1000000/second", "--seconds", "3600"];

for (const signal of ["SIGINT", "SIGTERM"]) {
  // The shortest of several waits says so: a busy machine lengthens them, and shortens none.
  test(`${signal} ends a long command within 100 ms, as it ends a program without a handler`, async () => {
    const waits = [];
    while (waits.length < 5 && !waits.some((wait) => wait < 100)) {
      await withLocalStore(async (store, isOpen) => {
        const { child, ended } = start(BENCH, { store });
        await until(isOpen, "the command has opened the store");
        const sent = performance.now();
        child.kill(signal);
        assert.deepEqual(await ended, { code: null, signal, out: "", err: "" });
        waits.push(performance.now() - sent);
      });
    }
    assert.ok(Math.min(...waits) < 100, `milliseconds from the signal to the end: ${waits}`);
  });
}

test("a handler of the process for SIGINT runs during a long command, and may end the process", async () => {
  const folder = mkdtempSync(join(tmpdir(), "polylimit-command-"));
  try {
    const handler = join(folder, "handler.cjs");
    writeFileSync(handler, 'process.on("SIGINT", () => process.exit(130));\n');
    await withLocalStore(async (store, isOpen) => {
      const { child, ended } = start(BENCH, { store, node: ["--require", handler] });
      await until(isOpen, "the command has opened the store");
      child.kill("SIGINT");
      assert.deepEqual(await ended, { code: 130, signal: null, out: "", err: "" });
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

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
    const env = { ...process.env, POLYLIMIT_STORE: store };
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
