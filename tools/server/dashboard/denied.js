// Who is denied now, and which keys are blocked: on the first page, and in a view of its own.

import { button, duration, element, foreign, isNamed, keyCell, keyFields, paragraph, printable, recently, table, whole } from "./elements.js";
import { changes } from "./keys.js";
import { fill, get, live, noRight, on, policyText, post, session, view } from "./server.js";

/** How many denied keys are explained. */
const EXPLAINED = 10;

/** Why a key would be denied now, in some words. */
async function why(listed) {
  if (!isNamed(listed)) return "the key is hidden";
  const reply = await post("v1/explain", keyFields(listed));
  const again = reply.retry_after_us === null ? "no wait helps" : `again in ${duration(reply.retry_after_us)}`;
  if (reply.allowed) return "would be admitted now";
  if (reply.blocked_for_us > 0) return `${blockCause(reply)}, ${again}`;
  if (reply.list_entry) return `by the list: ${printable(reply.list_entry.why || reply.list_entry.entry)}`;
  const denies = reply.quotas.filter((quota) => !quota.admits).map((quota) => quota.quota);
  return `${denies.length > 0 ? `over ${denies.join(" and ")}` : reply.cause}, ${again}`;
}

/** Of a hidden key nothing is explained, nor of every key of a long list. */
const UNKNOWN = "–";
const blockCause = (reply) => (reply.penalty?.level > 0 ? "blocked by the penalty" : "blocked by hand");

function actions(listed, isBlocked, changed) {
  if (!isNamed(listed)) return "the key is hidden";
  return element("span", { class: "actions" }, changes(listed, isBlocked, changed));
}

/** Shows who is denied, as the server sees it every ten seconds. */
export function deniedNow(place) {
  const rows = element("div", {}, paragraph("Waiting for the first counts …"));
  place.replaceChildren(
    element("h2", { class: "first" }, "Denied now ", element("a", { href: "#blocked", class: "button" }, "Blocked keys")),
    rows,
  );
  let shown = "";
  const show = async (isForced) => {
    const { snapshot } = live;
    if (!snapshot) return;
    const denied = (snapshot.denied ?? []).slice(0, EXPLAINED);
    // What is denied changes every ten seconds at most, and each explanation asks the store.
    const state = JSON.stringify(denied);
    if (state === shown && isForced !== true) return;
    shown = state;
    await fill(rows, async () => {
      const reasons = await Promise.all(denied.map((listed) => why(listed).catch((error) => error.message)));
      const made = denied.map((listed, at) => [
        keyCell(listed),
        foreign(policyText(listed.policy)),
        reasons[at],
        element("span", { class: "whole" }, recently(listed.since_ms)),
        `≈ ${whole.format(listed.count)}`,
        actions(listed, reasons[at].startsWith("blocked"), () => show(true)),
      ]);
      return table(["client", "policy", "why", "since", "#denials", "actions"], made, "No client is denied often.", "Denied now");
    });
  };
  on("snapshot", show);
  show();
}

/** The view of all blocked keys. */
export async function blocked() {
  const place = element("div", { class: "cards" });
  const show = (cursor, before = []) =>
    fill(place, async () => {
      const asked = new URLSearchParams({ blocked: "true", ...(cursor ? { cursor } : {}) });
      const page = await get(`v1/keys?${asked}`);
      const all = [...before, ...page.keys].sort((one, other) => other.blocked_for_us - one.blocked_for_us);
      const causes = await Promise.all(
        all.map((listed, at) => (isNamed(listed) && at < 50 ? post("v1/explain", keyFields(listed)).then(blockCause, () => UNKNOWN) : UNKNOWN)),
      );
      const rows = all.map((listed, at) => [
        keyCell(listed),
        foreign(policyText(listed.policy)),
        causes[at],
        duration(listed.blocked_for_us),
        actions(listed, true, () => show()),
      ]);
      const empty = page.cursor ? "None so far: the list goes on." : "No key is blocked.";
      return [
        table(["key", "policy", "why", "blocked for", "actions"], rows, empty, "Blocked keys"),
        element(
          "p",
          { class: "quiet" },
          `${whole.format(all.length)} blocked, ${whole.format(page.examined)} keys examined. `,
          page.cursor ? button("More", () => show(page.cursor, all)) : button("Look again", () => show()),
        ),
      ];
    });
  view.replaceChildren(
    element("h1", {}, "Blocked"),
    paragraph("Keys that are denied whatever their quotas say, by a penalty or by hand, the longest first.", "quiet"),
    noRight() ?? "",
    session.shown === "plain" ? "" : paragraph("Keys are hidden on this server, so they cannot be changed here.", "quiet"),
    place,
  );
  await show();
}
