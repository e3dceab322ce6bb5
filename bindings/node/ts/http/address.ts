/** The client's address: by the rules that somebody gave, or as it is. */

import type { IncomingMessage } from "node:http";
import type { Socket as NodeSocket } from "node:net";

import { invalidArgument } from "../argument";
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
  return addressFrom(rules, peerOf(socket), (header) => [headers[header] ?? []].flat().join(", ") || undefined);
}

/** Of an address that a framework has found, what it is counted with. */
export function addressAlone(address: string | undefined, socket: Socket): string {
  return keyBy(nobody(), address ?? peerOf(socket), undefined);
}

/** What is used of a Node socket. */
export type Socket = Pick<NodeSocket, "remoteAddress" | "localAddress" | "destroyed">;

/**
 * The address at the other end, `undefined` for a Unix socket.
 *
 * @throws PolylimitError `invalid_argument` when the client has gone and its address with it: who hangs up at once would
 * otherwise be counted as this host, or believed like a proxy that runs there
 */
export function peerOf(socket: Socket): string | undefined {
  const { remoteAddress } = socket;
  // A socket that is still open has an address of its own then, unless it is a Unix socket.
  if (remoteAddress === undefined && (socket.destroyed || socket.localAddress !== undefined)) {
    throw invalidArgument("the client has hung up, so that its address is not known any more");
  }
  return remoteAddress;
}

/** Rules that trust nobody. */
function nobody(): ClientAddressRules {
  alone ??= new ClientAddressRules();
  return alone;
}
