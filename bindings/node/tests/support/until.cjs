"use strict";

/** Waits until a condition holds, or fails after a bound that no healthy run comes near. */
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
