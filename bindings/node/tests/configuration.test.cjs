// The configuration of a limiter: its document and entries, where they come from, and decisions by it.
"use strict";

const assert = require("node:assert/strict");
const { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } = require("node:fs");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { test } = require("node:test");

const { Limiter, ManualClock } = require("polylimit");

const { invalid } = require("./support/code.cjs");
const { localStore } = require("./support/local.cjs");
const { withRedis } = require("./support/redis.cjs");

const DOCUMENT = `
polylimit = 1
[policies.api]
quotas = "10/day fixed_window"
plans = { gold = "100/day fixed_window" }
[policies.slots]
quotas = "2 concurrent"
[[rules]]
match = { path = "/v1/{*rest}" }
apply = [{ policy = "api", key = "{user}", cost = "{tokens}", headroom = 20 }, { policy = "slots", key = "{user}" }]
[[rules]]
match = { path = "/strict" }
apply = [{ policy = "api", key = "{user}", missing = "deny" }]
[lists]
deny = ["client 203.0.113.0/24", "header.x-bot 1"]
allow = ["user monitoring"]
`;

const document = (quotas) => ({ polylimit: 1, policies: { api: { quotas } } });
const DAY_MS = 86_400_000;
/** Longer than any change takes on a busy machine. */
const PATIENCE_MS = 60_000;

/** Runs a test with a limiter of each store, which has the document. */
function withStores(name, body) {
  test(`${name}: memory`, () => body("memory:", {}));
  test(`${name}: local`, async () => {
    const { url, remove } = localStore();
    try {
      await body(url, {});
    } finally {
      remove();
    }
  });
  test(`${name}: redis`, () => withRedis(({ url }) => body(url, { deadline: "10s" })));
}

function withFolder(body) {
  const folder = mkdtempSync(join(tmpdir(), "polylimit-configuration-"));
  return Promise.resolve(body(folder)).finally(() => rmSync(folder, { recursive: true }));
}

withStores("a decision remembers the commit", async (url, options) => {
  const limiter = new Limiter(url, { document: DOCUMENT, clock: new ManualClock(0), ...options });
  for (const repeated of [false, true]) {
    const job = { method: "GET", path: "/v1/words", attributes: { user: "job", tokens: 1 } };
    assert.equal((await limiter.decide(job, { id: "job", rememberMs: 60_000 })).allowed, true);
    const usage = await limiter.commit("job", "job", "slots");
    assert.deepEqual([usage.found, usage.repeated], [true, repeated]);
  }
  limiter.close();
});

withStores("requests are decided by the rules and lists of a document", async (url, options) => {
  const limiter = new Limiter(url, { document: DOCUMENT, clock: new ManualClock(0), ...options });
  const alice = { method: "GET", path: "/v1/words?a=b", peer: "192.0.2.1", attributes: { user: "alice", tokens: 3 } };
  assert.deepEqual(limiter.admin().matching(alice), [
    { policy: "api", key: "alice", cost: 3, headroom: 20 },
    { policy: "slots", key: "alice", cost: 1, headroom: 0 },
  ]);
  const first = await limiter.decide(alice, { id: "one", ttlMs: 5000 });
  const { decisions, ...summary } = first;
  assert.deepEqual(summary, { allowed: true, cause: null, status: null, retryAfterMs: 0, retryAfterUs: 0 });
  assert.deepEqual(
    decisions.map(({ policy, key, cost, headroom, reservation, decision }) => {
      return [policy, key, cost, headroom, reservation, decision.allowed, decision.remaining];
    }),
    [
      ["api", "alice", 3, 20, null, true, 5],
      ["slots", "alice", 1, 0, "one", true, 1],
    ],
  );
  await assert.rejects(limiter.decide(alice, { rememberMs: 0.5 }), invalid(/^rememberMs is 0.5 ms/));
  const second = await limiter.decide(alice);
  const { key, reservation } = second.decisions[1];
  assert.match(reservation, /^[!-~]{1,64}$/);
  const denied = await limiter.decide(alice);
  assert.deepEqual([denied.allowed, denied.status, denied.cause, denied.retryAfterMs], [false, 429, "quota", DAY_MS]);
  assert.equal((await limiter.commit(key, reservation, "slots")).found, true);
  assert.equal((await limiter.cancel("alice", "one", "slots")).remaining, 2);
  assert.equal((await limiter.peek("alice", "api")).remaining, 4);

  const outcome = async (request) => {
    const { allowed, cause, status, retryAfterMs, decisions } = await limiter.decide(request);
    return [allowed, cause, status, retryAfterMs, decisions.length];
  };
  assert.deepEqual(await outcome({ peer: "203.0.113.7", path: "/v1/a" }), [false, "deny_list", 403, null, 0]);
  assert.deepEqual(await outcome({ headers: [["X-Bot", "1"]] }), [false, "deny_list", 403, null, 0]);
  assert.deepEqual(await outcome({ headers: { "x-bot": ["1"], accept: undefined } }), [
    false,
    "deny_list",
    403,
    null,
    0,
  ]);
  assert.deepEqual(await outcome({ headers: new Headers({ "X-Bot": "1" }) }), [false, "deny_list", 403, null, 0]);
  assert.deepEqual(await outcome({ path: "/v1/a", attributes: { user: "monitoring" } }), [
    true,
    "allow_list",
    null,
    0,
    0,
  ]);
  assert.deepEqual((await outcome({ path: "/strict", attributes: { user: null } })).slice(0, 4), [
    false,
    "missing_key",
    400,
    null,
  ]);
  assert.deepEqual(await outcome({ path: "/elsewhere" }), [true, null, null, 0, 0]);
  await assert.rejects(limiter.decide({ path: "/v1/a", attributes: { user: "bob", tokens: "x" } }), {
    code: "invalid_argument",
  });
  limiter.close();
});

