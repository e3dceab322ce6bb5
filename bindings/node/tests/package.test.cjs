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
  "express",
  "fastify",
  "hono",
  "koa",
  "express-rate-limit",
  "@nestjs",
  "@opentelemetry",
  "prom-client",
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
async function runSnippets(folder, page) {
  const snippets = [...page.matchAll(/^```js\n(.*?)^```/gms)].map(([, code]) => code);
  for (const [number, code] of snippets.entries()) {
    const name = join(folder, `snippet-${number}.${code.includes("require(") ? "cjs" : "mjs"}`);
    await writeFile(name, code);
    const { stdout: written, stderr } = await run(process.execPath, [name], { cwd: folder });
    assert.equal(stderr, "", code);
    const expected = [...code.matchAll(/; \/\/ (.+)$/gm)].map(([, text]) => `${text}\n`).join("");
    assert.equal(written, expected, code);
  }
  return snippets.length;
}

/** The migration guides from other packages, which are tested like README.md. */
const MIGRATIONS = ["from-express-rate-limit.md", "from-fastify-rate-limit.md", "from-rate-limiter-flexible.md"];

test("the packed packages install into an empty folder, and every snippet of the documentation runs there", async () => {
  await installed(async (folder) => {
    const readme = await readFile(join(folder, "node_modules", "polylimit", "README.md"), "utf8");
    assert.equal(await runSnippets(folder, readme), 10);
    for (const page of MIGRATIONS) {
      const text = await readFile(join(root, "..", "..", "docs", "migrate", page), "utf8");
      assert.ok((await runSnippets(folder, text)) >= 2, page);
    }
    const clients = await readFile(join(root, "..", "..", "docs", "clients.md"), "utf8");
    await withServer(async (url) => {
      assert.equal(await runSnippets(folder, clients.replaceAll("https://api.example.com/", url)), 1);
    });
    for (const [page, snippets] of [
      ["metrics.md", 1],
      ["listing.md", 2],
    ]) {
      const text = await readFile(join(root, "..", "..", "docs", page), "utf8");
      assert.equal(await runSnippets(folder, text), snippets, page);
    }
    const policies = await readFile(join(root, "..", "..", "docs", "policies.md"), "utf8");
    await withRedis(async ({ url }) => {
      assert.equal(await runSnippets(folder, policies.replaceAll("redis://localhost", url)), 1);
    });
  });
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
      import { rateLimit as hono } from "polylimit/hono";
      import { RateLimitGuard } from "polylimit/nest";
      import { addLimiter as observed } from "polylimit/opentelemetry";
      import { addLimiter as exposed } from "polylimit/prometheus";
      const limiter = new Limiter("memory:", { policies: { api: "1/s" }, outage: "deny" });
      const decision: Decision = limiter.checkSync("k");
      // @ts-expect-error a limiter is required
      express({ limiter: 5 });
      export { decision, express, PolylimitStore, rateLimitHook, fetched, createFetch, hono, RateLimitGuard, observed, exposed };
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
    assert.equal(snippets.length, 2);
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
