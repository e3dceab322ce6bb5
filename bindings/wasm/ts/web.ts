/** For browsers: fetches the module. */

import init from "./module/polylimit.js";

await init();

export * from "./index.js";
