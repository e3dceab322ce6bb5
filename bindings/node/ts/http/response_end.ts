/**
 * When a response is done: its last byte is sent, its client has gone, or its connection, which became a web socket, is closed. And what
 * is read of it until then.
 */

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

/** Reads a response that reports what its request has spent. */
export interface ResponseReader {
  /** Reads the fields: names and values in turn. Returns whether the body has to be read. */
  readHead(fields: string[]): boolean;
  readBody(part: Uint8Array): void;
}

type WrittenResponse = Pick<ServerResponse, "writeHead" | "write" | "end" | "getHeaders">;
type AnyFunction = (...args: unknown[]) => unknown;

/** Passes a response of Node to a reader as it is written. */
export function readWritten(response: WrittenResponse, reader: ResponseReader): void {
  const { writeHead, write, end } = response as unknown as Record<"writeHead" | "write" | "end", AnyFunction>;
  let given: unknown;
  let reads: boolean | undefined;
  const read = (part: unknown, encoding: unknown) => {
    reads ??= reader.readHead([...fieldsOf(response.getHeaders()), ...fieldsOf(given)]);
    if (!reads) return;
    if (part instanceof Uint8Array) reader.readBody(part);
    else if (typeof part === "string") {
      reader.readBody(Buffer.from(part, typeof encoding === "string" ? (encoding as BufferEncoding) : "utf8"));
    }
  };
  Object.assign(response, {
    writeHead(...args: unknown[]) {
      // Node does not keep the fields of this call.
      given = args.find((argument) => typeof argument === "object" && argument !== null);
      return writeHead.apply(response, args);
    },
    write(...args: unknown[]) {
      read(args[0], args[1]);
      return write.apply(response, args);
    },
    end(...args: unknown[]) {
      read(args[0], args[1]);
      return end.apply(response, args);
    },
  });
}

/** The fields of an object, or of an array with names and values in turn or in pairs. */
function fieldsOf(given: unknown): string[] {
  if (Array.isArray(given)) return given.flat().map(String);
  return Object.entries(given ?? {}).flatMap(([name, value]) =>
    value === undefined ? [] : [value].flat().flatMap((one) => [name, String(one)]),
  );
}

/**
 * A copy of a response that calls `end` once when its body is sent to the end, fails, or is not wanted any more; also when the
 * signal of its request is aborted. Until then the reader, if there is one, reads it. A response without a body, or one that upgrades its connection, is done at once.
 */
export function bodyUntilDone(
  response: Response,
  signal: AbortSignal,
  reader: ResponseReader | undefined,
  end: () => void,
): Response {
  const readsBody = reader?.readHead([...response.headers].flat());
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
  const read = readsBody ? (part: Uint8Array) => reader?.readBody(part) : undefined;
  return new Response(streamUntilDone(response.body, read, done), response);
}

function streamUntilDone(
  body: ReadableStream<Uint8Array>,
  read: ((part: Uint8Array) => void) | undefined,
  done: () => void,
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const part = await reader.read();
          if (!part.done) {
            read?.(part.value);
            return controller.enqueue(part.value);
          }
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
