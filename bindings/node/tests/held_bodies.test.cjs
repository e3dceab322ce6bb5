// Handlers of `Request`, without a server: a response holds its reservation until its body is done.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { Hono } = require("hono");
const { rateLimit: fetchRateLimit } = require("polylimit/fetch");
const { rateLimit: honoRateLimit } = require("polylimit/hono");

const { becomes, left, limiterOf } = require("./support/held.cjs");

/** A handler of `Request` with a limit, whose response has this body. */
function fetching(limiter, body, init) {
  const spent = (response) => Number(response.headers.get("x-spent"));
  const headers = { "x-spent": "4" };
  return fetchRateLimit(() => new Response(body, { headers, ...init }), { limiter, key: () => "k", cost: 10, spent });
}

const app = (limiter, body, init) => {
  const hono = new Hono();
  const spent = ({ res }) => Number(res.headers.get("x-spent"));
  hono.use(honoRateLimit({ limiter, key: () => "k", cost: 10, spent }));
  hono.get("/", () => new Response(body, { headers: { "x-spent": "4" }, ...init }));
  return (request) => hono.fetch(request);
};

for (const [name, handlerOf] of Object.entries({ fetch: fetching, "hono without Node": app })) {
  const stream = (start) => new ReadableStream({ start });
  const ask = (handler, init) => handler(new Request("http://host/", init));

  test(`${name}: a body holds its slot until it is read, cancelled or fails`, async () => {
    const limiter = limiterOf();
    const read = await ask(handlerOf(limiter, "text"));
    assert.equal(await left(limiter), "90 units, 1 slots");
    assert.deepEqual([await read.text(), await left(limiter)], ["text", "96 units, 2 slots"]);

    let why;
    const cancelled = new ReadableStream({
      pull: (controller) => controller.enqueue(new Uint8Array(1)),
      cancel: (reason) => {
        why = reason;
      },
    });
    const reader = (await ask(handlerOf(limiter, cancelled))).body.getReader();
    await reader.read();
    assert.equal(await left(limiter), "86 units, 1 slots");
    await reader.cancel("enough");
    assert.deepEqual([why, await left(limiter)], ["enough", "92 units, 2 slots"]);

    const broken = await ask(
      handlerOf(
        limiter,
        stream((controller) => controller.error(new Error("broken"))),
      ),
    );
    await assert.rejects(broken.text(), /broken/);
    assert.equal(await left(limiter), "88 units, 2 slots");
    limiter.close();
  });

  test(`${name}: a response without a body, and a client that has left, hold nothing`, async () => {
    const limiter = limiterOf();
    await ask(handlerOf(limiter, null, { status: 204 }));
    assert.equal(await left(limiter), "96 units, 2 slots");
    const client = new AbortController();
    await ask(
      handlerOf(
        limiter,
        stream(() => {}),
      ),
      { signal: client.signal },
    );
    assert.equal(await left(limiter), "86 units, 1 slots");
    client.abort();
    await becomes(limiter, "92 units, 2 slots");
    limiter.close();
  });
}

test("a handler of Request that throws has spent the cost", async () => {
  const limiter = limiterOf();
  const fails = () => {
    throw new Error("it fails");
  };
  const handler = fetchRateLimit(fails, { limiter, key: () => "k", cost: 10, spent: () => 1 });
  await assert.rejects(handler(new Request("http://host/")), /it fails/);
  assert.equal(await left(limiter), "90 units, 2 slots");
  limiter.close();
});
