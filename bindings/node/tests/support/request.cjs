// HTTP requests by Node's own client, each on a new connection unless an agent is given.
"use strict";

const http = require("node:http");

/** Sends a request, and returns status, headers and text. */
function request(port, path = "/", { headers = {}, agent, method = "GET", localAddress } = {}) {
  return new Promise((resolve, reject) => {
    const options = { host: "127.0.0.1", port, path, headers, agent, method, localAddress };
    const sent = http.request(options, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (part) => {
        text += part;
      });
      response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, text }));
      response.on("error", reject);
    });
    sent.on("error", reject);
    sent.end();
  });
}

/** Sends a request, and returns when the first part of its response is there: the answer so far, its end, and how to leave. */
function open(port, path = "/", { headers = {}, method = "GET" } = {}) {
  return new Promise((resolve, reject) => {
    const sent = http.request({ host: "127.0.0.1", port, path, headers, method }, (response) => {
      const ended = new Promise((end) => response.on("end", end));
      // A client that leaves breaks its response.
      response.on("error", () => {});
      const { statusCode: status, headers } = response;
      response.once("data", (part) => resolve({ answer: { status, headers, text: String(part) }, ended, leave }));
    });
    const leave = () => sent.destroy();
    sent.on("error", reject);
    sent.end();
  });
}

/** Sends `count` requests with limited concurrency, and returns all responses. */
async function requests(port, count, path, options) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 16 });
  try {
    return await Promise.all(Array.from({ length: count }, () => request(port, path, { agent, ...options })));
  } finally {
    agent.destroy();
  }
}

/** The number of responses of each status. */
function statuses(answers) {
  const counts = {};
  for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

module.exports = { open, request, requests, statuses };
