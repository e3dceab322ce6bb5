import type { NativeAddressRules } from "./addon";
import { known, number, refused, text } from "./argument";
import { calling, failure, failureOf } from "./failure";
import { native } from "./native";
import type { ForwardingHeader } from "./tables";

/** Who is trusted to say for whom a request was forwarded, and how much of an address is counted as one client. */
export interface ClientAddressOptions {
  /**
   * The networks of the proxies: addresses, networks such as `10.0.0.0/8`, `loopback`, `link-local`, `private`. Nobody
   * unless told otherwise.
   */
  readonly trust?: string | readonly string[];
  /** The one header that those proxies write. There is no default. */
  readonly header?: ForwardingHeader;
  /** How many leading bits of an IPv4 address are one client, 0 to 32. */
  readonly ipv4Prefix?: number;
  /** How many leading bits of an IPv6 address are one client, 0 to 128. */
  readonly ipv6Prefix?: number;
}

/** The client of a request. */
export interface ClientAddress {
  /** The exact address. */
  readonly address: string;
  /** What to limit by: one text for all addresses that are counted together, such as `2001:db8:1:2::/64`. */
  readonly key: string;
}

type KeyOf = (peer?: string, line?: string) => string;

/** Tell only what to limit by. */
const keyFunctions = new WeakMap<ClientAddressRules, KeyOf>();

const OPTIONS = ["trust", "header", "ipv4Prefix", "ipv6Prefix"];

/** Checked rules that find the client's address behind proxies; the leftmost entry of a header is never believed. */
export class ClientAddressRules {
  /** The header whose lines `resolve` wants; `undefined` if nobody is trusted to write one. */
  readonly header: ForwardingHeader | undefined;
  readonly #rules: NativeAddressRules;

  /** @throws PolylimitError `invalid_argument` with what was read and what is allowed */
  constructor(options: ClientAddressOptions = {}) {
    known("clientAddress", options, OPTIONS);
    const { trust = [], header, ipv4Prefix, ipv6Prefix } = options;
    const networks = typeof trust === "string" ? [trust] : trust;
    if (!Array.isArray(networks)) throw refused("trust", trust, "a network or an array of them");
    for (const network of networks) text("trust", network, "a network or an array of them");
    if (header !== undefined) text("header", header, "the name of a header");
    for (const [name, bits] of Object.entries({ ipv4Prefix, ipv6Prefix })) {
      if (bits !== undefined) number(name, bits, "a number of bits");
    }
    const settings = { trust: [...networks], header, ipv4Prefix, ipv6Prefix };
    this.#rules = calling(() => new native.NativeAddressRules(settings));
    this.header = (this.#rules.header() ?? undefined) as ForwardingHeader | undefined;
    keyFunctions.set(this, this.#rules.keyOf() as KeyOf);
  }

  /**
   * The client of a request from `peer`, the address at the other end of the socket, which is `undefined` for a Unix
   * socket, with the lines of the header, in the order in which they came.
   */
  resolve(peer: string | undefined, lines: readonly string[] = []): ClientAddress {
    if (!keyFunctions.has(this)) throw failureOf(false, "ClientAddressRules", undefined);
    const { address, key } = calling(() => this.#rules.resolve(peer, lines as string[]));
    return { address, key };
  }
}

/** What a request is counted by, with all lines of the header, joined. */
export function keyBy(rules: ClientAddressRules, peer: string | undefined, line: string | undefined): string {
  try {
    return (keyFunctions.get(rules) as KeyOf)(peer, line);
  } catch (thrown) {
    throw failure(thrown);
  }
}
