// Credentials that a function of the program gives.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { Limiter } = require("polylimit");

const { redisCommand, withRedis } = require("./support/redis.cjs");
const { until } = require("./support/until.cjs");

const OPTIONS = { policies: { api: { quotas: "1000/hour", outage: "deny" } }, deadline: 5000, doctorAfter: 0 };

/** Runs `body` with a server and a limiter whose credentials a function gives. */
async function withCredentials(credentials, body, more = {}) {
  await withRedis(async (server) => {
    const command = (line) => redisCommand(server.port, line);
    await command("ACL SETUSER limits on >old ~* &* +@all");
    const limiter = new Limiter(server.url, { ...OPTIONS, credentials, ...more });
    try {
      await body(limiter, command);
    } finally {
      limiter.close();
    }
  });
}

const isByStore = async (limiter) => (await limiter.check("k")).source === "store";

test("a changed password is asked for again, at once or by a promise", async () => {
  for (const give of [(value) => value, async (value) => value]) {
    let password = "old";
    await withCredentials(
      () => give({ username: "limits", password }),
      async (limiter, command) => {
        assert.ok(await isByStore(limiter));
        await command("ACL SETUSER limits >new <old");
        password = "new";
        await command("CLIENT KILL USER limits");
        await until(() => isByStore(limiter), "the new password is used");
      },
    );
  }
});

test("a password alone is that of the default user", async () => {
  await withCredentials(
    () => "word",
    async (limiter, command) => {
      await command("CONFIG SET requirepass word");
      assert.ok(await isByStore(limiter));
    },
  );
});

test("an error and a wrong result are the cause", async () => {
  const fail = () => {
    throw new Error("the token service is away");
  };
  for (const [give, cause] of [
    [fail, /the token service is away/],
    [async () => fail(), /the token service is away/],
    [() => 7, /allowed is a password, or an object with username and password/],
    [() => undefined, /allowed is a password, or an object/],
  ]) {
    await withCredentials(give, async (limiter) => {
      const decision = await limiter.check("k");
      assert.deepEqual([decision.source, decision.degraded], ["deny", "auth"]);
      await assert.rejects(limiter.ready(30_000), cause);
    });
  }
});

test("a function that does not answer delays no decision", async () => {
  let goOn;
  const waiting = new Promise((resolve) => {
    goOn = () => resolve({ username: "limits", password: "old" });
  });
  await withCredentials(
    () => waiting,
    async (limiter) => {
      for (let round = 0; round < 5; round++) assert.equal((await limiter.check("k")).source, "deny");
      goOn();
      await until(() => isByStore(limiter), "the function has answered");
    },
    { deadline: 50, firstConnectMax: 0 },
  );
});

test("what is no function is refused", () => {
  assert.throws(() => new Limiter("redis://localhost", { credentials: "word" }), /credentials.*a function/s);
});
