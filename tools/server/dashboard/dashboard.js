// The dashboard. Whatever comes from the server becomes text, never markup.

import uPlot from "./uPlot.js";

const view = document.getElementById("view");
const navigation = document.querySelector("nav");
const notice = document.getElementById("notice");

/** What the session may do, and the last events. */
const session = { role: "check", configuration: null, shown: "plain" };
const live = { snapshot: null, before: null, store: null };
let token = sessionStorage.getItem("token") ?? "";
/** Ends what belongs to the view before. */
let leaving = new AbortController();

// --- Elements

/** An element with these properties; children are nodes or texts. */
function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [property, value] of Object.entries(properties)) {
    if (property.startsWith("on")) made.addEventListener(property.slice(2), value);
    else if (property === "class") made.className = value;
    else if (property in made && property !== "list") made[property] = value;
    else made.setAttribute(property, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

const paragraph = (text, kind = "state") => element("p", { class: kind }, text);
const button = (text, act, properties = {}) => element("button", { type: "button", onclick: act, ...properties }, text);

/** A table; a title that begins with # is one of numbers, and cells are texts or nodes. */
function table(titles, rows, empty, label) {
  if (rows.length === 0) return paragraph(empty);
  const isNumber = titles.map((title) => title.startsWith("#"));
  const head = titles.map((title, at) =>
    element("th", { scope: "col", class: isNumber[at] ? "number" : "" }, title.replace("#", "")),
  );
  const body = rows.map((cells) =>
    element(
      "tr",
      {},
      cells.map((cell, at) =>
        element(at === 0 ? "th" : "td", at === 0 ? { scope: "row" } : { class: isNumber[at] ? "number" : "" }, cell),
      ),
    ),
  );
  return element(
    "div",
    { class: "scroll", tabIndex: 0, role: "region", "aria-label": label },
    element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, body)),
  );
}

const field = (title, input, kind = "") => element("label", { class: kind }, title, input);

const LASTS = [
  ["for 15 minutes", 900e6],
  ["for 1 hour", 3_600e6],
  ["for 1 day", 86_400e6],
  ["for 30 days", 2_592_000e6],
];

function choice(options, properties = {}) {
  return element("select", properties, options.map(([text, value]) => element("option", { value: String(value) }, text)));
}

// --- Numbers and times

const whole = new Intl.NumberFormat("en");
const decimal = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const rate = (count) => (count >= 100 ? whole.format(Math.round(count)) : decimal.format(count));

/** A duration in at most two units. */
function duration(us) {
  if (us === null || us === undefined) return "never";
  if (us < 1e6) return us < 1e3 ? `${us} µs` : `${Math.floor(us / 1e3)} ms`;
  const seconds = Math.floor(us / 1e6);
  const units = [
    ["d", 86_400],
    ["h", 3_600],
    ["min", 60],
    ["s", 1],
  ];
  const first = units.findIndex(([, length]) => seconds >= length);
  const [name, length] = units[first];
  const rest = units[first + 1];
  const more = rest ? Math.floor((seconds % length) / rest[1]) : 0;
  return `${Math.floor(seconds / length)} ${name}${more ? ` ${more} ${rest[0]}` : ""}`;
}

const minute = (seconds) => new Date(1_000 * seconds).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
const time = (ms) => new Date(ms).toLocaleString();
const keyText = (listed) => {
  if (listed.key !== undefined && listed.key !== null) return listed.key;
  if (listed.key_base64) return `base64:${listed.key_base64}`;
  return listed.key_digest ? `#${listed.key_digest}` : "(hidden)";
};
/** A text that others have chosen: however long it is, and in whatever direction it is written, it leaves its neighbours as they are. */
const foreign = (text, kind = "") => element("span", { class: `foreign ${kind}` }, text);
const keyCell = (listed) => foreign(keyText(listed), "key");
const isNamed = (listed) => typeof listed.key === "string" || typeof listed.key_base64 === "string";
/** The key as requests name it. */
const keyFields = ({ policy, key, key_base64 }) => (key_base64 ? { policy, key_base64 } : { policy, key });

