/**
 * polylimit as a WebAssembly module: the limiter, its values and the simulation. The store is the memory of the module, which answers
 * every call at once: no method returns a promise, and `await` takes the values as well, as in the package for Node.
 *
 * The entries `node.ts`, `worker.ts` and `web.ts` load the module. A program that imports `@polylimit/wasm/manual` calls `init` or
 * `initSync` itself before anything else.
 */

export { PolylimitError } from "./errors.js";
export { Admin, Limiter, Reservation } from "./limiter.js";
export { default as init, initSync } from "./module/polylimit.js";
export {
  type CheckedDocument,
  checkDocument,
  type Played,
  type Simulated,
  simulate,
  type Timeline,
} from "./simulation.js";
export type { Algorithm, Cause, Degradation, ErrorCode, Outage, Source } from "./tables.js";
export type * from "./types.js";
export { ManualClock, Quota } from "./values.js";
