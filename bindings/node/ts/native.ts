/** Loads the addon (the one built beside these files, or the one of the platform's package) and the core's tables. */

import { existsSync } from "node:fs";
import { join } from "node:path";

import type * as Addon from "./addon";

/** The platform, as in the names of the packages: `linux-x64-gnu`, `darwin-arm64`, `win32-x64-msvc`. */
function target(): string {
  const { platform, arch } = process;
  if (platform === "win32") return `${platform}-${arch}-msvc`;
  if (platform !== "linux") return `${platform}-${arch}`;
  return `${platform}-${arch}-${isMusl() ? "musl" : "gnu"}`;
}

function isMusl(): boolean {
  const report = process.report?.getReport() as { header?: { glibcVersionRuntime?: string } } | undefined;
  return report?.header !== undefined && report.header.glibcVersionRuntime === undefined;
}

function load(): typeof Addon {
  const name = target();
  const built = join(__dirname, "..", "build", `polylimit.${name}.node`);
  if (existsSync(built)) return require(built);
  try {
    return require(`@polylimit/${name}`);
  } catch (cause) {
    const advice = `polylimit has no addon for ${name} here: install the package @polylimit/${name} of the same version`;
    throw new Error(advice, { cause });
  }
}

export const native: typeof Addon = load();

export const tables: Addon.Tables = native.tables();
