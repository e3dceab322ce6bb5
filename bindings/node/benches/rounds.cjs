// Interleaved rounds: every contender runs once in each round, so that other load on the machine affects all of them alike.
"use strict";

/** The median time of each contender in microseconds. A contender is a name and a function that runs a given number. */
async function medians(contenders, { rounds, count }) {
  const times = contenders.map(() => []);
  for (let round = 0; round <= rounds; round++) {
    for (const [at, { run }] of contenders.entries()) {
      const begin = process.hrtime.bigint();
      await run(count);
      const us = Number(process.hrtime.bigint() - begin) / 1000 / count;
      // The first round warms up.
      if (round > 0) times[at].push(us);
    }
  }
  return times.map((all) => all.sort((a, b) => a - b)[Math.floor(all.length / 2)]);
}

/** Prints the medians, and how many times as fast as the last contender each one is. */
function table(title, contenders, us) {
  console.log(`\n${title}`);
  for (const [at, { name }] of contenders.entries()) {
    const ratio = (us[us.length - 1] / us[at]).toFixed(2);
    console.log(`  ${name.padEnd(42)} ${us[at].toFixed(2).padStart(9)} us ${ratio.padStart(7)} x`);
  }
}

module.exports = { medians, table };
