// Makes what is published, two packages: the JavaScript, and the addon of this platform.
//   node scripts/pack.cjs FOLDER     packs what scripts/build has built into that folder, and prints the two files
"use strict";

const { execFileSync } = require("node:child_process");
const { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } = require("node:fs");
const { join, resolve } = require("node:path");

const root = join(__dirname, "..");
const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error("usage: pack.cjs FOLDER");
const out = resolve(folder);

const description = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const { version, license, author, homepage, engines } = description;

/** What a package manager has to know to choose one: the platforms that addons are built for. */
const PLATFORMS = {
  "linux-x64-gnu": { os: ["linux"], cpu: ["x64"], libc: ["glibc"] },
  "linux-arm64-gnu": { os: ["linux"], cpu: ["arm64"], libc: ["glibc"] },
  "linux-x64-musl": { os: ["linux"], cpu: ["x64"], libc: ["musl"] },
  "linux-arm64-musl": { os: ["linux"], cpu: ["arm64"], libc: ["musl"] },
  "darwin-x64": { os: ["darwin"], cpu: ["x64"] },
  "darwin-arm64": { os: ["darwin"], cpu: ["arm64"] },
  "win32-x64-msvc": { os: ["win32"], cpu: ["x64"] },
};

function pack(from) {
  const packed = execFileSync("npm", ["pack", "--silent", "--pack-destination", out], { cwd: from, encoding: "utf8" });
  return join(out, packed.trim().split("\n").pop());
}

/** What a package needs to be handed on: the licences, and those of what its addon contains. */
const LEGAL = ["LICENSE-APACHE", "LICENSE-MIT", "THIRD_PARTY_NOTICES"];

/** A folder of its own for a package, with the licences. */
function folderOf(name) {
  const made = join(out, name);
  rmSync(made, { recursive: true, force: true });
  mkdirSync(made, { recursive: true });
  for (const text of LEGAL) copyFileSync(join(root, "..", "..", text), join(made, text));
  return made;
}

function write(to, name, value) {
  writeFileSync(join(to, name), typeof value === "string" ? value : `${JSON.stringify(value, null, 2)}\n`);
}

function packAddon() {
  const file = readdirSync(join(root, "build")).find((name) => name.endsWith(".node"));
  const platform = file.split(".")[1];
  const { [platform]: where } = PLATFORMS;
  if (where === undefined) throw new Error(`there is no package for ${platform}`);
  const to = folderOf(platform);
  copyFileSync(join(root, "build", file), join(to, file));
  const name = `@polylimit/${platform}`;
  const about = `The addon of polylimit for ${platform}.`;
  write(to, "package.json", {
    name,
    version,
    description: about,
    license,
    author,
    homepage,
    engines,
    main: file,
    files: [file, ...LEGAL],
    ...where,
  });
  write(to, "README.md", `# ${name}\n\n${about} It is installed by the package \`polylimit\`.\n`);
  return pack(to);
}

function packJavaScript() {
  const to = folderOf("polylimit");
  const { devDependencies: _, napi: __, ...published } = description;
  const addons = Object.keys(PLATFORMS).map((platform) => [`@polylimit/${platform}`, version]);
  write(to, "package.json", { ...published, optionalDependencies: Object.fromEntries(addons) });
  copyFileSync(join(root, "README.md"), join(to, "README.md"));
  mkdirSync(join(to, "dist", "http"), { recursive: true });
  for (const folder of ["dist", "dist/http"]) {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      if (entry.isFile()) copyFileSync(join(root, folder, entry.name), join(to, folder, entry.name));
    }
  }
  return pack(to);
}

mkdirSync(out, { recursive: true });
console.log(packJavaScript());
console.log(packAddon());
