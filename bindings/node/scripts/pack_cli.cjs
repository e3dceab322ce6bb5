// Makes the packages of the command line: @polylimit/cli, and one with the program for each platform. Prints the files.
//   node scripts/pack_cli.cjs FOLDER PLATFORM=PROGRAM...    such as linux-x64=target/release/polylimit
"use strict";

const { chmodSync, copyFileSync } = require("node:fs");
const { join, resolve } = require("node:path");

const { LICENSES, NOTICES, common, folderOf, pack, prepare, root, write } = require("./packing.cjs");

const [folder, ...programs] = process.argv.slice(2);
if (folder === undefined) throw new Error("usage: pack_cli.cjs FOLDER PLATFORM=PROGRAM...");
const out = resolve(folder);

/** The platforms that programs are built for, as Node names them. Those for Linux are static. */
const PLATFORMS = ["linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64", "win32-x64"];
const EXECUTABLE = 0o755;

function packProgram([platform, program]) {
  if (!PLATFORMS.includes(platform)) throw new Error(`there is no package for ${platform}`);
  const [os, cpu] = platform.split("-");
  const to = folderOf(out, `cli-${platform}`);
  const file = os === "win32" ? "polylimit.exe" : "polylimit";
  copyFileSync(program, join(to, file));
  chmodSync(join(to, file), EXECUTABLE);
  const name = `@polylimit/cli-${platform}`;
  const about = `The command line of polylimit for ${platform}.`;
  const files = [file, ...LICENSES, NOTICES];
  // A package manager that keeps packages in archives has to unpack this one: the system runs the file.
  const fields = { files, os: [os], cpu: [cpu], preferUnplugged: true };
  write(to, "package.json", { name, description: about, ...common, ...fields });
  write(to, "README.md", `# ${name}\n\n${about} It is installed by the package \`@polylimit/cli\`.\n`);
  return pack(out, to);
}

function packCommand() {
  const to = folderOf(out, "cli");
  for (const file of ["index.js", "README.md"]) copyFileSync(join(root, "cli", file), join(to, file));
  const optional = PLATFORMS.map((platform) => [`@polylimit/cli-${platform}`, common.version]);
  write(to, "package.json", {
    name: "@polylimit/cli",
    description: "The command line of polylimit: queries and manages rate limits from a shell.",
    ...common,
    type: "commonjs",
    main: "./index.js",
    // The command `polylimit` is that of the package `polylimit`, which runs this one.
    bin: { "polylimit-cli": "./index.js" },
    files: ["index.js", "README.md", ...LICENSES, NOTICES],
    optionalDependencies: Object.fromEntries(optional),
  });
  return pack(out, to);
}

prepare(out);
console.log(packCommand());
for (const program of programs) console.log(packProgram(program.split("=", 2)));
