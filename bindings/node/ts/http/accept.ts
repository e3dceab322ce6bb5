/** Which of two forms of a denial a client reads. */

/** Whether the `Accept` field (RFC 9110, section 12.5.1) prefers text to a JSON document. */
export function prefersText(accept: string | undefined): boolean {
  if (accept === undefined) return false;
  const text = Math.max(quality(accept, "text/plain"), quality(accept, "text/html"));
  return text > Math.max(quality(accept, "application/problem+json"), quality(accept, "application/json"));
}

/** The weight of a media type: that of the range which names it most precisely. */
function quality(accept: string, type: string): number {
  const main = `${type.slice(0, type.indexOf("/"))}/*`;
  let [best, precision] = [0, 0];
  for (const part of accept.split(",")) {
    const [name, ...parameters] = part.split(";").map((piece) => piece.trim().toLowerCase());
    const precise = name === type ? 3 : name === main ? 2 : name === "*/*" ? 1 : 0;
    if (precise > precision) [best, precision] = [weight(parameters), precise];
  }
  return best;
}

function weight(parameters: readonly string[]): number {
  const q = parameters.find((parameter) => parameter.startsWith("q="));
  const value = q === undefined ? 1 : Number(q.slice(2));
  return value >= 0 && value <= 1 ? value : 0;
}
