// The JavaScript of the recipes, each page's program as it stands there, with a real Redis and real servers.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { mkdir, mkdtemp, readFile, rm, symlink, writeFile } = require("node:fs/promises");
const { createServer } = require("node:http");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { text } = require("node:stream/consumers");
const { test } = require("node:test");

const bindings = join(__dirname, "..", "..", "bindings", "node");
const { withRedis } = require(join(bindings, "tests", "support", "redis.cjs"));
const { until } = require(join(bindings, "tests", "support", "until.cjs"));

/** Loads the program of a page from a folder with the page's document, and gives `body` what it exports. */
async function recipe(page, standsFor, body, bullmq = "bullmq") {
  const content = await readFile(join(__dirname, "..", "..", "docs", "recipes", page), "utf8");
  let [, program] = content.match(/^```js\n(.*?)^```/ms);
  for (const [named, here] of Object.entries(standsFor)) {
    assert.ok(program.includes(named), `${page} does not name ${named}`);
    program = program.replaceAll(named, here);
  }
  const folder = await mkdtemp(join(tmpdir(), "polylimit-recipe-"));
  const before = process.cwd();
  try {
    await mkdir(join(folder, "node_modules"));
    await symlink(bindings, join(folder, "node_modules", "polylimit"));
    await symlink(join(bindings, "node_modules", "express"), join(folder, "node_modules", "express"));
    await symlink(join(bindings, "node_modules", bullmq), join(folder, "node_modules", "bullmq"));
    await writeFile(join(folder, "program.cjs"), program);
    const document = content.match(/^```toml\n(.*?)^```/ms);
    if (document) await writeFile(join(folder, "limits.toml"), document[1]);
    process.chdir(folder);
    return await body(require(join(folder, "program.cjs")));
  } finally {
    process.chdir(before);
    await rm(folder, { recursive: true, force: true });
  }
}

