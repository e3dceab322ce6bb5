"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { createServer } = require("node:http");
const { test } = require("node:test");

const { Backoff, Limiter } = require("polylimit");
const { createFetch, ThrottledError } = require("polylimit/fetch-client");

/** Admits every request at once. */
const FREE = "1000000/s token_bucket";

/** Runs `body` with the URL of a server that answers by a script, then by 200, and with the requests that it gets. */
async function withServer(script, body) {
  const [answers, seen] = [[...script], []];
  const server = createServer(async (request, response) => {
    const at = performance.now();
    const parts = await request.toArray();
    seen.push({ at, what: `${request.method} ${Buffer.concat(parts)}`.trim() });
    const [status, fields] = answers.shift() ?? [200, {}];
    response.writeHead(status, fields).end(`${status}`);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    await body(`http://127.0.0.1:${server.address().port}/`, seen);
  } finally {
    server.close();
    server.closeAllConnections?.();
  }
}

/** What the server got, in order. */
function whats(seen) {
  return seen.map(({ what }) => what);
}

function client(options = {}) {
  return createFetch({ limiter: new Limiter("memory:"), policy: FREE, ...options });
}

async function status(response) {
  await response.arrayBuffer();
  return response.status;
}

// Node's timers count whole milliseconds, and may end a part of one earlier.
const SECOND = 999;

test("fetch client: a response with retry-after is retried after that time", async () => {
  await withServer([[429, { "retry-after": "1" }]], async (url, seen) => {
    assert.equal(await status(await client()(url, { method: "POST", body: "sent again" })), 200);
    assert.deepEqual(whats(seen), ["POST sent again", "POST sent again"]);
    assert.ok(seen[1].at - seen[0].at >= SECOND);
  });
});

test("fetch client: other requests of the host are held back, and those of other hosts are not", async () => {
  await withServer([[503, { "retry-after": "1" }]], async (url, seen) => {
    await withServer([], async (other, others) => {
      const fetched = client({ backoff: new Backoff({ maxRetries: 0 }) });
      assert.equal(await status(await fetched(url)), 503);
      const results = await Promise.all([fetched(url), fetched(other)]);
      assert.deepEqual(await Promise.all(results.map(status)), [200, 200]);
      assert.ok(seen[1].at - seen[0].at >= SECOND);
      assert.ok(others[0].at < seen[1].at);
    });
  });
});

test("fetch client: fields with nothing left hold back the next request", async () => {
  await withServer([[200, { ratelimit: '"a";r=0;t=1' }]], async (url, seen) => {
    const fetched = client();
    for (let count = 0; count < 2; count += 1) assert.equal(await status(await fetched(url)), 200);
    assert.ok(seen[1].at - seen[0].at >= SECOND);
  });
});

test("fetch client: retries depend on method and body, and are bounded", async () => {
  const now = [503, { "retry-after": "0" }];
  await withServer([now, now], async (url, seen) => {
    const fetched = client();
    assert.equal(await status(await fetched(url, { method: "POST", body: "x" })), 503);
    assert.equal(await status(await fetched(url, { method: "PUT", body: new URLSearchParams({ x: "1" }) })), 200);
    assert.deepEqual(whats(seen), ["POST x", "PUT x=1", "PUT x=1"]);
  });
  await withServer([[429, {}]], async (url, seen) => {
    const request = new Request(url, { method: "PUT", body: new Blob(["once"]).stream(), duplex: "half" });
    assert.equal(await status(await client()(request)), 429);
    assert.deepEqual(whats(seen), ["PUT once"]);
  });
  await withServer(Array(9).fill([429, {}]), async (url, seen) => {
    const backoff = new Backoff({ baseMs: 1, capMs: 1, maxRetries: 2 });
    assert.equal(await status(await client({ backoff })(new Request(url))), 429);
    assert.equal(seen.length, 3);
  });
});

test("fetch client: a wait that does not fit returns the response and refuses the next request", async () => {
  await withServer([[429, { "retry-after": "60" }]], async (url, seen) => {
    const fetched = client({ backoff: new Backoff({ maxWaitMs: 10_000 }) });
    assert.equal(await status(await fetched(url)), 429);
    await assert.rejects(fetched(url), (error) => {
      assert.ok(error instanceof ThrottledError);
      assert.ok(error.retryAfterMs > 10_000 && error.retryAfterMs <= 60_000);
      assert.match(error.message, /^the server asked for a wait of 60 s with status 429: /);
      return true;
    });
    assert.equal(seen.length, 1);
  });
});

test("fetch client: the limiter paces requests by their key, and refuses those that it admits too late", async () => {
  await withServer([], async (url, seen) => {
    const paced = client({ policy: "2/s token_bucket burst=1", key: () => "shared" });
    const start = performance.now();
    await Promise.all([1, 2, 3].map(async () => assert.equal(await status(await paced(url)), 200)));
    // The bucket counts by the wall clock.
    assert.ok(performance.now() - start >= 990);
    const late = client({ policy: "1/hour", backoff: new Backoff({ maxWaitMs: 5000 }) });
    assert.equal(await status(await late(url)), 200);
    await assert.rejects(late(url), { name: "ThrottledError", message: /^the client's limiter asks for a wait of / });
    const never = client({ policy: "1/hour", cost: 2 });
    await assert.rejects(never(url), { name: "ThrottledError", retryAfterMs: undefined, message: /never admits/ });
    assert.equal(seen.length, 4);
  });
});

test("fetch client: an aborted request ends at once, and its units are given back", async () => {
  await withServer([[429, { "retry-after": "100" }]], async (url, seen) => {
    const limiter = new Limiter("memory:");
    const policy = "1/s token_bucket burst=1";
    const fetched = createFetch({ limiter, policy, key: () => "k" });
    const held = new AbortController();
    const waiting = fetched(url, { signal: held.signal });
    while (seen.length === 0) await new Promise(setImmediate);
    held.abort(new Error("held"));
    await assert.rejects(waiting, { message: "held" });
    const other = createFetch({ limiter, policy, key: () => "k" });
    const queued = new AbortController();
    await limiter.charge("k", { policy });
    const second = other(url, { signal: queued.signal });
    await new Promise(setImmediate);
    queued.abort(new Error("queued"));
    await assert.rejects(second, { message: "queued" });
    const already = AbortSignal.abort(new Error("already"));
    await assert.rejects(other(url, { signal: already }), { message: "already" });
    // The unit that the aborted request still gets goes back, so that the bucket fills.
    while ((await limiter.peek("k", { policy })).remaining < 1) await new Promise((done) => setTimeout(done, 20));
    assert.equal(seen.length, 1);
  });
});

test("fetch client: options are checked when it is created", () => {
  const limiter = new Limiter("memory:");
  for (const [options, message] of [
    [{ limiter: 5 }, "limiter is 5: allowed is a Limiter"],
    [{ limiter, policy: FREE, backoff: {} }, "backoff is an object: allowed is a Backoff"],
    [{ limiter, policy: FREE, key: "k" }, "key is a string: allowed is a function"],
    [{ limiter, policy: FREE, store: 1 }, /^option "store" is not known: use /],
    [{ limiter, policy: "unknown" }, /unknown/],
    [{ limiter, policy: FREE, cost: -1 }, /^cost is -1: allowed is a whole number from 0 to 1000000000000 units$/],
    [{ limiter, policy: FREE, cost: 1e12 + 1 }, /^cost is 1000000000001: allowed/],
    [{ limiter, policy: FREE, cost: "1" }, /^cost is a string: allowed/],
  ]) {
    assert.throws(() => createFetch(options), { code: "invalid_argument", message });
  }
});

test("fetch client: a key is text, bytes or a whole number, and any other is an error of the request", async () => {
  await withServer([], async (url) => {
    const limiter = new Limiter("memory:");
    for (const [key, same] of [
      [42, "42"],
      [7n, "7"],
      [Buffer.from("k"), "k"],
    ]) {
      assert.equal(await status(await createFetch({ limiter, policy: "5/day", key: () => key })(url)), 200);
      assert.equal((await limiter.peek(same, "5/day")).remaining, 4);
    }
    for (const [key, read] of [
      [undefined, "undefined"],
      [1.5, "1.5"],
      [{}, "an object"],
    ]) {
      await assert.rejects(createFetch({ limiter, policy: "5/day", key: () => key })(url), {
        name: "PolylimitError",
        code: "invalid_argument",
        message: new RegExp(`^the result of key is ${read}: allowed are `),
      });
    }
  });
});