// --- Asking the server

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
async function ask(path, options = {}) {
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

const get = async (path) => (await ask(path, { signal: leaving.signal })).value;
const post = async (path, body) =>
  (await ask(path, { method: "POST", body: typeof body === "string" ? body : JSON.stringify(body) })).value;

/** Words for what went wrong. */
function words(error) {
  if (error.status === 401) return "The token is missing or not known. Sign in again.";
  if (error.status === 403) return `You may not do this: ${error.message}.`;
  if (error.status === 503) return `The store does not answer now: ${error.message}.`;
  return error instanceof Refusal ? error.message : `This page has a mistake: ${error.message}`;
}

const refusal = (error) => element("p", { class: "refusal", role: "alert" }, words(error));

let saying;
function say(text) {
  const said = document.getElementById("said");
  said.textContent = text;
  clearTimeout(saying);
  saying = setTimeout(() => (said.textContent = ""), 6_000);
}

/** Shows a loading text in a place, then what `make` gives, or why it gave nothing. */
async function fill(place, make) {
  if (!place.hasChildNodes()) place.replaceChildren(paragraph("Loading …"));
  try {
    place.replaceChildren(...[await make()].flat());
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401) signIn(words(error));
    else place.replaceChildren(refusal(error));
  }
}

const mayChange = () => session.role === "admin";
const noRight = () =>
  mayChange() ? null : paragraph(`Your token has the role ${session.role}: it may look, and changes need admin.`, "quiet");

/** Asks for a confirmation, with fields, and does it; the dialogue stays open with the reason when it fails. */
function confirmed(title, text, fields, verb, act) {
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

// --- Events

let following = false;

/** Follows what happens, for ever; a connection that ends is made again. */
async function follow() {
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
    texts.push("No limits are in force: their source has not been reached since the start, so requests are not decided.");
  } else if (isUnreachable) texts.push("The source of the limits cannot be reached: those from before are in force.");
  else if (configuration?.error) {
    texts.push(`${configuration.applied_at_us === 0 ? "No limits are in force" : "A newer document is not in force"}: ${configuration.error}`);
  }
  notice.hidden = texts.length === 0;
  const text = texts.join(" ");
  if (notice.textContent !== text) notice.textContent = text;
}

/** Calls `show` for each event of a kind, until the view is left. */
const on = (kind, show) => view.addEventListener(kind, (event) => show(event.detail), { signal: leaving.signal });

// --- Policies

/** What was decided in a second, between the last two snapshots. */
function rates(policy) {
  const { snapshot, before } = live;
  const seconds = before ? (snapshot.at_ms - before.at_ms) / 1_000 : 0;
  if (!(seconds > 0)) return null;
  const now = snapshot.policies[policy];
  const then = before.policies[policy] ?? { allowed: 0, denied: 0, outage: 0 };
  const a_second = (kind) => Math.max(0, (now?.[kind] ?? 0) - then[kind]) / seconds;
  return { allowed: a_second("allowed"), denied: a_second("denied"), outage: a_second("outage") };
}

function chart(place, points, everyMs, policy) {
  const of = (point, kind) => {
    const chosen = policy ? [point.policies[policy]] : Object.values(point.policies);
    return chosen.reduce((sum, counts) => sum + (counts?.[kind] ?? 0), 0) / (everyMs / 1_000);
  };
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const series = (label, name) => ({ label, stroke: colour(name), width: 2, points: { show: points.length < 2 } });
  // The first point counts from the start of the server, and has no even time.
  const data = [points.map((point) => point.at_ms / 1_000)];
  for (const kind of ["allowed", "denied"]) data.push(points.map((point) => of(point, kind)));
  const options = {
    width: Math.max(240, place.clientWidth - 8),
    height: 220,
    series: [{}, series("admitted a second", "--admitted"), series("denied a second", "--denied")],
    // Whole minutes, in the reader's own way of writing them.
    axes: [{ ...axis, space: 90, incrs: [60, 120, 300, 600, 900, 1_800, 3_600], values: (_, splits) => splits.map(minute) }, { ...axis, size: 56 }],
    // A server that was started just now has few points: they stand at the end of ten minutes. For a single one, uPlot says years.
    scales: { x: { range: ({ data: [times] }, first, last) => (times.length > 1 ? [Math.min(first, last - 600), last] : [first - 600, first]) }, y: { range: (_, least, most) => [0, Math.max(1, most * 1.05)] } },
    cursor: { drag: { x: true, y: false } },
  };
  place.replaceChildren();
  return new uPlot(options, data, place);
}

