// Compiled, and never run: a program that moves its routes from @fastify/rate-limit one by one.

import other from "@fastify/rate-limit";
import fastify from "fastify";
import { Limiter } from "polylimit";
import { rateLimit } from "polylimit/fastify";

const app = fastify();
app.register(rateLimit, { limiter: new Limiter("memory:"), policy: "5/minute" });
app.register(other, { max: 5 });
app.get("/a", { config: { polylimit: { policy: "5/minute" } } }, async ({ rateLimit }) => rateLimit?.remaining);
app.get("/b", { config: { rateLimit: { max: 5, groupId: "b" } } }, async () => "");
app.get("/c", { config: { rateLimit: false, polylimit: false } }, async () => "");
// @ts-expect-error the other package checks its own options
app.get("/d", { config: { rateLimit: { max: "no number" } } }, async () => "");
// @ts-expect-error quotas are text
app.get("/e", { config: { polylimit: { policy: 5 } } }, async () => "");
