// Callers in Node: caller.cjs URL CALLERS ATTEMPTS. For each line of the input, a key and quotas with a tab between them,
// all callers ask at the same time; the answer is how many were admitted.
"use strict";

const { createInterface } = require("node:readline");

const { Limiter } = require("../../../bindings/node");

async function main([url, callers, attempts]) {
  const limiter = new Limiter(url);
  const call = async (key, policy) => {
    let admitted = 0;
    for (let attempt = 0; attempt < Number(attempts); attempt++) {
      const decision = await limiter.check(key, { policy });
      // What the store did not decide would say nothing about a shared budget.
      if (decision.degraded) throw new Error(`a decision is degraded: ${decision.degraded}`);
      if (decision.allowed) admitted += 1;
    }
    return admitted;
  };
  console.log("ready");
  for await (const line of createInterface({ input: process.stdin })) {
    const [key, quotas] = line.split("\t");
    const admitted = await Promise.all(Array.from({ length: Number(callers) }, () => call(key, quotas)));
    console.log(admitted.reduce((sum, one) => sum + one));
  }
  limiter.close();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
