/** For Node, Deno and Bun: reads the module from its file. */

import { readFileSync } from "node:fs";
import { initSync } from "./module/polylimit.js";

initSync({ module: readFileSync(new URL("./module/polylimit_bg.wasm", import.meta.url)) });

export * from "./index.js";
