// ioredis: ioredis.cjs MODULE PORT
const assert = require("node:assert");

const Redis = require(process.argv[2]);

async function main() {
  const client = new Redis({ port: Number(process.argv[3]), maxRetriesPerRequest: 1 });
  const throttle = ["cl.throttle", "pipeline", 15, 30, 60];
  const left = async () => (await client.call(...throttle, 0))[2];
  const three = (chain) => [1, 2, 3].reduce((added) => added.call(...throttle), chain);
  const remaining = (answers) => answers.map(([error, answer]) => error ?? answer[2]);

  assert.strictEqual(await client.ping(), "PONG");
  assert.strictEqual(await client.echo("a"), "a");
  assert.deepStrictEqual(remaining(await three(client.multi()).exec()), [15, 14, 13]);
  assert.deepStrictEqual(remaining(await three(client.pipeline()).exec()), [12, 11, 10]);
  // What cannot be read spends nothing.
  await assert.rejects(three(client.multi()).set("a", "b").exec(), /EXECABORT/);
  assert.strictEqual(await left(), 10);
  client.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
