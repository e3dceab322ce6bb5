// Makes what is published: a package with the JavaScript, and one for the addon of each platform. Prints the files.
//   node scripts/pack.cjs FOLDER                        packs what scripts/build has built into that folder
//   node scripts/pack.cjs FOLDER PLATFORM=LIBRARY...    the addons are these libraries, such as linux-arm64-gnu=libpolylimit_node.so
"use strict";

const { copyFileSync, mkdirSync, readdirSync } = require("node:fs");
const { join, resolve } = require("node:path");

const {
  LICENSES,
  NOTICES,
  common,
  description,
  folderOf,
  pack,
  prepare,
  repository,
  root,
  write,
} = require("./packing.cjs");

const [folder, ...libraries] = process.argv.slice(2);
if (folder === undefined) throw new Error("usage: pack.cjs FOLDER [PLATFORM=LIBRARY]...");
const out = resolve(folder);

/** What a package manager has to know to choose one: the platforms that addons are built for. */
const PLATFORMS = {
  "linux-x64-gnu": { os: ["linux"], cpu: ["x64"], libc: ["glibc"] },
  "linux-arm64-gnu": { os: ["linux"], cpu: ["arm64"], libc: ["glibc"] },
  "linux-x64-musl": { os: ["linux"], cpu: ["x64"], libc: ["musl"] },
  "linux-arm64-musl": { os: ["linux"], cpu: ["arm64"], libc: ["musl"] },
  "darwin-x64": { os: ["darwin"], cpu: ["x64"] },
  "darwin-arm64": { os: ["darwin"], cpu: ["arm64"] },
  "win32-x64": { os: ["win32"], cpu: ["x64"] },
};

/** The platforms with their addons: what is given, or else what was built for this one. */
function addons() {
  if (libraries.length > 0) return libraries.map((library) => library.split("=", 2));
  const file = readdirSync(join(root, "build")).find((name) => name.endsWith(".node"));
  return [[file.split(".")[1], join(root, "build", file)]];
}

function packAddon([platform, library]) {
  const { [platform]: where } = PLATFORMS;
  if (where === undefined) throw new Error(`there is no package for ${platform}`);
  const to = folderOf(out, platform);
  const file = `polylimit.${platform}.node`;
  copyFileSync(library, join(to, file));
  const name = `@polylimit/${platform}`;
  const about = `The addon of polylimit for ${platform}.`;
  const files = [file, ...LICENSES, NOTICES];
  write(to, "package.json", { name, description: about, ...common, main: file, files, ...where });
  write(to, "README.md", `# ${name}\n\n${about} It is installed by the package \`polylimit\`.\n`);
  return pack(out, to);
}

function packJavaScript() {
  const to = folderOf(out, "polylimit");
  const { devDependencies: _, napi: __, ...published } = description;
  const optional = Object.keys(PLATFORMS).map((platform) => [`@polylimit/${platform}`, common.version]);
  write(to, "package.json", {
    ...published,
    ...repository,
    optionalDependencies: Object.fromEntries(optional),
    // Package managers that let a package load only what it names let it load the command line, if that is installed.
    peerDependencies: { ...published.peerDependencies, "@polylimit/cli": "*" },
    peerDependenciesMeta: { ...published.peerDependenciesMeta, "@polylimit/cli": { optional: true } },
  });
  copyFileSync(join(root, "README.md"), join(to, "README.md"));
  mkdirSync(join(to, "dist", "http"), { recursive: true });
  for (const folder of ["dist", "dist/http"]) {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      if (entry.isFile()) copyFileSync(join(root, folder, entry.name), join(to, folder, entry.name));
    }
  }
  return pack(out, to);
}

prepare(out);
console.log(packJavaScript());
for (const addon of addons()) console.log(packAddon(addon));
