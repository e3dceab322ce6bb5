// Runs a case of format 5, of requests over several policies, through the Node faces of polylimit.
"use strict";

const { isDeepStrictEqual } = require("node:util");

const { polylimit } = require("./package.cjs");

const { Limiter, ManualClock } = polylimit;

const US_OF_A_MS = 1000;
/** The sources of answers that the outage policy made. */
const OUTAGES = ["fallback", "allow", "deny"];

/** What a case expects of the decision on one key; nothing of one that an outage policy made. */
function ofDecision({ allowed, remaining, retryAfterUs, resetAfterMs, source }) {
  if (OUTAGES.includes(source)) return { source };
  return { allowed, remaining, retry_after_us: retryAfterUs, reset_after_us: Math.round(resetAfterMs * US_OF_A_MS) };
}

function ofUsage({ remaining, resetAfterMs, source }) {
  return OUTAGES.includes(source) ? { source } : { remaining, reset_after_us: Math.round(resetAfterMs * US_OF_A_MS) };
}

function ofRequest(decisions) {
  const waits = decisions.map(({ retryAfterUs }) => retryAfterUs);
  return {
    allowed: decisions.every(({ allowed }) => allowed),
    retry_after_us: waits.includes(null) ? null : Math.max(...waits),
    decisions: decisions.map(ofDecision),
  };
}

/** Each operation returns what a case may expect of it. */
const operations = {
  check_all: async (limiter, { checks }) => ofRequest(await limiter.checkTogether(checks)),
  peek_all: async (limiter, { checks }) => ofRequest(await limiter.peekTogether(checks)),
  reserve_all: async (limiter, { checks, id, ttl_us: ttlUs }) => {
    const reserved = await limiter.reserveTogether(checks, { id, ttlMs: ttlUs / US_OF_A_MS });
    return reserved.id === id ? ofRequest(reserved.decisions) : { id: reserved.id };
  },
  check: async (limiter, { key, policy, cost }, face) => ofDecision(await face(limiter, key, { policy, cost })),
  peek: async (limiter, { key, policy, cost }) => ofDecision(await limiter.peek(key, { policy, cost })),
};

for (const name of ["charge", "refund", "reset"]) {
  operations[name] = async (limiter, { key, policy, cost }) => ofUsage(await limiter[name](key, { policy, cost }));
}

/** Where a case went wrong. The operations after it mean nothing: they build on it. */
async function runCase({ policies, ops }, prefix, face, store, quotaOf) {
  const clock = new ManualClock(0);
  // What the store does not answer must not look as if it did.
  const outage = store.startsWith("redis") ? "deny" : undefined;
  const views = Object.entries(policies).map(([name, quotas]) => [name, { quotas: quotas.map(quotaOf), outage }]);
  const url = store === "memory" ? "memory:" : store;
  const limiter = new Limiter(url, { policies: Object.fromEntries(views), clock });
  const seen = new Map();
  try {
    for (const [at, operation] of ops.entries()) {
      const { at_us: atUs, op, charges = [], key, expect } = operation;
      const checks = charges.map((charge) => ({ ...charge, key: `${prefix} ${charge.key}` }));
      const asked = { ...operation, checks, key: `${prefix} ${key}` };
      for (const one of charges.length > 0 ? checks : [asked]) seen.set(`${one.policy} ${one.key}`, one);
      clock.setUs(atUs);
      const got = await operations[op](limiter, asked, face);
      if (expect.retry_after_us === undefined) delete got.retry_after_us;
      if (!isDeepStrictEqual(got, expect)) {
        const lines = [`${op} at ${atUs} us`, `  expected ${JSON.stringify(expect)}`, `  got      ${JSON.stringify(got)}`];
        return { at, message: lines.join("\n") };
      }
    }
    return undefined;
  } finally {
    // A manual clock's keys do not expire.
    for (const { key, policy } of seen.values()) await limiter.reset(key, policy);
    limiter.close();
  }
}

module.exports = { runCase };
