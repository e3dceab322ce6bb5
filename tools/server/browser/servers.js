// What the tests of the dashboard start: servers of polylimit, and Redis.

import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

const program = join(import.meta.dirname, "..", "..", "..", "target", "debug", "polylimit");
const ended = [];

/** Ends what was started last first. */
export async function endAll() {
  for (const end of ended.splice(0).reverse()) await end();
}

/** A folder that is removed at the end. */
export async function folder() {
  const path = await mkdtemp(join(tmpdir(), "polylimit-dashboard-"));
  ended.push(() => rm(path, { recursive: true, force: true }));
  return path;
}

function start(command, options) {
  const child = spawn(command, options, { stdio: ["ignore", "pipe", "pipe"] });
  const over = new Promise((resolve) => child.once("close", resolve));
  const end = async () => {
    child.kill("SIGTERM");
    await over;
  };
  ended.push(end);
  return { child, end, over };
}

/** Waits until a condition holds, and returns what it gives. */
export async function until(condition, what, seconds = 60) {
  const since = Date.now();
  for (;;) {
    const holds = await condition();
    if (holds) return holds;
    if (Date.now() - since > 1_000 * seconds) throw new Error(`${what}: not within ${seconds} s`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** A port that is free now: below those that the kernel gives to connections, which would take it meanwhile. */
export async function freePort() {
  for (;;) {
    const port = 10_000 + Math.floor(10_000 * Math.random());
    const server = createServer();
    const isFree = await new Promise((resolve) => {
      server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
    });
    if (isFree) return port;
  }
}

/** A Redis that keeps nothing on disk. */
export async function redis(at) {
  const port = at ?? (await freePort());
  const options = ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", await folder()];
  const { child, end } = start("redis-server", options);
  await new Promise((resolve, reject) => {
    child.once("error", reject);
    createInterface(child.stdout).on("line", (line) => line.includes("Ready to accept connections") && resolve());
  });
  const command = (...words) => promisify(execFile)("redis-cli", ["-p", String(port), ...words]);
  return { url: redisUrl(port), command, end };
}

/** Where a Redis at this port is. */
export function redisUrl(port) {
  return `redis://127.0.0.1:${port}?deadline=2s`;
}

/** A file of tokens that are the names of their roles. */
export async function tokens() {
  const digest = (token) => createHash("sha256").update(token).digest("hex");
  const path = join(await folder(), "tokens");
  await writeFile(path, ["check", "read", "admin"].map((role) => `${role} a-${role} sha256:${digest(role)}\n`).join(""));
  return path;
}

/** `polylimit serve`, with the addresses of callers and of operators. */
export async function serve(...options) {
  const listen = ["--listen", "http://127.0.0.1:0", "--admin", "http://127.0.0.1:0"];
  const { child, end, over } = start(program, ["serve", ...listen, ...options]);
  const addresses = [];
  const errors = [];
  await Promise.race([
    new Promise((resolve) => {
      createInterface(child.stderr).on("line", (line) => {
        const address = line.match(/listening on (\S+)/)?.[1];
        if (address) addresses.push(address);
        else errors.push(line);
        if (addresses.length === 2) resolve();
      });
    }),
    over.then(() => Promise.reject(new Error(`the server has ended: ${errors.join(" ")}`))),
  ]);
  const [data, admin] = addresses;
  const post = async (path, body, headers = {}) => {
    const response = await fetch(data + path, { method: "POST", headers, body: JSON.stringify(body) });
    return response.json();
  };
  return { data, admin, pid: child.pid, post, end };
}

/** Publishes a document over this version. */
export async function publish(server, document, version, author = { why: "test", by: "test" }, headers = {}) {
  const response = await fetch(`${server.admin}/v1/policies?${new URLSearchParams(author)}`, {
    method: "PUT",
    headers: { "if-match": `"${version}"`, ...headers },
    body: document,
  });
  if (!response.ok) throw new Error(await response.text());
}
