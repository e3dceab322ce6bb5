// What the applications on Node have in common: the limits, the documents, and the lines that the driver reads.
"use strict";

const { createRequire } = require("node:module");
const { join } = require("node:path");

/** Loads a package as the tests of the Node binding do, polylimit among them. */
const load = createRequire(join(__dirname, "../../../bindings/node/tests/package.json"));

const { Limiter } = load("polylimit");

const QUOTAS = "3/hour fixed_window";
const HANDLERS = "login,report,user";

/** The options of a limit at one handler. */
const limited = () => ({ limiter: new Limiter("memory:"), policy: QUOTAS, key: "header:x-client" });

/** The options of a limit whose rules compare an attribute: `path` or `route`. */
function ruled(attribute) {
  const targets = [
    ["login", "POST", "/login"],
    ["report", "GET", "/report"],
    ["user", "GET", "/v1/users/{id}"],
  ];
  const document = {
    polylimit: 1,
    policies: Object.fromEntries(targets.map(([policy]) => [policy, { quotas: QUOTAS }])),
    rules: targets.map(([policy, method, value]) => ({
      match: { method, [attribute]: value },
      apply: [{ policy, key: "{header.x-client}" }],
    })),
  };
  return { limiter: new Limiter("memory:", { document }) };
}

/** The options of the limits of handlers that are separate. They share the limiter and the quotas. */
const separate = () => ({ limiter: new Limiter("memory:"), policy: "1/hour fixed_window", key: "header:x-client" });

/** A function that counts the executions of a site's handlers by client, and returns the value of the field `x-runs`. */
function counter() {
  const runs = new Map();
  return (handler, client) => {
    const key = `${handler} ${client}`;
    runs.set(key, (runs.get(key) ?? 0) + 1);
    return `${handler}=${runs.get(key)}`;
  };
}

const say = (...words) => process.stdout.write(`${words.join(" ")}\n`);

/** Ends the program when the driver closes its standard input. */
function waitForDriver() {
  process.stdin.resume().on("end", () => process.exit());
}

module.exports = { counter, HANDLERS, Limiter, limited, load, QUOTAS, ruled, say, separate, waitForDriver };
