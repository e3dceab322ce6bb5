// For hosts with a command line: prints what it has seen.
import * as polylimit from "@polylimit/wasm";
import { program } from "./program.js";

const limiter = new polylimit.Limiter("memory:", { policies: { api: "1/100ms" } });
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
console.log(JSON.stringify(await program(polylimit, limiter, wait)));
