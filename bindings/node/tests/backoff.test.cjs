"use strict";

const assert = require("node:assert/strict");
const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const { test } = require("node:test");

const { Backoff, serverWaitMs } = require("polylimit");

const path = join(__dirname, "..", "..", "..", "tests", "conformance", "server_wait.json");
const cases = JSON.parse(readFileSync(path, "utf8"));

/** The milliseconds of a case's microseconds. */
function ms(us) {
  return us === null || us === undefined ? undefined : us / 1000;
}

/** The same as a wait that is handed out, which is rounded up to whole milliseconds. */
function wholeMs(us) {
  return us === null ? undefined : Math.ceil(us / 1000);
}

function backoff({ base_us, cap_us, max_wait_us, max_retries }) {
  const options = { baseMs: ms(base_us), capMs: ms(cap_us), maxWaitMs: ms(max_wait_us), maxRetries: max_retries };
  return new Backoff(options);
}

for (const { name, retry_after, rate_limit, now_us, wait_us } of cases.server_wait) {
  test(`server wait: ${name}`, () => {
    const headers = { "Retry-After": retry_after, RateLimit: rate_limit };
    assert.equal(serverWaitMs(headers, { nowUs: now_us }), wholeMs(wait_us));
  });
}

for (const { name, settings, retry, server_wait_us, wait_us } of cases.backoff) {
  test(`backoff: ${name}`, () => {
    const wait = backoff(settings).waitMs(retry, ms(server_wait_us));
    if (wait_us === null) assert.equal(wait, undefined);
    else assert.ok(Number.isInteger(wait) && wait >= ms(wait_us[0]) && wait <= wholeMs(wait_us[1]), `${wait}`);
  });
}

for (const { settings, message } of cases.refused) {
  test(`backoff: ${message}`, () => {
    // A time is reported in milliseconds, under its name here.
    const [, name] = /^(\w+) is /.exec(message);
    const own = name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
    const expected = `^(${own}Ms is [0-9.]+ ms: allowed is |${message.replace(/[()]/g, "\\$&")}$)`;
    assert.throws(() => backoff(settings), { code: "invalid_argument", message: new RegExp(expected) });
  });
}

test("server wait: the headers of a response", () => {
  const wait = (init) => serverWaitMs(new Headers(init));
  assert.equal(wait({ "retry-after": "3" }), 3000);
  assert.equal(
    wait([
      ["ratelimit", '"a";r=0;t=5'],
      ["ratelimit", '"b";r=0;t=7'],
    ]),
    7000,
  );
  assert.equal(wait({}), undefined);
  assert.equal(wait({ "retry-after-ms": "119.5", "retry-after": "1" }), 120);
  const [date, later] = ["Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:39 GMT"];
  assert.equal(wait({ date, "retry-after": later }), 2000);
  assert.equal(serverWaitMs(new Map([["Retry-After", "1"]])), 1000);
  // Of node:http.
  assert.equal(serverWaitMs({ "set-cookie": ["a", "b"], "retry-after": "2", via: undefined }), 2000);
});

test("server wait and backoff: arguments of other types and names are refused", () => {
  assert.equal(serverWaitMs({ "retry-after": "Sun, 06 Nov 1994 08:49:37 GMT" }), 0);
  for (const [call, message] of [
    [() => serverWaitMs({ "retry-after": 5 }), 'headers["retry-after"] is 5: allowed is a string'],
    [() => serverWaitMs("5"), /^headers is a string: allowed is the headers of a response/],
    [() => serverWaitMs(undefined), /^headers is undefined: allowed is the headers of a response/],
    [() => serverWaitMs(["retry-after"]), /^headers is a string: /],
    [() => serverWaitMs({}, { now: 5 }), /^option "now" is not known: .*nowUs/],
    [() => new Backoff({ baseMs: "1" }), "baseMs is a string: allowed is a number"],
    [() => new Backoff().waitMs(-1), "retry is -1: allowed is a whole number from 0 up"],
  ]) {
    assert.throws(call, { code: "invalid_argument", message });
  }
});
