// The JavaScript of the recipes, each page's program as it stands there, with a real Redis and real servers.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { mkdir, mkdtemp, readFile, rm, symlink, writeFile } = require("node:fs/promises");
const { createServer } = require("node:http");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { test } = require("node:test");

const bindings = join(__dirname, "..", "..", "bindings", "node");
const { withRedis } = require(join(bindings, "tests", "support", "redis.cjs"));

/** Loads the program of a page from a folder with the page's document, and gives `body` what it exports. */
async function recipe(page, standsFor, body) {
  const text = await readFile(join(__dirname, "..", "..", "docs", "recipes", page), "utf8");
  let [, program] = text.match(/^```js\n(.*?)^```/ms);
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
    await writeFile(join(folder, "program.cjs"), program);
    const document = text.match(/^```toml\n(.*?)^```/ms);
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