test("keys of bytes stay bytes", async () => {
  const limiter = new Limiter("memory:", { document: DOCUMENT });
  const user = new Uint8Array([0xff, 0x01]);
  const [{ key }] = limiter.admin().matching({ path: "/v1/a", attributes: { user, tokens: 1n } });
  assert.deepEqual([...key], [0xff, 0x01]);
  const { decisions } = await limiter.decide({ path: "/v1/a", attributes: { user, tokens: 1 } }, { id: user });
  assert.deepEqual([...decisions[0].key], [0xff, 0x01]);
  assert.equal((await limiter.cancel(user, decisions[1].reservation, "slots")).found, true);
});

test("a program replaces its document, and a bad one changes nothing", async () => {
  const limiter = new Limiter("memory:", { document: document("1/day fixed_window"), clock: new ManualClock(0) });
  const admin = limiter.admin();
  const { version, digest, appliedAt, ...rest } = admin.configuration();
  assert.deepEqual(rest, { source: "document", documentVersion: 0, ageMs: 0, error: null });
  assert.match(digest, /^[0-9a-f]{64}$/);
  assert.ok(appliedAt instanceof Date && Date.now() - appliedAt.getTime() < DAY_MS);
  assert.equal((await limiter.check("k")).remaining, 0);
  const next = admin.setDocument(document("5/day fixed_window"));
  assert.ok(next.version > version && next.digest !== digest);
  assert.equal((await limiter.check("k")).remaining, 3);
  const bad = { code: "invalid_argument", message: /^line 2, column \d+: / };
  assert.throws(() => admin.setDocument("polylimit = 1\nlimits = 5"), bad);
  assert.throws(() => new Limiter("memory:", { document: "polylimit = 1\nlimits = 5" }), bad);
  assert.deepEqual(admin.configuration(), next);
  const refusal = (name, read) =>
    invalid(`${name} is ${read}: allowed is a document as TOML or JSON text, or as an object`);
  assert.throws(() => admin.setDocument(5), refusal("document", "5"));
  assert.throws(() => admin.setDocument([]), refusal("document", "an array"));
  assert.throws(() => admin.setDocument(null), refusal("document", "null"));
  assert.throws(() => new Limiter("memory:", { document: new Uint8Array(1) }), refusal("document", "a Uint8Array"));
  limiter.close();
  assert.throws(() => admin.setDocument(document("1/day")), { code: "closed" });
  assert.deepEqual(admin.configuration(), next);
});

test("a limiter without a configuration reports that it has none", async () => {
  const limiter = new Limiter("memory:", { policies: { api: "1/day" } });
  const admin = limiter.admin();
  assert.equal(admin.configuration(), undefined);
  assert.equal(admin.candidateCounts("api"), undefined);
  const none = { code: "invalid_argument", message: /configuration/ };
  assert.throws(() => admin.matching({}), none);
  for (const rejected of [
    limiter.decide({}),
    admin.setEntry("deny user bob"),
    admin.deleteEntry("deny user bob"),
    admin.waitForVersion(1, 0),
    admin.publish(document("1/day")),
  ]) {
    await assert.rejects(rejected, none);
  }
});

