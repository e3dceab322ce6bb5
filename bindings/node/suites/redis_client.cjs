// Stands for the client by which the tests of rate-limit-redis read a count and its expiry: it reads them of the newest store.
"use strict";

let [store, prefix] = [undefined, ""];

class Client {
  async get(key) {
    const { totalHits } = (await found(key)) ?? {};
    return totalHits === undefined ? null : String(totalHits);
  }

  async pttl(key) {
    const { resetTime } = (await found(key)) ?? {};
    return resetTime === undefined ? -2 : resetTime.getTime() - Date.now();
  }

  async flushall() {
    store?.shutdown();
  }
}

function found(key) {
  if (!key.startsWith(prefix)) throw new Error(`${key} has not the prefix of the store`);
  return store.get(key.slice(prefix.length));
}

function use(newest, itsPrefix) {
  [store, prefix] = [newest, itsPrefix];
}

module.exports = { default: Client, use, __esModule: true };
