// An Express service whose requests are limited by the middleware of polylimit.

import express from "express";
import { Limiter } from "polylimit";
import { rateLimit } from "polylimit/express";

const limiter = new Limiter(process.env.POLYLIMIT_URL ?? "local:demo", {
  policies: { demo: process.env.POLYLIMIT_QUOTA ?? "100/minute" },
});

const app = express();
// Whom to limit: the query parameter "user", or "demo".
app.use(rateLimit({ limiter, key: (request) => String(request.query.user ?? "demo") }));
app.get("/", (_, response) => response.json({ hello: "world" }));

const server = app.listen(Number(process.env.PORT ?? 8080), "127.0.0.1", (error) => {
  if (error) throw error;
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
