/** Plug-ins that charge the cost of GraphQL operations, for Apollo Server and GraphQL Yoga. */

import { GraphQLError } from "graphql";

import { invalidArgument } from "./errors";
import type { HeaderFields } from "./headers";
import { type CostSettings, type DocumentNode, queryCost } from "./http/graphql_cost";
import { denialOf, guardOf, type OperationOptions } from "./http/operation";

export { type CostSettings, queryCost } from "./http/graphql_cost";
export type { KeyPart, OutageEvent, PolicyCharge, RateLimit } from "./http/options";

/** An operation that is valid and about to be executed, as the functions of the options get it. */
export interface GraphqlOperation<Context = unknown> {
  readonly document: DocumentNode;
  readonly operationName: string | null | undefined;
  readonly variables: Readonly<Record<string, unknown>> | null | undefined;
  readonly context: Context;
  /** Its units by `queryCost`. */
  readonly units: number;
}

/** Operations are charged before they are executed; `spent`, `count` and quotas of concurrency are for whole requests. */
export interface GraphqlOptions<Context>
  extends Omit<OperationOptions<GraphqlOperation<Context>, never[]>, "spent" | "count" | "ttlMs" | "maxAgeMs">,
    Pick<CostSettings, "sizeArguments"> {}

type Facts<Context> = Omit<GraphqlOperation<Context>, "units">;

/** Decides about operations: returns the fields of the response, or throws the error of a denial. */
function charging<Context>(options: GraphqlOptions<Context>): (facts: Facts<Context>) => Promise<HeaderFields> {
  const { sizeArguments, ...others } = options;
  const all: OperationOptions<GraphqlOperation<Context>, never[]> = { cost: ({ units }) => units, ...others };
  const guard = guardOf<GraphqlOperation<Context>, never[]>(all, {
    nameOf: ({ operationName }) => operationName ?? undefined,
    userOf: ({ context }) => (context as { readonly user?: unknown } | undefined)?.user,
  });
  return async (facts) => {
    const operation = { ...facts, units: queryCost(facts.document, { ...facts, sizeArguments }) };
    const result = await guard.decide(operation, undefined, [operation]);
    if (result === undefined) return [];
    const denial = denialOf(result);
    if (result.holds) {
      guard.end(result, undefined);
      throw invalidArgument(
        "a policy has a quota of concurrency, which counts whole requests: limit those by the middleware of the server",
      );
    }
    if (denial === undefined) return result.fields;
    const { status, message, retryAfterMs, fields } = denial;
    const retryAfter = retryAfterMs === null ? undefined : Math.ceil(retryAfterMs / 1000);
    const extensions = { code: "RATE_LIMITED", cost: operation.units, retryAfter };
    throw new GraphQLError(message, { extensions: { ...extensions, http: { status, headers: new Fields(fields) } } });
  };
}

/** Apollo Server reads the fields as a map, and Yoga as the properties of an object. */
class Fields extends Map<string, string> {
  constructor(fields: HeaderFields) {
    super(fields);
    for (const [name, value] of fields) Object.defineProperty(this, name, { value, enumerable: true });
  }
}

interface ApolloRequest<Context> {
  readonly document: DocumentNode;
  readonly operationName: string | null;
  readonly request: { readonly variables?: Readonly<Record<string, unknown>> };
  readonly contextValue: Context;
}

interface ApolloResponse {
  readonly response: { readonly http?: { readonly headers: { set(name: string, value: string): unknown } } };
}

/**
 * A plug-in of Apollo Server, `new ApolloServer({ plugins: [apolloRateLimit({ limiter, policy, key })] })`, that charges the cost of each
 * operation after its validation and before its execution. A denied operation is an error with the code `RATE_LIMITED`, and
 * the response has the status 429.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function apolloRateLimit<Context = unknown>(options: GraphqlOptions<Context>) {
  const charge = charging(options);
  return {
    async requestDidStart() {
      let fields: HeaderFields = [];
      return {
        async didResolveOperation({ document, operationName, request, contextValue }: ApolloRequest<Context>) {
          fields = await charge({ document, operationName, variables: request.variables, context: contextValue });
        },
        async willSendResponse({ response }: ApolloResponse) {
          for (const [name, value] of fields) response.http?.headers.set(name, value);
        },
      };
    },
  };
}

interface YogaExecution<Context> {
  readonly args: {
    readonly document: DocumentNode;
    readonly operationName?: string | null;
    readonly variableValues?: Readonly<Record<string, unknown>> | null;
    readonly contextValue: Context;
  };
  setResultAndStopExecution(result: { errors: GraphQLError[] }): void;
}

/**
 * A plug-in of GraphQL Yoga, `createYoga({ schema, plugins: [yogaRateLimit({ limiter, policy, key })] })`, that does the same as the one of
 * Apollo Server. A subscription is charged when it begins.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function yogaRateLimit<Context = unknown>(options: GraphqlOptions<Context>) {
  const charge = charging(options);
  const fieldsOf = new WeakMap<object, HeaderFields>();
  const decide = async ({ args, setResultAndStopExecution }: YogaExecution<Context>) => {
    const { document, operationName, variableValues: variables, contextValue: context } = args;
    try {
      const { request } = context as { readonly request?: object };
      const fields = await charge({ document, operationName, variables, context });
      if (request !== undefined) fieldsOf.set(request, fields);
    } catch (error) {
      if (!(error instanceof GraphQLError)) throw error;
      setResultAndStopExecution({ errors: [error] });
    }
  };
  return {
    onExecute: decide,
    onSubscribe: decide,
    onResponse({ request, response }: { readonly request: object; readonly response: Response }) {
      for (const [name, value] of fieldsOf.get(request) ?? []) response.headers.set(name, value);
    },
  };
}
