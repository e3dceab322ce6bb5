// What the views ask the server, and the events that it sends.

import { element, button, foreign, paragraph } from "./elements.js";

export const view = document.getElementById("view");
const notice = document.getElementById("notice");

/** What the session may do, and the last events. */
export const session = { role: "check", configuration: null, shown: "plain" };
export const live = { snapshot: null, before: null, store: null };
let token = sessionStorage.getItem("token") ?? "";
/** Ends what belongs to the view that is shown. */
export let leaving = new AbortController();

/** Ends what belongs to the view before. */
export function leave() {
  leaving.abort();
  leaving = new AbortController();
}

export const hasToken = () => token !== "";

export function setToken(text) {
  token = text;
  sessionStorage.setItem("token", token);
}

let signIn = () => {};
/** Calls `act` with the reason when the server does not know the token. */
export const whenSignedOut = (act) => (signIn = act);

class Refusal extends Error {
  constructor(status, code, detail) {
    super(detail);
    Object.assign(this, { status, code });
  }
}

function request(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.authorization = `Bearer ${token}`;
  return fetch(path, { ...options, headers, cache: "no-store" });
}

/** The answer to a request as JSON; throws a refusal with words for people. */
export async function ask(path, options = {}) {
  let response, text;
  try {
    response = await request(path, options);
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "unreachable", "The server does not answer. It may be stopping, or the network is away.");
  }
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    // What is no JSON has no detail either.
  }
  if (response.ok) return { value, etag: response.headers.get("etag") };
  throw new Refusal(response.status, value?.code ?? "unknown", value?.detail ?? `The server answers ${response.status}.`);
}

export const get = async (path) => (await ask(path, { signal: leaving.signal })).value;
export const post = async (path, body) =>
  (await ask(path, { method: "POST", body: typeof body === "string" ? body : JSON.stringify(body) })).value;

/** Words for what went wrong. */
export function words(error) {
  if (error.status === 401) return "The token is missing or not known. Sign in again.";
  if (error.status === 403) return `You may not do this: ${error.message}.`;
  if (error.status === 503) return `The store does not answer now: ${error.message}.`;
  return error instanceof Refusal ? error.message : `This page has a mistake: ${error.message}`;
}

export const refusal = (error) => element("p", { class: "refusal", role: "alert" }, words(error));

let saying;
export function say(text) {
  const said = document.getElementById("said");
  said.textContent = text;
  clearTimeout(saying);
  saying = setTimeout(() => (said.textContent = ""), 6_000);
}

/** Shows a loading text in a place, then what `make` gives, or why it gave nothing. */
export async function fill(place, make) {
  if (!place.hasChildNodes()) place.replaceChildren(paragraph("Loading …"));
  try {
    place.replaceChildren(...[await make()].flat());
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401) signIn(words(error));
    else place.replaceChildren(refusal(error));
  }
}

/** Why the limits cannot be changed here, if they cannot. */
export function notHere() {
  const source = session.configuration?.source;
  if (source === undefined) return "This server has no document of limits: start it with --policies FILE, or with a store in Redis.";
  return source.startsWith("store") ? null : `The limits come from ${source}: change them there.`;
}

/** A policy as people name it: one that has no name by its quotas, and a candidate by the policy whose it is. */
export function policyText(name) {
  // No name in a document has the sign.
  const [of, candidate] = name.split("~");
  if (candidate !== undefined && !name.includes("|")) return `${of}, its candidate`;
  const known = name.includes("|") && live.snapshot?.quotas.find(({ policy }) => policy === name);
  return known ? known.quotas.join("; ") : name;
}

export const mayChange = () => session.role === "admin";
export const noRight = () =>
  mayChange() ? null : paragraph(`Your token has the role ${session.role}: it may look, and changes need admin.`, "quiet");

/** Asks for a confirmation, with fields, and does it; the dialogue stays open with the reason when it fails. */
export function confirmed(title, text, fields, verb, act) {
  const problem = element("div");
  const close = () => {
    dialogue.close();
    dialogue.remove();
  };
  const submit = async (event) => {
    event.preventDefault();
    try {
      await act();
      close();
    } catch (error) {
      problem.replaceChildren(refusal(error));
    }
  };
  const form = element(
    "form",
    { onsubmit: submit },
    ...fields,
    element("button", { class: "primary" }, verb),
    button("Cancel", close),
  );
  const heading = element("h2", {}, title);
  const dialogue = element("dialog", { oncancel: close, "aria-label": title }, heading, element("p", {}, foreign(text, "key")), problem, form);
  document.body.append(dialogue);
  dialogue.showModal();
}

export let following = false;

/** Follows what happens, for ever; a connection that ends is made again. */
export async function follow() {
  const state = document.getElementById("live");
  following = true;
  for (;;) {
    try {
      const response = await request("v1/events");
      if (response.status === 401) {
        following = false;
        return signIn(words({ status: 401 }));
      }
      if (!response.ok) throw new Error();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      state.textContent = "live";
      state.className = "good";
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        text += value;
        for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) happened(text.slice(0, end));
      }
    } catch {
      // Below it is said, and tried again.
    }
    state.textContent = "no connection, trying again";
    state.className = "bad";
    await new Promise((resolve) => setTimeout(resolve, 1_000));
  }
}

function happened(event) {
  const [name, data] = event.split("\ndata: ");
  const value = JSON.parse(data);
  const kind = name.replace("event: ", "");
  if (kind === "snapshot") [live.before, live.snapshot] = [live.snapshot, value];
  if (kind === "configuration") session.configuration = value;
  if (kind === "store") live.store = value.up;
  warn();
  view.dispatchEvent(new CustomEvent(kind, { detail: value }));
}

function warn() {
  const { configuration } = session;
  const texts = [];
  if (live.store === false) texts.push("The store does not answer: the outage policies decide.");
  const isUnreachable = configuration?.unreachable_for_us > 0;
  if (isUnreachable && configuration.applied_at_us === 0) {
    texts.push("No limits are active: their source has not been reached since the start, so requests are not decided.");
  } else if (isUnreachable) texts.push("The source of the limits cannot be reached: the previous ones stay active.");
  else if (configuration?.error) {
    texts.push(`${configuration.applied_at_us === 0 ? "No limits are active" : "A newer document is not active"}: ${configuration.error}`);
  }
  notice.hidden = texts.length === 0;
  const text = texts.join(" ");
  if (notice.textContent !== text) notice.textContent = text;
}

/** Calls `show` for each event of a kind, until the view is left. */
export const on = (kind, show) => view.addEventListener(kind, (event) => show(event.detail), { signal: leaving.signal });
