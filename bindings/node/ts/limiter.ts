import { Field, type NativeCredentials, type NativeLimiter, Operation, RequestField, RequestOption } from "./addon";
import { Admin } from "./admin";
import {
  checkedOptions,
  hasProperties,
  type Key,
  keyOf,
  notAllowed,
  number,
  optionalFunction,
  optionalSignal,
  text,
  unknownOption,
} from "./arguments";
import { decide, documentText, type RequestAttributes, type RequestDecision } from "./configuration";
import { nativeCredentials } from "./credentials";
import { type Decision, readDecision, readDecisions, readUsage, type Usage, withErrors } from "./decision";
import { callNative, invalidArgument, type PolylimitError } from "./errors";
import { registerLimiter } from "./events";
import {
  abortableAnswer,
  answerOf,
  exchange,
  pendingAnswer,
  fields as sharedFields,
  request as sharedRequest,
  writeShortKey,
} from "./exchange";
import { ManualClock, nativeClock } from "./manual_clock";
import type { MetricFamily, MetricsFormat } from "./metrics";
import { camelCase } from "./names";
import { native } from "./native";
import { limiterError, nativeOf, operateAll, registerNative } from "./native_limiters";
import {
  ACQUIRE,
  type AcquireOptions,
  type Check,
  checkRows,
  costOf,
  headroomOf,
  type LimiterOptions,
  optionTexts,
  planOf,
  policyOf,
  REQUEST,
  type RequestOptions,
  TIMEOUT,
} from "./options";
import { type PolicyView, policyRows, policyView, Quota, type Quotas, quotasText } from "./policy";
import {
  type CommitOptions,
  cancelReservation,
  commitReservation,
  type PolicyChoice,
  type RequestReservation,
  type Reservation,
  type ReservationId,
  type ReservationTerms,
  type ReservationUse,
  type ReserveOptions,
  renewReservation,
  reserve,
  reserveTogether,
} from "./reservation";

const fields = sharedFields;
const shared = sharedRequest;

type OperateFunction = (key?: string | Uint8Array, policy?: string, plan?: string) => void;

/** In place of the number of an interned policy: the request names none, or its name is an argument. */
const NO_POLICY = -1;
const NOT_INTERNED = -2;

/** Submits an operation on one key. */
let submit: (
  limiter: Limiter,
  operation: Operation,
  key: Key,
  options: RequestOptions | string | Quota | undefined,
) => void;

/**
 * Decides whether requests may proceed, for one or more policies.
 *
 * A denial is a value, never an error. Every operation fails with a `PolylimitError` of code `invalid_argument` when the
 * key, the cost, the policy or an option is not allowed, and of code `closed` after `close`. A pending promise keeps the
 * process alive; an open limiter does not.
 */
export class Limiter {
  /** For `using`: closes the limiter. */
  declare [Symbol.dispose]: () => void;
  readonly #native: NativeLimiter;
  readonly #operate: OperateFunction;
  /** Held so that the addon can call the function that gives credentials. */
  readonly #credentials: NativeCredentials | undefined;
  /** The numbers under which the addon has interned the names of policies. */
  readonly #interned = new Map<string, number>();
  /** The most recent of them, which most programs name again. */
  #recentName = "";
  #recentNumber = NOT_INTERNED;

  /**
   * @param url the store that keeps the states: `memory:`, `local:<name>`, `redis://host`, `rediss://`, `redis-cluster://`, ...
   * @throws PolylimitError `invalid_argument`. A store that cannot be reached is not an error of the constructor.
   */
  constructor(url: string, options: LimiterOptions = {}) {
    text("url", url, 'a store such as "memory:" or "redis://localhost"');
    const texts = optionTexts(options);
    const { policies = {}, document, clock } = options;
    if (clock !== undefined && !(clock instanceof ManualClock)) throw notAllowed("clock", clock, "a ManualClock");
    optionalFunction("onDegraded", options.onDegraded);
    const give = optionalFunction("credentials", options.credentials);
    this.#credentials = give && nativeCredentials(give);
    const given = document === undefined ? undefined : documentText(document);
    const [rows, id] = [policyRows(policies), registerLimiter(this, options.onDegraded)];
    this.#native = callNative(() => {
      exchange.open();
      const nativeGiven = [clock && nativeClock(clock), this.#credentials] as const;
      return new native.NativeLimiter(exchange, id, url, rows, texts, given, ...nativeGiven);
    });
    this.#operate = this.#native.operateFunction() as OperateFunction;
    registerNative(this, this.#native, url);
  }

