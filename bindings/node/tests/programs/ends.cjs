// Ends in one of several ways while limiters are open and decisions are pending: ends.cjs WAY URL
"use strict";

const { Limiter } = require("polylimit");

const [way, url] = process.argv.slice(2);
const limiter = new Limiter(url, { policies: { api: "100/minute" }, deadline: "60s" });
const memory = new Limiter("memory:", { policies: { api: "1/hour" } });
memory.checkSync("k");
const asked = () => Array.from({ length: 100 }, (_, user) => limiter.check(`user:${user}`));

switch (way) {
  case "open":
    // Nothing is pending, and an open limiter does not keep the process alive.
    limiter.check("k").then(() => console.log("decided"));
    break;
  case "awaited":
    // A pending promise does.
    Promise.all(asked()).then((decisions) => console.log(`decided ${decisions.length}`));
    break;
  case "exit":
    asked();
    process.exit(0);
    break;
  case "exit-later":
    asked();
    setTimeout(() => process.exit(0), 20);
    break;
  case "exit-in-answer":
    asked();
    limiter.check("k", { policy: "1/minute" }).then(() => process.exit(0));
    break;
  case "exit-waiting":
    memory.acquire("k", { timeoutMs: 86_400_000 });
    setTimeout(() => process.exit(0), 20);
    break;
  case "close":
    Promise.allSettled(asked()).then((settled) => console.log(new Set(settled.map(({ reason }) => reason.code))));
    setTimeout(() => limiter.close(), 20);
    break;
  default:
    throw new Error(`${way} is not known`);
}
