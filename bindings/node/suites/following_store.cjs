// A PolylimitStore whose clock is set to `Date` before each call, because the suites set a `Date` of their own.
"use strict";

const { randomUUID } = require("node:crypto");

const { Limiter, ManualClock } = require("polylimit");
const { PolylimitStore } = require("polylimit/express-rate-limit");

const URL = process.env.POLYLIMIT_SUITE_STORE;

class FollowingStore extends PolylimitStore {
  #clock;
  #limiter;

  constructor({ prefix = "" } = {}) {
    const clock = new ManualClock(Date.now() * 1000);
    const limiter = new Limiter(URL, { clock });
    // Stores in Redis share a server.
    super({ limiter, prefix: URL === "memory:" ? prefix : `${randomUUID()}-${prefix}` });
    this.#clock = clock;
    this.#limiter = limiter;
  }

  get(key) {
    return this.#now(() => super.get(key));
  }

  increment(key) {
    return this.#now(() => super.increment(key));
  }

  decrement(key) {
    return this.#now(() => super.decrement(key));
  }

  get resetKey() {
    const reset = super.resetKey;
    return (key) => this.#now(() => reset.call(this, key));
  }

  shutdown() {
    this.#limiter.close();
  }

  #now(call) {
    this.#clock.setUs(Math.max(Date.now() * 1000, this.#clock.nowUs));
    return call();
  }
}

module.exports = { FollowingStore };
