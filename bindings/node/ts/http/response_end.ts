/** When a response is done: its last byte is sent, its client has gone, or its connection, which became a web socket, is closed. */

import type { IncomingMessage, ServerResponse } from "node:http";

/** The properties of Node's request and response (HTTP/1 or HTTP/2) that are used here. */
type NodeRequest = Pick<IncomingMessage, "headers"> & { readonly socket?: IncomingMessage["socket"] };
type NodeResponse = Pick<ServerResponse, "destroyed" | "writableFinished" | "headersSent" | "once" | "off"> & {
  readonly stream?: { readonly destroyed: boolean };
};

/** Calls `end` once when a response of Node is done, with whether there was a response. */
export function whenDone(
  request: NodeRequest,
  response: NodeResponse | undefined,
  end: (hasResponse: boolean) => void,
): void {
  // Libraries for web sockets write to the socket themselves, and may pass a response that no socket belongs to.
  const socket = request.headers.upgrade === undefined ? undefined : request.socket;
  let isDone = false;
  const done = () => {
    if (isDone) return;
    isDone = true;
    response?.off("close", done);
    socket?.off("close", done);
    end(response?.headersSent || socket !== undefined);
  };
  // Nothing is emitted any more for a client that left during the decision.
  if (response?.destroyed || response?.writableFinished || response?.stream?.destroyed || socket?.destroyed) {
    done();
    return;
  }
  response?.once("close", done);
  socket?.once("close", done);
}

/**
 * A copy of a response that calls `end` once when its body is sent to the end, fails, or is not wanted any more; also when the
 * signal of its request is aborted. A response without a body, or one that upgrades its connection, is done at once.
 */
export function bodyUntilDone(response: Response, signal: AbortSignal, end: () => void): Response {
  let isDone = false;
  const done = () => {
    if (isDone) return;
    isDone = true;
    signal.removeEventListener("abort", done);
    end();
  };
  if (response.body === null || response.status === 101 || signal.aborted) {
    done();
    return response;
  }
  signal.addEventListener("abort", done);
  return new Response(streamUntilDone(response.body, done), response);
}

function streamUntilDone(body: ReadableStream<Uint8Array>, done: () => void): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const part = await reader.read();
          if (!part.done) return controller.enqueue(part.value);
          done();
          controller.close();
        } catch (error) {
          done();
          controller.error(error);
        }
      },
      cancel(reason) {
        done();
        return reader.cancel(reason);
      },
    },
    // Nothing is read before the client takes it.
    { highWaterMark: 0 },
  );
}