  /**
   * Decides, and spends the cost from every quota of the policy when all admit it.
   *
   * @param options the policy and the cost, or only the policy
   */
  check(key: Key, options?: RequestOptions | string | Quota): Promise<Decision> {
    // The same as `operate` below, written out because this is the most frequent call.
    try {
      this.#submit(Operation.Check, key, options);
      return fields[Field.Ticket] === 0 ? Promise.resolve(readDecision()) : pendingAnswer(readDecision);
    } catch (thrown) {
      return Promise.reject(limiterError(this, thrown));
    }
  }

  /** The decision that a check would give now; leaves no trace. */
  peek(key: Key, options?: RequestOptions | string | Quota): Promise<Decision> {
    return operate(this, Operation.Peek, key, options, readDecision);
  }

  /** Spends as much of the cost as every quota admits; `taken` is how much that was. */
  take(key: Key, options?: RequestOptions | string | Quota): Promise<Usage> {
    return operate(this, Operation.Take, key, options, readUsage);
  }

  /** Spends the cost even if it exceeds what is left, for a cost that is known only afterwards; up to 8 times the capacity. */
  charge(key: Key, options?: RequestOptions | string | Quota): Promise<Usage> {
    return operate(this, Operation.Charge, key, options, readUsage);
  }

  /** Gives units back, the newest first, at most as many as are used. */
  refund(key: Key, options?: RequestOptions | string | Quota): Promise<Usage> {
    return operate(this, Operation.Refund, key, options, readUsage);
  }

  /** Deletes the state of the key under its policy; the cost has no effect. */
  reset(key: Key, options?: RequestOptions | string | Quota): Promise<Usage> {
    return operate(this, Operation.Reset, key, options, readUsage);
  }

  /**
   * Waits until the request is admitted and, in a leaky bucket, until its turn. If the timeout cannot be met, it returns a
   * denial at once and spends nothing. Requests that wait for the same key are served in order.
   *
   * With a `signal`, the request leaves the line when the signal is aborted, and the promise rejects with its `reason`. Units that
   * the store has spent for it by then are refunded, in Redis in the background.
   */
  acquire(key: Key, options: AcquireOptions): Promise<Decision> {
    try {
      checkedOptions("options", options, ACQUIRE, "request");
      const timeoutMs = number("timeoutMs", options.timeoutMs, TIMEOUT);
      const [policy, cost] = [policyOf(options), costOf(options)];
      const [headroom, plan] = [headroomOf(options), planOf(options)];
      const signal = optionalSignal(options.signal);
      if (signal?.aborted) return Promise.reject(signal.reason);
      // Written last, because a getter among the options may submit another operation.
      fields[Field.TimeoutMs] = timeoutMs;
      this.#write(Operation.Acquire, key, policy, cost, headroom, plan);
      return abortableAnswer(readDecision, signal);
    } catch (thrown) {
      return Promise.reject(limiterError(this, thrown));
    }
  }

