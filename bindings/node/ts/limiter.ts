import { Field, type NativeLimiter, Operation, Question } from "./addon";
import { camelCase, invalidArgument, known, number, optionalFunction, refused, text, unknownOption } from "./argument";
import { type Decision, readDecision, readDecisions, readUsage, type Usage } from "./decision";
import { type DegradedEvent, type Finding, hearing } from "./degraded";
import { answered, exchange, isWritten, later, fields as sharedFields, question as sharedQuestion } from "./exchange";
import { calling, failure, failureOf, PolylimitError } from "./failure";
import { type Key, keyOf } from "./key";
import { optionTexts } from "./limiter_options";
import { ManualClock, nativeClock } from "./manual_clock";
import { native } from "./native";
import { type Policies, type PolicyView, policyRows, policyView, type Quotas, quotasText } from "./policy";
import type { StoreOptions } from "./tables";

/** The options of a limiter: those of its store, and these. */
export interface LimiterOptions extends StoreOptions {
  /** The policies by their names. Requests can name others as quotas. */
  readonly policies?: Policies;
  /** By which clock to decide; the server's for Redis and the system's otherwise, unless told otherwise. */
  readonly clock?: ManualClock;
  /**
   * Called when the limiter begins to decide without its store, when it decides with it again, and with what its doctor
   * finds. What it throws is emitted as a warning, as is each event itself, with or without it: see `process.emitWarning`.
   */
  readonly onDegraded?: (event: DegradedEvent) => void;
}

/** What a request says beside its key. */
export interface RequestOptions {
  /** A policy's name, or quotas such as `"100/minute"`. It may be left out where the limiter has one policy. */
  readonly policy?: string;
  /** The units that the request spends: a whole number from 0 to 10^12; 1 unless told otherwise. */
  readonly cost?: number;
}

export interface AcquireOptions extends RequestOptions {
  /** How many milliseconds it may wait. */
  readonly timeoutMs: number;
}

/** One of several checks. */
export interface Check extends RequestOptions {
  readonly key: Key;
}

const fields = sharedFields;
const question = sharedQuestion;

type Operate = (key?: string | Uint8Array, policy?: string) => void;

/** In place of a policy's place: none is named, or its text is an argument. */
const UNNAMED = -1;
const BY_TEXT = -2;

const COST = "a whole number from 0 to 1000000000000 units";
const TIMEOUT = "a number of milliseconds";
const POLICY = 'a policy\'s name, or quotas such as "100/minute"';
const REQUEST = ["policy", "cost"];
const ACQUIRE = ["policy", "cost", "timeoutMs"];
const CHECK = ["key", "policy", "cost"];

const natives = new WeakMap<Limiter, NativeLimiter>();

/** Asks for a check, for those who read its answer themselves. */
export let askCheck: (limiter: Limiter, key: Key, policy: string, cost: number | undefined) => void;

/** Asks for an operation on one key. */
let ask: (limiter: Limiter, operation: Operation, key: Key, options: RequestOptions | string | undefined) => void;

/** The same for several checks, which belong together. */
export function askTogether(limiter: Limiter, checks: readonly Check[]): void {
  calling(() => nativeLimiter(limiter).checkMany(checkRows(checks), true));
}

/**
 * Decides whether requests may proceed, for one or more policies.
 *
 * A denial is a value, never an error. Every operation fails with a `PolylimitError` of code `invalid_argument` when the
 * key, the cost, the policy or an option is none that is allowed, and with `closed` after `close`. A promise that is
 * pending keeps the process alive; nothing else does.
 */
export class Limiter {
  /** For `using`: closes the limiter. */
  declare [Symbol.dispose]: () => void;
  readonly #native: NativeLimiter;
  readonly #operate: Operate;
  /** Where the addon has the texts by which policies were named. */
  readonly #places = new Map<string, number>();
  /** The one that was named last, which is mostly named again. */
  #recent = "";
  #recentPlace = BY_TEXT;

