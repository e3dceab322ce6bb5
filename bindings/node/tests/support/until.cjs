"use strict";

/** Waits until a condition holds. It fails after a time that is many times as long as a successful wait. */
async function until(holds, what, boundMs = 30_000) {
  const end = Date.now() + boundMs;
  for (;;) {
    const value = await holds();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what}: not within ${boundMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

module.exports = { until };
