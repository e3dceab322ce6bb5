/** The cost of an operation of GraphQL, by the shape of its document. */

/** The nodes of a document that are read here, as graphql-js parses them. */
interface Node {
  readonly kind: string;
  readonly name?: { readonly value: string };
  readonly value?: unknown;
  readonly operation?: string;
  readonly arguments?: readonly Node[];
  readonly selectionSet?: { readonly selections: readonly Node[] } | undefined;
}

/** A document of graphql-js. */
export interface DocumentNode {
  // biome-ignore lint/suspicious/noExplicitAny: a node of any version of graphql-js
  readonly definitions: readonly any[];
}

export interface CostSettings {
  /** The operation of a document that has several. */
  readonly operationName?: string | null | undefined;
  readonly variables?: Readonly<Record<string, unknown>> | null | undefined;
  /** The arguments that say how many elements a list may have: `first`, `last` and `limit` by default. */
  readonly sizeArguments?: readonly string[] | undefined;
}

/** More units than any quota can admit. */
const MOST = 1_000_000_000_000;
const SIZES = ["first", "last", "limit"];

/**
 * The units of an operation: each field is one, and the fields within a field count as often as the largest of its arguments `first`,
 * `last` and `limit` says. Fields whose names begin with `__` are free. `{ users(first: 10) { name posts(last: 5) { title } } }` is
 * 1 + 10 * (1 + 1 + 5 * 1) = 71. A document without the operation is 1, at most it is 10^12.
 */
export function queryCost(document: DocumentNode, settings: CostSettings = {}): number {
  const { operationName, variables, sizeArguments = SIZES } = settings;
  const definitions = document.definitions as readonly Node[];
  const fragments = new Map(
    definitions.filter(({ kind }) => kind === "FragmentDefinition").map((node) => [nameOf(node), node]),
  );
  /** A fragment is read once, however often it is used: its text may be much shorter than what it stands for. */
  const known = new Map<string | undefined, number>();

  const ofSelections = (node: Node): number => {
    let units = 0;
    for (const selection of node.selectionSet?.selections ?? []) units += ofSelection(selection);
    return Math.min(units, MOST);
  };

  const ofSelection = (node: Node): number => {
    if (node.kind === "InlineFragment") return ofSelections(node);
    if (node.kind === "FragmentSpread") return ofFragment(nameOf(node));
    if (nameOf(node)?.startsWith("__")) return 0;
    return 1 + sizeOf(node) * ofSelections(node);
  };

  const ofFragment = (name: string | undefined): number => {
    const fragment = fragments.get(name);
    if (fragment === undefined) return 0;
    let units = known.get(name);
    if (units === undefined) {
      // Validation refuses a fragment that contains itself.
      known.set(name, 0);
      units = ofSelections(fragment);
      known.set(name, units);
    }
    return units;
  };

  const sizeOf = (node: Node): number => {
    let size: number | undefined;
    for (const argument of node.arguments ?? []) {
      if (!sizeArguments.includes(nameOf(argument) ?? "")) continue;
      const value = argument.value as Node;
      const given = Number(value.kind === "Variable" ? variables?.[nameOf(value) ?? ""] : value.value);
      if (Number.isFinite(given)) size = Math.max(size ?? 0, Math.floor(given));
    }
    return size ?? 1;
  };

  const operations = definitions.filter(({ kind }) => kind === "OperationDefinition");
  const operation = operations.find((node) => !operationName || nameOf(node) === operationName);
  return operation === undefined ? 1 : Math.max(1, ofSelections(operation));
}

function nameOf({ name }: Node): string | undefined {
  return name?.value;
}
