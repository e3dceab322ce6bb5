// Waits without an end, and ends when the signal is aborted.
"use strict";

const { Limiter } = require("polylimit");

const limiter = new Limiter("memory:", { policies: { api: "1/hour" } });
const controller = new AbortController();
limiter.checkSync("k");
limiter
  .acquire("k", { timeoutMs: Number.POSITIVE_INFINITY, signal: controller.signal })
  .catch((thrown) => process.stdout.write(`${thrown}\n`));
setTimeout(() => controller.abort("done"), 10);