  /**
   * @param url where the states are kept: `memory:`, `local:<name>`, `redis://host`, `rediss://`, `redis-cluster://`, ...
   * @throws PolylimitError `invalid_argument`. A store that cannot be reached is no error here.
   */
  constructor(url: string, options: LimiterOptions = {}) {
    text("url", url, 'a store such as "memory:" or "redis://localhost"');
    const texts = optionTexts(options);
    const { policies = {}, clock } = options;
    if (clock !== undefined && !(clock instanceof ManualClock)) throw refused("clock", clock, "a ManualClock");
    optionalFunction("onDegraded", options.onDegraded);
    const [rows, id] = [policyRows(policies), hearing(this, options.onDegraded)];
    this.#native = calling(() => new native.NativeLimiter(exchange, id, url, rows, texts, clock && nativeClock(clock)));
    this.#operate = this.#native.operate() as Operate;
    natives.set(this, this.#native);
    if (url.startsWith("memory:")) ofProcess.add(this);
  }

  /**
   * Decides, and spends the cost from every quota of the policy when all admit it.
   *
   * @param options the policy and the cost, or only the policy
   */
  check(key: Key, options?: RequestOptions | string): Promise<Decision> {
    // As with the others, written out: most calls are such ones.
    try {
      this.#ask(Operation.Check, key, options);
      return fields[Field.Ticket] === 0 ? Promise.resolve(readDecision()) : later(readDecision);
    } catch (thrown) {
      return refusal(this, thrown);
    }
  }

  /** The decision that a check would give now; leaves no trace. */
  peek(key: Key, options?: RequestOptions | string): Promise<Decision> {
    return asking(this, Operation.Peek, key, options, readDecision);
  }

  /** Spends as much of the cost as every quota admits, and says how much it took. */
  take(key: Key, options?: RequestOptions | string): Promise<Usage> {
    return asking(this, Operation.Take, key, options, readUsage);
  }

  /** Spends the cost whether it fits or not, for a cost that is learnt afterwards; up to 8 times the capacity. */
  charge(key: Key, options?: RequestOptions | string): Promise<Usage> {
    return asking(this, Operation.Charge, key, options, readUsage);
  }

  /** Gives back up to what is used, the newest first. */
  refund(key: Key, options?: RequestOptions | string): Promise<Usage> {
    return asking(this, Operation.Refund, key, options, readUsage);
  }

  /** Forgets the key under its policy; the cost does not matter. */
  reset(key: Key, options?: RequestOptions | string): Promise<Usage> {
    return asking(this, Operation.Reset, key, options, readUsage);
  }

  /**
   * Waits until the request is admitted and, in a leaky bucket, until its turn has come. Says at once that the timeout
   * cannot be met: then the decision is a denial, and nothing was spent. Those who wait for one key are served in order.
   */
  acquire(key: Key, options: AcquireOptions): Promise<Decision> {
    try {
      known("options", options, ACQUIRE);
      const timeoutMs = number("timeoutMs", options.timeoutMs, TIMEOUT);
      const [policy, cost] = [policyOf(options), costOf(options)];
      // Only now, since reading an option may run a getter that asks something else.
      fields[Field.TimeoutMs] = timeoutMs;
      this.#put(Operation.Acquire, key, policy, cost);
      return answered(readDecision);
    } catch (thrown) {
      return refusal(this, thrown);
    }
  }

  /**
   * Decides without a promise. Only a store that answers at once can: `memory:` and `local:`; any other is an
   * `invalid_argument`.
   */
  checkSync(key: Key, options?: RequestOptions | string): Decision {
    try {
      this.#ask(Operation.CheckSync, key, options);
      return readDecision();
    } catch (thrown) {
      throw failureOf(natives.has(this), "Limiter", thrown);
    }
  }

  /**
   * Checks several requests in one call, of one or more policies. Each is decided on its own, in order; one that cannot be
   * decided, such as one whose key, cost or policy is none that is allowed, is an error in its place. Only what is no check
   * at all, or has an option that is not known, fails the whole call.
   */
  checkMany(checks: readonly (Check | string | number | bigint)[]): Promise<(Decision | PolylimitError)[]> {
    const refused = new Map<number, PolylimitError>();
    return calls(
      this,
      (native) => {
        const rows = checkRows(checks, (error, at) => refused.set(at, error));
        for (const { at, message } of native.checkMany(rows, false)) {
          if (!refused.has(at)) refused.set(at, invalidArgument(message));
        }
      },
      () => inPlace(readDecisions(), refused),
    );
  }

  /**
   * Checks several requests that belong together, such as one client under several policies. When one of them is denied or
   * fails, what the others have spent is given back, and their decisions show what is left then. Each is decided on its own,
   * so that for a moment others may find units missing that are then given back.
   */
  checkTogether(checks: readonly (Check | string | number | bigint)[]): Promise<Decision[]> {
    return calls(
      this,
      (native) => void native.checkMany(checkRows(checks), true),
      () => readDecisions() as Decision[],
    );
  }

  /**
   * Waits until the store answers. Nothing needs it; a service that starts waits with it until it is connected, so that its
   * first decisions are the store's.
   */
  ready(timeoutMs: number): Promise<void> {
    return calls(this, (native) => native.ready(number("timeoutMs", timeoutMs, TIMEOUT)), nothing);
  }

  /** Looks at the store with the eyes of an operator. A store that cannot be reached is a finding. */
  doctor(): Promise<Finding[]> {
    return calls(
      this,
      (native) => native.doctor(),
      () => Array.from(exchange.findings(), (finding) => ({ ...finding }) as Finding),
    );
  }

  /**
   * The policy by which a request that names this one, these quotas or none is decided. Quotas become a policy, whose name
   * requests may use from then on. In a `scope`, which is 1 to 256 bytes of any text, quotas without a name have a budget of
   * their own; a policy with a name is shared, whatever the scope.
   *
   * @throws PolylimitError `invalid_argument` when no policy has that name, the quotas cannot be read, or none is named where
   * there are several
   */
  policyFor(policy?: string, scope?: string): PolicyView {
    const native = nativeOf(this);
    if (policy !== undefined) text("policy", policy, POLICY);
    if (scope !== undefined) text("scope", scope, "text of 1 to 256 bytes");
    return policyView(calling(() => native.policyFor(policy, scope)));
  }

  /** Registers a policy, or changes the numbers of the one of that name. What was used is kept. */
  setPolicy(name: string, quotas: Quotas): void {
    const native = nativeOf(this);
    text("name", name, "a policy's name");
    const written = quotasText(name, quotas);
    calling(() => native.setPolicy(name, written));
  }

  /** All policies, those made of quotas in requests included. */
  get policies(): PolicyView[] {
    return Array.from(nativeOf(this).policies(), policyView);
  }

  /** How many keys a store in this process or on this host holds; `undefined` for one elsewhere. */
  get keys(): number | undefined {
    return nativeOf(this).keys() ?? undefined;
  }

  /** What became of the operations so far: every count only grows. */
  stats(): Record<string, number> {
    const counts = nativeOf(this).stats();
    return Object.fromEntries(counts.map(({ name, count }) => [camelCase(name), count]));
  }

  /** Authenticates new connections with another password, and user name if there is one. */
  setCredentials(username: string | undefined, password: string): void {
    const native = nativeOf(this);
    if (username !== undefined) text("username", username, "text");
    text("password", password, "text");
    calling(() => native.setCredentials(username, password));
  }

  /**
   * Ends its use: every operation after it, and every one that is under way, fails with `closed`. Connections, threads and
   * memory are given back by this, and not by a garbage collector. Closing again does nothing.
   */
  close(): void {
    const native = nativeOf(this);
    calling(() => native.close());
  }

  #ask(operation: Operation, key: Key, options: RequestOptions | string | undefined): void {
    if (options === undefined || typeof options === "string") {
      this.#put(operation, key, options, undefined);
      return;
    }
    for (const name in options) {
      // What is inherited is read like any property, but says nothing about what the caller has written.
      if (name !== "policy" && name !== "cost" && Object.hasOwn(options, name)) throw unknownOption(name, REQUEST);
    }
    if (typeof options !== "object" || options === null) throw refused("options", options, "an object, or a policy");
    this.#put(operation, key, policyOf(options), costOf(options));
  }

