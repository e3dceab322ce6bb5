/** When a response is done. */

import type { ServerResponse } from "node:http";

/** What is used of a response of Node's, by HTTP/1 or HTTP/2. */
type Done = Pick<ServerResponse, "once" | "headersSent">;

/**
 * Calls back once when a response is done. It never does when the client has left before there was an answer: an HTTP/2
 * response says then that it is finished, with a status that nobody has chosen.
 */
export function onceDone(response: Done, done: () => void): void {
  let over = false;
  const end = () => {
    if (over) return;
    over = true;
    if (response.headersSent) done();
  };
  response.once("finish", end);
  // Only this comes when the client leaves while it is being answered.
  response.once("close", end);
}
