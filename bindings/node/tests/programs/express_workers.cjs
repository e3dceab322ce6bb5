// A cluster of Express workers that share one port and one limit: express_workers.cjs VERSION URL WORKERS LIMIT
"use strict";

const cluster = require("node:cluster");

const [version, url, workers, limit] = process.argv.slice(2);

if (cluster.isPrimary) {
  let listening = 0;
  cluster.on("listening", (_, { port }) => {
    listening += 1;
    if (listening === Number(workers)) process.send({ port });
  });
  for (let worker = 0; worker < Number(workers); worker++) cluster.fork();
  process.on("disconnect", () => process.exit(0));
} else {
  const express = require(version);
  const { Limiter } = require("polylimit");
  const { rateLimit } = require("polylimit/express");

  const options = url.startsWith("redis") ? { deadline: "10s" } : {};
  const limiter = new Limiter(url, { policies: { api: `${limit}/day` }, ...options });
  const app = express();
  app.use(rateLimit({ limiter, headers: "both" }));
  app.get("/", (_, response) => response.send(String(process.pid)));
  app.listen(0, "127.0.0.1");
}
