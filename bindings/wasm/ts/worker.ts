/** For workers that compile modules when they are deployed, and refuse to later: the module is an import. */

import { initSync } from "./module/polylimit.js";
// @ts-expect-error The host makes a `WebAssembly.Module` of this file.
import module from "./module/polylimit_bg.wasm";

initSync({ module });

export * from "./index.js";
