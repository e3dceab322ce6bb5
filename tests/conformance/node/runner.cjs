// Runs a file of conformance cases through the Node faces of polylimit, and prints how many cases agree.
//
// Usage: node runner.cjs FILE STORE, where STORE is `memory` or the URL of one.
"use strict";

const { readFileSync } = require("node:fs");
const { isDeepStrictEqual } = require("node:util");

const { NAME, polylimit } = require("./package.cjs");
const policies = require("./policies.cjs");
const requests = require("./requests.cjs");

const { Limiter, ManualClock, Quota } = polylimit;

const US_OF_A_MS = 1000;
/** The sources of answers that the outage policy made. */
const OUTAGES = ["fallback", "allow", "deny"];

/** The policy of each case. */
const POLICY = "case";

/** The operations on reservations; `handles` are the cases' own, which live until its end. */
const onReservations = {
  reserve: async (limiter, key, { cost, id, ttl_us: ttlUs, remember_us: rememberUs = 0 }, handles) => {
    // The cases renew their reservations themselves.
    const times = { ttlMs: ttlUs / US_OF_A_MS, maxAgeMs: 0, rememberMs: rememberUs / US_OF_A_MS };
    const options = { policy: POLICY, cost, id, ...times };
    const reservation = await limiter.reserve(key, options);
    handles.push(reservation);
    return reservation.decision;
  },
  commit: (limiter, key, { id, cost: spent }) => limiter.commit(key, id, { policy: POLICY, spent }),
  cancel: (limiter, key, { id }) => limiter.cancel(key, id, POLICY),
  renew: (limiter, key, { id, ttl_us: ttlUs }) => limiter.renew(key, id, ttlUs / US_OF_A_MS, POLICY),
};

const promises = {
  name: NAME,
  answer: (limiter, key, operation, handles) => {
    const { op, cost } = operation;
    if (op in onReservations) return onReservations[op](limiter, key, operation, handles);
    return limiter[op](key, { policy: POLICY, cost });
  },
};
const sync = {
  name: `${NAME} (sync)`,
  answer: (limiter, key, operation, handles) =>
    operation.op === "check"
      ? limiter.checkSync(key, { policy: POLICY, cost: operation.cost })
      : promises.answer(limiter, key, operation, handles),
};

async function main([path, store, ...more]) {
  if (store === undefined || more.length > 0) throw new Error("usage: runner.cjs FILE STORE");
  const file = JSON.parse(readFileSync(path, "utf8"));
  if (![1, 2, 3, 4, 5].includes(file.format)) {
    throw new Error(`${path}: format ${file.format} is not known: this runner reads formats 1 to 5`);
  }
  if (file.cases.length === 0 || file.cases.some(({ ops }) => ops.length === 0)) {
    throw new Error(`${path}: it has no case, or a case without operations`);
  }
  // Only a store in this process or on this host answers without a promise.
  const isHere = store === "memory" || store.startsWith("local:");
  const all = file.format === 3 || file.format === 5 ? [policies.promises, policies.sync] : [promises, sync];
  const faces = isHere ? all : all.slice(0, 1);
  const started = Date.now();
  let allAgree = true;
  for (const face of faces) {
    let agreed = 0;
    for (const [number, one] of file.cases.entries()) {
      const prefix = `${face.name} ${started} ${number}`;
      const difference =
        file.format === 3
          ? await policies.runCase(one, face, store)
          : file.format === 5
            ? await requests.runCase(one, prefix, face.check, store, quotaOf)
            : await runCase(one, prefix, face, store);
      if (difference === undefined) {
        agreed += 1;
      } else {
        const { at, message } = difference;
        console.log(`${face.name} ${store}: case ${JSON.stringify(one.name)}, operation ${at}: ${message}`);
      }
    }
    console.log(`${face.name} ${store}: ${agreed} of ${file.cases.length} cases agree`);
    allAgree &&= agreed === file.cases.length;
  }
  return allAgree ? 0 : 1;
}

/** Where a case went wrong. The operations after it mean nothing: they build on it. */
async function runCase(one, key, face, store) {
  const clock = new ManualClock(0);
  // What the store does not answer must not look as if it did.
  const outage = store.startsWith("redis") ? "deny" : undefined;
  const policies = { [POLICY]: { quotas: one.quotas.map(quotaOf), outage } };
  const limiter = new Limiter(store === "memory" ? "memory:" : store, { policies, clock });
  // A handle that the garbage collector takes would end its reservation.
  const handles = [];
  try {
    return await differs(one, key, face, limiter, clock, handles);
  } finally {
    // A manual clock's keys do not expire.
    await limiter.reset(key);
    limiter.close();
    handles.length = 0;
  }
}

async function differs({ ops }, key, face, limiter, clock, handles) {
  for (const [at, operation] of ops.entries()) {
    const { at_us: atUs, op, cost, quotas, expect = {} } = operation;
    clock.setUs(atUs);
    if (op === "change") {
      limiter.setPolicy(POLICY, quotas.map(quotaOf));
      continue;
    }
    const answer = await face.answer(limiter, key, operation, handles);
    const got = OUTAGES.includes(answer.source) ? { source: answer.source } : shown(answer, expect);
    const expected = inMilliseconds(expect);
    if (!isDeepStrictEqual(got, expected)) {
      const message = [
        `${op} of ${cost} at ${atUs} us`,
        `  expected ${JSON.stringify(expected)}`,
        `  got      ${JSON.stringify(got)}`,
      ].join("\n");
      return { at, message };
    }
  }
  return undefined;
}

/** The fields that an operation answers; which of them are expected depends on the operation. */
function shown(answer, expect) {
  const { allowed, remaining, retryAfterUs, resetAfterMs, delayUs, taken, found, repeated, over } = answer;
  const decided = { allowed, remaining, retryAfterUs, resetAfterMs, delayUs };
  // Only cases of format 2 expect the units of an excess.
  if (allowed !== undefined) return expect.over === undefined ? decided : { ...decided, over };
  const left = { remaining, resetAfterMs };
  // Only cases of commits that are remembered expect whether they are repeated.
  if (expect.repeated !== undefined) return { ...left, found, repeated };
  if (expect.found !== undefined) return { ...left, found };
  return expect.taken === undefined ? left : { ...left, taken };
}

function inMilliseconds({ allowed, remaining, retry_after_us, reset_after_us, delay_us, taken, found, repeated, over, ...unknown }) {
  const rest = Object.keys(unknown);
  if (rest.length > 0) throw new Error(`expected is ${rest.join(", ")}, which is not known`);
  const expected = {
    allowed,
    remaining,
    retryAfterUs: retry_after_us,
    resetAfterMs: reset_after_us / US_OF_A_MS,
    delayUs: delay_us,
    taken,
    found,
    repeated,
    over,
  };
  return Object.fromEntries(Object.entries(expected).filter(([, value]) => value !== undefined));
}

function quotaOf({ limit, period_us: periodUs, count_denied: countDenied, text, ...settings }) {
  // A quota by the calendar has its text.
  if (text !== undefined) return Quota.parse(text);
  if (settings.algorithm === "concurrency") return Quota.concurrent(limit);
  return new Quota(limit, periodUs / US_OF_A_MS, { ...settings, countDenied });
}

main(process.argv.slice(2)).then(
  (status) => {
    process.exitCode = status;
  },
  (error) => {
    console.error(`conformance-node: ${error.message}`);
    process.exitCode = 2;
  },
);
