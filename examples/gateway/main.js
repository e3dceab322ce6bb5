// A gateway with Express in front of a language model that streams tokens.

import { setTimeout } from "node:timers/promises";
import express from "express";
import { Limiter } from "polylimit";

// The most tokens that one answer may have.
const MAX_TOKENS = 40;
// Milliseconds after which the slots and the tokens of a gateway that was killed come back.
const ttlMs = 1000 * Number(process.env.POLYLIMIT_TTL ?? 30);

const limiter = new Limiter(process.env.POLYLIMIT_URL ?? "local:gateway", {
  policies: { model: process.env.POLYLIMIT_QUOTA ?? "4 concurrent; 10000/minute token_bucket" },
});

// Stands for a language model, which takes its time for each token.
async function* model(tokens, delayMs) {
  for (let number = 0; number < tokens; number += 1) {
    await setTimeout(delayMs);
    yield `token${number}\n`;
  }
}

const app = express();

// Reserves a slot and the most tokens that the answer may have, and commits those that it had.
app.get("/", async (request, response) => {
  const { user = "demo", tokens = MAX_TOKENS, delay = 0.01 } = request.query;
  const reservation = await limiter.reserve(String(user), { cost: MAX_TOKENS, ttlMs });
  if (!reservation.allowed) {
    response.status(429).type("text").send("Too many requests, or no tokens left.\n");
    return;
  }
  response.type("text");
  let spent = 0;
  try {
    for await (const token of model(Math.min(Number(tokens), MAX_TOKENS), 1000 * Number(delay))) {
      // The client has left.
      if (response.destroyed) break;
      response.write(token);
      spent += 1;
    }
  } finally {
    await reservation.commit(spent);
  }
  response.end();
});

const server = app.listen(Number(process.env.PORT ?? 8080), "127.0.0.1", (error) => {
  if (error) throw error;
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