test("entries deny, allow and override", async () => {
  const limiter = new Limiter("memory:", { document: DOCUMENT, clock: new ManualClock(0) });
  const admin = limiter.admin();
  const bob = { path: "/v1/a", attributes: { user: "bob", tokens: 1 } };
  const before = admin.configuration().version;
  const set = await admin.setEntry("deny user bob", { by: "ann", why: "a test", until: "1970-01-01T00:01:00Z" });
  assert.ok(set.version > before);
  const denied = await limiter.decide(bob);
  assert.deepEqual([denied.cause, denied.retryAfterMs], ["deny_list", 60_000]);
  await admin.deleteEntry("deny user bob");
  await admin.setEntry("override api bob", { numbers: "gold" });
  assert.equal((await limiter.decide(bob)).decisions[0].decision.remaining, 79);
  await admin.setEntry("override api bob", '{"numbers": "5/day fixed_window"}');
  assert.equal((await limiter.peek("bob", "api")).remaining, 4);
  assert.equal((await admin.waitForVersion(set.version, 1000)).source, "document");
  await assert.rejects(admin.waitForVersion(1e9, 5), { code: "store_unavailable" });
  await assert.rejects(admin.setEntry("override api bob", { numbers: "bronze" }), { code: "invalid_argument" });
  await assert.rejects(admin.setEntry("perhaps bob"), { code: "invalid_argument" });
  await assert.rejects(admin.setEntry("deny user bob", { since: 5 }), { code: "invalid_argument" });
  const entries = 'allowed is "deny ITEM", "allow ITEM" or "override POLICY KEY"';
  await assert.rejects(admin.setEntry(5), invalid(`entry is 5: ${entries}`));
  await assert.rejects(admin.deleteEntry(), invalid(`entry is undefined: ${entries}`));
  await assert.rejects(
    admin.setEntry("deny user bob", 5),
    invalid("value is 5: allowed is an object, or the JSON text of one"),
  );
});

test("a plan of a request and of its attributes decides", async () => {
  const limiter = new Limiter("memory:", { document: DOCUMENT, clock: new ManualClock(0) });
  for (const policy of ["api", undefined]) {
    const options = policy === undefined ? { policy: "api" } : { policy };
    assert.equal((await limiter.peek("k", { ...options, plan: "gold" })).limit, 100);
    assert.equal((await limiter.peek("k", { ...options, plan: "silver" })).limit, 10);
  }
  assert.equal(limiter.checkSync("k", { policy: "api", plan: "gold" }).remaining, 99);
  const request = { path: "/v1/a", attributes: { user: "k", tokens: 1, plan: "gold" } };
  assert.equal((await limiter.decide(request)).decisions[0].decision.limit, 100);
});

test("shadow admits and reports the denial, and a candidate is counted", async () => {
  const policies = {
    tried: { quotas: "1/day fixed_window", mode: "shadow" },
    api: { quotas: "2/day fixed_window", candidate: { quotas: "1/day fixed_window", compare: 1000 } },
  };
  const limiter = new Limiter("memory:", { document: { polylimit: 1, policies }, clock: new ManualClock(0) });
  await limiter.check("k", "tried");
  const { allowed, shadowed, cause, retryAfterMs } = await limiter.check("k", "tried");
  assert.deepEqual([allowed, shadowed, cause, retryAfterMs], [true, true, "quota", DAY_MS]);
  for (let check = 0; check < 3; check++) await limiter.check("k", "api");
  assert.deepEqual(limiter.admin().candidateCounts("api"), {
    bothAllow: 1,
    onlyLiveDenies: 0,
    onlyCandidateDenies: 1,
    bothDeny: 1,
  });
  assert.equal(limiter.admin().candidateCounts("tried"), undefined);
  assert.throws(() => limiter.admin().candidateCounts(5), invalid("policy is 5: allowed is a policy's name"));
});

