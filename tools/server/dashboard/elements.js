// Elements of the page, and numbers, times and keys as texts. Whatever comes from the server becomes text, never markup.

/** An element with these properties; children are nodes or texts. */
export function element(name, properties = {}, ...children) {
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

export const paragraph = (text, kind = "state") => element("p", { class: kind }, text);
export const button = (text, act, properties = {}) => element("button", { type: "button", onclick: act, ...properties }, text);

/** A table; a title that begins with # is one of numbers, and cells are texts or nodes. */
export function table(titles, rows, empty, label) {
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
        element(
          at === 0 ? "th" : "td",
          at === 0 ? { scope: "row" } : { class: isNumber[at] ? "number" : "", "data-title": titles[at].replace("#", "") },
          cell,
        ),
      ),
    ),
  );
  return element(
    "div",
    { class: "scroll", tabIndex: 0, role: "region", "aria-label": label },
    element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, body)),
  );
}

export const field = (title, input, kind = "") => element("label", { class: kind }, title, input);

export const LASTS = [
  ["for 15 minutes", 900e6],
  ["for 1 hour", 3_600e6],
  ["for 1 day", 86_400e6],
  ["for 30 days", 2_592_000e6],
];

export function choice(options, properties = {}) {
  return element("select", properties, options.map(([text, value]) => element("option", { value: String(value) }, text)));
}

export const whole = new Intl.NumberFormat("en");
export const decimal = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
export const rate = (count) => (count >= 100 ? whole.format(Math.round(count)) : decimal.format(count));

/** A duration in at most two units. */
export function duration(us) {
  if (us === null || us === undefined) return "never";
  // Numbers and units stay together.
  if (us < 1e6) return us < 1e3 ? `${us}\u00a0µs` : `${Math.floor(us / 1e3)}\u00a0ms`;
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
  return `${Math.floor(seconds / length)}\u00a0${name}${more ? `\u00a0${more}\u00a0${rest[0]}` : ""}`;
}

export const minute = (seconds) => new Date(1_000 * seconds).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
export const time = (ms) => new Date(ms).toLocaleString();
/** A time of the last day without its date. */
export const recently = (ms) => (Date.now() - ms < 86_400e3 ? new Date(ms).toLocaleTimeString() : time(ms));
export const keyText = (listed) => {
  if (listed.key !== undefined && listed.key !== null) return listed.key;
  if (listed.key_base64) return `base64:${listed.key_base64}`;
  return listed.key_digest ? `#${listed.key_digest}` : "(hidden)";
};
/** A text that others have chosen: however long it is, and in whatever direction it is written, it leaves its neighbours as they are. */
export const foreign = (text, kind = "") => element("span", { class: `foreign ${kind}` }, printable(text));

/** A text whose characters can all be seen: controls, line ends and those that format or turn text are written as \u{1b}. */
export const printable = (text) =>
  text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (hidden) => `\\u{${hidden.codePointAt(0).toString(16)}}`);
export const keyCell = (listed) => foreign(keyText(listed), "key");
export const isNamed = (listed) => typeof listed.key === "string" || typeof listed.key_base64 === "string";
/** The key as requests name it. */
export const keyFields = ({ policy, key, key_base64 }) => (key_base64 ? { policy, key_base64 } : { policy, key });