  /**
   * Decides as a check does and, when every quota admits the request, sets its cost aside until the reservation is committed
   * or cancelled, or until its ttl has passed. Nothing is spent before the commit. A denied request has a handle too, with
   * `allowed: false`; ending it has no effect.
   *
   * ```ts
   * await using reservation = await limiter.reserve("tenant:7", { cost: 4000 });
   * if (reservation.allowed) await reservation.commit(await tokensOf(work));
   * ```
   *
   * With `use`, the reservation lasts until this function has ended, and the promise has its result. If it fails without a
   * commit, the reservation is cancelled; otherwise it ends as `commitAtEnd` says.
   *
   * With a `signal` that is aborted before the answer, the promise rejects with the signal's `reason`, and a reservation that was
   * made meanwhile is cancelled. Afterwards the signal has no effect on the reservation.
   *
   * It fails with `invalid_argument` also when the id or the ttl is out of range, and when the policy is leased or has a
   * leaky bucket.
   */
  reserve(key: Key, options?: ReserveOptions | string | Quota): Promise<Reservation>;
  reserve<T>(
    key: Key,
    options: ReserveOptions | string | Quota | undefined,
    use: (reservation: Reservation) => T | PromiseLike<T>,
  ): Promise<T>;
  reserve(key: Key, options?: ReserveOptions | string | Quota, use?: ReservationUse<unknown>): Promise<unknown> {
    return reserve(this, key, options, use);
  }

  /**
   * Ends the reservation with this id, and charges `spent` units, or what was reserved, as `charge` does. If the reservation
   * is gone, nothing is charged, and `found` is `false`: a repeated commit never charges twice. With `rememberMs` of the reserve,
   * `repeated` says whether this is a repetition.
   */
  commit(key: Key, id: ReservationId, options?: CommitOptions | string | Quota): Promise<Usage> {
    return commitReservation(this, key, id, options);
  }

  /** Ends the reservation with this id, and spends nothing. If it is gone, `found` is `false`. */
  cancel(key: Key, id: ReservationId, options?: PolicyChoice | string | Quota): Promise<Usage> {
    return cancelReservation(this, key, id, options);
  }

  /**
   * Makes the reservation with this id end `ttlMs` milliseconds from now: 1 ms to 48 h. If it is gone, `found` is `false`.
   */
  renew(key: Key, id: ReservationId, ttlMs: number, options?: PolicyChoice | string | Quota): Promise<Usage> {
    return renewReservation(this, key, id, ttlMs, options);
  }

  /**
   * Decides without a promise. This needs a store that answers at once (`memory:` or `local:`); with any other it fails with
   * `invalid_argument`. With `local:` it blocks the event loop while another process holds a lock of the file: 4 to 10 ms once for a
   * process that is suspended, and up to 1 s for one that waits for a processor. `check` does not.
   */
  checkSync(key: Key, options?: RequestOptions | string | Quota): Decision {
    try {
      this.#submit(Operation.CheckSync, key, options);
      return readDecision();
    } catch (thrown) {
      throw limiterError(this, thrown);
    }
  }

  /**
   * Checks several requests in one call, of one or more policies. Each is decided on its own, in order. One that cannot be
   * decided, for example because its key is not allowed, has an error in its place. The whole call fails only for a value
   * that is not a check, or that has an unknown option.
   */
  checkMany(checks: readonly (Check | string | number | bigint)[]): Promise<(Decision | PolylimitError)[]> {
    const errors = new Map<number, PolylimitError>();
    return operateAll(
      this,
      (native) => {
        const rows = checkRows(checks, (error, at) => errors.set(at, error));
        for (const { at, message } of native.checkMany(rows)) {
          if (!errors.has(at)) errors.set(at, invalidArgument(message));
        }
      },
      () => withErrors(readDecisions(), errors),
    );
  }

  /**
   * Checks several requests that belong together, such as one client under several policies: all are admitted, or nothing is
   * spent. If one is denied, the decisions that admit are those of a peek. Checks of the same key under the same policy are one of
   * their sum. The store decides all of them in one step; between slots of a cluster, units are given back within the call.
   */
  checkTogether(checks: readonly (Check | string | number | bigint)[]): Promise<Decision[]> {
    return operateAll(
      this,
      (native) => native.checkTogether(checkRows(checks)),
      () => readDecisions() as Decision[],
    );
  }

