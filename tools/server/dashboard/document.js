// The view of the document of limits.

import { button, element, field, foreign, paragraph, table, time } from "./elements.js";
import { ask, confirmed, fill, get, leaving, mayChange, noRight, notHere, post, refusal, say, session, view } from "./server.js";

/** A difference with its lines coloured. */
function difference(text) {
  const lines = text.split("\n").map((line) => {
    const kind = line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
    return element("span", { class: kind }, `${line}\n`);
  });
  return element("pre", { tabIndex: 0, "aria-label": "Difference" }, lines);
}

export async function policyDocument() {
  const place = element("div");
  const past = element("div", { class: "cards" });
  view.replaceChildren(
    element("h1", {}, "Document"),
    place,
    element("h2", {}, "History"),
    past,
  );
  const load = () => fill(place, () => editor(load, showPast));
  const showPast = () => fill(past, () => history(load, showPast));
  await Promise.all([load(), showPast()]);
}

async function editor(load, showPast) {
  if (!session.configuration) return paragraph(notHere());
  const { value, etag } = await ask("v1/policies", { signal: leaving.signal });
  const { status, document: limits, text: written, document_version: version } = value;
  const isPublished = status.source === "store";
  const text = element("textarea", {
    value: written ?? (limits ? JSON.stringify(limits, null, 2) : 'polylimit = 1\n\n[policies.api]\nquotas = "100/minute"\n'),
    spellcheck: false,
    readOnly: !(isPublished && mayChange()),
    "aria-label": "The document of limits",
  });
  const where = isPublished
    ? version > 0
      ? `Document ${version} is published in the store.`
      : "No document is published yet. This is a beginning."
    : `The document comes from ${status.source}: change it there.`;
  const applied = status.applied_at_us > 0 ? ` Active since ${time(status.applied_at_us / 1e3)}.` : " It is not active.";
  const result = element("div", { role: "status" });
  const isUnusable = !isPublished && !limits;
  if (!(isPublished && mayChange())) {
    return [paragraph(where + applied, "quiet"), noRight() ?? "", isUnusable ? paragraph("It cannot be read as it is there now.") : text];
  }

  const why = element("input", { required: true, autocomplete: "off" });
  const attempt = async (act) => {
    try {
      result.replaceChildren(...[await act()].flat());
    } catch (error) {
      result.replaceChildren(
        error.status === 412
          ? element("p", { class: "refusal", role: "alert" }, "Another document was published meanwhile. Copy your changes, then ", button("load it", load))
          : refusal(error),
      );
    }
  };
  const compare = async () => {
    const checked = await post("v1/policies/validate", text.value);
    if (!checked.valid) return element("p", { class: "refusal", role: "alert" }, checked.error);
    const reply = await post("v1/policies/diff", text.value);
    return reply.equal
      ? paragraph("The document can be used, and says the same as the one that is there.")
      : [paragraph("The document can be used. Its differences:", "quiet"), difference(reply.difference)];
  };
  const publish = async () => {
    const put = `v1/policies?${new URLSearchParams({ why: why.value })}`;
    await ask(put, { method: "PUT", headers: { "if-match": etag }, body: text.value });
    say("The document is active.");
    await Promise.all([load(), showPast()]);
    return "";
  };
  const submit = (event) => {
    event.preventDefault();
    attempt(publish);
  };
  return [
    paragraph(where + applied, "quiet"),
    text,
    result,
    element(
      "form",
      { onsubmit: submit },
      field("why, for the log", why, "wide"),
      button("Check and compare", () => attempt(compare)),
      element("button", { class: "primary" }, "Publish"),
    ),
  ];
}

async function history(load, showPast) {
  if (notHere()) return paragraph("Only limits in the store have a history.");
  const changes = await get("v1/history?most=50");
  const newest = changes.find((change) => change.document_version !== null)?.document_version;
  const rollback = (version) => {
    const why = element("input", { required: true });
    confirmed(`Publish document ${version} again?`, "It replaces the one that is there.", [field("why", why, "wide")], "Roll back", async () => {
      await post("v1/rollback", { version, why: why.value });
      say(`Document ${version} is active again.`);
      load();
      showPast();
    });
  };
  const rows = changes.map((change) => {
    const { document_version: version } = change;
    const entries = change.entries.map(([entry, value]) => `${value === null ? "removed" : "set"} ${entry}`);
    const back =
      version !== null && version !== newest
        ? button("Roll back", () => rollback(version), { disabled: !mayChange(), title: mayChange() ? "" : "This needs the role admin." })
        : "";
    return [
      String(change.version),
      time(change.at_ms),
      foreign(change.by),
      foreign(version === null ? entries.join("; ") : `document ${version}`, "key"),
      foreign(change.why),
      back,
    ];
  });
  return table(["version", "when", "by", "change", "why", ""], rows, "Nothing was changed yet.", "History");
}
