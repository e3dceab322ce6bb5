/** What a document would do to traffic, and whether a text is a document. */

import { call, PolylimitError } from "./errors.js";
import { Limiter } from "./limiter.js";
import { simulate as simulateJson } from "./module/polylimit.js";

/** A document and generated traffic, as in docs/simulation.md. */
export interface Simulated {
  /** TOML or JSON. */
  readonly document: string;
  /** Groups of clients, such as `"web: 20 clients 2/s poisson; bot: 1 client burst=50 every=10s"`. */
  readonly traffic: string;
  /**
   * What the requests of a group are, by its name: in values `{client}` is the name of the client. Every client has an address of its
   * own.
   */
  readonly requests?: Readonly<
    Record<
      string,
      {
        readonly method?: string;
        readonly path?: string;
        readonly headers?: Readonly<Record<string, string>>;
        readonly attributes?: Readonly<Record<string, string>>;
      }
    >
  >;
  /** The policy that all clients have, each with a key of its own; without it the rules decide. */
  readonly policy?: string;
  /** How long the traffic lasts, such as `10m`. */
  readonly for: string;
  readonly seed?: number;
  /** The time of the start, as in RFC 3339. */
  readonly start?: string;
}

/** Counts in equal slots of time. */
export interface Timeline {
  readonly slot_us: number;
  readonly admitted: readonly number[];
  readonly denied: readonly number[];
}

/** What became of the traffic; docs/simulation.md has the fields. */
export interface Played {
  readonly duration_us: number;
  readonly total: Readonly<Record<string, number>>;
  readonly timeline: Timeline;
  readonly most_denied: readonly {
    key?: string;
    key_base64?: string;
    admitted: number;
    denied: number;
    longest_block_us: number;
  }[];
  readonly causes?: readonly { cause: string; denied: number }[];
  readonly policies: readonly {
    policy: string;
    quotas: readonly { quota: string; period_us: number; most_admitted: number; bound: number | null }[];
    counts: Readonly<Record<string, number>>;
  }[];
  readonly groups: readonly { group: string; timeline: Timeline }[];
}

/** Decides every request of the traffic with a limiter on a clock of its own. */
export function simulate(simulated: Simulated): Played {
  return JSON.parse(call(() => simulateJson(JSON.stringify(simulated))));
}

/** Whether a text is a document; where it is not, what is wrong, with its place if it has one. */
export type CheckedDocument =
  | { readonly ok: true; readonly policies: readonly string[] }
  | { readonly ok: false; readonly message: string; readonly line?: number; readonly column?: number };

/** Checks a document, as a limiter does that is given it. */
export function checkDocument(document: string): CheckedDocument {
  try {
    const limiter = new Limiter("memory:", { document });
    const policies = limiter.policies();
    limiter.close();
    return { ok: true, policies };
  } catch (thrown) {
    if (!(thrown instanceof PolylimitError)) throw thrown;
    const place = /^line (\d+), column (\d+): /.exec(thrown.message);
    if (place === null) return { ok: false, message: thrown.message };
    const message = thrown.message.slice(place[0].length);
    return { ok: false, message, line: Number(place[1]), column: Number(place[2]) };
  }
}