  /** Puts a question to the addon. */
  #put(operation: Operation, key: Key, policy: string | undefined, cost: number | undefined): void {
    question[Question.Operation] = operation;
    if (cost === undefined) {
      question[Question.HasCost] = 0;
    } else {
      question[Question.HasCost] = 1;
      fields[Field.Cost] = cost;
    }
    const place = policy === undefined ? UNNAMED : policy === this.#recent ? this.#recentPlace : this.#placeOf(policy);
    question[Question.Policy] = place;
    const whom = typeof key === "string" ? key : keyOf(key);
    const written = isWritten(whom);
    if (place !== BY_TEXT) {
      if (written) this.#operate();
      else this.#operate(whom);
      return;
    }
    this.#operate(written ? undefined : whom, policy);
    if (question[Question.Policy] >= 0) this.#places.set(policy as string, question[Question.Policy]);
  }

  #placeOf(policy: string): number {
    const place = this.#places.get(policy);
    if (place === undefined) return BY_TEXT;
    this.#recent = policy;
    this.#recentPlace = place;
    return place;
  }

  static {
    ask = (limiter, operation, key, options) => limiter.#ask(operation, key, options);
    askCheck = (limiter, key, policy, cost) => {
      try {
        limiter.#put(Operation.Check, key, policy, costOf({ cost }));
      } catch (thrown) {
        throw failure(thrown);
      }
    };
  }
}

