// Writes the ES modules next to the CommonJS ones: each names what the other exports, so that there is one of everything in a
// process, however it is loaded.
//   node scripts/modules.cjs               all of them, which needs the packages of every framework
//   node scripts/modules.cjs ENTRY...      those of entries such as ./express
const { writeFileSync } = require("node:fs");
const { join } = require("node:path");

const root = join(__dirname, "..");
const { exports: entries } = require(join(root, "package.json"));

const wanted = process.argv.slice(2);
for (const [name, { require: entry }] of Object.entries(entries)) {
  if (entry === undefined || (wanted.length > 0 && !wanted.includes(name))) continue;
  const file = entry.default;
  const names = Object.keys(require(join(root, file)));
  const from = JSON.stringify(`./${file.split("/").pop()}`);
  writeFileSync(join(root, file.replace(/\.js$/, ".mjs")), `export { ${names.sort().join(", ")} } from ${from};\n`);
  writeFileSync(join(root, file.replace(/\.js$/, ".d.mts")), `export * from ${from};\n`);
}