  /** The decisions that `checkTogether` would give now; leaves no trace. */
  peekTogether(checks: readonly (Check | string | number | bigint)[]): Promise<Decision[]> {
    return operateAll(
      this,
      (native) => native.peekTogether(checkRows(checks)),
      () => readDecisions() as Decision[],
    );
  }

  /**
   * As `checkTogether`, but checks under a policy with a quota such as `"20 concurrent"` are reserved, all under one id; the others
   * spend. When one is denied, nothing is spent or reserved.
   *
   * ```ts
   * const { allowed, id } = await limiter.reserveTogether([
   *   { key: "tenant:7", policy: "slots", cost: 0 },
   *   { key: "tenant:7", policy: "requests" },
   * ]);
   * if (allowed) await limiter.commit("tenant:7", id, "slots");
   * ```
   *
   * The program ends each reservation by `commit` or `cancel` with its key, its policy and the id. They are not renewed in the
   * background: `renew` makes them last longer.
   */
  reserveTogether(
    checks: readonly (Check | string | number | bigint)[],
    options?: ReservationTerms,
  ): Promise<RequestReservation> {
    return reserveTogether(this, checks, options);
  }

  /**
   * Decides about a request by the configuration: its lists, rules and policies. Policies with a quota of concurrency are reserved,
   * all others spend; when one denies, nothing is spent or reserved.
   *
   * ```ts
   * const { allowed, status } = await limiter.decide({ method: "POST", path: "/login", peer: "203.0.113.7" });
   * ```
   */
  decide(request: RequestAttributes, options: ReservationTerms = {}): Promise<RequestDecision> {
    return decide(this, request, options);
  }

  /**
   * Waits until the store answers, at most `timeoutMs` milliseconds. A service calls it at its start, so that its first
   * decisions are the store's; a limiter works without it too.
   */
  ready(timeoutMs: number): Promise<void> {
    return operateAll(
      this,
      (native) => native.ready(number("timeoutMs", timeoutMs, TIMEOUT)),
      () => undefined,
    );
  }

  /**
   * Finds the policy that decides a request with this `policy` option: a name, quotas, or nothing. Quotas become a policy,
   * whose name requests may use from then on. In a `scope`, a text of 1 to 256 bytes, quotas have a budget of their own; a
   * policy with a name has one budget in all scopes.
   *
   * @throws PolylimitError `invalid_argument` when no policy has that name, the quotas cannot be read, or `policy` is
   * missing and the limiter has several
   */
  policyFor(policy?: string | Quota, scope?: string): PolicyView {
    const native = nativeOf(this);
    const named = policyOf({ policy });
    if (scope !== undefined) text("scope", scope, "text of 1 to 256 bytes");
    return policyView(callNative(() => native.policyFor(named, scope)));
  }

  /** Adds a policy, or changes the quotas of the one of that name. Usage is kept. */
  setPolicy(name: string, quotas: Quotas): void {
    const native = nativeOf(this);
    text("name", name, "a policy's name");
    const quotaText = quotasText(name, quotas);
    callNative(() => native.setPolicy(name, quotaText));
  }

  /** All policies, including those made from quotas in requests. */
  get policies(): PolicyView[] {
    return Array.from(nativeOf(this).policies(), policyView);
  }

  /** Counters of the limiter's operations since its start, by name. */
  stats(): Record<string, number> {
    const counts = nativeOf(this).stats();
    return Object.fromEntries(counts.map(({ name, count }) => [camelCase(name), count]));
  }

  /**
   * What this limiter has decided since it was made, and the state of its store and of its configuration. No key is in it. The
   * families are always the same; those that do not apply to the limiter have no samples. docs/metrics.md describes each;
   * `polylimit/prometheus` and `polylimit/opentelemetry` hand them to a monitoring system.
   */
  metrics(): MetricFamily[] {
    const native = nativeOf(this);
    return JSON.parse(callNative(() => native.metrics()));
  }

