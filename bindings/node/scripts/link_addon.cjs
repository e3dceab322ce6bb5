// Puts the addon in FOLDER/build where FOLDER/dist finds it as it finds an installed one: in a package of its platform's name.
//   node scripts/link_addon.cjs FOLDER
"use strict";

const { mkdirSync, readdirSync, writeFileSync } = require("node:fs");
const { join } = require("node:path");

const [, , root] = process.argv;
const addon = readdirSync(join(root, "build")).find((name) => name.endsWith(".node"));
const [, platform] = addon.split(".");
const folder = join(root, "dist", "node_modules", "@polylimit", platform);
mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, "package.json"), JSON.stringify({ name: `@polylimit/${platform}`, main: "index.js" }));
// Deno takes no main file from outside of the package.
writeFileSync(join(folder, "index.js"), `module.exports = require("../../../../build/${addon}");\n`);
