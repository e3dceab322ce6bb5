"use strict";

const assert = require("node:assert/strict");
const { execFile } = require("node:child_process");
const { once } = require("node:events");
const { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } = require("node:fs/promises");
const { createServer } = require("node:http");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { test } = require("node:test");
const { promisify } = require("node:util");

const { withRedis } = require("./support/redis.cjs");

const run = promisify(execFile);
const root = join(__dirname, "..");

const FRAMEWORKS = [
  "@apollo",
  "@trpc",
  "express",
  "fastify",
  "hono",
  "graphql",
  "graphql-yoga",
  "koa",
  "express-rate-limit",
  "@nestjs",
  "@opentelemetry",
  "prom-client",
  "openai",
  "@anthropic-ai",
  "@types/express",
  "@types/node",
];

/** Runs `body` in a folder with the packed packages installed. */
async function installed(body) {
  const folder = await mkdtemp(join(tmpdir(), "polylimit-package-"));
  try {
    const { stdout } = await run(process.execPath, [join(root, "scripts", "pack.cjs"), join(folder, "packed")]);
    const files = stdout.trim().split("\n");
    assert.equal(files.length, 2);
    await writeFile(join(folder, "package.json"), '{ "private": true }');
    const install = [
      "install",
      "--offline",
      "--omit=optional",
      "--omit=peer",
      "--ignore-scripts",
      "--no-audit",
      "--no-fund",
    ];
    await run("npm", [...install, ...files], { cwd: folder });
    // The frameworks are linked from the node_modules of the tests.
    await mkdir(join(folder, "node_modules", "@types"));
    for (const framework of FRAMEWORKS) {
      await symlink(join(root, "node_modules", framework), join(folder, "node_modules", framework));
    }
    return await body(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Runs `body` with the URL of a server that answers 200. */
async function withServer(body) {
  const server = createServer((_, response) => response.end());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    return await body(`http://127.0.0.1:${server.address().port}/`);
  } finally {
    server.close();
  }
}

/** Runs every snippet of a page in that folder, and compares its output with the comments at the ends of its lines. */
async function runSnippets(folder, page, warnings = /^$/) {
  const snippets = [...page.matchAll(/^```js\n(.*?)^```/gms)].map(([, code]) => code);
  for (const [number, code] of snippets.entries()) {
    const name = join(folder, `snippet-${number}.${code.includes("require(") ? "cjs" : "mjs"}`);
    await writeFile(name, code);
    const { stdout: written, stderr } = await run(process.execPath, [name], { cwd: folder });
    assert.match(stderr, warnings, code);
    const expected = [...code.matchAll(/; \/\/ (.+)$/gm)].map(([, text]) => `${text}\n`).join("");
    assert.equal(written, expected, code);
  }
  return snippets.length;
}

/** The migration guides from other packages, which are tested like README.md. */
const MIGRATIONS = [
  "from-express-rate-limit.md",
  "from-fastify-rate-limit.md",
  "from-rate-limiter-flexible.md",
  "from-nestjs-throttler.md",
  "from-bottleneck.md",
  "from-p-limit.md",
  "from-upstash-ratelimit.md",
];

test("the packed packages install into an empty folder, and every snippet of the documentation runs there", async () => {
  await installed(async (folder) => {
    const readme = await readFile(join(folder, "node_modules", "polylimit", "README.md"), "utf8");
    assert.equal(await runSnippets(folder, readme), 17);
    for (const page of MIGRATIONS) {
      const text = await readFile(join(root, "..", "..", "docs", "migrate", page), "utf8");
      assert.ok((await runSnippets(folder, text)) >= 2, page);
    }
    const clients = await readFile(join(root, "..", "..", "docs", "clients.md"), "utf8");
    await withServer(async (url) => {
      assert.equal(await runSnippets(folder, clients.replaceAll("https://api.example.com/", url)), 2);
    });
    for (const [page, snippets] of [
      ["metrics.md", 1],
      ["listing.md", 2],
      ["reservations.md", 1],
    ]) {
      const text = await readFile(join(root, "..", "..", "docs", page), "utf8");
      assert.equal(await runSnippets(folder, text), snippets, page);
    }
    const policies = await readFile(join(root, "..", "..", "docs", "policies.md"), "utf8");
    await withRedis(async ({ url }) => {
      // Nothing is published there.
      const warnings = /PolylimitWarning: .*no document is published in the store/;
      assert.equal(await runSnippets(folder, policies.replaceAll("redis://localhost", url), warnings), 1);
    });
  });
});

/** Runs a program in a folder, and returns what it has printed. */
async function printed(program, folder) {
  const { stdout } = await run(process.execPath, [program], { cwd: folder });
  return stdout;
}

test("programs that copy what a service needs find the addon, and a bundle works with polylimit in it or next to it", async () => {
  const { build } = require("esbuild");
  const { nodeFileTrace } = await import("@vercel/nft");
  await installed(async (folder) => {
    const [platform] = await readdir(join(folder, "node_modules", "@polylimit"));
    const addon = join("node_modules", "@polylimit", platform, `polylimit.${platform}.node`);
    const decide = 'console.log(new Limiter("memory:", { policies: { api: "1/s" } }).checkSync("k").allowed);';
    await writeFile(join(folder, "app.cjs"), `const { Limiter } = require("polylimit");\n${decide}`);
    await writeFile(join(folder, "app.mjs"), `import { Limiter } from "polylimit";\n${decide}`);
    for (const app of ["app.cjs", "app.mjs"]) {
      const { fileList, warnings } = await nodeFileTrace([join(folder, app)], { base: folder });
      assert.ok(fileList.has(addon), `${app}: ${[...fileList].filter((name) => name.endsWith(".node"))}`);
      // The addons of other platforms are not installed.
      for (const warning of warnings) assert.match(warning.message, /@polylimit\//, `${app}: ${warning.message}`);
    }
    const common = { absWorkingDir: folder, bundle: true, platform: "node", logLevel: "silent" };
    for (const [app, format, extension] of [
      ["app.cjs", "cjs", "cjs"],
      ["app.mjs", "cjs", "cjs"],
      ["app.mjs", "esm", "mjs"],
    ]) {
      const outfile = join(folder, `beside-${format}.${extension}`);
      await build({ ...common, entryPoints: [app], format, outfile, external: ["polylimit"] });
      assert.equal(await printed(outfile, folder), "true\n", `${app}, external`);
    }
    // With the addon as a file of the bundle, which then runs in another folder.
    const outdir = join(folder, "..", `${folder.split("/").pop()}-bundle`);
    try {
      await build({
        ...common,
        entryPoints: ["app.cjs"],
        outdir,
        loader: { ".node": "copy" },
        outExtension: { ".js": ".cjs" },
      });
      assert.equal(await printed(join(outdir, "app.cjs"), outdir), "true\n", "with the addon");
    } finally {
      await rm(outdir, { recursive: true, force: true });
    }
    // A bundle without the addon says what to do.
    const bare = join(outdir, "bare.cjs");
    try {
      await build({ ...common, entryPoints: ["app.cjs"], outfile: bare, external: ["@polylimit/*"] });
      const failed = await run(process.execPath, [bare], { cwd: outdir }).catch((error) => error);
      assert.match(
        failed.stderr,
        /cannot load its addon for \S+ \(tried require\("@polylimit\/\S+"\): Cannot find .+ if the program is bundled, leave polylimit external/,
      );
    } finally {
      await rm(outdir, { recursive: true, force: true });
    }
  });
});

/** What loading the package does in a process that has a socket open. */
const LOADING = `
  const hooks = require("node:async_hooks");
  const { connect, createServer } = require("node:net");
  process.report.getReport = () => { throw new Error("resolves the names of sockets"); };
  const server = createServer((socket) => socket.once("data", () => {
    const opened = [];
    hooks.createHook({ init: (_, type) => opened.push(type) }).enable();
    const { Limiter } = require("polylimit");
    const handles = opened.filter((type) => /napi|threadsafe/i.test(type));
    const { allowed } = new Limiter("memory:", { policies: { api: "1/s" } }).checkSync("k");
    console.log(JSON.stringify([handles, allowed]));
    process.exit();
  }));
  server.listen(0, "127.0.0.1", () => connect(server.address().port, "127.0.0.1").write("x"));
`;

test("loading the package asks for no report of the process, whose sockets' names would be resolved, and opens no handle", async () => {
  const { stdout } = await run(process.execPath, ["-e", LOADING], { cwd: root });
  assert.deepEqual(JSON.parse(stdout), [[], true]);
});

test("the packages contain licences and third-party notices, and their links are absolute", async () => {
  await installed(async (folder) => {
    const modules = join(folder, "node_modules");
    const [platform] = await readdir(join(modules, "@polylimit"));
    for (const name of ["polylimit", join("@polylimit", platform)]) {
      const files = await readdir(join(modules, name));
      for (const text of ["LICENSE-APACHE", "LICENSE-MIT", "THIRD_PARTY_NOTICES", "README.md"]) {
        assert.ok(files.includes(text), `${name}: ${text}`);
      }
      assert.match(await readFile(join(modules, name, "THIRD_PARTY_NOTICES"), "utf8"), /tokio/);
      const { homepage, license } = JSON.parse(await readFile(join(modules, name, "package.json"), "utf8"));
      assert.deepEqual([homepage, license], ["https://polylimit.dev", "MIT OR Apache-2.0"]);
      const links = [...(await readFile(join(modules, name, "README.md"), "utf8")).matchAll(/\]\(([^)]+)\)/g)];
      for (const [, link] of links) assert.match(link, /^(https:\/\/|#)/, `${name}: ${link}`);
    }
  });
});

test("the types are found with every moduleResolution of TypeScript", async () => {
  await installed(async (folder) => {
    const source = `
      import { Limiter, type Decision } from "polylimit";
      import { rateLimit as express } from "polylimit/express";
      import { PolylimitStore } from "polylimit/express-rate-limit";
      import { rateLimitHook } from "polylimit/fastify";
      import { rateLimit as fetched } from "polylimit/fetch";
      import { createFetch } from "polylimit/fetch-client";
      import { apolloRateLimit } from "polylimit/graphql";
      import { rateLimit as hono } from "polylimit/hono";
      import { RateLimitGuard } from "polylimit/nest";
      import { addLimiter as observed } from "polylimit/opentelemetry";
      import { addLimiter as exposed } from "polylimit/prometheus";
      import { rateLimit as trpc } from "polylimit/trpc";
      const limiter = new Limiter("memory:", { policies: { api: "1/s" }, outage: "deny" });
      const decision: Decision = limiter.checkSync("k");
      // @ts-expect-error a limiter is required
      express({ limiter: 5 });
      export { decision, express, PolylimitStore, rateLimitHook, fetched, createFetch, apolloRateLimit, hono, RateLimitGuard, observed, exposed, trpc };
    `;
    await writeFile(join(folder, "used.ts"), source);
    const settings = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--esModuleInterop", "used.ts"];
    for (const [compiler, module, resolution] of [
      ["typescript5", "commonjs", "node10"],
      ["typescript5", "node16", "node16"],
      ["typescript", "esnext", "bundler"],
      ["typescript", "node16", "node16"],
    ]) {
      const tsc = join(root, "node_modules", compiler, "bin", "tsc");
      const parameters = [tsc, ...settings, "--module", module, "--moduleResolution", resolution];
      const failed = await run(process.execPath, parameters, { cwd: folder }).catch(({ stdout }) => stdout);
      assert.ok(typeof failed !== "string", `${compiler} ${resolution}: ${failed}`);
    }
  });
});

test("the TypeScript snippets of the documentation compile, and what they compile to can be loaded", async () => {
  await installed(async (folder) => {
    const readme = await readFile(join(folder, "node_modules", "polylimit", "README.md"), "utf8");
    const snippets = [...readme.matchAll(/^```ts\n(.*?)^```/gms)].map(([, code]) => code);
    assert.equal(snippets.length, 3);
    const names = snippets.map((_, number) => `snippet-${number}`);
    for (const [number, code] of snippets.entries()) await writeFile(join(folder, `${names[number]}.mts`), code);
    const settings = ["--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext"];
    const sources = names.map((name) => `${name}.mts`);
    const parameters = [...settings, "--experimentalDecorators", "--emitDecoratorMetadata", ...sources];
    const tsc = join(root, "node_modules", "typescript", "bin", "tsc");
    const failed = await run(process.execPath, [tsc, ...parameters], { cwd: folder }).catch(({ stdout }) => stdout);
    assert.ok(typeof failed !== "string", failed);
    for (const name of names) await run(process.execPath, [`${name}.mjs`], { cwd: folder });
  });
});