  /**
   * The metrics as the text that monitoring systems read. Its media type is `text/plain; version=0.0.4; charset=utf-8` for
   * `prometheus`, which is the default, and `application/openmetrics-text; version=1.0.0; charset=utf-8` for `openmetrics`.
   */
  metricsText(format: MetricsFormat = "prometheus"): string {
    const native = nativeOf(this);
    text("format", format, "prometheus or openmetrics");
    return callNative(() => native.metricsText(format));
  }

  /** The operations for operators: keys of the store, explanations, the policy document, lists. */
  admin(): Admin {
    // Called without its limiter, it fails as every method does.
    nativeOf(this);
    return new Admin(this);
  }

  /**
   * Closes the limiter, and releases its connections, threads and memory at once. Pending and later operations fail with
   * `closed`. Closing again has no effect.
   */
  close(): void {
    const native = nativeOf(this);
    callNative(() => native.close());
  }

  /** Checks the options, and submits an operation. */
  #submit(operation: Operation, key: Key, options: RequestOptions | string | Quota | undefined): void {
    if (options === undefined || typeof options === "string") {
      this.#write(operation, key, options);
      return;
    }
    if (options instanceof Quota) {
      this.#write(operation, key, options.text);
      return;
    }
    if (!hasProperties(options)) throw notAllowed("options", options, "an object, or a policy");
    for (const name in options) {
      // Inherited properties are read, but may have any name.
      if (name === "policy" || name === "cost" || !Object.hasOwn(options, name)) continue;
      if (!REQUEST.includes(name)) throw unknownOption(name, REQUEST, "request");
    }
    this.#write(operation, key, policyOf(options), costOf(options), headroomOf(options), planOf(options));
  }

  /** Writes the request into the shared arrays, and calls the addon. */
  #write(
    operation: Operation,
    key: Key,
    policy: string | undefined,
    cost?: number | undefined,
    headroom?: number | undefined,
    plan?: string | undefined,
  ): void {
    shared[RequestField.Operation] = operation;
    let options = 0;
    if (cost !== undefined) {
      options = RequestOption.Cost;
      fields[Field.Cost] = cost;
    }
    if (headroom !== undefined) {
      options |= RequestOption.Headroom;
      fields[Field.Headroom] = headroom;
    }
    if (plan !== undefined) options |= RequestOption.Plan;
    shared[RequestField.Options] = options;
    const number =
      policy === undefined ? NO_POLICY : policy === this.#recentName ? this.#recentNumber : this.#numberOf(policy);
    shared[RequestField.Policy] = number;
    const nativeKey = typeof key === "string" ? key : keyOf(key);
    const isWritten = writeShortKey(nativeKey);
    if (number !== NOT_INTERNED && plan === undefined) {
      if (isWritten) this.#operate();
      else this.#operate(nativeKey);
      return;
    }
    this.#operate(isWritten ? undefined : nativeKey, policy, plan);
    if (number === NOT_INTERNED && shared[RequestField.Policy] >= 0)
      this.#interned.set(policy as string, shared[RequestField.Policy]);
  }

  #numberOf(policy: string): number {
    const number = this.#interned.get(policy);
    if (number === undefined) return NOT_INTERNED;
    this.#recentName = policy;
    this.#recentNumber = number;
    return number;
  }

  static {
    submit = (limiter, operation, key, options) => limiter.#submit(operation, key, options);
  }
}

// The oldest supported version of Node has no such symbol.
if (Symbol.dispose !== undefined) {
  Object.defineProperty(Limiter.prototype, Symbol.dispose, { value: Limiter.prototype.close });
}

function operate<T>(
  limiter: Limiter,
  operation: Operation,
  key: Key,
  options: RequestOptions | string | Quota | undefined,
  read: () => T,
): Promise<T> {
  try {
    submit(limiter, operation, key, options);
    return answerOf(read);
  } catch (thrown) {
    return Promise.reject(limiterError(limiter, thrown));
  }
}
