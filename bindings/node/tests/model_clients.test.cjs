"use strict";

/** The clients of OpenAI and Anthropic on a throttled fetch, in their oldest and newest supported version. */

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { createServer } = require("node:http");
const { test } = require("node:test");

const { Backoff, Limiter } = require("polylimit");
const { createFetch } = require("polylimit/fetch-client");

const messages = [{ role: "user", content: "Hello" }];

function openai(name, settings) {
  const { OpenAI } = require(name);
  const client = new OpenAI({ apiKey: "none", maxRetries: 0, ...settings });
  return () => client.chat.completions.create({ model: "m", messages });
}

function anthropic(name, settings) {
  const { Anthropic } = require(name);
  const client = new Anthropic({ apiKey: "none", maxRetries: 0, ...settings });
  return () => client.messages.create({ model: "m", messages, max_tokens: 5 });
}

const CLIENTS = [
  ["openai", openai],
  ["openai-oldest", openai],
  ["@anthropic-ai/sdk", anthropic],
  ["anthropic-oldest", anthropic],
];

/** Runs `body` with the URL of a server that answers by a script, then by 200, and with the times of its requests. */
async function withServer(script, body) {
  const [answers, seen] = [[...script], []];
  const server = createServer(async (request, response) => {
    seen.push({ at: performance.now(), body: Buffer.concat(await request.toArray()).toString() });
    const [status, fields] = answers.shift() ?? [200, {}];
    response.writeHead(status, { "content-type": "application/json", ...fields }).end("{}");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    await body(`http://127.0.0.1:${server.address().port}`, seen);
  } finally {
    server.close();
    server.closeAllConnections?.();
  }
}

for (const [name, make] of CLIENTS) {
  const ask = (baseURL, policy, options = {}) => {
    const fetch = createFetch({ limiter: new Limiter("memory:"), policy, ...options });
    return make(name, { baseURL, fetch });
  };

  test(`${name}: a call waits as the server demands`, async () => {
    for (const [status, fields, least] of [
      [429, { "retry-after-ms": "300", "retry-after": "9" }, 299],
      [403, { "retry-after": "1" }, 999],
    ]) {
      await withServer([[status, fields]], async (url, seen) => {
        await ask(url, "1000/s token_bucket")();
        assert.equal(seen.length, 2);
        assert.equal(seen[0].body, seen[1].body);
        assert.ok(seen[1].at - seen[0].at >= least, `${seen[1].at - seen[0].at}`);
      });
    }
  });

  test(`${name}: calls are paced by the budget`, async () => {
    await withServer([], async (url, seen) => {
      const call = ask(url, "4/s token_bucket burst=1");
      const start = performance.now();
      await Promise.all([call(), call(), call()]);
      assert.ok(performance.now() - start >= 480);
      assert.equal(seen.length, 3);
    });
  });

  test(`${name}: a wait that is too long is an error of the client`, async () => {
    await withServer([[429, { "retry-after": "60" }]], async (url, seen) => {
      const call = ask(url, "1000/s token_bucket", { backoff: new Backoff({ maxWaitMs: 5_000 }) });
      await assert.rejects(call(), { status: 429 });
      await assert.rejects(call(), (error) => {
        assert.match(error.constructor.name, /^APIConnection(Timeout)?Error$/);
        // Newer clients of OpenAI take the words of the error for a timeout, and drop it.
        const { retryAfterMs } = error.cause ?? { retryAfterMs: 60_000 };
        assert.ok(retryAfterMs > 50_000 && retryAfterMs <= 60_000, error.stack);
        return true;
      });
      assert.equal(seen.length, 1);
    });
  });
}
