import type { NativeAddressRules } from "./addon";
import { checkedOptions, notAllowed, number, text } from "./arguments";
import { callNative, methodError, toPublicError } from "./errors";
import { native } from "./native";
import type { ForwardingHeader } from "./tables";

/** Which proxies are trusted to report a client's address, and how much of an address identifies one client. */
export interface ClientAddressOptions {
  /**
   * The networks of the proxies: addresses, networks such as `10.0.0.0/8`, `loopback`, `link-local`, `private`. By default
   * no proxy is trusted.
   */
  readonly trust?: string | readonly string[];
  /** The one header that those proxies write. There is no default. */
  readonly header?: ForwardingHeader;
  /** The number of leading bits of an IPv4 address that identify a client, 0 to 32; 32 by default. */
  readonly ipv4Prefix?: number;
  /** The number of leading bits of an IPv6 address that identify a client, 0 to 128; 64 by default. */
  readonly ipv6Prefix?: number;
}

/** The client of a request. */
export interface ClientAddress {
  /** The exact address. */
  readonly address: string;
  /** The key to limit: the same text for all addresses of one client, such as `2001:db8:1:2::/64`. */
  readonly key: string;
}

type KeyFunction = (peer?: string, line?: string) => string;

/** The functions of the addon that return only the key. */
const keyFunctions = new WeakMap<ClientAddressRules, KeyFunction>();

const OPTIONS = ["trust", "header", "ipv4Prefix", "ipv6Prefix"];

/** Checked rules that find a client's address behind proxies. Entries of a header that no trusted proxy wrote are ignored. */
export class ClientAddressRules {
  /** The header whose lines `resolve` needs; `undefined` if no proxy is trusted. */
  readonly header: ForwardingHeader | undefined;
  readonly #rules: NativeAddressRules;

  /** @throws PolylimitError `invalid_argument` that names the option, what was read and what is allowed */
  constructor(options: ClientAddressOptions = {}) {
    checkedOptions("clientAddress", options, OPTIONS);
    const { trust = [], header, ipv4Prefix, ipv6Prefix } = options;
    const networks = typeof trust === "string" ? [trust] : trust;
    if (!Array.isArray(networks)) throw notAllowed("trust", trust, "a network or an array of them");
    for (const network of networks) text("trust", network, "a network or an array of them");
    if (header !== undefined) text("header", header, "the name of a header");
    for (const [name, bits] of Object.entries({ ipv4Prefix, ipv6Prefix })) {
      if (bits !== undefined) number(name, bits, "a number of bits");
    }
    const settings = { trust: [...networks], header, ipv4Prefix, ipv6Prefix };
    this.#rules = callNative(() => new native.NativeAddressRules(settings));
    this.header = (this.#rules.header() ?? undefined) as ForwardingHeader | undefined;
    keyFunctions.set(this, this.#rules.keyFunction() as KeyFunction);
  }

  /**
   * Finds the client of a request from `peer`, the address at the other end of the socket (`undefined` for a Unix socket).
   * `lines` are the lines of the header in the order in which they arrived.
   */
  resolve(peer: string | undefined, lines: readonly string[] = []): ClientAddress {
    if (!keyFunctions.has(this)) throw methodError(false, "ClientAddressRules", undefined);
    if (peer !== undefined) text("peer", peer, "the text of an address, or undefined");
    if (!Array.isArray(lines)) throw notAllowed("lines", lines, "an array of the lines of the header");
    for (const line of lines) text("a line", line, "text");
    const { address, key } = callNative(() => this.#rules.resolve(peer, [...lines]));
    return { address, key };
  }
}

/** The key of a client; `line` is all lines of the header, joined. */
export function clientKey(rules: ClientAddressRules, peer: string | undefined, line: string | undefined): string {
  try {
    return (keyFunctions.get(rules) as KeyFunction)(peer, line);
  } catch (thrown) {
    throw toPublicError(thrown);
  }
}