/** Runs `body` with the URL of a server. */
async function served(handler, body) {
  const server = createServer(handler).listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    return await body(`http://127.0.0.1:${server.address().port}`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** The store of a recipe: a busy machine has ten seconds for a decision. */
const patient = (url) => `${url}${url.includes("?") ? "&" : "?"}deadline=10s`;

test("log-ins: only failures count, and the account stays open to its owner elsewhere", async () => {
  await withRedis(({ url }) =>
    recipe("login.md", { "redis://localhost": patient(url) }, (app) =>
      served(app, async (address) => {
        const login = async (name, password) => {
          const body = new URLSearchParams({ name, password });
          const response = await fetch(`${address}/login`, { method: "POST", body });
          return response.status;
        };
        for (let number = 0; number < 10; number += 1) assert.equal(await login("alice", "correct horse"), 200);
        for (let number = 0; number < 5; number += 1) assert.equal(await login(" Alice", "x"), 401);
        assert.equal(await login("alice", "correct horse"), 429);
        assert.equal(await login("bob", "x"), 401);
        assert.equal(await login("", "x"), 400);
      }),
    ),
  );
});

test("language models: an answer commits what it took, and a tenant without tokens is denied", async () => {
  await withRedis(({ url }) =>
    recipe("language-models.md", { "redis://localhost": patient(url) }, (app) =>
      served(app, async (address) => {
        const ask = (tenant, prompt = "one two") => {
          const query = new URLSearchParams({ prompt, max_tokens: 4000 });
          return fetch(`${address}/answer?${query}`, { headers: tenant ? { "x-tenant": tenant } : {} });
        };
        // 40 answers of 4002 reserved units: they fit only because each commits 6.
        for (let number = 0; number < 40; number += 1) {
          const answer = await ask("acme");
          assert.equal(answer.status, 200);
          assert.equal(await answer.text(), "You said: one two ");
        }
        assert.equal((await ask("acme", "word ".repeat(98_000).trim())).status, 431);
        assert.equal((await ask()).status, 400);
      }),
    ),
  );
});

test("a gateway charges what the provider reports, streamed or not, and serves while Redis is away", async () => {
  const usage = { prompt_tokens: 1000, completion_tokens: 200, prompt_tokens_details: { cached_tokens: 400 } };
  const provider = async (request, response) => {
    const asked = JSON.parse(await text(request));
    if (asked.messages[0].content === "fail") return response.writeHead(500).end();
    if (!asked.stream) return response.setHeader("content-type", "application/json").end(JSON.stringify({ usage }));
    response.setHeader("content-type", "text/event-stream");
    const last = asked.stream_options.include_usage ? usage : null;
    const events = [{ usage: null }, { usage: last }].map((event) => `data: ${JSON.stringify(event)}\n\n`);
    for (const event of events) response.write(event);
    return response.end("data: [DONE]\n\n");
  };
  const body = async ({ app, limiter }, kill) =>
    served(app, async (address) => {
      const ask = async (content, key = "key-of-search", options = {}) => {
        const response = await fetch(`${address}/v1/chat/completions`, {
          method: "POST",
          headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
          body: JSON.stringify({ messages: [{ content }], ...options }),
        });
        return { status: response.status, headers: response.headers, text: await response.text() };
      };
      const left = async (team) => (await limiter.peek(team, "micro_dollars")).remaining;
      // A check ends after its client has read the response.
      const isLeft = (team, units) => until(async () => (await left(team)) === units, `${units} are left for ${team}`);
      // 2.5 * 1,000 - 1.25 * 400 + 10 * 200
      assert.equal((await ask("hello", "key-of-search", { max_tokens: 100_000 })).status, 200);
      await isLeft("search", 50_000_000 - 4_000);
      const streamed = await ask("hello", "key-of-search", { stream: true });
      assert.ok(streamed.text.endsWith("data: [DONE]\n\n"));
      await isLeft("search", 50_000_000 - 8_000);
      assert.equal((await ask("fail")).status, 500);
      await until(
        async () => (await left("search")) <= 50_000_000 - 48_000,
        "a response without usage costs its estimate",
      );
      assert.equal((await ask("hello", "another key")).status, 400);
      await limiter.charge("search", { policy: "micro_dollars", cost: 49_950_000 });
      assert.equal((await ask("hello")).status, 429);
      await kill();
      const outage = await ask("hello", "key-of-research");
      assert.deepEqual([outage.status, outage.headers.get("x-ratelimit-outage")], [200, "fallback"]);
      limiter.close();
    });
  await withRedis((redis) =>
    served(provider, (address) => {
      const standsFor = { "redis://localhost": patient(redis.url), "https://api.openai.com": address };
      return recipe("model-gateway.md", standsFor, (made) => body(made, () => redis.kill()));
    }),
  );
});

test("outgoing calls: a 429 is tried again after its wait", async () => {
  let requests = 0;
  const answer = (_, response) => {
    requests += 1;
    if (requests === 1) response.writeHead(429, { "retry-after": "1" }).end();
    else response.end("12.50");
  };
  await withRedis(({ url }) =>
    served(answer, (address) =>
      recipe(
        "outgoing-calls.md",
        { "redis://localhost": patient(url), "https://api.example.com": address },
        async ({ balance }) => {
          assert.equal(await balance("alice"), "12.50");
          assert.equal(requests, 2);
        },
      ),
    ),
  );
});

test("plans: each tenant has the numbers of its plan", async () => {
  await withRedis(({ url }) =>
    recipe("api-plans.md", { "redis://localhost": patient(url) }, (app) =>
      served(app, async (address) => {
        const ask = async (key) => {
          const { status, headers } = await fetch(`${address}/v1/items`, { headers: { "x-api-key": key } });
          return [status, headers.get("ratelimit-policy").match(/q=\d+/)[0]];
        };
        assert.deepEqual(await ask("key-of-acme"), [200, "q=60"]);
        assert.deepEqual(await ask("key-of-globex"), [200, "q=600"]);
        for (let number = 0; number < 10; number += 1) assert.deepEqual(await ask("another"), [200, "q=10"]);
        assert.deepEqual(await ask("another"), [429, "q=10"]);
      }),
    ),
  );
});

test("webhooks: a busy host goes back to the queue, and a failed delivery is tried later", async () => {
  let requests = 0;
  const receive = (_, response) => {
    requests += 1;
    response.writeHead(requests === 1 ? 503 : 204).end();
  };
  await withRedis(({ url }) =>
    served(receive, (address) =>
      recipe("webhooks.md", { "redis://localhost": patient(url) }, async ({ deliver, limiter }) => {
        const outcomes = [];
        for (let number = 0; number < 3; number += 1) outcomes.push(await deliver(address, { number }));
        assert.deepEqual(outcomes, [60_000, null, null]);
        await limiter.charge(new URL(address).host, { cost: 80 });
        assert.ok((await deliver(address, { number: 3 })) > 10_000);
        assert.equal(requests, 3);
        limiter.close();
      }),
    ),
  );
});

test("background jobs: two of a tenant run at a time, each is charged once, and a worker that shuts down does not wait", async () => {
  await withRedis(({ url }) =>
    recipe("background-jobs.md", { "redis://localhost": patient(url) }, async ({ run, limiter }) => {
      const now = { timeoutMs: 0 };
      const inner = [];
      const third = async () => {
        inner.push(await run("acme", "job 3", () => 1, now));
        inner.push(await run("globex", "job 4", () => 1, now));
        const stop = new AbortController();
        const waits = run("acme", "job 5", () => assert.fail("there is no slot"), { signal: stop.signal });
        stop.abort();
        await assert.rejects(waits, { name: "AbortError" });
        return 20;
      };
      const second = async () => {
        inner.push(await run("acme", "job 2", third, now));
        return 10;
      };
      const began = Date.now();
      const charged = async () => {
        const rows = 1_000_000 - (await limiter.peek("acme", "exports")).quotas[1].remaining;
        // Some come back meanwhile: a million in a day.
        const back = Math.ceil((Date.now() - began) / 86.4);
        assert.ok(rows <= 30 && rows >= 30 - back, `${rows} rows, of which ${back} may be back`);
      };
      assert.equal(await run("acme", "job 1", second, now), true);
      assert.deepEqual(inner, [false, true, true]);
      await charged();
      assert.equal((await limiter.commit("acme", "job 1", { policy: "exports", spent: 10 })).found, false);
      await charged();
      limiter.close();
    }),
  );
});

for (const version of ["bullmq5-oldest", "bullmq"]) {
  const { Queue, Worker } = require(join(bindings, "node_modules", version));
  const number = require(join(bindings, "node_modules", version, "package.json")).version;

  /** Runs `body` with the program of the page, and with what opens queues, workers and events on the same Redis. */
  const withQueues = (policies, body) =>
    withRedis(async ({ url, port }) => {
      const opened = [];
      const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null };
      const open = (Class, ...given) => {
        const made = new Class(...given.slice(0, -1), { ...given.at(-1), connection });
        made.on("error", () => {});
        opened.unshift(made);
        return made;
      };
      const standsFor = { "redis://localhost": patient(url), ...policies };
      await recipe(
        "bullmq.md",
        standsFor,
        async (program) => {
          try {
            await body(program, open);
          } finally {
            for (const made of opened) await made.close();
            program.limiter.close();
          }
        },
        version,
      );
    });

  test(`BullMQ ${number}: jobs over a tenant's limit wait in the queue without an attempt, and others pass them`, async () => {
    const limits = { '"100/minute"': '"2/second fixed_window"', '"50/second token_bucket"': '"1000/second"' };
    await withQueues(limits, async ({ mails }, open) => {
      const queue = open(Queue, "mails", {});
      const sent = [];
      const send = async (job) => sent.push(`${job.data.tenant} ${job.attemptsMade}`);
      for (let each = 0; each < 6; each += 1) await queue.add("mail", { tenant: "acme" });
      await queue.add("mail", { tenant: "globex" });
      const began = Date.now();
      const worker = open(
        Worker,
        "mails",
        mails(send, () => worker),
        { concurrency: 1 },
      );
      await until(() => sent.length === 7, "seven mails", 60_000);
      // Windows of a second: the six jobs of a tenant take three of them.
      assert.ok(Date.now() - began >= 1000, `${Date.now() - began} ms`);
      assert.ok(sent.indexOf("globex 0") < 6, `${sent}`);
      assert.ok(
        sent.every((line) => line.endsWith(" 0")),
        `${sent}`,
      );
      const counts = await queue.getJobCounts("failed", "delayed", "active", "completed");
      assert.deepEqual(counts, { failed: 0, delayed: 0, active: 0, completed: 7 });
    });
  });

  test(`BullMQ ${number}: a limit of all pauses the queue, and every job runs in the end`, async () => {
    const limits = { '"50/second token_bucket"': '"2/second fixed_window"' };
    await withQueues(limits, async ({ mails }, open) => {
      const queue = open(Queue, "mails", {});
      const sent = [];
      const send = async (job) => sent.push(job.data.tenant);
      const began = Date.now();
      for (let each = 0; each < 6; each += 1) await queue.add("mail", { tenant: `tenant ${each}` });
      for (let each = 0; each < 2; each += 1) {
        const worker = open(
          Worker,
          "mails",
          mails(send, () => worker),
          { concurrency: 2 },
        );
      }
      await until(() => sent.length === 6, "six mails", 60_000);
      assert.ok(Date.now() - began >= 1000, `${Date.now() - began} ms`);
      assert.equal((await queue.getJobCounts("failed")).failed, 0);
      assert.equal(new Set(sent).size, 6);
    });
  });

  test(`BullMQ ${number}: a tenant runs two exports at a time, and its workers take those of others`, async () => {
    await withQueues({ "1000, 1000": "50, 50" }, async ({ buildExports, limiter }, open) => {
      const queue = open(Queue, "exports", {});
      const running = { acme: 0, globex: 0 };
      const most = { acme: 0, globex: 0 };
      let built = 0;
      const bothRun = deferred();
      const build = async ({ data: { tenant } }) => {
        running[tenant] += 1;
        most[tenant] = Math.max(most[tenant], running[tenant]);
        if (running.acme === 2 && running.globex === 1) bothRun.resolve();
        // Two jobs of one tenant hold their slots until a job of the other one runs.
        await bothRun.promise;
        await new Promise((resolve) => setTimeout(resolve, 20));
        running[tenant] -= 1;
        built += 1;
      };
      for (let each = 0; each < 5; each += 1) await queue.add("export", { tenant: "acme" });
      await queue.add("export", { tenant: "globex" });
      for (let each = 0; each < 2; each += 1) open(Worker, "exports", buildExports(build), { concurrency: 4 });
      await until(() => built === 6, "six exports", 60_000);
      assert.deepEqual(most, { acme: 2, globex: 1 });
      assert.ok((await limiter.peek("acme", "exports")).allowed);
    });
  });
}

/** A promise that is resolved from outside: Node 20 has none. */
function deferred() {
  let resolve;
  const promise = new Promise((fulfil) => {
    resolve = fulfil;
  });
  return { promise, resolve };
}