async function policies() {
  const place = element("div", { class: "chart", role: "img", "aria-label": "Admitted and denied a second over two hours" });
  const about = paragraph("", "quiet");
  const rows = element("div", {}, paragraph("Waiting for the first counts …"));
  view.replaceChildren(element("h1", {}, "Policies"), about, place, rows);
  let chosen = null;
  let traffic = { points: [], every_ms: 10_000 };
  const draw = () => {
    about.textContent = `${chosen ?? "All policies"}: decisions a second over the last two hours, a point each ${traffic.every_ms / 1_000} s.`;
    if (traffic.points.length > 0) chart(place, traffic.points, traffic.every_ms, chosen);
    else place.replaceChildren(paragraph("No point yet: the first comes within ten seconds."));
  };
  const choose = (name) => {
    chosen = chosen === name ? null : name;
    draw();
    show();
  };
  const show = () => {
    const { snapshot } = live;
    if (!snapshot) return;
    const focused = document.activeElement?.dataset?.policy;
    const quotas = new Map(snapshot.quotas.map(({ policy, quotas: texts }) => [policy, texts.join("; ")]));
    const names = [...new Set([...quotas.keys(), ...Object.keys(snapshot.policies)])];
    const made = names.map((name) => {
      const now = rates(name);
      const { allowed, denied, outage } = snapshot.policies[name] ?? { allowed: 0, denied: 0, outage: 0 };
      const share = allowed + denied > 0 ? `${decimal.format((100 * denied) / (allowed + denied))} %` : "–";
      const title = element("button", { type: "button", class: "row-name", "aria-pressed": String(chosen === name), onclick: () => choose(name) }, name);
      title.dataset.policy = name;
      return [
        title,
        quotas.get(name) ?? "not in force",
        now ? rate(now.allowed) : "–",
        now ? rate(now.denied) : "–",
        share,
        outage > 0 ? element("span", { class: "bad" }, whole.format(outage)) : "0",
      ];
    });
    const titles = ["policy", "quotas", "#admitted/s", "#denied/s", "#denied since the start", "#by outage policies"];
    rows.replaceChildren(
      table(titles, made, "There is no policy yet: publish a document, or ask with quotas such as 100/minute.", "Policies"),
    );
    if (focused) rows.querySelectorAll("button").forEach((title) => title.dataset.policy === focused && title.focus());
  };
  on("snapshot", show);
  on("point", (point) => {
    traffic.points.push(point);
    if (traffic.points.length > 720) traffic.points.shift();
    draw();
  });
  addEventListener("resize", draw, { signal: leaving.signal });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw, { signal: leaving.signal });
  show();
  try {
    traffic = await get("v1/traffic");
    draw();
  } catch (error) {
    if (error.name !== "AbortError") place.replaceChildren(refusal(error));
  }
}

// --- Keys

/** What can be done with a key. */
function keyActions(listed, changed) {
  if (!isNamed(listed)) return "the key itself is hidden or not known";
  const reset = () =>
    confirmed("Reset the key?", `${listed.policy}: ${keyText(listed)} begins anew, as if it had never been used.`, [], "Reset", async () => {
      await post("v1/reset", keyFields(listed));
      say("The key was reset.");
      changed();
    });
  return element(
    "span",
    { class: "actions" },
    button("Explain", () => explain(listed)),
    button("Reset", reset, { disabled: !mayChange() }),
    button("Block", () => block(listed, changed), { disabled: !mayChange() }),
  );
}

function block(listed, changed) {
  const lasts = choice(LASTS, { required: true });
  confirmed("Block the key?", `${listed.policy}: ${keyText(listed)} is denied by every process.`, [field("how long", lasts)], "Block", async () => {
    await post("v1/block", { ...keyFields(listed), for_us: Number(lasts.value) });
    say("The key is blocked.");
    changed();
  });
}

