// Requests as bytes, for targets that no HTTP client sends.
"use strict";

const { once } = require("node:events");
const { connect } = require("node:net");

/** Sends a request on a connection of its own, and returns the status, the header fields and the body of its response. */
async function rawRequest(port, target, { method = "GET", headers = {} } = {}) {
  const fields = { host: "localhost", "content-length": "0", connection: "close", ...headers };
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`);
  const socket = connect(port, "127.0.0.1");
  let text = "";
  socket.setEncoding("latin1").on("data", (data) => {
    text += data;
  });
  socket.write(`${method} ${target} HTTP/1.1\r\n${lines.join("")}\r\n`);
  await once(socket, "close");
  const [head, ...body] = text.split("\r\n\r\n");
  const [status, ...received] = head.split("\r\n");
  const pairs = received.map((line) => [line.slice(0, line.indexOf(":")).toLowerCase(), line.split(": ")[1]]);
  return { status: Number(status.split(" ")[1]), headers: Object.fromEntries(pairs), text: body.join("\r\n\r\n") };
}

module.exports = { rawRequest };
