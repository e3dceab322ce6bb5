// Makes what is published: a package with the JavaScript, and one for the addon of each platform. Prints the files.
//   node scripts/pack.cjs FOLDER                        packs what scripts/build has built into that folder
//   node scripts/pack.cjs FOLDER PLATFORM=LIBRARY...    the addons are these libraries, such as linux-arm64-gnu=libpolylimit_node.so
"use strict";

const { execFileSync } = require("node:child_process");
const { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } = require("node:fs");
const { join, resolve } = require("node:path");

const root = join(__dirname, "..");
const project = join(root, "..", "..");
const [folder, ...libraries] = process.argv.slice(2);
if (folder === undefined) throw new Error("usage: pack.cjs FOLDER [PLATFORM=LIBRARY]...");
const out = resolve(folder);

const description = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const { version, license, author, homepage, engines } = description;

/** What a package manager has to know to choose one: the platforms that addons are built for; macOS, by .github/workflows. */
const PLATFORMS = {
  "linux-x64-gnu": { os: ["linux"], cpu: ["x64"], libc: ["glibc"] },
  "linux-arm64-gnu": { os: ["linux"], cpu: ["arm64"], libc: ["glibc"] },
  "linux-x64-musl": { os: ["linux"], cpu: ["x64"], libc: ["musl"] },
  "linux-arm64-musl": { os: ["linux"], cpu: ["arm64"], libc: ["musl"] },
  "darwin-x64": { os: ["darwin"], cpu: ["x64"] },
  "darwin-arm64": { os: ["darwin"], cpu: ["arm64"] },
  "win32-x64": { os: ["win32"], cpu: ["x64"] },
};

/** The repository, which npm compares with the one whose workflow publishes: only that workflow knows its address. */
const { POLYLIMIT_REPOSITORY: address } = process.env;
const repository = address ? { repository: { type: "git", url: `git+${address}.git` } } : {};

function pack(from) {
  const packed = execFileSync("npm", ["pack", "--silent", "--pack-destination", out], { cwd: from, encoding: "utf8" });
  return join(out, packed.trim().split("\n").pop());
}

/** What a package needs to be handed on: the licences, and those of what its addon contains. */
const LICENSES = ["LICENSE-APACHE", "LICENSE-MIT"];
const NOTICES = "THIRD_PARTY_NOTICES";

/** A folder of its own for a package, with the licences. */
function folderOf(name) {
  const made = join(out, name);
  rmSync(made, { recursive: true, force: true });
  mkdirSync(made, { recursive: true });
  for (const text of LICENSES) copyFileSync(join(project, text), join(made, text));
  copyFileSync(join(project, "target", NOTICES), join(made, NOTICES));
  return made;
}

function write(to, name, value) {
  writeFileSync(join(to, name), typeof value === "string" ? value : `${JSON.stringify(value, null, 2)}\n`);
}

/** The platforms with their addons: what is given, or else what was built for this one. */
function addons() {
  if (libraries.length > 0) return libraries.map((library) => library.split("=", 2));
  const file = readdirSync(join(root, "build")).find((name) => name.endsWith(".node"));
  return [[file.split(".")[1], join(root, "build", file)]];
}

function packAddon([platform, library]) {
  const { [platform]: where } = PLATFORMS;
  if (where === undefined) throw new Error(`there is no package for ${platform}`);
  const to = folderOf(platform);
  const file = `polylimit.${platform}.node`;
  copyFileSync(library, join(to, file));
  const name = `@polylimit/${platform}`;
  const about = `The addon of polylimit for ${platform}.`;
  write(to, "package.json", {
    name,
    version,
    description: about,
    license,
    author,
    homepage,
    ...repository,
    engines,
    main: file,
    files: [file, ...LICENSES, NOTICES],
    ...where,
  });
  write(to, "README.md", `# ${name}\n\n${about} It is installed by the package \`polylimit\`.\n`);
  return pack(to);
}

function packJavaScript() {
  const to = folderOf("polylimit");
  const { devDependencies: _, napi: __, ...published } = description;
  const optional = Object.keys(PLATFORMS).map((platform) => [`@polylimit/${platform}`, version]);
  write(to, "package.json", { ...published, ...repository, optionalDependencies: Object.fromEntries(optional) });
  copyFileSync(join(root, "README.md"), join(to, "README.md"));
  mkdirSync(join(to, "dist", "http"), { recursive: true });
  for (const folder of ["dist", "dist/http"]) {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      if (entry.isFile()) copyFileSync(join(root, folder, entry.name), join(to, folder, entry.name));
    }
  }
  return pack(to);
}

execFileSync(join(project, "tools", "notices"), { stdio: "inherit" });
mkdirSync(out, { recursive: true });
console.log(packJavaScript());
for (const addon of addons()) console.log(packAddon(addon));
