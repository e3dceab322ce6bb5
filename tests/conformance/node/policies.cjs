// Runs a case of format 3, about documents, rules and decisions by them, through the Node faces of polylimit.
"use strict";

const { rmSync } = require("node:fs");
const { isDeepStrictEqual } = require("node:util");

const { NAME, polylimit } = require("./package.cjs");

const { Limiter, ManualClock, PolylimitError } = polylimit;

const US_OF_A_MS = 1000;
/** Cases count their times from here: Monday 2026-09-21. */
const START_US = 1_789_948_800_000_000;
/** The sources of answers that the outage policy made. */
const OUTAGES = ["fallback", "allow", "deny"];
/** How long the counts of a candidate may take: Redis answers its checks after the others. */
const COUNTED_WITHIN_MS = 30_000;

const ms = (us) => (us === null || us === undefined ? us : us / US_OF_A_MS);

const request = ({ policy = "p", key = "k", ...rest }) => ({ policy, key, ...rest });

/** Each operation returns what a case may expect of it; `handles` are the case's own, which live until its end. */
const operations = {
  check: (limiter, { policy, key, cost, headroom, plan }, face) => face(limiter, key, { policy, cost, headroom, plan }),
  peek: (limiter, { policy, key, cost, headroom, plan }) => limiter.peek(key, { policy, cost, headroom, plan }),
  reserve: async (limiter, { policy, key, cost, headroom, plan, id, ttl_us: ttlUs }, _, handles) => {
    // The cases renew their reservations themselves.
    const options = { policy, cost, headroom, plan, id, ttlMs: ms(ttlUs), maxAgeMs: 0 };
    const reservation = await limiter.reserve(key, options);
    handles.push(reservation);
    return reservation.decision;
  },
  commit: (limiter, { policy, key, plan, id, cost: spent }) => limiter.commit(key, id, { policy, plan, spent }),
  cancel: (limiter, { policy, key, plan, id }) => limiter.cancel(key, id, { policy, plan }),
  renew: (limiter, { policy, key, plan, id, ttl_us: ttlUs }) => limiter.renew(key, id, ms(ttlUs), { policy, plan }),
  block: (limiter, { policy, key, plan, for_us: forUs }) => limiter.admin().block(key, ms(forUs), { policy, plan }),
  configuration: (limiter, { document, text }) => changed(() => limiter.admin().setDocument(text ?? JSON.stringify(document))),
  entry: (limiter, { set, value, delete: deleted }) =>
    changed(() => (deleted === undefined ? limiter.admin().setEntry(set, value) : limiter.admin().deleteEntry(deleted))),
  match: (limiter, { request }) => limiter.admin().matching(request),
  decide: (limiter, { request, id, ttl_us: ttlUs }) => limiter.decide(request, { id, ttlMs: ms(ttlUs) }),
  candidate: async (limiter, { policy, expect }) => {
    const until = Date.now() + COUNTED_WITHIN_MS;
    for (;;) {
      const { bothAllow, onlyLiveDenies, onlyCandidateDenies, bothDeny } = limiter.admin().candidateCounts(policy);
      const counts = {
        both_allow: bothAllow,
        only_live_denies: onlyLiveDenies,
        only_candidate_denies: onlyCandidateDenies,
        both_deny: bothDeny,
      };
      if (isDeepStrictEqual(counts, expect) || Date.now() > until) return counts;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  },
};

for (const name of ["take", "charge", "refund", "reset"]) {
  operations[name] = (limiter, { policy, key, cost, plan }) => limiter[name](key, { policy, cost, plan });
}

/** What a change of the configuration has done. */
async function changed(change) {
  try {
    await change();
    return { ok: true };
  } catch (error) {
    if (error.code !== "invalid_argument") throw error;
    const line = /^line (\d+), column/.exec(error.message)?.[1];
    return { ok: false, line: line && Number(line), about: error.message };
  }
}

/** The faces: how each checks. */
const promises = { name: NAME, check: (limiter, key, options) => limiter.check(key, options) };
const sync = { name: `${NAME} (sync)`, check: (limiter, key, options) => limiter.checkSync(key, options) };

let stores = 0;

/** A store without the states of other cases, and how it is removed. */
function freshStore(store) {
  if (store === "memory") return { url: "memory:", remove: () => {} };
  stores += 1;
  const name = `case-${process.pid}-${Date.now()}-${stores}`;
  if (!store.startsWith("local:")) return { url: store, options: { prefix: name, outage: "deny" }, remove: () => {} };
  const file = `/dev/shm/polylimit-${process.getuid()}-${name}`;
  return { url: `local:${name}?size=1MiB`, remove: () => rmSync(file, { force: true }) };
}

/** Where a case went wrong. The operations after it mean nothing: they build on it. */
async function runCase({ document, ops }, face, store) {
  const clock = new ManualClock(START_US);
  const { url, options, remove } = freshStore(store);
  const limiter = new Limiter(url, { document: JSON.stringify(document), clock, ...options });
  // A handle that the garbage collector takes would end its reservation.
  const handles = [];
  const used = new Map();
  try {
    for (const [at, operation] of ops.entries()) {
      clock.setUs(START_US + operation.t_us);
      const got = await answered(limiter, operation, face.check, handles, used);
      const message = difference(operation, got);
      if (message !== undefined) return { at, message };
    }
    return undefined;
  } finally {
    // A manual clock's keys do not expire.
    for (const { policy, key } of used.values()) await forget(limiter, key, policy);
    limiter.close();
    remove();
  }
}

async function forget(limiter, key, policy) {
  try {
    await limiter.reset(key, policy);
  } catch {
    // A document may have lost the policy.
  }
}

async function answered(limiter, operation, check, handles, used) {
  const asked = request(operation);
  try {
    const answer = await operations[operation.op](limiter, asked, check, handles);
    for (const one of [asked, ...(answer?.decisions ?? [])]) used.set(`${one.policy} ${one.key}`, one);
    return answer;
  } catch (error) {
    if (error instanceof PolylimitError) return { error: error.code, message: error.message };
    throw error;
  }
}

/** What differs from the expectation, if anything does. */
function difference({ op, expect, t_us: tUs, ...rest }, got) {
  if (got.error !== undefined && expect.error === got.error) return undefined;
  const shown = got.error === undefined ? pick(got, expect) : got;
  if (isDeepStrictEqual(shown, expect)) return undefined;
  const asked = JSON.stringify(rest);
  return [`${op} ${asked} at ${tUs} us`, `  expected ${JSON.stringify(expect)}`, `  got      ${JSON.stringify(shown)}`].join(
    "\n",
  );
}

/** What a case expects is a list, or names what has to be equal; `about` is part of the message. */
function pick(got, expect) {
  if (Array.isArray(expect)) return got;
  const shown = {};
  for (const name of Object.keys(expect)) shown[name] = picked(got, name, expect[name]);
  return shown;
}

function picked(got, name, expected) {
  if (name === "about") return got.about?.includes(expected) ? expected : got.about;
  if (name === "decisions") {
    return got.decisions.map((one, at) => pick({ ...one, ...one.decision }, expected[at] ?? { policy: "", key: "" }));
  }
  if (OUTAGES.includes(got.source)) return got.source;
  if (name.endsWith("_us")) {
    const property = name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
    // Times that are rounded up to whole milliseconds are exact in microseconds.
    if (property in got) return got[property];
    const value = got[property.replace(/Us$/, "Ms")];
    return value === ms(expected) ? expected : value && value * US_OF_A_MS;
  }
  return got[name];
}

module.exports = { promises, runCase, sync };
