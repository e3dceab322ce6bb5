// The blocks of docs/bundlers.md, run with the real tools in target/bundlers/project, where ./run has installed them. A block of JavaScript
// is a file, whose name is in its first line; a block of commands makes folders in image/, which ./confined starts.
"use strict";

const assert = require("node:assert/strict");
const { execFile, spawn } = require("node:child_process");
const { once } = require("node:events");
const { mkdir, readdir, readFile, rm, writeFile } = require("node:fs/promises");
const { connect } = require("node:net");
const { dirname, join } = require("node:path");
const { after, before, test } = require("node:test");
const { setTimeout: sleep } = require("node:timers/promises");
const { promisify } = require("node:util");

const { freePort, withRedis } = require("../../bindings/node/tests/support/redis.cjs");

const run = promisify(execFile);
const here = __dirname;
const root = join(here, "..", "..");
const project = join(root, "target", "bundlers", "project");
const confined = join(here, "confined");

let page;
/** The blocks of the page by section. */
const sections = new Map();

before(async () => {
  page = await readFile(join(root, "docs", "bundlers.md"), "utf8");
  for (const section of page.split(/^## /m)) {
    const [title] = section.split("\n", 1);
    const blocks = [...section.matchAll(/^```(\w+)\n(.*?)^```/gms)].map(([, language, code]) => ({ language, code }));
    sections.set(title, blocks);
    for (const { language, code } of blocks) {
      if (language !== "js") continue;
      const [, name] = /^\/\/ (\S+)\n/.exec(code);
      await mkdir(dirname(join(project, name)), { recursive: true });
      await writeFile(join(project, name), code);
    }
  }
});

after(() => clear());

/** What the commands make takes much room. */
async function clear() {
  for (const made of ["image", "out", ".next"]) await rm(join(project, made), { recursive: true, force: true });
}

/** Runs the commands of a section; returns the folders that it has made in image/. */
async function build(title, change = (line) => line) {
  await clear();
  await mkdir(join(project, "image"));
  const commands = sections.get(title).filter(({ language }) => language === "sh");
  assert.ok(commands.length > 0, `${title} has no commands`);
  const env = { ...process.env, CI: "1", NEXT_TELEMETRY_DISABLED: "1" };
  for (const { code } of commands) await run("bash", ["-euo", "pipefail", "-c", change(code)], { cwd: project, env });
  return readdir(join(project, "image"));
}

/** Whether something listens; no request is counted. */
function listens(port) {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => resolve(true));
    socket.once("error", () => resolve(false));
    socket.once("close", () => resolve(false));
    socket.unref();
  });
}

/** Starts a server in a confined image, and returns the statuses of its responses to requests, one after the other. */
async function statuses(image, entry, requests, env = {}) {
  const port = await freePort();
  const program = [confined, "image", join(project, "image", image), "/app", entry];
  const child = spawn(program[0], program.slice(1), { env: { ...process.env, ...env, PORT: String(port) } });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (said += text));
  const exited = once(child, "exit");
  try {
    const deadline = Date.now() + 60_000;
    while (!(await listens(port))) {
      assert.ok(child.exitCode === null && Date.now() < deadline, `${image} does not listen: ${said.slice(-2000)}`);
      await sleep(50);
    }
    const seen = [];
    for (const [path, headers] of requests) {
      seen.push((await fetch(`http://127.0.0.1:${port}${path}`, { headers })).status);
    }
    return seen;
  } finally {
    // With it ends what it has started.
    child.kill("SIGKILL");
    await exited;
  }
}

const THRICE = [["/"], ["/"], ["/"]];
const SERVERS = {
  "Only the files that are needed": { traced: "server.mjs" },
  esbuild: { esbuild: "out/esbuild.cjs", "esbuild-addon": "server.cjs" },
  webpack: { webpack: "out/webpack.cjs", "webpack-addon": "webpack.cjs" },
  rollup: { rollup: "out/rollup.mjs" },
  vite: { vite: "out/vite/server.mjs" },
};

for (const [title, images] of Object.entries(SERVERS)) {
  test(`${title}: what is built decides in an image that has only Node`, async () => {
    assert.deepEqual((await build(title)).sort(), Object.keys(images).sort());
    for (const [image, entry] of Object.entries(images)) {
      assert.deepEqual(await statuses(image, entry, THRICE), [200, 200, 429], image);
    }
  });
}

