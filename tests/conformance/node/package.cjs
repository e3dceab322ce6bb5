// The package whose faces run the cases: the addon, or with POLYLIMIT_WASM the package without one, whose calls have the same names.
"use strict";

const isWasm = process.env.POLYLIMIT_WASM !== undefined;

/** What the lines of a face begin with. */
const NAME = isWasm ? "wasm" : "node";

// The entry of the other package is an ES module.
const polylimit = isWasm ? require("../../../bindings/wasm/dist/node.js") : require("../../../bindings/node");

module.exports = { NAME, polylimit };
