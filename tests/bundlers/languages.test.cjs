// The native libraries of the JVM, Python and Ruby on a read-only machine, where /tmp allows no programs: the settings of docs/bundlers.md
// work, and what cannot work is an error that says what to do. The bindings are built; ./run names the JVM's class path.
"use strict";

const assert = require("node:assert/strict");
const { execFile } = require("node:child_process");
const { cp, mkdir, readFile, rm, writeFile } = require("node:fs/promises");
const { join } = require("node:path");
const { test } = require("node:test");
const { promisify } = require("node:util");

const run = promisify(execFile);
const root = join(__dirname, "..", "..");
const made = join(root, "target", "bundlers");
const confined = join(__dirname, "confined");

/** Runs a command on the confined machine; returns what it prints, and of one that fails the errors. */
async function output(env, ...command) {
  const options = { cwd: made, env: { ...process.env, ...env } };
  const { stdout, stderr } = await run(confined, ["machine", ...command], options).catch((error) => error);
  return `${stdout}${stderr}`;
}

/** The options of the JVM that a row of the page names, with a folder for the one in it. */
async function options(row, folder) {
  const page = await readFile(join(root, "docs", "bundlers.md"), "utf8");
  const [, , cell] = page
    .split("\n")
    .find((line) => line.startsWith(`| ${row} |`))
    .split("|");
  return [...cell.matchAll(/-D[^` ]+/g)].map(([option]) => option.replace("/folder", folder));
}

const PROGRAM = `
import java.util.Map;
import polylimit.Limiter;

public class Main {
  public static void main(String[] arguments) throws Exception {
    try (Limiter limiter = Limiter.of(Map.of("api", "2/minute"))) {
      for (int request = 0; request < 3; request++) System.out.print(limiter.check("user:42").getAllowed() + " ");
    }
  }
}
`;

test("JVM: a folder that allows programs, or libraries that are unpacked already, and otherwise an error that names the option", async () => {
  const folder = join(made, "jvm");
  await rm(folder, { recursive: true, force: true });
  for (const part of ["programs", "native"]) await mkdir(join(folder, part), { recursive: true });
  await writeFile(join(folder, "Main.java"), PROGRAM);
  const classPath = `${folder}:${process.env.POLYLIMIT_CLASS_PATH}`;
  await run("javac", ["-cp", classPath, "-d", folder, join(folder, "Main.java")]);
  // JNA's name of this machine.
  const machine = process.arch === "x64" ? "linux-x86-64" : "linux-aarch64";
  const library = join(root, "bindings/uniffi/kotlin/target/native", machine, "libpolylimit_uniffi.so");
  await cp(library, join(folder, "native", "libpolylimit_uniffi.so"));
  const jna = process.env.POLYLIMIT_CLASS_PATH.split(":").find((jar) => /\/jna-[^/]+$/.test(jar));
  const dispatch = `com/sun/jna/${machine}/libjnidispatch.so`;
  await run("jar", ["--extract", "--file", jna, dispatch], { cwd: folder });
  await cp(join(folder, dispatch), join(folder, "native", "libjnidispatch.so"));
  const java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classPath];

  assert.match(
    await output({}, ...java, "Main"),
    /polylimit's native library cannot be loaded: .+ must be writable and allow execution; -Djna.tmpdir=<folder> names another one/,
  );
  const programs = join(folder, "programs");
  for (const [row, env, place] of [
    ["JVM, a folder that allows programs", { EXECUTABLE: programs }, programs],
    ["JVM, no such folder", {}, join(folder, "native")],
  ]) {
    assert.equal(await output(env, ...java, ...(await options(row, place)), "Main"), "true true false ", row);
  }
});

const DECIDE =
  'import polylimit; limiter = polylimit.Limiter(policies={"api": "2/minute"}); print([bool(limiter.check("k")) for _ in range(3)])';

test("Python: a read-only folder, a zip that unpacks itself, and errors for a plain zip and where programs are forbidden", async () => {
  const folder = join(made, "zipped");
  await rm(folder, { recursive: true, force: true });
  await mkdir(join(folder, "unpacked"), { recursive: true });
  const sources = join(root, "bindings/python/python");
  await cp(join(sources, "polylimit"), join(folder, "app", "polylimit"), { recursive: true });
  await writeFile(join(folder, "app", "__main__.py"), `${DECIDE}\n`);
  const python = join(root, "target/python-venv/bin/python");
  const app = join(folder, "app");
  assert.equal(await output({}, python, app), "[True, True, False]\n");
  assert.match(
    await output({ NOEXEC: app }, python, app),
    /ImportError: polylimit cannot load its native module for cpython .+ failed to map segment .+ \(mounted without noexec\)/,
  );
  await run(python, ["-m", "zipapp", app, "-o", join(folder, "plain.pyz")]);
  assert.match(
    await output({}, python, join(folder, "plain.pyz")),
    /No module named 'polylimit._core': a native module does not load from a zip/,
  );
  // shiv unpacks into a folder, which must allow programs.
  const shiv = { ...process.env, PYTHONPATH: join(made, "python") };
  await run(python, ["-m", "shiv", "--site-packages", app, "-o", join(folder, "shiv.pyz")], { env: shiv });
  const unpacked = join(folder, "unpacked");
  const env = { EXECUTABLE: unpacked, SHIV_ROOT: unpacked };
  assert.equal(
    await output(env, "sh", "-c", `echo '${DECIDE}' | "$0" "$1" -`, python, join(folder, "shiv.pyz")),
    "[True, True, False]\n",
  );
});

test("Ruby: a read-only gem, and an error where programs are forbidden", async () => {
  const lib = join(root, "bindings/uniffi/ruby/lib");
  const code =
    'require "polylimit"; limiter = Polylimit::Limiter.new(policies: { api: "2/minute" }); print 3.times.map { limiter.check("k").allowed }';
  const ruby = ["ruby", "-W:no-deprecated", "-I", lib, "-e", code];
  assert.equal(await output({}, ...ruby), "[true, true, false]");
  assert.match(
    await output({ NOEXEC: lib }, ...ruby),
    /polylimit cannot load its native library for .+ failed to map segment .+ \(mounted without noexec\)/,
  );
});
