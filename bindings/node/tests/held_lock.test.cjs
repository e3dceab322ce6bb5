// A lock of the local store that a suspended process holds: the event loop goes on while a call waits for it.
"use strict";

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const { once } = require("node:events");
const fs = require("node:fs");
const { test } = require("node:test");
const { setImmediate: nextTurn } = require("node:timers/promises");

const { Limiter } = require("polylimit");
const { rateLimit } = require("polylimit/fetch");

const { localStore } = require("./support/local.cjs");

// Where a file of 1 MiB has the first of its 1,024 owners, and the lock of its only shard.
const [OWNERS_AT, OWNER_SIZE, OWNERS] = [512 * 8, 32, 1024];
const LOCK_AT = OWNERS_AT + OWNERS * OWNER_SIZE;

/** Gives the lock to a process, as if it were making a decision. */
function holdLock(url, id) {
  const file = fs.openSync(`/dev/shm/polylimit-${process.getuid()}-${url.slice("local:".length).split("?")[0]}`, "r+");
  const owner = Buffer.alloc(16);
  for (let number = 0; number < OWNERS; number++) {
    fs.readSync(file, owner, 0, 16, OWNERS_AT + number * OWNER_SIZE);
    if (owner.readBigUInt64LE(8) === BigInt(id)) {
      fs.writeSync(file, owner, 0, 8, LOCK_AT);
      fs.closeSync(file);
      return;
    }
  }
  throw new Error(`process ${id} has not opened ${url}`);
}

/** Runs `body` while another process is suspended that holds the lock. */
async function whileHeld(url, body) {
  const program = `
    globalThis.limiter = new (require("polylimit").Limiter)(process.argv[1], { policies: { api: "9/day" } });
    limiter.checkSync("a");
    console.log("opened");
    setInterval(() => {}, 1e6);
  `;
  const other = spawn(process.execPath, ["-e", program, url], { stdio: ["ignore", "pipe", "inherit"], cwd: __dirname });
  try {
    await once(other.stdout, "data");
    other.kill("SIGSTOP");
    holdLock(url, other.pid);
    await body();
  } finally {
    other.kill("SIGKILL");
    await once(other, "exit");
  }
}

const CALLS = {
  check: (limiter) => limiter.check("key"),
  peek: (limiter) => limiter.peek("key"),
  take: (limiter) => limiter.take("key"),
  checkMany: async (limiter) => (await limiter.checkMany([{ key: "key" }, { key: "key" }]))[1],
};

/** What comes in which order: the answer to `call` while a suspended process holds the lock, and the next turn of the event loop. */
async function orderOf(call) {
  const { url, remove } = localStore();
  const limiter = new Limiter(url, { policies: { api: "100/day" } });
  try {
    await limiter.peek("key");
    const order = [];
    await whileHeld(url, () =>
      Promise.all([call(limiter).then((answer) => order.push(answer)), nextTurn().then(() => order.push("next turn"))]),
    );
    return order;
  } finally {
    limiter.close();
    remove();
  }
}

/** On a machine that stops for some milliseconds, the other process is judged at once: then another attempt is made. */
async function goesOn(call, answer) {
  let order;
  for (let attempt = 0; attempt < 20; attempt++) {
    order = await orderOf(call);
    if (order[0] === "next turn") break;
  }
  assert.deepEqual(order, ["next turn", answer]);
}

for (const [name, call] of Object.entries(CALLS)) {
  test(`the event loop goes on while ${name} waits for a suspended process`, () =>
    goesOn(async (limiter) => (await call(limiter)).degraded, "busy"));
}

test("the event loop goes on while a middleware waits for a suspended process", () =>
  goesOn(async (limiter) => {
    const handle = rateLimit(() => new Response("ok"), { limiter, key: () => "key" });
    return (await handle(new Request("http://localhost/"))).status;
  }, 200));
