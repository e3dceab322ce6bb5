#!/usr/bin/env node
/** The command `polylimit`, which `npx polylimit` runs: the program of the package `@polylimit/cli`, if that is installed. */

const NAME = "@polylimit/cli";
/** What a shell returns for a command that it does not find; no status of the program. */
const NOT_FOUND = 127;

function installed(): { readonly run: () => void } | undefined {
  try {
    return require(NAME);
  } catch (error) {
    const { code, message } = error as { readonly code?: unknown; readonly message?: unknown };
    // Something else that is missing has another name.
    if (code === "MODULE_NOT_FOUND" && String(message).includes(`'${NAME}'`)) return undefined;
    throw error;
  }
}

const program = installed();
if (program === undefined) {
  console.error(`polylimit: the command line is not installed: npm install ${NAME}, or npx ${NAME}`);
  process.exitCode = NOT_FOUND;
} else {
  program.run();
}