test("stores: Redis and the local store decide in an image that has only Node", async () => {
  await build("esbuild");
  await withRedis(async ({ url }) => {
    for (const STORE of [url, "local:bundlers"]) {
      assert.deepEqual(await statuses("esbuild-addon", "server.cjs", THRICE, { STORE }), [200, 200, 429], STORE);
    }
  });
});

/** The route counts these requests together, and the proxy those of each key. */
const REQUESTS = [
  ["/report", { "x-api-key": "a" }],
  ["/report", { "x-api-key": "b" }],
  ["/report", { "x-api-key": "c" }],
  ["/none", { "x-api-key": "a" }],
  ["/none", { "x-api-key": "a" }],
];

for (const [bundler, command] of [
  ["Turbopack", "next build"],
  ["webpack", "next build --webpack"],
]) {
  test(`next, ${bundler}: its standalone output limits in a proxy and in a route, in an image that has only Node`, async () => {
    assert.deepEqual(await build("next", (line) => line.replace("next build", command)), ["next"]);
    assert.deepEqual(await statuses("next", "server.js", REQUESTS), [200, 200, 429, 404, 429]);
  });
}

/** Calls a handler as the runtime of Lambda does: it loads the file of the handler's name, and passes events. */
const RUNTIME = `
  const { handler } = await import(process.argv[1]);
  const event = { headers: { accept: "application/json" }, requestContext: { http: { sourceIp: "192.0.2.1" } } };
  for (let at = 0; at < 3; at++) console.log(JSON.stringify(await handler(event)));
`;

test("AWS Lambda: a zip decides where it is unpacked read-only", async () => {
  assert.deepEqual((await build("AWS Lambda")).sort(), ["lambda", "lambda-traced"]);
  for (const [image, entry] of [
    ["lambda", "handler.cjs"],
    ["lambda-traced", "handler.mjs"],
  ]) {
    // Python's module packs folders, and unpacks without the permissions of the files.
    const zip = ["python3", "-m", "zipfile"];
    const cwd = join(project, "image");
    await run("env", ["-C", image, ...zip, "-c", `../${image}.zip`, ...(await readdir(join(cwd, image)))], { cwd });
    await run(zip[0], [...zip.slice(1), "-e", `${image}.zip`, "task"], { cwd });
    const node = ["--input-type=module", "--eval", RUNTIME, `/var/task/${entry}`];
    const { stdout } = await run(confined, ["image", join(cwd, "task"), "/var/task", ...node]);
    const answers = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    assert.deepEqual(
      answers.map(({ statusCode }) => statusCode),
      [200, 200, 429],
      image,
    );
    assert.match(answers[2].headers["content-type"], /^application\/problem\+json/);
    await rm(join(cwd, "task"), { recursive: true });
  }
});

test("an addon that is missing or must not be loaded is an error that says what to do", async () => {
  await build("esbuild");
  const image = join(project, "image", "esbuild-addon");
  const failed = async (env) =>
    (
      await run(confined, ["image", image, "/app", "server.cjs"], { env: { ...process.env, ...env } }).catch(
        (error) => error,
      )
    ).stderr;
  const platform = `linux-${process.arch}-gnu`;
  const tried = `polylimit cannot load its addon for ${platform} \\(tried require\\("@polylimit/${platform}"\\): `;
  assert.match(
    await failed({ NOEXEC: "yes" }),
    new RegExp(`${tried}/app/.+: failed to map segment .+mounted without noexec`),
  );
  for (const file of await readdir(image)) if (file.endsWith(".node")) await rm(join(image, file));
  assert.match(
    await failed({}),
    new RegExp(`${tried}Cannot find module .+ install the package .+, leave polylimit external`),
  );
});

test("the table of the page has the versions that are tested", async () => {
  const { dependencies, devDependencies } = JSON.parse(await readFile(join(here, "package.json"), "utf8"));
  const versions = { ...dependencies, ...devDependencies };
  const rows = [...page.matchAll(/^\| \[([^\]]+)\]\(#[^)]+\) \| (\S+) \|/gm)].map(([, name, version]) => [
    name,
    version,
  ]);
  assert.equal(rows.length, 6);
  for (const [name, version] of rows) assert.equal(version, versions[name], name);
  assert.match(page, new RegExp(`node-loader ${versions["node-loader"]} `));
});
