/**
 * The guard of the middleware. The core's guard makes every decision; here the options' functions are called, promises are
 * awaited, and the numbers in the shared arrays become objects.
 */

import { Field, GuardStep, type NativeCheck, type NativeGuard, RequestField, RequestOption } from "../addon";
import { type Key, keyOf, notAllowed, number } from "../arguments";
import { ClientAddressRules } from "../client_address";
import { readDecision, writeDecision } from "../decision";
import { callNative, PolylimitError, toPublicError } from "../errors";
import { exchange, pendingAnswer, fields as sharedFields, request as sharedRequest, writeShortKey } from "../exchange";
import { allFields, changedFields, type DenialResponse, denialResponse, type HeaderFields, problem } from "../headers";
import { native } from "../native";
import { nativeLimiter } from "../native_limiters";
import { COST } from "../options";
import type { ErrorCode } from "../tables";
import { type AppAttributes, appRows, requestText } from "./by_configuration";
import { after, settle, warn } from "./guard_steps";
import { type FrameworkAdapter, partReader } from "./key_parts";
import {
  type Charge,
  chargesOf,
  guardSettings,
  isPromise,
  type MaybePromise,
  policyList,
  type RateLimit,
  type RateLimitOptions,
} from "./options";
import { DecidedRateLimit, type DecidedRequest, keepState, type Outcome, RequestState, stateOf } from "./rate_limit";
import type { ResponseReader } from "./response_end";

const fields = sharedFields;
const request = sharedRequest;

/** The decision about a request, and what the adapter has to do. */
export interface GuardResult<Denied> {
  /** `undefined` when no policy has decided. */
  readonly rateLimit: RateLimit | undefined;
  readonly fields: HeaderFields;
  /** The names of fields that earlier guards have set, and that do not hold any more. */
  readonly outdated: readonly string[];
  /** The response to a request that does not proceed; `undefined` when it proceeds. */
  readonly denial: DenialResponse | undefined;
  /** Calls the handler of the options that responds in place of `denial`, if there is one. */
  readonly handleDenial: (() => Denied) | undefined;
  /** The fields by which a page of another origin may read the denial, for `addCors`. */
  readonly cors: HeaderFields;
  readonly state: RequestState;
  /** The check that `finish` ends, where the response decides whether the request counts, and `end`, where it holds. */
  readonly check: NativeCheck | undefined;
  /** Whether checks of the request hold reservations, so that `end` must be called when the response is done. */
  readonly holds: boolean;
  /** Whether this check does, so that the program says what was spent. */
  readonly isReserved: boolean;
}

/** What the functions of the options have returned for a request. */
interface Facts {
  readonly given: Key | null | undefined;
  readonly units: number | undefined;
  readonly policies: string[] | undefined;
  readonly attributes: AppAttributes | null | undefined;
  /** By the position of the policy. */
  readonly costs: (number | undefined)[] | undefined;
}

const NOTHING: Facts = {
  given: undefined,
  units: undefined,
  policies: undefined,
  attributes: undefined,
  costs: undefined,
};
const UNITS = "a number of units";

type DecideFunction = (key?: string | Uint8Array, route?: string) => string | undefined;

/** One request on its way through the guard. */
interface Run<Context extends unknown[]> extends DecidedRequest {
  readonly context: Context;
  readonly earlier: RequestState | undefined;
  /** Whether the addon must keep its check: it cannot be restored from the only decision. */
  isKept: boolean;
}

/** In `RequestField.KeyLength`: the request has no key. In `RequestField.Policy`: it has no route, or one as an argument. */
const NO_KEY = -2;
/** More methods than servers know. */
const MOST_METHODS = 64;
const NO_ROUTE = -1;
const ROUTE = -2;

