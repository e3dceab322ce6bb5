// The types of the package as strict programs see them: `tsc` must accept this, and refuse what is marked.

import { checkDocument, type Decision, Limiter, ManualClock, Quota, simulate } from "../dist/index.js";

const limiter = new Limiter("memory:", {
  policies: { api: "100/minute", jobs: { quotas: [Quota.concurrent(3)], outage: "deny" } },
  clock: new ManualClock(0),
  maxKeys: 10,
});
const decision: Decision = limiter.check("user:1", { policy: "api", cost: 2 });
export const wait: number | null = decision.allowed ? 0 : decision.retryAfterMs;
export const used: number = limiter.charge(new Uint8Array([1]), "api").remaining;
export const keys: (string | Uint8Array)[] = limiter
  .admin()
  .matching({ path: "/" })
  .map(({ key }) => key);
export const id = limiter.reserve("a", { policy: "jobs", ttlMs: 1000 }).id;
const checked = checkDocument("");
export const line: number | undefined = checked.ok ? 0 : checked.line;
export const admitted: readonly number[] = simulate({ document: "", traffic: "", for: "1m" }).timeline.admitted;

// @ts-expect-error A cost is a number.
limiter.check("user:1", { cost: "2" });
// @ts-expect-error There is no such algorithm.
new Quota(1, 1000, { algorithm: "leaky" });
// @ts-expect-error There is no such option.
new Limiter("memory:", { maxKey: 1 });
// @ts-expect-error A decision is no promise.
limiter.check("user:1").then;
