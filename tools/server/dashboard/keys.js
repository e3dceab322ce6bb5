// The views of keys and of lists.

import { LASTS, button, choice, duration, element, field, foreign, isNamed, keyCell, keyFields, keyText, paragraph, table, time, whole } from "./elements.js";
import { confirmed, fill, get, mayChange, noRight, notHere, policyText, post, refusal, say, session, view } from "./server.js";

/** What can be done with a key. */
function keyActions(listed, changed) {
  if (!isNamed(listed)) return "the key itself is hidden or not known";
  return element(
    "span",
    { class: "actions" },
    button("Explain", () => explain(listed)),
    ...changes(listed, listed.blocked_for_us > 0, changed),
  );
}

/** The buttons that change a key; a role that may not use them reads why. */
export function changes(listed, isBlocked, changed) {
  const disabled = !mayChange();
  const title = disabled ? "This needs the role admin." : "";
  return [
    isBlocked
      ? button("Unblock", () => unblock(listed, changed), { disabled, title })
      : button("Block", () => block(listed, changed), { disabled, title }),
    button("Reset", () => reset(listed, changed), { disabled, title }),
  ];
}

const whyField = () => element("input", { autocomplete: "off" });

function reset(listed, changed) {
  const reason = whyField();
  const text = `${policyText(listed.policy)}: ${keyText(listed)} begins anew, as if it had never been used.`;
  confirmed("Reset the key?", text, [field("why, for the log", reason, "wide")], "Reset", async () => {
    await post("v1/reset", { ...keyFields(listed), ...(reason.value ? { why: reason.value } : {}) });
    say("The key was reset.");
    changed();
  });
}

function block(listed, changed) {
  const lasts = choice(LASTS, { required: true });
  const reason = whyField();
  const fields = [field("how long", lasts), field("why, for the log", reason, "wide")];
  confirmed("Block the key?", `${policyText(listed.policy)}: ${keyText(listed)} is denied by every process.`, fields, "Block", async () => {
    await post("v1/block", { ...keyFields(listed), for_us: Number(lasts.value), why: reason.value });
    say("The key is blocked.");
    changed();
  });
}

function unblock(listed, changed) {
  const reason = whyField();
  confirmed("End the block?", `${policyText(listed.policy)}: ${keyText(listed)}`, [field("why, for the log", reason, "wide")], "Unblock", async () => {
    await post("v1/block", { ...keyFields(listed), for_us: 0, why: reason.value });
    say("The block has ended.");
    changed();
  });
}

async function explain(listed) {
  const place = document.getElementById("explained");
  await fill(place, async () => {
    const reply = await post("v1/explain", keyFields(listed));
    const verdict = reply.allowed ? "would be admitted now" : `would be denied now${reply.cause ? ` (${reply.cause})` : ""}`;
    const facts = [];
    if (!reply.allowed) facts.push(`Again in ${duration(reply.retry_after_us)}.`);
    if (reply.blocked_for_us > 0) facts.push(`Blocked for ${duration(reply.blocked_for_us)}.`);
    if (reply.leased_units > 0) facts.push(`${reply.leased_units} units are leased here.`);
    if (reply.reservations > 0) facts.push(`${reply.reservations} reservations hold ${reply.reserved_units} units.`);
    for (const entry of [reply.override_entry, reply.list_entry]) {
      if (entry) facts.push(`By ${entry.entry}${entry.why ? `, because: ${entry.why}` : ""}.`);
    }
    if (reply.degraded) facts.push(`The answer is degraded: ${reply.degraded}.`);
    const rows = reply.quotas.map((quota) => [
      quota.quota,
      quota.admits ? "admits" : element("span", { class: "bad" }, "denies"),
      quota.words,
      `${whole.format(quota.remaining)} of ${whole.format(quota.limit)}`,
    ]);
    return [
      element("h2", {}, "Explanation"),
      element("p", {}, foreign(`${reply.policy}: ${keyText(reply)}`, "key"), ` ${verdict}. ${facts.join(" ")}`),
      table(["quota", "says", "because", "#left"], rows, "No quota counts for this key.", "Explanation"),
    ];
  });
  place.scrollIntoView({ block: "nearest" });
}

function topTable(keys, titles, changed) {
  const rows = keys.map((listed) => [
    keyCell(listed),
    foreign(policyText(listed.policy)),
    `${whole.format(listed.count)}${listed.error > 0 ? ` (at most ${whole.format(listed.error)} too high)` : ""}`,
    keyActions(listed, changed),
  ]);
  return table(["key", "policy", `#${titles}`, "actions"], rows, "None lately.", titles);
}

