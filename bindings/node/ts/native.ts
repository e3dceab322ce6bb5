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

/**
 * The addon of a platform, from its package; `undefined` for a platform without one. scripts/pack.cjs makes the packages. Each call names
 * its package literally, and stands in a `try`: bundlers, and programs that copy what a service needs, find packages by reading the
 * source, and take those that are not installed for optional.
 */
function packaged(name: string): typeof Addon | undefined {
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
      default:
        return undefined;
    }
  } catch (cause) {
    throw new Error(
      `polylimit cannot load its addon for ${name}: install the package @polylimit/${name} of the same version, which npm leaves ` +
        "out without optional dependencies, or with a lock file of another platform; if the program is bundled, leave polylimit " +
        "external (README, Bundlers)",
      { cause },
    );
  }
}

function load(): typeof Addon {
  const names = targets();
  let failure: unknown;
  for (const name of names) {
    try {
      const addon = packaged(name);
      if (addon !== undefined) return addon;
    } catch (error) {
      failure ??= error;
    }
  }
  throw (
    failure ?? new Error(`polylimit has no addon for ${names[0]}: there is one for Linux and macOS, on x64 and arm64`)
  );
}

export const native: typeof Addon = load();

export const tables: Addon.Tables = native.tables();