test("attributes that are not allowed are refused", async () => {
  const limiter = new Limiter("memory:", { document: DOCUMENT });
  const headers = "pairs of texts, or an object of texts and lists of texts";
  for (const [request, message] of [
    ["/v1", "request is a string: allowed is an object of options"],
    [{ url: "/" }, 'option "url" is not known: allowed are method, path, peer, headers, attributes'],
    [{ path: 5 }, "path is 5: allowed is text"],
    [{ headers: "accept: */*" }, `headers is a string: allowed is ${headers}`],
    [{ headers: { accept: 5 } }, `a header is 5: allowed is ${headers}`],
    [{ headers: [["accept"]] }, `a header is undefined: allowed is ${headers}`],
    [{ attributes: [] }, "attributes is an array: allowed is an object of text, bytes and whole numbers"],
  ]) {
    assert.throws(() => limiter.admin().matching(request), invalid(message), message);
    await assert.rejects(limiter.decide(request), invalid(message), message);
  }
  await assert.rejects(limiter.decide({}, { id: 5 }), { message: /^id is 5: allowed is text or a Uint8Array/ });
  await assert.rejects(limiter.decide({ path: "/v1/a", attributes: { tokens: 1 } }, { ttlMs: 0.5 }), {
    code: "invalid_argument",
  });
  await assert.rejects(limiter.decide({ attributes: { user: true } }), { code: "invalid_argument" });
});

test("a document in a file is followed", async () => {
  await withFolder(async (folder) => {
    const file = join(folder, "polylimit.toml");
    const write = (quotas) => {
      writeFileSync(`${file}.new`, JSON.stringify(document(quotas)));
      renameSync(`${file}.new`, file);
    };
    write("1/day");
    const limiter = new Limiter("memory:", { configuration: `file:${file}` });
    const admin = limiter.admin();
    const { source, version } = await admin.waitForVersion(1, PATIENCE_MS);
    assert.equal(source, `file:${file}`);
    assert.equal((await limiter.peek("k")).limit, 1);
    write("2/day");
    await admin.waitForVersion(version + 1, PATIENCE_MS);
    assert.equal((await limiter.peek("k")).limit, 2);
    assert.throws(() => admin.setDocument(document("3/day")), { message: /^the configuration comes from file:/ });
    await assert.rejects(admin.setEntry("deny user bob"), { code: "invalid_argument" });
    limiter.close();
    assert.throws(() => new Limiter("memory:", { configuration: "perhaps" }), { code: "invalid_argument" });
    assert.throws(() => new Limiter("memory:", { copy: file }), { code: "invalid_argument" });
  });
});

test("a document in Redis is published, followed and copied", async () => {
  await withFolder((folder) =>
    withRedis(async ({ url }) => {
      const copy = join(folder, "copy");
      const options = { configuration: "store", deadline: "10s" };
      const [writer, reader] = [new Limiter(url, { ...options, copy }), new Limiter(url, options)];
      const [writing, reading] = [writer.admin(), reader.admin()];
      const published = await writing.publish(document("5/day fixed_window"), { by: "ann", why: "a test" });
      assert.equal(published.source, "store");
      assert.equal((await reading.waitForVersion(published.version, PATIENCE_MS)).digest, published.digest);
      assert.equal((await reader.check("k")).remaining, 4);
      assert.equal((await writer.check("k", { policy: "api" })).remaining, 3);
      const { version } = await reading.setEntry("override api k", { numbers: "50/day fixed_window" });
      const { documentVersion } = await writing.waitForVersion(version, PATIENCE_MS);
      assert.equal((await writer.peek("k")).limit, 50);
      assert.match(readFileSync(copy, "utf8"), /5\/day fixed_window/);
      const again = await writing.publish(document("5/day fixed_window"), { expectedVersion: documentVersion });
      assert.deepEqual([documentVersion, again.documentVersion], [1, 2]);
      await assert.rejects(reading.publish(document("6/day"), { expectedVersion: documentVersion }), {
        code: "invalid_argument",
      });
      await assert.rejects(writing.publish(document("6/day"), { expectedVersion: 99 }), { code: "invalid_argument" });
      await assert.rejects(writing.publish("polylimit = 2"), { code: "invalid_argument", message: /^line 1, column/ });
      await assert.rejects(writing.publish("polylimit = 1"), {
        code: "invalid_argument",
        message: /it may be incomplete/,
      });
      await assert.rejects(writing.publish(document("6/day"), { by: 5 }), invalid("by is 5: allowed is text"));
      for (const limiter of [writer, reader]) limiter.close();
    }),
  );
});
