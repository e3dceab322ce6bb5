// The settings of README.md for bundlers that the tests have no packages of, which lie in target/node-matrix: bundlers.cjs.
// Called by ../matrix; ends in cargo's form. package.test.cjs tests esbuild, and the tracing of files by which Next and Vercel copy.
"use strict";

const { execFileSync } = require("node:child_process");
const { createRequire } = require("node:module");
const { mkdirSync, rmSync, writeFileSync } = require("node:fs");
const { join } = require("node:path");
const { pathToFileURL } = require("node:url");

const root = join(__dirname, "..");
const FOLDER = join(root, "../../target/node-matrix/bundlers");

/** Decides with the limiter and with a middleware, so that the main entry and another one are in use. */
const APP = `
import { Limiter } from "polylimit";
import { rateLimit } from "polylimit/fetch";

const limiter = new Limiter("memory:", { policies: { api: "1/minute" } });
const handler = rateLimit(() => new Response("ok"), { limiter, key: () => "k" });
const statuses = [];
for (let at = 0; at < 2; at++) statuses.push((await handler(new Request("http://h/"))).status);
console.log(statuses.join());
`;

/** Builds the program with each bundler, and returns the bundle. */
const BUNDLERS = {
  webpack: async (load) => {
    const webpack = load("webpack");
    const compiler = webpack({
      mode: "production",
      target: "node18",
      entry: join(FOLDER, "app.mjs"),
      output: { path: join(FOLDER, "out"), filename: "webpack.cjs" },
      externals: /^polylimit/,
      externalsType: "commonjs",
    });
    const stats = await new Promise((resolve, reject) =>
      compiler.run((error, done) => (error ? reject(error) : resolve(done))),
    );
    const { errors, warnings } = stats.toJson({ all: false, errors: true, warnings: true });
    if (errors.length + warnings.length > 0) throw new Error(JSON.stringify([errors, warnings]));
    return "webpack.cjs";
  },
  rollup: async (load) => {
    const { rollup } = load("rollup");
    const bundle = await rollup({ input: join(FOLDER, "app.mjs"), external: [/^polylimit/] });
    await bundle.write({ file: join(FOLDER, "out", "rollup.mjs"), format: "es" });
    return "rollup.mjs";
  },
  vite: async (_, path) => {
    const { build } = await import(pathToFileURL(path("vite")));
    await build({
      root: FOLDER,
      configFile: false,
      logLevel: "silent",
      ssr: { noExternal: true, external: ["polylimit"] },
      build: {
        ssr: "app.mjs",
        outDir: "out",
        emptyOutDir: false,
        rollupOptions: { output: { entryFileNames: "vite.mjs" } },
      },
    });
    return "vite.mjs";
  },
};

async function main() {
  rmSync(FOLDER, { recursive: true, force: true });
  mkdirSync(FOLDER, { recursive: true });
  const packed = execFileSync(process.execPath, [join(root, "scripts", "pack.cjs"), join(FOLDER, "packed")]);
  writeFileSync(join(FOLDER, "package.json"), '{ "private": true }');
  const files = String(packed).trim().split("\n");
  const npm = ["install", "--no-audit", "--no-fund", "--omit=peer", "--ignore-scripts", "--no-package-lock"];
  execFileSync("npm", [...npm, ...files, "webpack@5", "rollup@4", "vite@7"], {
    cwd: FOLDER,
    stdio: ["ignore", "ignore", "inherit"],
  });
  writeFileSync(join(FOLDER, "app.mjs"), APP);
  const load = createRequire(join(FOLDER, "app.mjs"));
  let failed = 0;
  for (const [name, bundle] of Object.entries(BUNDLERS)) {
    try {
      const file = await bundle(load, load.resolve);
      const printed = execFileSync(process.execPath, [join("out", file)], { cwd: FOLDER, encoding: "utf8" });
      if (printed !== "200,429\n") throw new Error(`the bundle prints ${printed}`);
      console.log(`ok: ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED: ${name}\n${error.stack}`);
    }
  }
  const passed = Object.keys(BUNDLERS).length - failed;
  console.log(`test result: ${failed === 0 ? "ok" : "FAILED"}. ${passed} passed; ${failed} failed;`);
  process.exitCode = failed === 0 ? 0 : 1;
}

main();
