#!/usr/bin/env node
/** The program `polylimit`, which `npx polylimit` runs: the command line tool of the addon. */

import { native } from "./native";

native.runCommandLine(["polylimit", ...process.argv.slice(2)]).then((status) => {
  // The process ends by itself: everything is written already.
  process.exitCode = status;
});
