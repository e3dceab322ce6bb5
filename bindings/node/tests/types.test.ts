// Compiled in strict mode, and never run: tests of the public types.

import { ApolloServer, type ApolloServerPlugin } from "@apollo/server";
import type { CanActivate } from "@nestjs/common" with { "resolution-mode": "import" };
import { initTRPC } from "@trpc/server";
import type { Request } from "express";
import express from "express";
import { rateLimit as limitRequests } from "express-rate-limit";
import fastify, { type FastifyReply, type FastifyRequest } from "fastify";
import { createSchema, createYoga, type Plugin } from "graphql-yoga";
import { Hono } from "hono";
import Koa from "koa";
import {
  type Admin,
  type CandidateCounts,
  type Cause,
  type ConfigurationStatus,
  type Decision,
  type DenialResponse,
  denialOf,
  type ErrorCode,
  type HeaderFields,
  headerFields,
  type KeyPage,
  Limiter,
  ManualClock,
  type PolicyMatch,
  PolylimitError,
  Quota,
  type RequestDecision,
  type RequestReservation,
  type Reservation,
  type ReservationId,
  type ReserveOptions,
  type Source,
  type Usage,
} from "polylimit";
import { rateLimit } from "polylimit/express";
import { PolylimitStore } from "polylimit/express-rate-limit";
import { rateLimit as fastifyRateLimit, rateLimitHook } from "polylimit/fastify";
import { rateLimit as fetchRateLimit } from "polylimit/fetch";
import { apolloRateLimit, yogaRateLimit } from "polylimit/graphql";
import { rateLimit as honoRateLimit } from "polylimit/hono";
import { rateLimit as koaRateLimit } from "polylimit/koa";
import { RateLimit, RateLimitGuard } from "polylimit/nest";
import { rateLimit as limitTrpc, type RateLimit as OperationRateLimit } from "polylimit/trpc";

const clock = new ManualClock(0);
const quota: Quota = Quota.perMinute(100, { algorithm: "token_bucket", burst: 20 });
using limiter = new Limiter("redis://localhost", {
  policies: { api: "100/minute", login: { quotas: [quota, "1000/day"], outage: "deny" } },
  clock,
  deadline: "20ms",
  reconnectMax: 20,
});

// @ts-expect-error unknown option
new Limiter("memory:", { maxKey: 5 });
// @ts-expect-error unknown outage policy
new Limiter("memory:", { policies: { api: { quotas: "1/s", outage: "maybe" } } });
// @ts-expect-error a cost is a number
limiter.check("user", { cost: "5" });
// @ts-expect-error a cost is not a BigInt
limiter.check("user", { cost: 5n });
// @ts-expect-error unknown outage policy of the limiter
new Limiter("memory:", { outage: "maybe" });
new Limiter("memory:", { policies: new Map([["api", "1/s"]]), outage: "deny" });
// @ts-expect-error a policy's name is text
new Limiter("memory:", { policies: new Map([[5, "1/s"]]) });
limiter.check(5);
limiter.check(5n);
// @ts-expect-error a key is text, bytes or a whole number
limiter.check(true);
// @ts-expect-error a timeout is required
limiter.acquire("user", {});
limiter.acquire("user", { timeoutMs: 5, signal: AbortSignal.timeout(5) });
limiter.reserve("user", { timeoutMs: 5, signal: new AbortController().signal });
// @ts-expect-error a controller is no signal
limiter.acquire("user", { timeoutMs: 5, signal: new AbortController() });
// @ts-expect-error a check does not wait
limiter.check("user", { signal: AbortSignal.abort() });

async function respond(): Promise<DenialResponse | undefined> {
  const decision = await limiter.check("user", "api");
  const fields: HeaderFields = headerFields(limiter, [{ policy: "api", decision }], {
    headers: "both epoch",
  });
  // @ts-expect-error one text
  headerFields(limiter, { decision }, { headers: ["both"] });
  // @ts-expect-error a decision is required
  headerFields(limiter, { policy: "api" });
  return denialOf(limiter, { policy: "api", decision }, { cost: fields.length, accept: undefined });
}

