/** Loads the addon of this platform from its package, and the core's tables. */

import { closeSync, openSync, readSync } from "node:fs";

import type * as Addon from "./addon";

/** The names of the addons that may fit this process, in the order in which to try them. */
function targets(): string[] {
  const { platform, arch } = process;
  if (platform !== "linux") return [`${platform}-${arch}`];
  const isMusl = usesMusl();
  const names = [`${platform}-${arch}-gnu`, `${platform}-${arch}-musl`];
  return isMusl === undefined ? names : [names[isMusl ? 1 : 0]];
}

/** The head of an executable has the name of its dynamic linker. */
const HEAD_BYTES = 4096;

/**
 * Whether this process uses musl as its C library; `undefined` where its executable does not say it. `process.report` says it too, but
 * first resolves the address of every open socket to a name, during which the event loop stands still.
 */
function usesMusl(): boolean | undefined {
  try {
    const file = openSync(process.execPath, "r");
    try {
      const head = Buffer.alloc(HEAD_BYTES);
      readSync(file, head, 0, HEAD_BYTES, 0);
      if (head.includes("/ld-musl-")) return true;
      return head.includes("/ld-linux-") ? false : undefined;
    } finally {
      closeSync(file);
    }
  } catch {
    return undefined;
  }
}

/** A package that was tried, and what was thrown. */
interface Failure {
  readonly name: string;
  readonly cause: unknown;
}

/**
 * The addon of a platform, from its package; `undefined` where there is none or it does not load. scripts/pack.cjs makes the packages.
 * Each call names its package literally, and stands in a `try`: bundlers, and programs that copy what a service needs, find packages by
 * reading the source, and take those that are not installed for optional.
 */
function packaged(name: string, failures: Failure[]): typeof Addon | undefined {
  try {
    switch (name) {
      case "linux-x64-gnu":
        return require("@polylimit/linux-x64-gnu");
      case "linux-x64-musl":
        return require("@polylimit/linux-x64-musl");
      case "linux-arm64-gnu":
        return require("@polylimit/linux-arm64-gnu");
      case "linux-arm64-musl":
        return require("@polylimit/linux-arm64-musl");
      case "darwin-x64":
        return require("@polylimit/darwin-x64");
      case "darwin-arm64":
        return require("@polylimit/darwin-arm64");
      case "win32-x64":
        return require("@polylimit/win32-x64");
      default:
        return undefined;
    }
  } catch (cause) {
    failures.push({ name, cause });
    return undefined;
  }
}

const NOT_FOUND =
  "install the package of the same version, which npm leaves out without optional dependencies, or with a lock file of another platform; " +
  "if the program is bundled, leave polylimit external";

const NOT_LOADED =
  "the package is there, but the system does not load its addon: the file must be complete and lie on a file system that allows " +
  "programs (mounted without noexec), and the image needs the C library that the name says, with libgcc_s.so.1";

/** Whether a package was found and its addon refused. node-loader of webpack has an error of its own for what the system says. */
function isRefused({ cause }: Failure): boolean {
  const { code, message } = cause as { readonly code?: unknown; readonly message?: unknown };
  return code === "ERR_DLOPEN_FAILED" || String(message).startsWith("node-loader:");
}

/** An error that says what was tried, and what to do. */
function errorOf(failures: readonly Failure[]): Error {
  const [{ cause }] = failures;
  const refused = failures.find(isRefused);
  const tried = failures.map((failure) => {
    // Node appends the stack of modules; it is in the cause.
    const [said] = String((failure.cause as Error).message).split("\nRequire stack:");
    return `require("@polylimit/${failure.name}"): ${said.replace(/\s+/g, " ")}`;
  });
  return new Error(
    `polylimit cannot load its addon for ${failures.map(({ name }) => name).join(" or ")} (tried ${tried.join("; ")}): ` +
      `${refused === undefined ? NOT_FOUND : NOT_LOADED} (https://polylimit.dev/docs/bundlers)`,
    { cause: refused?.cause ?? cause },
  );
}

function load(): typeof Addon {
  const names = targets();
  const failures: Failure[] = [];
  for (const name of names) {
    const addon = packaged(name, failures);
    if (addon !== undefined) return addon;
  }
  if (failures.length > 0) throw errorOf(failures);
  throw new Error(
    `polylimit has no addon for ${names[0]}: there is one for Linux and macOS on x64 and arm64, and for Windows on x64`,
  );
}

export const native: typeof Addon = load();

export const tables: Addon.Tables = native.tables();
