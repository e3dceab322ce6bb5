// The packed package, installed by npm, on versions of Node, on Deno, on Bun and in workerd, the program behind Cloudflare Workers.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";

const run = promisify(execFile);
const here = import.meta.dirname;
const bindings = join(here, "..", "..");

const SEEN = {
  system: [true, false, true, true],
  decisions: [true, true, false],
  later: 0,
  reservation: [true, "string", true],
  document: [null, null, 429],
  matching: [["login", "203.0.113.7"]],
  checked: { ok: true, policies: ["login"] },
  mistake: [false, 3, true],
  simulated: [6, 12],
  errors: Array(5).fill("invalid_argument").concat("closed"),
};

/** The variables of child processes. A process that runs tests leaves one that would keep another from running any. */
const { NODE_TEST_CONTEXT: _, ...env } = process.env;

let folder;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "polylimit-wasm-"));
  const { stdout } = await run("npm", ["pack", "--silent", "--pack-destination", folder], {
    cwd: join(here, ".."),
    env,
  });
  await writeFile(join(folder, "package.json"), '{"private": true, "type": "module"}');
  await run("npm", ["install", "--silent", "--no-audit", "--no-fund", "--offline", `./${stdout.trim()}`], {
    cwd: folder,
    env,
  });
  for (const file of ["program.js", "hosts/script.js", "hosts/worker.js"])
    await cp(join(here, file), join(folder, file.split("/").pop()));
});
after(() => rm(folder, { recursive: true, force: true }));

const packages = join(here, "..", "hosts", "node_modules");
const nodes = join(bindings, "..", "target", "node-runtimes", "node_modules");
const HOSTS = [
  ["the Node of these tests", process.execPath, []],
  ["Node 22", join(nodes, `node22-${process.arch}`, "bin", "node"), []],
  ["Node 24", join(nodes, `node24-${process.arch}`, "bin", "node"), []],
  // It reads the module from the folder of the package, and nothing else.
  [
    "Deno",
    join(packages, `deno-${process.arch}`, "deno"),
    ["run", "--quiet", "--no-lock", "--node-modules-dir=manual", "--allow-read=node_modules"],
  ],
  ["Bun", join(packages, `bun-${process.arch}`, "bin", "bun"), []],
];

for (const [name, path, parameters] of HOSTS) {
  const skip = !existsSync(path) && `npm has no ${path}`;
  test(`${name}: the package works as on every host`, { skip }, async () => {
    const { stdout } = await run(path, [...parameters, "script.js"], { cwd: folder, env });
    assert.deepEqual(JSON.parse(stdout), SEEN);
  });
}

const workerd = join(packages, `workerd-${process.arch}`, "bin", "workerd");
const noWorkerd = !existsSync(workerd) && `npm has no ${workerd}`;
test("workerd: the package works as on every host", { skip: noWorkerd }, async () => {
  // As wrangler bundles a worker: modules of WebAssembly stay files of their own, which the host compiles.
  const bundled = join(folder, "bundled");
  const esbuild = join(bindings, "node", "node_modules", ".bin", "esbuild");
  const options = ["--bundle", "--format=esm", "--conditions=workerd,worker,browser", "--loader:.wasm=copy"];
  await run(esbuild, [...options, `--outdir=${bundled}`, "worker.js"], { cwd: folder, env });
  const files = await readdir(bundled);
  const modules = files
    .sort((one) => (one === "worker.js" ? -1 : 1))
    .map((file) => `(name = "${file}", ${file.endsWith(".wasm") ? "wasm" : "esModule"} = embed "${file}")`);
  assert.equal(modules.length, 2);
  await writeFile(
    join(bundled, "config.capnp"),
    `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = (modules = [${modules.join(", ")}], compatibilityDate = "2026-01-01"))],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")]
);
`,
  );
  const serving = spawn(workerd, ["serve", "--control-fd=3", "config.capnp"], {
    cwd: bundled,
    env,
    stdio: ["ignore", "inherit", "inherit", "pipe"],
  });
  try {
    const [line] = await once(serving.stdio[3], "data");
    const { port } = JSON.parse(String(line).split("\n")[0]);
    const response = await fetch(`http://127.0.0.1:${port}/`);
    assert.deepEqual(JSON.parse(await response.text()), SEEN);
  } finally {
    serving.kill();
    await once(serving, "exit");
  }
});

test("the examples of README.md do what they say", async () => {
  const text = await readFile(join(here, "..", "README.md"), "utf8");
  const [worker, documented, manual, ...others] = [...text.matchAll(/^```js\n(.*?)^```/gms)].map(([, block]) => block);
  assert.deepEqual(others, []);
  const printed = async (name, code) => {
    await writeFile(join(folder, name), code);
    return (await run(process.execPath, [name], { cwd: folder, env })).stdout.trim();
  };
  await writeFile(join(folder, "worker-example.js"), worker);
  const asked = `import worker from "./worker-example.js";
const responses = [];
for (let at = 0; at < 101; at++) responses.push(await worker.fetch(new Request("https://a.example")));
console.log(await responses[99].text(), responses[100].status, responses[100].headers.get("retry-after") > 0);`;
  assert.equal(await printed("asks.js", asked), "welcome 429 true");
  const decided = await printed("documented.js", `${documented}console.log(allowed, status);`);
  assert.equal(decided, "{ ok: true, policies: [ 'login' ] }\ntrue null");
  const module = `import { readFileSync } from "node:fs";
const module = readFileSync(new URL(import.meta.resolve("@polylimit/wasm/polylimit.wasm")));\n`;
  assert.equal(await printed("manual.js", `${module}${manual}console.log(limiter.check("a").remaining);`), "99");
});

test("the package has its types, licences and nothing else of this folder", async () => {
  const installed = join(folder, "node_modules", "@polylimit", "wasm");
  const files = await readdir(installed, { recursive: true });
  for (const file of ["README.md", "LICENSE-MIT", "dist/index.d.ts", "dist/module/polylimit_bg.wasm"]) {
    assert.ok(files.includes(file), `there is no ${file}`);
  }
  assert.deepEqual(
    files.filter((file) => /^(ts|src|tests|node_modules)/.test(file)),
    [],
  );
  const { version } = JSON.parse(await readFile(join(installed, "package.json"), "utf8"));
  assert.equal(version, JSON.parse(await readFile(join(bindings, "node", "package.json"), "utf8")).version);
});