export class Guard<Context extends unknown[], Finished extends unknown[], Denied> {
  readonly #options: RateLimitOptions<Context, Finished, Denied>;
  readonly #framework: FrameworkAdapter<Context>;
  readonly #rules: ClientAddressRules | undefined;
  readonly #native: NativeGuard;
  readonly #decide: DecideFunction;
  /** The parts of the key: the functions that read them. */
  readonly #parts: readonly ((context: Context) => string | undefined)[];
  readonly #fallsBackToAddress: boolean;
  readonly #isPerRoute: boolean;
  /** Whether the configuration of the limiter decides; the user of a request is then one of its attributes. */
  readonly #isByConfiguration: boolean;
  readonly #readUser: ((context: Context) => string | undefined) | undefined;
  /** The policies that have a cost or a function `spent` of their own, by position. */
  readonly #charges: readonly Charge<Context, Finished>[] | undefined;
  readonly #hasOwnCosts: boolean;
  /** Whether an option is a function of the request. */
  readonly #hasFunctions: boolean;
  /** Whether requests of a method are limited; `undefined` when all are. */
  readonly #methods: Map<string, boolean> | undefined;
  /** The names of the policies of requests without a route, and of those on each route. */
  readonly #names: readonly string[];
  readonly #namesOnRoutes = new Map<string, string>();
  /** The fields of the previous response; most of them stay the same in the next one. */
  #fields: HeaderFields = [];

  constructor(options: RateLimitOptions<Context, Finished, Denied>, framework: FrameworkAdapter<Context>) {
    const { limiter, clientAddress, key, cost, skip, policy, methods, attributes } = options;
    this.#options = options;
    this.#framework = framework;
    this.#rules =
      clientAddress === undefined || clientAddress instanceof ClientAddressRules
        ? clientAddress
        : new ClientAddressRules(clientAddress);
    this.#native = callNative(() => new native.NativeGuard(nativeLimiter(limiter), guardSettings(options)));
    this.#decide = this.#native.decideFunction() as DecideFunction;
    this.#parts = this.#native.keyParts().map(([kind, name]) => partReader(kind, name, framework, this.#rules));
    this.#fallsBackToAddress = this.#native.fallsBackToAddress();
    this.#isByConfiguration = this.#native.isByConfiguration();
    this.#readUser = framework.userOf && partReader("user", "", framework, this.#rules);
    this.#isPerRoute = framework.routeOf !== undefined && this.#native.isPerRoute();
    const charges = chargesOf(options);
    this.#charges = charges?.some(({ cost, spent }) => cost !== undefined || spent !== undefined) ? charges : undefined;
    this.#hasOwnCosts = charges?.some(({ cost }) => typeof cost === "function") ?? false;
    this.#hasFunctions =
      skip !== undefined ||
      this.#hasOwnCosts ||
      [key, cost, policy, attributes].some((option) => typeof option === "function");
    this.#methods = methods === undefined ? undefined : new Map();
    this.#names = this.#native.policies();
  }