async function decide(): Promise<number> {
  const decision: Decision = await limiter.check(new Uint8Array(4), { policy: "api", cost: 2 });
  const usage: Usage = await limiter.take("user", "100/minute");
  const source: Source = decision.source;
  const cause: Cause | null = decision.cause;
  const flags: boolean[] = [decision.crossed, decision.elastic, decision.shadowed];
  if (cause === "blocked" && !flags.includes(true)) await limiter.admin().unblock("user", { plan: "gold" });
  // @ts-expect-error unknown cause
  if (cause === "tired") await limiter.admin().block("user", 5000, "api");
  await limiter.peek("user", { headroom: 20, plan: "gold" });
  await limiter.peek("user", quota);
  await limiter.take("user", { policy: quota });
  // @ts-expect-error a headroom is a number
  await limiter.peek("user", { headroom: "20" });
  // @ts-expect-error a block has a time
  await limiter.admin().block("user");
  // @ts-expect-error a decision is read-only
  decision.remaining = 5;
  // @ts-expect-error it may be null
  const wait: number = decision.retryAfterMs;
  for (const one of await limiter.checkMany(["a", { key: "b", cost: 2 }])) {
    if (one instanceof PolylimitError) throw one;
    if (!one.allowed) return one.retryAfterMs ?? Number.POSITIVE_INFINITY;
  }
  const both: Decision[] = await limiter.checkTogether(["a", { key: "a", policy: "login" }]);
  if (!both.every(({ allowed }) => allowed)) return 0;
  const peeked: Decision[] = await limiter.peekTogether(["a"]);
  const reserved: RequestReservation = await limiter.reserveTogether(["a"], { id: "job", ttlMs: 5, rememberMs: 5 });
  if (reserved.allowed) await limiter.commit("a", reserved.id, "login");
  // @ts-expect-error it is not renewed
  await limiter.reserveTogether(["a"], { maxAgeMs: 5 });
  try {
    limiter.checkSync("user");
  } catch (error) {
    const code: ErrorCode | undefined = error instanceof PolylimitError ? error.code : undefined;
    return code === "closed" ? 1 : 0;
  }
  return usage.taken + wait + source.length + peeked.length;
}

async function configure(): Promise<number> {
  const own = new Limiter("memory:", { document: "polylimit = 1" });
  const admin: Admin = own.admin();
  const status: ConfigurationStatus = admin.setDocument({ polylimit: 1, policies: { api: { quotas: "5/s" } } });
  // @ts-expect-error a document is text or an object
  admin.setDocument(5);
  const since: number = admin.configuration()?.appliedAt?.getTime() ?? status.version;
  await admin.setEntry("override api bob", { numbers: "9/s", by: "ann" });
  // @ts-expect-error unknown property of an entry
  await admin.setEntry("deny user bob", { since: "today" });
  await admin.deleteEntry("override api bob");
  await admin.waitForVersion(status.version, 1000);
  await new Limiter("redis://localhost", { configuration: "store", copy: "/tmp/copy" }).admin().publish("", {
    expectedVersion: 1,
  });
  const matches: PolicyMatch[] = admin.matching({
    path: "/",
    headers: { accept: ["a", "b"] },
    attributes: { user: 5n },
  });
  // @ts-expect-error unknown attribute
  admin.matching({ url: "/" });
  const made: RequestDecision = await own.decide({ headers: new Headers() }, { id: "one", ttlMs: 5000 });
  for (const { policy, key, reservation } of made.decisions) {
    if (reservation !== null) await own.cancel(key, reservation, policy);
  }
  const counts: CandidateCounts | undefined = admin.candidateCounts("api");
  return since + matches.length + (made.status ?? 200) + (counts?.bothAllow ?? 0);
}

