// Compiled, and never run: the options of routes in a program without another package for limits.

import fastify from "fastify";
import { Limiter } from "polylimit";
import { type FastifyRouteLimits, rateLimit } from "polylimit/fastify";

const app = fastify();
app.register(rateLimit, { limiter: new Limiter("memory:"), policy: "5/minute" });
app.get("/a", { config: { rateLimit: { policy: "5/minute" } } }, async ({ rateLimit }) => rateLimit?.remaining);
app.get("/b", { config: { rateLimit: false } }, async () => "");
app.get("/c", { config: { polylimit: { key: ({ ip }) => ip, missingKey: "refuse" } } }, async () => "");
// @ts-expect-error quotas are text
app.get("/d", { config: { rateLimit: { policy: 5 } } }, async () => "");
// @ts-expect-error quotas are text
app.get("/e", { config: { polylimit: { policy: 5 } } }, async () => "");
// The types of Fastify let other names pass; the start fails then.
const limits: FastifyRouteLimits[] = [
  { polylimit: { methods: "POST" } },
  // @ts-expect-error an option of another package
  { rateLimit: { max: 5 } },
  // @ts-expect-error options, or false
  { rateLimit: true },
  // @ts-expect-error unknown option
  { polylimit: { polcy: "5/minute" } },
];

export { limits };
