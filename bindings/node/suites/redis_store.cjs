// Stands for the store of rate-limit-redis, whose options name commands of a client.
"use strict";

const { FollowingStore } = require("./following_store.cjs");
const { use } = require("./redis_client.cjs");

class RedisStore extends FollowingStore {
  constructor({ prefix = "rl:" }) {
    super({ prefix });
    use(this, prefix);
  }
}

module.exports = { RedisStore, default: RedisStore, __esModule: true };
