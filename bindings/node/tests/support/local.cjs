"use strict";

const { rmSync } = require("node:fs");

let count = 0;

/** The URL of a new local store, and a function that removes its file. */
function localStore() {
  const name = `node-test-${process.pid}-${++count}`;
  const remove = () => rmSync(`/dev/shm/polylimit-${process.getuid()}-${name}`, { force: true });
  return { url: `local:${name}?size=1MiB`, remove };
}

module.exports = { localStore };
