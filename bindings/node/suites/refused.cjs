// The tests of other projects that are expected to fail with PolylimitStore, each with its reason. docs/migrating.md has the same list.
"use strict";

const INTERNALS = "looks for the timer and the maps of another store, which this one does not have";

/** By suite: the end of a test's name, the reason of the failure, and the stores on which it fails; by default all. */
const REFUSED = {
  "express-rate-limit": [
    { test: "clears the timer when `shutdown` is called", reason: INTERNALS },
    {
      test: "can run in electron where setInterval does not return a Timeout object with an unset function",
      reason: INTERNALS,
    },
    { test: "should automatically clear previously set intervals", reason: INTERNALS },
    { test: "should move clients from previous to current", reason: INTERNALS },
    {
      test: "resets the count for all keys in the store when `resetAll` is called",
      reason: "resetAll is refused on Redis, because other processes share the counts",
      stores: ["redis"],
    },
  ],
  "rate-limit-redis": [
    {
      test: "unit: when PTTL==0 but key exists, script starts new window with 1",
      reason: "reads the script of another store, and changes the key behind it",
    },
    {
      test: "should bind sendCommand to this",
      reason: "expects the error of a function that sends commands of Redis; this store has connections of its own",
    },
  ],
};

module.exports = { REFUSED };
