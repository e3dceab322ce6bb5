/** The client's address: by the rules that somebody gave, or as it is. */

import type { IncomingMessage } from "node:http";

import { ClientAddressRules, keyBy } from "../client_address";

let alone: ClientAddressRules | undefined;

/**
 * What to count a request by that came from `peer`, which is `undefined` for a Unix socket. `line` gives the lines of the
 * header that trusted proxies write, joined. Without rules nobody is trusted.
 */
export function addressFrom(
  rules: ClientAddressRules | undefined,
  peer: string | undefined,
  line: (header: string) => string | null | undefined,
): string {
  if (rules?.header === undefined) return keyBy(rules ?? nobody(), peer, undefined);
  return keyBy(rules, peer, line(rules.header) ?? undefined);
}

/** The same for a request on a Node socket. */
export function addressOf(rules: ClientAddressRules | undefined, { socket, headers }: IncomingMessage): string {
  return addressFrom(rules, socket.remoteAddress, (header) => [headers[header] ?? []].flat().join(", ") || undefined);
}

/** Of an address that a framework has found, what it is counted with. */
export function addressAlone(address: string | undefined): string {
  return keyBy(nobody(), address, undefined);
}

/** Rules that trust nobody. */
function nobody(): ClientAddressRules {
  alone ??= new ClientAddressRules();
  return alone;
}
