// A real Redis server for a test, on a free port of this machine, without persistence.
"use strict";

const { spawn } = require("node:child_process");
const { once } = require("node:events");
const { connect, createServer } = require("node:net");

const { until } = require("./until.cjs");

/** A port that is free now: below those that the kernel gives to connections, which would take it meanwhile. */
async function freePort() {
  for (;;) {
    const port = 10_000 + Math.floor(10_000 * Math.random());
    const server = createServer();
    const isFree = await new Promise((resolve) => {
      server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
    });
    if (isFree) return port;
  }
}

/** Whether a server answers on this port. */
function answers(port) {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => socket.write("PING\r\n"));
    socket.once("data", (data) => {
      socket.destroy();
      resolve(data.toString().startsWith("+PONG"));
    });
    socket.once("error", () => resolve(false));
    socket.once("close", () => resolve(false));
  });
}

/** Sends a command, and returns the beginning of its reply. */
async function redisCommand(port, line) {
  const socket = connect(port, "127.0.0.1", () => socket.write(`${line}\r\n`));
  const [reply] = await once(socket, "data");
  socket.destroy();
  return reply.toString();
}

class Redis {
  constructor(port) {
    this.port = port;
    this.url = `redis://127.0.0.1:${port}`;
  }

  static async start(port) {
    const server = new Redis(port ?? (await freePort()));
    await server.begin();
    return server;
  }

  async begin() {
    const options = ["--port", this.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"].map(String);
    this.process = spawn("redis-server", options, { stdio: "ignore" });
    this.ended = once(this.process, "exit");
    await until(() => answers(this.port), "redis-server answers");
  }

  /** Kills the server; its data is lost. */
  async kill() {
    this.process.kill("SIGKILL");
    await this.ended;
  }
}

/** Runs `body` with a server. */
async function withRedis(body) {
  const server = await Redis.start();
  try {
    return await body(server);
  } finally {
    await server.kill();
  }
}

module.exports = { freePort, Redis, redisCommand, withRedis };
