// A test compiles this for a Node that has no `await using` of its own, and runs it.

import { Limiter } from "polylimit";

const limiter = new Limiter("memory:", { policies: { model: "2 concurrent; 100/day fixed_window" } });

async function committed(): Promise<void> {
  await using reservation = await limiter.reserve("k", { cost: 10 });
  console.log("held", 2 - (await limiter.peek("k")).quotas[0].remaining);
  if (reservation.allowed) await reservation.commit(4);
}

async function cancelled(): Promise<void> {
  await using reservation = await limiter.reserve("k", { cost: 10 });
  if (reservation.isLost) console.log("lost");
}

async function failed(): Promise<void> {
  await using reservation = await limiter.reserve("k", { cost: 10 });
  throw new RangeError(`of the scope of ${typeof reservation.id}`);
}

async function charged(): Promise<void> {
  await using reservation = await limiter.reserve("k", { cost: 10, commitAtEnd: true });
  if (!reservation.allowed) console.log("denied");
}

async function main(): Promise<void> {
  for (const [name, scope] of Object.entries({ committed, cancelled, failed, charged })) {
    await scope().catch((error: unknown) => {
      if (!(error instanceof RangeError)) throw error;
    });
    const { quotas } = await limiter.peek("k");
    console.log(name, quotas[0].remaining === 2 ? quotas[1].remaining : "held");
  }
}

main();