async function explain(listed) {
  const place = document.getElementById("explained");
  await fill(place, async () => {
    const told = await post("v1/explain", keyFields(listed));
    const verdict = told.allowed ? "would be admitted now" : `would be denied now${told.cause ? ` (${told.cause})` : ""}`;
    const facts = [];
    if (!told.allowed) facts.push(`Again in ${duration(told.retry_after_us)}.`);
    if (told.blocked_for_us > 0) facts.push(`Blocked for ${duration(told.blocked_for_us)}.`);
    if (told.leased_units > 0) facts.push(`${told.leased_units} units are leased here.`);
    if (told.reservations > 0) facts.push(`${told.reservations} reservations hold ${told.reserved_units} units.`);
    for (const entry of [told.override_entry, told.list_entry]) {
      if (entry) facts.push(`By ${entry.entry}${entry.why ? `, because: ${entry.why}` : ""}.`);
    }
    if (told.degraded) facts.push(`The answer is degraded: ${told.degraded}.`);
    const rows = told.quotas.map((quota) => [
      quota.quota,
      quota.admits ? "admits" : element("span", { class: "bad" }, "denies"),
      quota.words,
      `${whole.format(quota.remaining)} of ${whole.format(quota.limit)}`,
    ]);
    return [
      element("h2", {}, "Explanation"),
      element("p", {}, foreign(`${told.policy}: ${keyText(told)}`, "key"), ` ${verdict}. ${facts.join(" ")}`),
      table(["quota", "says", "because", "#left"], rows, "No quota counts for this key.", "Explanation"),
    ];
  });
  place.scrollIntoView({ block: "nearest" });
}

function topTable(keys, titles, changed) {
  const rows = keys.map((listed) => [
    keyCell(listed),
    listed.policy,
    `${whole.format(listed.count)}${listed.error > 0 ? ` (at most ${whole.format(listed.error)} too high)` : ""}`,
    keyActions(listed, changed),
  ]);
  return table(["key", "policy", `#${titles}`, "actions"], rows, "None lately.", titles);
}

