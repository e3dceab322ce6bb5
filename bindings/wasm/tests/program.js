// What the package does, the same on every host. `wait` waits for that many milliseconds.

const DOCUMENT = `polylimit = 1
[policies.login]
quotas = "2/minute"
[[rules]]
match = { method = "POST", path = "/login" }
apply = [{ policy = "login", key = "{client}" }]
`;

export async function program(polylimit, limiter, wait) {
  const { Limiter, ManualClock, PolylimitError, Quota, checkDocument, simulate } = polylimit;
  const seen = {};

  // The limiter was made where the host has started, with the host's clock, which goes on.
  const [first, second] = [limiter.check("user:1"), limiter.check("user:1")];
  await wait(first.resetAfterMs + 10);
  seen.system = [first.allowed, second.allowed, second.retryAfterMs > 0, limiter.check("user:1").allowed];

  const clock = new ManualClock(1_700_000_000_000_000);
  const manual = new Limiter("memory:", { policies: { api: [Quota.parse("2/s"), "10/minute"] }, clock });
  seen.decisions = [1, 2, 3].map(() => manual.check(7).allowed);
  clock.advanceMs(1000);
  seen.later = manual.check(7, { cost: 2 }).remaining;
  const reservation = manual.reserve("job");
  seen.reservation = [reservation.allowed, typeof reservation.id, reservation.commit().found];

  const documented = new Limiter("memory:", { document: DOCUMENT });
  const login = { method: "POST", path: "/login", peer: "203.0.113.7" };
  seen.document = [1, 2, 3].map(() => documented.decide(login).status);
  seen.matching = documented
    .admin()
    .matching(login)
    .map(({ policy, key }) => [policy, key]);

  seen.checked = checkDocument(DOCUMENT);
  const { ok, line, column } = checkDocument(DOCUMENT.replace("minute", "minuet"));
  seen.mistake = [ok, line, column > 0];

  const { total } = simulate({ document: DOCUMENT, policy: "login", traffic: "3 clients 6/minute", for: "1m" });
  seen.simulated = [total.admitted, total.denied];

  seen.errors = [
    () => new Limiter("redis://localhost"),
    () => new Limiter("memory:", { policies: { api: "100/minuet" } }),
    () => new Limiter("memory:", { maxKey: 1 }),
    () => manual.check("a", { cost: 1.5 }),
    () => manual.check("a", "unknown"),
  ].map((fails) => {
    try {
      fails();
    } catch (error) {
      return error instanceof PolylimitError ? error.code : String(error);
    }
    return "no error";
  });
  manual.close();
  try {
    manual.check("a");
  } catch (error) {
    seen.errors.push(error.code);
  }
  return seen;
}
