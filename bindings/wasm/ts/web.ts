/** For browsers: fetches the module. */

import init from "./module/polylimit.js";

await init({ module_or_path: new URL("./module/polylimit_bg.wasm", import.meta.url) });

export * from "./index.js";