async function keys() {
  const top = element("div");
  const found = element("div");
  const policy = element("input", { placeholder: "any", autocomplete: "off" });
  const prefix = element("input", { placeholder: "user:", autocomplete: "off" });
  const blocked = element("input", { type: "checkbox" });
  const showTop = () =>
    fill(top, async () => {
      const told = await get("v1/top?most=20");
      if (told.counters === 0) return paragraph("This server counts no keys: start it with --observe-keys 256.");
      return [
        element("h2", {}, "Denied most often"),
        paragraph(`Estimated in this process from a sample; all counts are halved every ${duration(told.half_life_us)}.`, "quiet"),
        topTable(told.denied, "denials", showTop),
        element("h2", {}, "Admitted most often"),
        topTable(told.admitted, "admissions", showTop),
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
        listed.policy,
        listed.quotas.length > 0 ? `${listed.used_percent} %` : "–",
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
    element("div", { id: "explained" }),
    top,
  );
  await showTop();
}

// --- Lists

async function lists() {
  const items = element("div");
  const blocks = element("div");
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
  const show = () =>
    fill(items, async () => {
      const told = await get("v1/lists");
      return ["deny", "allow"].flatMap((name) => {
        const rows = told[name].map((listed) => [
          foreign(listed.item, "key"),
          listed.until ? time(listed.until) : "",
          foreign(listed.by ?? ""),
          foreign(listed.why ?? ""),
          listed.origin === "document"
            ? "in the document"
            : button("Remove", () => remove(name, listed), { disabled: !mayChange() || session.shown !== "plain" }),
        ]);
        const title = name === "deny" ? "Denied" : "Admitted";
        return [element("h2", {}, title), table(["item", "until", "by", "why", ""], rows, "The list is empty.", title)];
      });
    });
  const showBlocks = () =>
    fill(blocks, async () => {
      const page = await get("v1/keys?blocked=true");
      const unblock = (listed) =>
        confirmed("End the block?", `${listed.policy}: ${keyText(listed)}`, [], "Unblock", async () => {
          await post("v1/block", { ...keyFields(listed), for_us: 0 });
          say("The block has ended.");
          showBlocks();
        });
      const rows = page.keys.map((listed) => [
        keyCell(listed),
        listed.policy,
        duration(listed.blocked_for_us),
        isNamed(listed) ? button("Unblock", () => unblock(listed), { disabled: !mayChange() }) : "the key is hidden",
      ]);
      return table(["key", "policy", "blocked for", ""], rows, "No key is blocked.", "Blocked keys");
    });
  const add = async (event) => {
    event.preventDefault();
    const body = { list: list.value, item: item.value.trim(), why: why.value };
    if (lasts.value) body.for_us = Number(lasts.value);
    problem.replaceChildren();
    try {
      const { entry } = await post("v1/lists/add", body);
      say(`In force: ${entry}`);
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
    mayChange()
      ? paragraph("An item is client NETWORK, ATTRIBUTE VALUE or key POLICY KEY, with %20 for a space in a value.", "quiet")
      : "",
    noRight() ?? form,
    problem,
    items,
    element("h2", {}, "Blocked keys"),
    blocks,
  );
  await Promise.all([show(), showBlocks()]);
}

// --- Store

/** Whether the store answers, as far as this server knows, in words and with their kind: it notices an outage when it asks. */
function storeState({ store_up: up, stats }) {
  const { configuration } = session;
  if (up === false) return ["does not answer", "bad"];
  if (configuration?.source === "store" && configuration.unreachable_for_us > 0) return ["cannot be reached", "bad"];
  return stats.applied + stats.calls > 0 ? ["answers", "good"] : ["was not asked yet", ""];
}

async function store() {
  const state = element("dl", { class: "facts" });
  const counts = element("div");
  const findings = element("div");
  const show = () => {
    const { snapshot } = live;
    if (!snapshot) return;
    const { stats } = snapshot;
    const fact = (name, text, kind = "") => element("div", {}, element("dt", {}, name), element("dd", { class: kind }, text));
    const outage = stats.answered_fallback + stats.answered_allow + stats.answered_deny;
    state.replaceChildren(
      fact("store", ...storeState(snapshot)),
      fact("answers by outage policies", whole.format(outage), outage > 0 ? "bad" : ""),
      fact("breaker opened", whole.format(stats.breaker_opened)),
      fact("connections lost", whole.format(stats.connections_lost)),
      fact("units leased now", whole.format(stats.lease_units_held)),
    );
    const rows = Object.entries(stats).map(([name, count]) => [name.replaceAll("_", " "), whole.format(count)]);
    counts.replaceChildren(table(["counter since the start", "#value"], rows, "", "Counters"));
  };
  const examine = () =>
    fill(findings, async () => {
      const told = await get("v1/doctor");
      const rows = told.map((finding) => [
        element("span", { class: finding.severity === "problem" ? "bad" : "" }, finding.severity),
        finding.subject,
        finding.message,
      ]);
      return table(["severity", "subject", "what to do"], rows, "Fine: the store answers, and nothing is wrong with its settings.", "Findings");
    });
  state.append(paragraph("Waiting for the first counts …"));
  view.replaceChildren(
    element("h1", {}, "Store"),
    state,
    element("h2", {}, "Settings"),
    element("p", {}, button("Examine the store", examine)),
    findings,
    element("h2", {}, "Counters"),
    counts,
  );
  on("snapshot", show);
  on("configuration", show);
  show();
}

// --- Processes

async function processes() {
  const place = element("div");
  view.replaceChildren(
    element("h1", {}, "Processes"),
    paragraph("What every process that shares this store and reports has told last.", "quiet"),
    place,
  );
  const show = () =>
    fill(place, async () => {
      const { processes: told, denied } = await get("v1/processes");
      const versions = new Set(told.map((report) => report.configuration_version));
      const rows = told.map((report) => {
        const sum = (kind) => report.policies.reduce((total, counts) => total + counts[kind], 0);
        const late = Date.now() - report.at_ms > 2 * report.every_ms;
        return [
          [foreign(report.host || "unknown host"), `, ${report.pid}`],
          foreign(report.version),
          report.store_up ? "answers" : element("span", { class: "bad" }, "away"),
          element("span", { class: versions.size > 1 || report.configuration_error ? "bad" : "" }, String(report.configuration_version)),
          whole.format(sum("allowed")),
          whole.format(sum("denied")),
          whole.format(sum("outage")),
          element("span", { class: late ? "bad" : "" }, time(report.at_ms)),
        ];
      });
      const titles = ["process", "polylimit", "store", "limits", "#admitted", "#denied", "#by outage policies", "reported"];
      const keys = denied.map((listed) => [keyCell(listed), foreign(listed.policy), whole.format(listed.count)]);
      return [
        versions.size > 1 ? paragraph("The processes have different versions of the limits.", "bad") : "",
        table(titles, rows, "No process has reported yet: servers report every 10 s, and libraries with the option report=10s.", "Processes"),
        element("h2", {}, "Denied most often, by all of them"),
        table(["key", "policy", "#denials"], keys, "None lately, or no process counts keys (observe_keys).", "Denied keys"),
      ];
    });
  on("point", show);
  await show();
}

// --- Document

/** A difference with its lines coloured. */
function difference(text) {
  const lines = text.split("\n").map((line) => {
    const kind = line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
    return element("span", { class: kind }, `${line}\n`);
  });
  return element("pre", { tabIndex: 0, "aria-label": "Difference" }, lines);
}

async function policyDocument() {
  const place = element("div");
  const past = element("div");
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
  const { value, etag } = await ask("v1/policies", { signal: leaving.signal });
  const { status, document: limits, document_version: version } = value;
  const isPublished = status.source === "store";
  const text = element("textarea", {
    value: limits ? JSON.stringify(limits, null, 2) : 'polylimit = 1\n\n[policies.api]\nquotas = "100/minute"\n',
    spellcheck: false,
    readOnly: !(isPublished && mayChange()),
    "aria-label": "The document of limits",
  });
  const where = isPublished
    ? version > 0
      ? `Document ${version} is published in the store.`
      : "No document is published yet. This is a beginning."
    : `The document comes from ${status.source}: change it there.`;
  const applied = status.applied_at_us > 0 ? ` In force since ${time(status.applied_at_us / 1e3)}.` : " It is not in force.";
  const result = element("div", { role: "status" });
  if (!(isPublished && mayChange())) return [paragraph(where + applied, "quiet"), noRight() ?? "", text];

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
    const told = await post("v1/policies/diff", text.value);
    return told.equal
      ? paragraph("The document can be used, and says the same as the one that is there.")
      : [paragraph("The document can be used. Its differences:", "quiet"), difference(told.difference)];
  };
  const publish = async () => {
    const put = `v1/policies?${new URLSearchParams({ why: why.value })}`;
    await ask(put, { method: "PUT", headers: { "if-match": etag }, body: text.value });
    say("The document is in force.");
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
  let changes;
  try {
    changes = await get("v1/history?most=50");
  } catch (error) {
    if (error.code === "invalid_argument") return paragraph("Only a document in the store has a history.");
    throw error;
  }
  const newest = changes.find((change) => change.document_version !== null)?.document_version;
  const rollback = (version) => {
    const why = element("input", { required: true });
    confirmed(`Publish document ${version} again?`, "It replaces the one that is there.", [field("why", why, "wide")], "Roll back", async () => {
      await post("v1/rollback", { version, why: why.value });
      say(`Document ${version} is in force again.`);
      load();
      showPast();
    });
  };
  const rows = changes.map((change) => {
    const { document_version: version } = change;
    const entries = change.entries.map(([entry, value]) => `${value === null ? "removed" : "set"} ${entry}`);
    const back =
      version !== null && version !== newest
        ? button("Roll back", () => rollback(version), { disabled: !mayChange() })
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

// --- The page

const VIEWS = { policies, keys, lists, store, processes, document: policyDocument };

async function route() {
  const name = location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "policies";
  leaving.abort();
  leaving = new AbortController();
  for (const link of navigation.querySelectorAll("a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${name[0].toUpperCase()}${name.slice(1)} – polylimit`;
  await VIEWS[name]();
}

function signIn(why) {
  leaving.abort();
  navigation.hidden = true;
  const input = element("input", { type: "password", required: true, autocomplete: "off", size: 40 });
  const submit = (event) => {
    event.preventDefault();
    token = input.value.trim();
    sessionStorage.setItem("token", token);
    start();
  };
  view.replaceChildren(
    element("h1", {}, "Sign in"),
    paragraph("This server asks who you are. The token stays in this tab until it is closed.", "quiet"),
    why ? element("p", { class: "refusal", role: "alert" }, why) : "",
    element("form", { onsubmit: submit }, field("token", input, "wide"), element("button", { class: "primary" }, "Sign in")),
  );
  input.focus();
}

async function start() {
  try {
    const { value } = await ask("v1/session");
    Object.assign(session, { role: value.role, configuration: value.configuration, shown: value.show_keys });
    document.getElementById("role").textContent = value.name ? `${value.name}, ${value.role}` : value.role;
  } catch (error) {
    if (error.status === 401) return signIn(token ? words(error) : "");
    if (error.status === 403) {
      return signIn("This token may ask for decisions, and no more. Give one with the role read or admin.");
    }
    return view.replaceChildren(refusal(error), button("Try again", start));
  }
  document.getElementById("leave").hidden = !token;
  navigation.hidden = false;
  if (!following) follow();
  route();
}

addEventListener("hashchange", () => {
  if (!navigation.hidden) route().then(() => view.focus());
});

document.getElementById("leave").addEventListener("click", () => {
  sessionStorage.removeItem("token");
  location.reload();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  view.focus();
});
start();
