/** The versions of the frameworks that the middlewares are made for, and the check of the one that is in use. */

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";

import { invalidArgument } from "../errors";

interface Support {
  readonly title: string;
  readonly oldest: readonly [major: number, minor: number];
  readonly end: number;
  readonly without: readonly string[];
}

/**
 * For each framework its oldest supported version, the first major version that is not supported, and those in between that are
 * not. The ranges are those of package.json.
 */
const SUPPORTED = {
  express: { title: "Express", oldest: [4, 18], end: 6, without: [] },
  koa: { title: "Koa", oldest: [2, 13], end: 4, without: [] },
  // Versions 13.0 and 14.0 run the middlewares of `router.use` for other paths than those of its routes.
  koaRouter: { title: "@koa/router", oldest: [8, 0], end: 16, without: ["13.0", "14.0"] },
  nest: { title: "NestJS", oldest: [10, 0], end: 13, without: [] },
} as const satisfies Record<string, Support>;

/**
 * Refuses a version of a framework that is not supported. An unknown version passes: a bundler leaves no trace of it.
 *
 * @throws PolylimitError `invalid_argument` with the versions
 */
export function checkVersion(framework: keyof typeof SUPPORTED, version: string | undefined): void {
  const { title, oldest, end, without }: Support = SUPPORTED[framework];
  const [major, minor] = (version ?? "").split(".").map(Number);
  if (version === undefined || !Number.isInteger(major) || !Number.isInteger(minor)) return;
  const isOldEnough = major < end && !without.includes(`${major}.${minor}`);
  if (isOldEnough && (major > oldest[0] || (major === oldest[0] && minor >= oldest[1]))) return;
  const but = without.length === 0 ? "" : `, but not ${without.join(" or ")}`;
  throw invalidArgument(
    `${title} ${version} is not supported: use ${title} ${oldest.join(".")} or newer, and below ${end}.0${but}, or another version ` +
      "of polylimit",
  );
}

/** The version of the package whose loaded file (`lib/application.js`) has these exports; `undefined` if none has. */
export function loadedVersion(file: string, isOurs: (exports: never) => boolean): string | undefined {
  for (const [path, loaded] of Object.entries(require.cache)) {
    if (!path.replaceAll("\\", "/").endsWith(`/${file}`)) continue;
    if (loaded?.exports && isOurs(loaded.exports as never)) {
      const root = file.split("/").reduce(dirname, path);
      return versionIn(join(root, "package.json"));
    }
  }
  return undefined;
}

/** The version of a package as the program finds it. */
export function installedVersion(name: string): string | undefined {
  const paths = [require.main && dirname(require.main.filename), process.cwd(), __dirname];
  try {
    return versionIn(require.resolve(`${name}/package.json`, { paths: paths.filter((path) => path !== undefined) }));
  } catch {
    return undefined;
  }
}

function versionIn(file: string): string | undefined {
  try {
    return (JSON.parse(readFileSync(file, "utf8")) as { readonly version?: string }).version;
  } catch {
    return undefined;
  }
}