  /**
   * Decides about a request; `undefined` when it is skipped. It returns a promise only where something must be awaited.
   * `previous` is the `rateLimit` that an earlier guard has set on the request.
   */
  decide(target: object, previous: unknown, context: Context): MaybePromise<GuardResult<Denied> | undefined> {
    const method = this.#framework.methodOf(...context);
    if ((this.#methods !== undefined || method === "OPTIONS") && !this.#appliesTo(method, context)) return undefined;
    const earlier = stateOf(target, previous);
    if (!this.#hasFunctions) return this.#submit(target, earlier, context, NOTHING);
    const { skip } = this.#options;
    if (skip === undefined) return this.#callFunctions(target, earlier, context);
    return after(skip(...context), (skips) => (skips ? undefined : this.#callFunctions(target, earlier, context)));
  }

  /** Calls the functions for key, cost and policies, and submits the request with what they return. */
  #callFunctions(
    target: object,
    earlier: RequestState | undefined,
    context: Context,
  ): MaybePromise<GuardResult<Denied>> {
    const { key, cost, policy, attributes } = this.#options;
    const given = typeof key === "function" ? key(...context) : undefined;
    const units = typeof cost === "function" ? cost(...context) : undefined;
    const found = typeof policy === "function" ? policy(...context) : undefined;
    const known = attributes?.(...context);
    const costs = this.#hasOwnCosts
      ? this.#charges?.map(({ cost }) => (typeof cost === "function" ? cost(...context) : undefined))
      : undefined;
    const isPerRequest = typeof policy === "function";
    if (isPromise(given) || isPromise(units) || isPromise(found) || isPromise(known) || costs?.some(isPromise)) {
      return Promise.all([given, units, found, known, costs && Promise.all(costs)]).then(
        ([given, units, found, attributes, costs]) => {
          const policies = isPerRequest ? policyList(found) : undefined;
          return this.#submit(target, earlier, context, { given, units, policies, attributes, costs });
        },
      );
    }
    const policies = isPerRequest ? policyList(found) : undefined;
    const facts = { given, units, policies, attributes: known, costs: costs as (number | undefined)[] | undefined };
    return this.#submit(target, earlier, context, facts);
  }

  /** Whether `finish` must be called before the header fields of a response are sent. */
  get waitsForResponse(): boolean {
    return typeof this.#options.count === "function";
  }

  /**
   * Ends the check of a request that has a response. Units of a response that does not count are refunded, and the fields
   * after that are returned. The request counts if `count` fails. This function never fails.
   */
  finish(result: GuardResult<Denied>, ...finished: Finished): MaybePromise<HeaderFields | undefined> {
    const fields = this.#finish(result, finished);
    if (isPromise(fields)) {
      const { state } = result;
      state.finishing = state.finishing === undefined ? fields : Promise.all([state.finishing, fields]);
    }
    return fields;
  }

  #finish({ check, state }: GuardResult<Denied>, finished: Finished): MaybePromise<HeaderFields | undefined> {
    const { count } = this.#options;
    if (typeof count !== "function" || check === undefined) return undefined;
    const end = (counts: boolean) => {
      if (!check.finish(counts)) return undefined;
      return after(settle(check), () => {
        state.fields = allFields(check.fields());
        return state.fields;
      });
    };
    const failed = (error: unknown) => {
      warn(error);
      return end(true);
    };
    try {
      const counts = count(...finished);
      return isPromise(counts) ? counts.then((value) => end(Boolean(value)), failed) : end(Boolean(counts));
    } catch (error) {
      return failed(error);
    }
  }

  /** What reads the response of a request, if it reports what was spent. */
  reader({ check }: GuardResult<Denied>): ResponseReader | undefined {
    return check?.readsResponse() ? check : undefined;
  }

  /**
   * Ends what the check of a request holds, when its response is done or its client has gone. Without a response `finished` is
   * `undefined`. This function never fails.
   */
  end({ check, state, isReserved }: GuardResult<Denied>, finished: Finished | undefined): void {
    const { spent } = this.#options;
    // For each policy, or one for all.
    const functions = this.#charges?.map((charge) => charge.spent ?? spent) ?? [spent];
    const end = (units: readonly unknown[]) => {
      for (const one of units) {
        if (one === undefined || one === null || typeof one === "number") continue;
        warn(notAllowed("the result of spent", one, `${COST}, or nothing`));
      }
      const known = units.map((one) => (typeof one === "number" ? one : undefined));
      try {
        check?.end(known, this.#charges === undefined);
      } catch (thrown) {
        // It has ended with the cost.
        warn(toPublicError(thrown));
      }
    };
    /** What a function returns; nothing where it fails. */
    const unitsOf = (of: typeof spent): MaybePromise<unknown> => {
      // The core reads what the response reports.
      if (typeof of !== "function") return undefined;
      try {
        const units = finished && of(...finished);
        return isPromise(units) ? units.then(undefined, warn) : units;
      } catch (error) {
        return warn(error);
      }
    };
    const run = () => {
      if (!isReserved) return end([]);
      const units = functions.map(unitsOf);
      if (units.some(isPromise)) Promise.all(units).then(end);
      else end(units);
    };
    if (state.finishing === undefined) run();
    else state.finishing.then(run);
  }

  #appliesTo(method: string, context: Context): boolean {
    if (method === "OPTIONS") return this.#native.appliesTo(method, this.#requestedMethod(context));
    let applies = this.#methods?.get(method);
    if (applies === undefined) {
      applies = this.#native.appliesTo(method);
      // A client may send any method.
      if (this.#methods !== undefined && this.#methods.size < MOST_METHODS) this.#methods.set(method, applies);
    }
    return applies;
  }

  /** The method that a preflight is about, unless its handler answers it. */
  #requestedMethod(context: Context): string | undefined {
    const { isOnHandler, headerOf } = this.#framework;
    if (isOnHandler?.(...context) || headerOf("origin", ...context) === undefined) return undefined;
    return headerOf("access-control-request-method", ...context);
  }

  #keyWithoutFunction(context: Context): Key | undefined {
    if (this.#parts.length > 0) {
      const key = this.#native.joinKey(this.#parts.map((read) => read(context)));
      if (key !== null && key !== undefined) return key;
    }
    return this.#fallsBackToAddress ? this.#framework.clientOf(this.#rules, ...context) : undefined;
  }

  #submit(
    target: object,
    earlier: RequestState | undefined,
    context: Context,
    { given, units, policies, attributes, costs }: Facts,
  ): MaybePromise<GuardResult<Denied>> {
    const own = given === "" || (given instanceof Uint8Array && given.length === 0) ? undefined : given;
    const key = this.#isByConfiguration ? undefined : (own ?? this.#keyWithoutFunction(context));
    const route = this.#isPerRoute ? this.#framework.routeOf?.(...context) : undefined;
    const isKept =
      policies !== undefined || this.#charges !== undefined || this.waitsForResponse || this.#isByConfiguration;
    const run: Run<Context> = { context, earlier, key, units, route, isKept };
    try {
      if (earlier !== undefined || policies !== undefined || costs !== undefined || this.#isByConfiguration) {
        const check = earlier?.checkUnlessNewest(fields[Field.Check]);
        for (const cost of costs ?? []) if (cost !== undefined) number("cost", cost, UNITS);
        this.#native.prepare(check, earlier !== undefined && check === undefined, policies, costs);
        if (this.#isByConfiguration) this.#prepareAttributes(context, attributes);
      }
      let argument: string | Uint8Array | undefined;
      if (key === undefined) request[RequestField.KeyLength] = NO_KEY;
      else {
        const bytes = keyOf(key);
        if (!writeShortKey(bytes)) argument = bytes;
      }
      request[RequestField.Policy] = route === undefined ? NO_ROUTE : ROUTE;
      request[RequestField.Options] = units === undefined ? 0 : RequestOption.Cost;
      if (units !== undefined) fields[Field.Cost] = number("cost", units, UNITS);
      const text = this.#decide(argument, route);
      if (fields[Field.Ticket] === 0) return this.#advance(target, run, text);
    } catch (thrown) {
      throw toPublicError(thrown);
    }
    return this.#answer(target, run);
  }

  /** Gives the next decision what the rules of the configuration are about. */
  #prepareAttributes(context: Context, attributes: AppAttributes | null | undefined): void {
    const rows = appRows(attributes, this.#readUser?.(context), this.#framework.patternOf?.(...context));
    this.#native.prepareAttributes(requestText(this.#framework.requestOf(...context)), rows);
  }

  /** Continues once the store has answered, which may be asked several times. */
  #answer(target: object, run: Run<Context>): Promise<GuardResult<Denied>> {
    // The function reads the shared arrays, so that it must run as soon as the answer is there.
    return pendingAnswer(() => {
      const text = this.#native.answered();
      return fields[Field.Ticket] === 0 ? this.#advance(target, run, text) : this.#answer(target, run);
    }) as Promise<GuardResult<Denied>>;
  }

  /** Does the step that the addon has written. */
  #advance(target: object, run: Run<Context>, text: string | null | undefined): MaybePromise<GuardResult<Denied>> {
    const step = fields[Field.Step];
    if (step === GuardStep.Done) return this.#result(target, run, text ?? "");
    const check = exchange.check();
    if (step === GuardStep.Outage) {
      return after(this.#askProgram(check, run.context), (admit) => {
        run.isKept ||= admit !== undefined;
        return this.#advance(
          target,
          run,
          callNative(() => this.#native.conclude(check, admit)),
        );
      });
    }
    return after(settle(check), () => {
      const all = callNative(() => this.#native.report(check));
      return this.#result(target, run, all ?? "");
    });
  }

