// A Fastify service whose requests are limited by the plugin of polylimit.

import fastify from "fastify";
import { Limiter } from "polylimit";
import { rateLimit } from "polylimit/fastify";

const limiter = new Limiter(process.env.POLYLIMIT_URL ?? "local:demo", {
  policies: { demo: process.env.POLYLIMIT_QUOTA ?? "100/minute" },
});

const app = fastify();
// Whom to limit: the query parameter "user", or "demo".
await app.register(rateLimit, { limiter, key: (request) => String(request.query.user ?? "demo") });
app.get("/", async () => ({ hello: "world" }));

console.log(`listening on ${await app.listen({ port: Number(process.env.PORT ?? 8080), host: "127.0.0.1" })}`);
