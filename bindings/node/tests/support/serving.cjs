// Servers of tests, on 127.0.0.1.
"use strict";

const { once } = require("node:events");
const http = require("node:http");

/** Serves an application while `body` runs with its port. */
async function serving(app, body) {
  const server = http.createServer(app).listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    return await body(server.address().port);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

module.exports = { serving };