async function reserve(id: ReservationId): Promise<number> {
  await using reservation: Reservation = await limiter.reserve("tenant", { cost: 4000, id, ttlMs: 5000 });
  if (!reservation.allowed || reservation.isLost) return reservation.decision.retryAfterMs ?? 0;
  // @ts-expect-error a handle is read-only
  reservation.allowed = false;
  // @ts-expect-error units are a number
  await reservation.commit("5");
  const options: ReserveOptions = { timeoutMs: 5, maxAgeMs: 0, commitAtEnd: true, policy: "api" };
  const length: number = await limiter.reserve("tenant", options, async ({ id }) => id.length);
  // @ts-expect-error the result is the function's
  const text: string = await limiter.reserve("tenant", undefined, () => 5);
  // @ts-expect-error unknown option
  await limiter.reserve("tenant", { ttl: 5 });
  await limiter.commit("tenant", id, { spent: 5, policy: "api" });
  await limiter.renew("tenant", id, 5000, "api");
  // @ts-expect-error a cancel spends nothing
  await limiter.cancel("tenant", id, { spent: 5 });
  const { found, remaining }: Usage = await reservation.commit(Quota.concurrent(20).limit);
  return found ? remaining + length + text.length : 0;
}

const app = express();
app.use(
  rateLimit({ limiter, policy: ["api", "login"], key: (req: Request) => req.get("x-api-key") ?? "", headers: "both" }),
);
app.use(
  rateLimit({
    limiter,
    count: (_, res) => res.statusCode === 401,
    spent: async (_, res) => Number(res.getHeader("x-tokens")),
    ttlMs: 10_000,
    maxAgeMs: 0,
    onDenied: ({ problem }, _, res) => res.end(problem.text),
  }),
);
app.get("/by-user", rateLimit({ limiter, policy: "5/minute", scope: "users", key: (req: Request) => req.get("user") }));
app.get("/", (req, res) => {
  const remaining: number | undefined = req.rateLimit?.remaining;
  res.json({ remaining });
});
app.use(
  rateLimit({
    limiter,
    policy: (req: Request) => (req.get("x-plan") === "free" ? ["5/minute", "100/day"] : undefined),
    key: ["user", "header:x-tenant"],
    methods: ["POST"],
    onOutage: ({ outcomes }) => (outcomes.length > 0 ? "admit" : undefined),
  }),
);
app.use(
  rateLimit({
    limiter,
    policy: [
      { policy: "tpm", cost: (req) => Number(req.get("x-tokens")), spent: (_, res) => Number(res.getHeader("x-used")) },
      { policy: Quota.perMinute(60), cost: 2 },
      "api",
    ],
    onDenied: ({ key }, _, res) => res.end(String(key)),
  }),
);
app.use(rateLimit({ limiter, policy: (req: Request) => (req.ip === "::1" ? undefined : Quota.perMinute(5)) }));
// @ts-expect-error a cost is a number
app.use(rateLimit({ limiter, policy: [{ policy: "tpm", cost: "5" }] }));
// @ts-expect-error not a part of a key
app.use(rateLimit({ limiter, key: "ip" }));
// @ts-expect-error one text
app.use(rateLimit({ limiter, headers: { style: "legacy" } }));
// @ts-expect-error units are a number
app.use(rateLimit({ limiter, spent: () => "5" }));
app.use(limitRequests({ windowMs: 60_000, limit: 100, store: new PolylimitStore({ limiter, prefix: "web:" }) }));

const server = fastify();
server.register(fastifyRateLimit, {
  limiter,
  key: (request) => request.ip,
  onDenied: ({ problem }, _, reply) => reply.send(problem.detail),
  onOutage: ({ error }, request) => request.log.warn(error),
  hook: "preHandler",
});
server.get("/free", { config: { rateLimit: false } }, async () => "");
server.get("/strict", { config: { rateLimit: { policy: "5/minute", missingKey: "refuse" } } }, async () => "");
// @ts-expect-error unknown hook
server.register(fastifyRateLimit, { limiter, hook: "onSend" });
server.get(
  "/",
  { onRequest: rateLimitHook({ limiter, policy: "5/minute" }) },
  async (request) => request.rateLimit?.policy,
);

const hono = new Hono();
hono.use(honoRateLimit({ limiter, clientAddress: { trust: "private", header: "x-forwarded-for" } }));
hono.get("/", (context) => context.text(String(context.get("rateLimit")?.remaining)));