// There is no such symbol in the oldest Node that is supported.
if (Symbol.dispose !== undefined) {
  Object.defineProperty(Limiter.prototype, Symbol.dispose, { value: Limiter.prototype.close });
}

const ofProcess = new WeakSet<Limiter>();

/** Whether a limiter counts in this process, so that no other process can count the same. */
export function isOfProcess(limiter: Limiter): boolean {
  return ofProcess.has(limiter);
}

/** The addon's side of a limiter, for those who write responses. */
export function nativeLimiter(limiter: Limiter): NativeLimiter {
  const found = natives.get(limiter);
  if (found === undefined) throw refused("limiter", limiter, "a Limiter");
  return found;
}

/** The same for a method, which may have been called without its limiter. */
function nativeOf(limiter: Limiter): NativeLimiter {
  const found = natives.get(limiter);
  if (found === undefined) throw failureOf(false, "Limiter", undefined);
  return found;
}

function refusal(limiter: Limiter, thrown: unknown): Promise<never> {
  return Promise.reject(failureOf(natives.has(limiter), "Limiter", thrown));
}

function asking<T>(
  limiter: Limiter,
  operation: Operation,
  key: Key,
  options: RequestOptions | string | undefined,
  read: () => T,
): Promise<T> {
  try {
    ask(limiter, operation, key, options);
    return answered(read);
  } catch (thrown) {
    return refusal(limiter, thrown);
  }
}

function calls<T>(limiter: Limiter, start: (native: NativeLimiter) => void, read: () => T): Promise<T> {
  try {
    start(nativeOf(limiter));
    return answered(read);
  } catch (thrown) {
    return Promise.reject(failure(thrown));
  }
}

function nothing(): void {}

function policyOf({ policy }: RequestOptions): string | undefined {
  return policy === undefined ? undefined : text("policy", policy, POLICY);
}

function costOf({ cost }: RequestOptions): number | undefined {
  return cost === undefined ? undefined : number("cost", cost, COST);
}

type CheckRow = { key: unknown; policy?: string; cost?: number };

/** A row for each check. Where somebody hears of the ones that are refused, their rows have no key. */
function checkRows(
  checks: readonly (Check | string | number | bigint)[],
  hear?: (error: PolylimitError, at: number) => void,
): CheckRow[] {
  if (!Array.isArray(checks)) throw refused("checks", checks, "an array");
  return Array.from(checks as readonly (Check | string | number | bigint)[], (check, at) => {
    const isKey = typeof check === "string" || typeof check === "number" || typeof check === "bigint";
    const asked = isKey ? { key: check } : known(`checks[${at}]`, check as Check, CHECK);
    try {
      return checkRow(asked, at);
    } catch (thrown) {
      if (hear === undefined || !(thrown instanceof PolylimitError)) throw thrown;
      hear(thrown, at);
      return { key: null };
    }
  });
}

function checkRow(check: Check, at: number): CheckRow {
  const { key } = check;
  if (key === undefined) throw invalidArgument(`checks[${at}] has no key`);
  return { key: keyOf(key), policy: policyOf(check), cost: costOf(check) };
}

/** The decisions with those that were refused between them. */
function inPlace<T>(decisions: readonly T[], refused: ReadonlyMap<number, PolylimitError>): (T | PolylimitError)[] {
  let next = 0;
  const length = decisions.length + refused.size;
  return Array.from({ length }, (_, at) => refused.get(at) ?? decisions[next++]);
}
