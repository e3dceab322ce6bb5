// A server that accepts connections and never replies, so that decisions stay pending until their deadline.
"use strict";

const { once } = require("node:events");
const { createServer } = require("node:net");

async function withBlackHole(body) {
  const sockets = new Set();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.resume();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    return await body(`redis://127.0.0.1:${server.address().port}`);
  } finally {
    for (const socket of sockets) socket.destroy();
    server.close();
  }
}

module.exports = { withBlackHole };
