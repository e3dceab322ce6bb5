// The recorder of Node: recorder.cjs URL POLICY=QUOTAS... docs/linearizability.md has the lines that it reads and writes.
"use strict";

const { createInterface } = require("node:readline");

const { Limiter } = require("../../bindings/node");

const DAY_MS = 24 * 3600 * 1000;
const AS_RESERVED = -1;
const [ALLOWED, UNUSED, NEVER, FOUND, REPEATED] = [1, 2, 4, 8, 16];
const OUTAGES = ["fallback", "allow", "deny"];
/** How long a client waits after an answer of an outage policy, which comes at once. */
const PAUSE_MS = 2;

/** What of an answer does not depend on time. */
function described(answer) {
  let flags = answer.resetAfterMs === 0 ? UNUSED : 0;
  if ("allowed" in answer) {
    flags |= (answer.allowed ? ALLOWED : 0) | (answer.retryAfterUs === null ? NEVER : 0);
  } else {
    flags |= ALLOWED | (answer.found ? FOUND : 0) | (answer.repeated ? REPEATED : 0);
  }
  return `${flags},${answer.remaining},${answer.over},${answer.taken ?? 0},${answer.source},${answer.degraded ?? ""}`;
}

/** Makes the call of an operation, whose result is a list of answers. */
function read(line, limiter, objects, slots) {
  const [kind, id, ...words] = line.split(" ");
  const parts = words.map((word) => {
    const [at, cost] = word.split(":").map(Number);
    return { ...objects[at], cost };
  });
  const [{ policy, key, cost }] = parts;
  const only = async (answer) => [await answer];
  switch (kind) {
    case "check":
    case "peek":
    case "take":
    case "charge":
    case "refund":
      return () => only(limiter[kind](key, { policy, cost }));
    case "reset":
      return () => only(limiter.reset(key, policy));
    case "together":
    case "reserve":
    case "remember":
    case "hold": {
      if (!parts.some(({ policy }) => slots.has(policy))) return () => limiter.checkTogether(parts);
      const options = { id, ttlMs: DAY_MS, rememberMs: kind === "remember" ? DAY_MS : undefined };
      return async () => (await limiter.reserveTogether(parts, options)).decisions;
    }
    case "commit":
      return () => only(limiter.commit(key, id, cost === AS_RESERVED ? { policy } : { policy, spent: cost }));
    case "cancel":
      return () => only(limiter.cancel(key, id, policy));
    case "renew":
      return () => only(limiter.renew(key, id, DAY_MS, policy));
    default:
      throw new Error(line);
  }
}

/** Does the operations of a client. */
async function run(client, calls) {
  const lines = [];
  for (const [at, operation] of calls.entries()) {
    // The clock is CLOCK_MONOTONIC, which all processes of a host share.
    const call = process.hrtime.bigint();
    try {
      const answers = await operation();
      const end = process.hrtime.bigint();
      lines.push(`${client} ${at} ${call} ${end} ${answers.map(described).join(" ")}\n`);
      if (OUTAGES.includes(answers[0].source)) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    } catch (error) {
      lines.push(`${client} ${at} ${call} ${process.hrtime.bigint()} !${error.message.replaceAll("\n", " ")}\n`);
    }
  }
  return lines.join("");
}

async function main([url, ...policies]) {
  const quotas = policies.map((policy) => /^(.*?)=(.*)$/.exec(policy).slice(1));
  const limiter = new Limiter(url, { policies: Object.fromEntries(quotas) });
  await limiter.ready(30_000);
  const slots = new Set(quotas.filter(([, text]) => text.includes("concurrent")).map(([name]) => name));
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const next = async () => (await lines.next()).value;
  for (let header = await next(); header !== undefined; header = await next()) {
    const [, objectCount, clientCount] = header.split(" ").map(Number);
    const objects = [];
    while (objects.length < objectCount) {
      const [policy, key] = (await next()).split(" ");
      objects.push({ policy, key });
    }
    const programs = [];
    while (programs.length < clientCount) {
      const calls = [];
      for (let left = Number(await next()); left > 0; left--) calls.push(read(await next(), limiter, objects, slots));
      programs.push(calls);
    }
    process.stdout.write("ready\n");
    await next();
    const results = await Promise.all(programs.map((calls, client) => run(client, calls)));
    process.stdout.write(`${results.join("")}done\n`);
  }
  limiter.close();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
