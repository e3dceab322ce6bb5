/** The key of a client: its address, found by the rules for trusted proxies or without them. */

import type { IncomingMessage } from "node:http";
import type { Socket as NodeSocket } from "node:net";

import { ClientAddressRules, clientKey } from "../client_address";
import { invalidArgument } from "../errors";

let rulesWithoutTrust: ClientAddressRules | undefined;

/**
 * The key of a request from `peer`, which is `undefined` for a Unix socket. `line` returns the lines of the header that
 * trusted proxies write, joined. Without rules, no proxy is trusted.
 */
export function keyOfPeer(
  rules: ClientAddressRules | undefined,
  peer: string | undefined,
  line: (header: string) => string | null | undefined,
): string {
  if (rules?.header === undefined) return clientKey(rules ?? withoutTrust(), peer, undefined);
  return clientKey(rules, peer, line(rules.header) ?? undefined);
}

/** The key of a request on a Node socket. */
export function keyOfRequest(rules: ClientAddressRules | undefined, { socket, headers }: IncomingMessage): string {
  return keyOfPeer(rules, peerOf(socket), (header) => [headers[header] ?? []].flat().join(", ") || undefined);
}

/** The key of an address that the framework has found; without one, of the socket's peer. */
export function keyOfAddress(address: string | undefined, socket: Socket): string {
  return clientKey(withoutTrust(), address ?? peerOf(socket), undefined);
}

/** The properties of a Node socket that are read here. */
export type Socket = Pick<NodeSocket, "remoteAddress" | "localAddress" | "destroyed">;

/**
 * The address at the other end; `undefined` for a Unix socket.
 *
 * @throws PolylimitError `invalid_argument` when the client has disconnected, since its address is gone then. Without this
 * error it would be taken for a client on this host, or trusted like a proxy there.
 */
export function peerOf(socket: Socket): string | undefined {
  const { remoteAddress } = socket;
  // An open socket without a remote address is a Unix socket, which has no local address either.
  if (remoteAddress === undefined && (socket.destroyed || socket.localAddress !== undefined)) {
    throw invalidArgument("the client has hung up, so that its address is not known any more");
  }
  return remoteAddress;
}

function withoutTrust(): ClientAddressRules {
  rulesWithoutTrust ??= new ClientAddressRules();
  return rulesWithoutTrust;
}
