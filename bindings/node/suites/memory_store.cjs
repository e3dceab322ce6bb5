// Stands for the module of express-rate-limit with its store in memory.
"use strict";

const { FollowingStore } = require("./following_store.cjs");

module.exports = { MemoryStore: FollowingStore };
