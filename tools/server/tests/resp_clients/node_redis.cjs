// node-redis: node_redis.cjs MODULE PORT
const assert = require("node:assert");

const { createClient } = require(process.argv[2]);

async function main() {
  const client = createClient({ url: `redis://127.0.0.1:${process.argv[3]}` });
  await client.connect();
  const throttle = ["CL.THROTTLE", "pipeline", "15", "30", "60"];
  const left = async () => (await client.sendCommand([...throttle, "0"]))[2];
  const three = () => [1, 2, 3].reduce((added) => added.addCommand(throttle), client.multi());
  const remaining = (answers) => answers.map((answer) => answer[2]);

  assert.strictEqual(await client.ping(), "PONG");
  assert.strictEqual(await client.echo("a"), "a");
  assert.deepStrictEqual(remaining(await three().exec()), [15, 14, 13]);
  // Commands of one turn of the event loop are a pipeline.
  const together = await Promise.all([1, 2, 3].map(() => client.sendCommand(throttle)));
  assert.deepStrictEqual(remaining(together), [12, 11, 10]);
  // What cannot be read spends nothing.
  await assert.rejects(three().set("a", "b").exec());
  assert.strictEqual(await left(), 10);
  await client.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