const koa = new Koa();
koa.use(koaRateLimit({ limiter, key: "user", count: ({ status }) => status === 401 }));
koa.use(koaRateLimit({ limiter, methods: "get", separateHead: true, countPreflights: true, corsOrigins: "*" }));
// @ts-expect-error origins are texts
koa.use(koaRateLimit({ limiter, corsOrigins: [/example/] }));
// @ts-expect-error a switch is true or false
koa.use(koaRateLimit({ limiter, separateHead: "yes" }));

const guards: CanActivate[] = [
  new RateLimitGuard({
    limiter,
    key: (req: Request) => req.get("x-api-key"),
    count: (_, res) => res.statusCode === 401,
  }),
  new RateLimitGuard<FastifyRequest, FastifyReply>({
    limiter,
    onDenied: ({ problem }, _, reply) => reply.send(problem),
  }),
];
const decorators: (ClassDecorator & MethodDecorator)[] = [
  RateLimit({ policy: ["5/minute", "api"], skip: (req: Request) => req.ip === "::1" }),
  RateLimit(false),
  // @ts-expect-error options, or false
  RateLimit(true),
  // @ts-expect-error unknown option
  RateLimit({ polcy: "5/minute" }),
];

const handler = fetchRateLimit(
  (_request: globalThis.Request, info: { address: string }) => new Response(info.address),
  {
    limiter,
    peer: (_, { address }) => address,
  },
);

rateLimit({ limiter, attributes: (req) => ({ tenant: req.headers.host, plan: 5n }) });
// @ts-expect-error attributes are a function
rateLimit({ limiter, attributes: { tenant: "t" } });

export async function report(): Promise<string | undefined> {
  const admin = limiter.admin();
  const verdicts = (await limiter.check("user")).quotas.map(({ allowed, retryAfterMs }) => allowed || retryAfterMs);
  // @ts-expect-error the quotas of a usage have no verdict
  console.log(verdicts, (await limiter.take("user")).quotas[0]?.allowed);
  let cursor: string | null | undefined;
  do {
    const page: KeyPage = await admin.list({ keyPrefix: new Uint8Array(2), entries: 5, cursor });
    cursor = page.cursor;
  } while (cursor !== null);
  // @ts-expect-error the most used keys have no pages
  await admin.scanTop(5, { cursor });
  const { quotas, mode, pool } = await admin.explain("user", { cost: 5 });
  const { policies } = await admin.explainRequest({ path: "/" });
  const until: Date | null | undefined = policies[0]?.listEntry?.until;
  const waits: (number | null)[] = [quotas[0]?.retryAfterMs ?? null, quotas[0]?.retryAfterUs ?? null];
  console.log(until?.getTime(), waits);
  const { error } = admin.topKeys(5).denied[0] ?? { error: 0 };
  console.log((await admin.resetListed()).unknown, quotas[0]?.words, mode === "shadow", policies.length, error);
  return pool?.keyDigest;
}

export { configure, decide, decorators, guards, handler, reserve, respond };

interface OperationContext {
  readonly client: string;
  readonly rateLimit?: OperationRateLimit | undefined;
}

/** Plug-ins and middleware have the types that Apollo Server, Yoga and tRPC want. */
export function operations(limiter: Limiter) {
  const typeDefs = "type Query { a: Int }";
  const apollo: ApolloServerPlugin<OperationContext> = apolloRateLimit({
    limiter,
    key: ({ context }) => context.client,
  });
  const yoga: Plugin<OperationContext> = yogaRateLimit<OperationContext>({
    limiter,
    key: ({ context }) => context.client,
  });
  const t = initTRPC.context<OperationContext>().create();
  const limited = t.procedure.use(limitTrpc<OperationContext>({ limiter, key: ({ ctx }) => ctx.client }));
  return [
    new ApolloServer<OperationContext>({ typeDefs, plugins: [apollo] }),
    createYoga({ schema: createSchema({ typeDefs }), plugins: [yoga] }),
    t.router({ left: limited.query(({ ctx }) => `${ctx.client} ${ctx.rateLimit?.remaining}`) }),
  ];
}
