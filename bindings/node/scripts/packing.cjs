// What the packages of npm have in common: their description, the licences, and how they are packed. pack.cjs and pack_cli.cjs use it.
"use strict";

const { execFileSync } = require("node:child_process");
const { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } = require("node:fs");
const { join } = require("node:path");

const root = join(__dirname, "..");
const project = join(root, "..", "..");
const description = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

/** The repository, which npm compares with the one whose workflow publishes: only that workflow knows its address. */
const { POLYLIMIT_REPOSITORY: address } = process.env;
const repository = address ? { repository: { type: "git", url: `git+${address}.git` } } : {};

/** The fields that every package has. */
const { version, license, author, homepage, engines } = description;
const common = { version, license, author, homepage, ...repository, engines };

/** What a package needs to be handed on: the licences, and those of what it contains of others. */
const LICENSES = ["LICENSE-APACHE", "LICENSE-MIT"];
const NOTICES = "THIRD_PARTY_NOTICES";

/** A folder of its own for a package, with the licences. */
function folderOf(out, name) {
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

/** Packs a folder into the folder `out`, and returns the file. */
function pack(out, from) {
  const packed = execFileSync("npm", ["pack", "--silent", "--pack-destination", out], { cwd: from, encoding: "utf8" });
  return join(out, packed.trim().split("\n").pop());
}

/** Starts: the notices are written, the folder is there. */
function prepare(out) {
  execFileSync(join(project, "tools", "notices"), { stdio: "inherit" });
  mkdirSync(out, { recursive: true });
}

module.exports = { LICENSES, NOTICES, common, description, folderOf, pack, prepare, repository, root, write };
