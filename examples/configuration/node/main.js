// An Express service whose limits come from a document that changes while the service runs.

import express from "express";
import { Limiter } from "polylimit";
import { rateLimit } from "polylimit/express";

const limiter = new Limiter(process.env.POLYLIMIT_URL ?? "local:demo", {
  configuration: process.env.POLYLIMIT_CONFIGURATION ?? "file:polylimit.toml",
});

const app = express();
// Decides about each request by the document's lists and rules. An application takes user and plan from the session of its user.
app.use(rateLimit({ limiter, attributes: ({ query }) => ({ user: query.user, plan: query.plan }) }));
app.get("/", (_, response) => response.json({ hello: "world" }));
// Waits for a version of the configuration, and returns the active one.
app.get("/configuration", async (request, response) => {
  const { version, digest } = await limiter.admin().waitForVersion(Number(request.query.version ?? 0), 30_000);
  response.json({ version, digest });
});

const server = app.listen(Number(process.env.PORT ?? 8082), "127.0.0.1", (error) => {
  if (error) throw error;
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