  /** Whether `onOutage` admits or denies the request; `undefined` leaves it to the outage policy. */
  #askProgram(check: NativeCheck, context: Context): MaybePromise<boolean | undefined> {
    const { code, message, outcomes } = check.outage();
    const error = code === undefined ? undefined : new PolylimitError(code as ErrorCode, message as string);
    const event = { error, outcomes: readOutcomes(check, outcomes) };
    return after(this.#options.onOutage?.(event, ...context), (answer) => {
      if (answer === undefined || answer === null) return undefined;
      if (answer !== "admit" && answer !== "deny")
        throw notAllowed("the result of onOutage", answer, "admit, deny, or nothing");
      return answer === "admit";
    });
  }

  #result(target: object, run: Run<Context>, text: string): GuardResult<Denied> {
    const headers = changedFields(this.#fields, text);
    this.#fields = headers;
    const [status, count, number] = [fields[Field.Status], fields[Field.Items], fields[Field.Check]];
    const [holds, isReserved] = [fields[Field.Holds] !== 0, fields[Field.Holds] === 2];
    const isKept = run.isKept || holds || count !== 1 || status !== 0 || run.earlier?.keeps === true;
    const check = isKept ? exchange.check() : undefined;
    const outcomes = this.#outcomes(run, count, check);
    const state = run.earlier ?? new RequestState();
    state.add(number, check, check === undefined ? { guard: this, request: run, outcome: outcomes[0] } : undefined);
    const outdated = state.fields.length === 0 ? NONE : namesWithout(state.fields, headers);
    state.fields = headers;
    const rateLimit = outcomes.length === 0 ? undefined : new DecidedRateLimit(outcomes, state);
    if (rateLimit === undefined) keepState(target, state);
    if (status !== 0) return this.#denied(run, rateLimit, state, outdated);
    return {
      rateLimit,
      fields: headers,
      outdated,
      state,
      denial: undefined,
      handleDenial: undefined,
      cors: [],
      check,
      holds,
      isReserved,
    };
  }

  #denied(
    { context, key }: Run<Context>,
    rateLimit: RateLimit | undefined,
    state: RequestState,
    outdated: readonly string[],
  ): GuardResult<Denied> {
    const { onDenied } = this.#options;
    const headers = state.fields;
    const denial = denialResponse(this.#framework.headerOf("accept", ...context));
    const told = onDenied && { rateLimit, key, status: denial.status, problem: problem(), fields: headers };
    const handleDenial = told && (() => onDenied(told, ...context));
    return {
      rateLimit,
      fields: headers,
      outdated,
      state,
      denial,
      handleDenial,
      cors: this.#corsFields(context),
      check: undefined,
      holds: false,
      isReserved: false,
    };
  }

  #corsFields(context: Context): HeaderFields {
    if (this.#options.corsOrigins === undefined) return [];
    return this.#native.corsFields(this.#framework.headerOf("origin", ...context)) as [string, string][];
  }

  #outcomes({ route }: Run<Context>, count: number, check: NativeCheck | undefined): readonly Outcome[] {
    if (count !== 1 || this.#isByConfiguration) return check === undefined ? [] : readOutcomes(check, count);
    const decision = readDecision();
    let policy: string | undefined;
    if (typeof this.#options.policy !== "function") {
      policy = route === undefined ? this.#names[0] : this.#namesOnRoutes.get(route);
    }
    if (policy === undefined) {
      policy = (check ?? exchange.check()).loadOutcome(0);
      if (route !== undefined && typeof this.#options.policy !== "function") this.#namesOnRoutes.set(route, policy);
    }
    return [{ policy, decision }];
  }

  /** The check of a request that was admitted with this decision. */
  restore({ key, units, route }: DecidedRequest, { decision }: Outcome, earlier: NativeCheck | undefined): NativeCheck {
    writeDecision(decision);
    return callNative(() => this.#native.restore(earlier, keyOf(key ?? ""), units, route));
  }
}

function readOutcomes(check: NativeCheck, count: number): Outcome[] {
  return Array.from({ length: count }, (_, at) => {
    const policy = check.loadOutcome(at);
    return { policy, decision: readDecision() };
  });
}

const NONE: readonly string[] = [];

/** The names of fields that are not among the others. */
function namesWithout(fields: HeaderFields, others: HeaderFields): readonly string[] {
  return fields.map(([name]) => name).filter((name) => others.every(([other]) => other !== name));
}
