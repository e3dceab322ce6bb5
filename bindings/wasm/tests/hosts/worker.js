// For hosts of workers: answers with what it has seen.
import * as polylimit from "@polylimit/wasm";
import { program } from "./program.js";

// Where the worker starts, it may neither ask for the time nor for random numbers.
const limiter = new polylimit.Limiter("memory:", { policies: { api: "1/100ms" } });
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export default {
  async fetch() {
    return Response.json(await program(polylimit, limiter, wait));
  },
};