export async function keys() {
  const top = element("div", { class: "cards" });
  const found = element("div", { class: "cards" });
  const policy = element("input", { placeholder: "any", autocomplete: "off" });
  const prefix = element("input", { placeholder: "user:", autocomplete: "off" });
  const blocked = element("input", { type: "checkbox" });
  const showTop = () =>
    fill(top, async () => {
      const reply = await get("v1/top?most=20");
      if (reply.counters === 0) return paragraph("This server counts no keys: start it with --observe-keys 256.");
      return [
        element("h2", {}, "Denied most often"),
        paragraph(`Estimated in this process from a sample; all counts are halved every ${duration(reply.half_life_us)}.`, "quiet"),
        topTable(reply.denied, "denials", showTop),
        element("h2", {}, "Admitted most often"),
        topTable(reply.admitted, "admissions", showTop),
      ];
    });
  const search = (cursor, before = []) =>
    fill(found, async () => {
      // Each page is as long as all before it together, so that many keys take few pages.
      const asked = new URLSearchParams({ entries: String(Math.min(1_000, Math.max(50, before.length))) });
      for (const [name, value] of [["policy", policy.value.trim()], ["prefix", prefix.value], ["cursor", cursor]]) {
        if (value) asked.set(name, value);
      }
      if (blocked.checked) asked.set("blocked", "true");
      const page = await get(`v1/keys?${asked}`);
      const all = [...before, ...page.keys];
      const rows = all.map((listed) => [
        keyCell(listed),
        foreign(policyText(listed.policy)),
        listed.blocked_for_us > 0 ? "blocked" : listed.quotas.length > 0 ? `${listed.used_percent} %` : "–",
        listed.quotas.map((quota) => `${whole.format(quota.used)} of ${quota.quota}`).join("; "),
        listed.blocked_for_us > 0 ? duration(listed.blocked_for_us) : "",
        keyActions(listed, () => search()),
      ]);
      const empty = page.cursor ? "None so far: the list goes on." : "No such key has anything used.";
      return [
        table(["key", "policy", "#used", "of", "blocked for", "actions"], rows, empty, "Keys"),
        element(
          "p",
          { class: "quiet" },
          `${whole.format(all.length)} ${all.length === 1 ? "key" : "keys"}, ${whole.format(page.examined)} examined for the last page. `,
          page.cursor ? button("More", () => search(page.cursor, all)) : "",
        ),
      ];
    });
  const submit = (event) => {
    event.preventDefault();
    search();
  };
  view.replaceChildren(
    element("h1", {}, "Keys"),
    noRight() ?? "",
    element("h2", {}, "Find"),
    element(
      "form",
      { onsubmit: submit },
      field("policy", policy),
      field("key begins with", prefix, "wide"),
      field("only blocked", blocked, "check"),
      element("button", { class: "primary" }, "List"),
    ),
    found,
    element("div", { id: "explained", class: "cards" }),
    top,
  );
  await showTop();
}

export async function lists() {
  const items = element("div", { class: "cards" });
  const problem = element("div");
  const list = choice([["deny", "deny"], ["allow", "allow"]]);
  const item = element("input", { required: true, placeholder: "client 192.0.2.0/24", autocomplete: "off" });
  const lasts = choice([["until it is removed", ""], ...LASTS]);
  const why = element("input", { required: true, autocomplete: "off" });
  const remove = (name, listed) => {
    const reason = element("input", { required: true });
    confirmed("Remove the item?", `${name} ${listed.item}`, [field("why", reason, "wide")], "Remove", async () => {
      await post("v1/lists/remove", { list: name, item: listed.item, why: reason.value });
      say("The item was removed.");
      show();
    });
  };
  /** The items of a file are in its document: the server lists those that the store has as well. */
  const listed = async () => {
    if (!notHere()) return get("v1/lists");
    const { document: limits } = await get("v1/policies");
    const written = (name) =>
      (limits?.lists?.[name] ?? []).map((text) => {
        const [item, until] = text.split(" until ");
        return { item, until: until && Date.parse(until), origin: "document" };
      });
    return { deny: written("deny"), allow: written("allow") };
  };
  const cannotRemove = () => {
    if (!mayChange()) return "This needs the role admin.";
    return session.shown === "plain" ? "" : "Items may name keys, which are hidden on this server.";
  };
  const show = () =>
    fill(items, async () => {
      const reply = await listed();
      return ["deny", "allow"].flatMap((name) => {
        const rows = reply[name].map((listed) => [
          foreign(listed.item, "key"),
          listed.until ? time(listed.until) : "",
          foreign(listed.by ?? ""),
          foreign(listed.why ?? ""),
          listed.origin === "document"
            ? "in the document"
            : button("Remove", () => remove(name, listed), { disabled: cannotRemove() !== "", title: cannotRemove() }),
        ]);
        const title = name === "deny" ? "Denied" : "Admitted";
        return [element("h2", {}, title), table(["item", "until", "by", "why", ""], rows, "The list is empty.", title)];
      });
    });
  const add = async (event) => {
    event.preventDefault();
    const body = { list: list.value, item: item.value.trim(), why: why.value };
    if (lasts.value) body.for_us = Number(lasts.value);
    problem.replaceChildren();
    try {
      const { entry } = await post("v1/lists/add", body);
      say(`Active: ${entry}`);
      item.value = "";
      await show();
    } catch (error) {
      problem.replaceChildren(refusal(error));
    }
  };
  const form = element(
    "form",
    { onsubmit: add },
    field("list", list),
    field("item", item, "wide"),
    field("how long", lasts),
    field("why", why, "wide"),
    element("button", { class: "primary" }, "Add"),
  );
  view.replaceChildren(
    element("h1", {}, "Lists"),
    paragraph("Items decide whatever the quotas say, in every process that follows these limits.", "quiet"),
    mayChange() && !notHere()
      ? paragraph("An item is client NETWORK, ATTRIBUTE VALUE or key POLICY KEY, with %20 for a space in a value.", "quiet")
      : "",
    notHere() ? paragraph(notHere(), "quiet") : (noRight() ?? form),
    problem,
    items,
  );
  // Without a document there are no lists.
  if (session.configuration) await show();
}
