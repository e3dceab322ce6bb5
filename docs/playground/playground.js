// The playground: a policy document, traffic, and what becomes of it. The module decides; this shows it.
(() => {
  const root = document.getElementById("playground-app");
  // Relative to this script, wherever the page is.
  const entry = new URL("package/web.js", document.currentScript.src).href;
  const WAIT_MS = 250;
  /** The gaps of the times below a chart, in seconds. */
  const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800, 2592000];
  const COLORS = ["#2878b5", "#c77700", "#2f9e62", "#9b5fc0", "#b5485f", "#5b7083"];
  const DARK_COLORS = ["#5cabe8", "#f0a53a", "#5ccb8f", "#c493e6", "#f28a9e", "#a3b6c6"];

  /** An element with properties and children; texts are never read as HTML. */
  const element = (name, properties = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
      if (key in made) made[key] = value;
      else made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  };
  const labelled = (text, field, properties = {}) => element("label", properties, element("span", {}, text), field);
  const choice = (options, chosen) =>
    element("select", {}, ...options.map(([value, text]) => new Option(text, value, false, value === chosen)));

  // --- the form ---

  const example = choice(PLAYGROUND_EXAMPLES.map(({ name }, at) => [String(at), name]), "0");
  const lines = element("pre", { className: "playground-lines", "aria-hidden": "true" });
  const text = element("textarea", {
    spellcheck: false,
    autocomplete: "off",
    wrap: "off",
    "aria-label": "Policy document, in TOML or JSON",
    "aria-describedby": "playground-problem",
  });
  const editor = element("div", { className: "playground-editor" }, lines, text);
  const problem = element("div", { id: "playground-problem", className: "playground-problem", role: "alert", hidden: true });
  const groups = element("div");
  const policy = choice([["", "the rules of the document"]], "");
  const duration = element("input", { value: "10m", size: 6 });
  const seed = element("input", { type: "number", min: 0, max: 1e9, value: 0 });
  const add = element("button", { type: "button" }, "Add a group");
  const trafficProblem = element("div", { className: "playground-problem", role: "alert", hidden: true });
  const summary = element("p", { className: "playground-summary", "aria-live": "polite" });
  const charts = element("div");
  const tables = element("div", { className: "playground-tables" });
  const results = element("div", {}, summary, charts, tables);

  const PATTERNS = [
    ["even", "steady"],
    ["poisson", "random"],
    ["burst", "bursts"],
  ];
  const REACTIONS = [
    ["hammer", "goes on"],
    ["wait", "waits for retry-after"],
    ["retry=200ms", "retries every 200 ms"],
    ["leave", "leaves"],
  ];

  /** The fields of a group of clients. */
  const groupFields = (given) => {
    const field = (value, properties = {}) => element("input", { value, ...properties });
    const fields = {
      name: field(given.name),
      clients: field(given.clients ?? 1, { type: "number", min: 1, max: 20000 }),
      pattern: choice(PATTERNS, given.pattern ?? "even"),
      rate: field(given.rate ?? "1/s"),
      burst: field(given.burst ?? 20, { type: "number", min: 1 }),
      every: field(given.every ?? "10s"),
      method: field(given.method ?? "GET"),
      path: field(given.path ?? "/"),
      denied: choice(REACTIONS, given.denied ?? "hammer"),
      attributes: field(given.attributes ?? "", { placeholder: "user={client}, header.x-api-key=abc" }),
    };
    const remove = element("button", { type: "button", title: "Remove this group" }, "Remove");
    const rate = labelled("rate of each", fields.rate);
    const burst = labelled("requests at once", fields.burst);
    const every = labelled("every", fields.every);
    const shape = () => {
      const bursts = fields.pattern.value === "burst";
      [rate.hidden, burst.hidden, every.hidden] = [bursts, !bursts, !bursts];
    };
    shape();
    fields.pattern.addEventListener("change", shape);
    const box = element(
      "fieldset",
      { className: "playground-group" },
      labelled("group", fields.name),
      labelled("clients", fields.clients),
      labelled("requests are", fields.pattern),
      rate,
      burst,
      every,
      labelled("method", fields.method),
      labelled("path", fields.path),
      labelled("a denied client", fields.denied),
      labelled("attributes", fields.attributes, { className: "is-wide" }),
      remove,
    );
    box.fields = fields;
    remove.addEventListener("click", () => {
      box.remove();
      changed();
    });
    return box;
  };

  const values = (box) =>
    Object.fromEntries(Object.entries(box.fields).map(([name, field]) => [name, field.value.trim()]));

  /** The traffic as `polylimit simulate` reads it. */
  const trafficText = (all) =>
    all
      .map(({ name, clients, pattern, rate, burst, every, denied }) => {
        const arrivals = pattern === "burst" ? `burst=${burst} every=${every}` : `${rate} ${pattern}`;
        return `${name}: ${clients} clients ${arrivals} denied=${denied}`;
      })
      .join("; ");

  /** The requests of a group: `a=b` is an attribute, `header.a=b` a header field. */
  const requestOf = ({ method, path, attributes }) => {
    const request = { method, path, headers: {}, attributes: {} };
    for (const part of attributes.split(",").map((part) => part.trim())) {
      if (part === "") continue;
      const at = part.indexOf("=");
      if (at < 1) throw new Error(`attributes: read "${part}", allowed is NAME=VALUE or header.NAME=VALUE`);
      const [name, value] = [part.slice(0, at).trim(), part.slice(at + 1).trim()];
      if (name.startsWith("header.")) request.headers[name.slice("header.".length)] = value;
      else request.attributes[name] = value;
    }
    return request;
  };

  // --- the editor ---

  let wrongLine = 0;
  const drawLines = () => {
    const count = text.value.split("\n").length;
    lines.replaceChildren(
      ...Array.from({ length: count }, (_, at) =>
        element("span", { className: at + 1 === wrongLine ? "is-wrong" : "" }, String(at + 1)),
      ).flatMap((number) => [number, "\n"]),
    );
    lines.scrollTop = text.scrollTop;
  };
  text.addEventListener("scroll", () => {
    lines.scrollTop = text.scrollTop;
  });
  // The lines are as tall as the text, which the reader can make taller.
  new ResizeObserver(() => {
    lines.style.height = `${text.offsetHeight}px`;
  }).observe(text);

  /** Selects the place of a mistake. Columns count characters, from 1. */
  const select = (line, column) => {
    const before = text.value.split("\n").slice(0, line - 1);
    const start = before.reduce((length, one) => length + one.length + 1, 0);
    const skipped = [...text.value.slice(start)].slice(0, column - 1).join("").length;
    text.focus();
    text.setSelectionRange(start + skipped, start + skipped + 1);
  };

  const showProblem = (checked) => {
    wrongLine = checked.line ?? 0;
    editor.classList.toggle("is-wrong", !checked.ok);
    text.setAttribute("aria-invalid", String(!checked.ok));
    drawLines();
    problem.hidden = checked.ok;
    if (checked.ok) return;
    const parts = [checked.message];
    if (checked.line !== undefined) {
      const place = element("button", { type: "button" }, `line ${checked.line}, column ${checked.column}`);
      place.addEventListener("click", () => select(checked.line, checked.column));
      parts.unshift(place);
    }
    problem.replaceChildren(...parts);
  };

  // --- the results ---

  const isDark = () => /\b(navy|coal|ayu)\b/.test(document.documentElement.className);
  const count = (number) => number.toLocaleString("en");
  const share = (part, all) => (all === 0 ? "" : ` (${((100 * part) / all).toFixed(1)} %)`);
  const seconds = (us) => {
    const parts = [
      ["h", 3_600_000_000],
      ["min", 60_000_000],
      ["s", 1_000_000],
    ];
    const [unit, size] = parts.find(([, size]) => us >= size) ?? ["ms", 1000];
    return `${Number((us / size).toFixed(2))} ${unit}`;
  };
  const time = (s) => {
    const whole = Math.floor(s);
    const [h, m, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
    const two = (number) => String(number).padStart(2, "0");
    return h > 0 ? `${h}:${two(m)}:${two(rest)}` : `${m}:${two(rest)}`;
  };

  let played;
  let drawn = [];

  const chart = (title, names, data, series) => {
    const style = getComputedStyle(root);
    const fg = style.color;
    const grid = isDark() ? "#ffffff1f" : "#0000001a";
    const place = element("div", { className: "playground-chart", role: "img", "aria-label": title });
    charts.append(element("h3", {}, title), legend(names), place);
    const axis = { stroke: fg, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    const options = {
      width: Math.max(260, charts.clientWidth),
      height: 240,
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: false }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.05)] } },
      axes: [
        { ...axis, incrs: STEPS_S, values: (_, ticks) => ticks.map(time) },
        { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? count(tick) : "")) },
      ],
      series: [{}, ...series],
    };
    drawn.push(new uPlot(options, data, place));
  };
  const legend = (names) =>
    element(
      "p",
      { className: "playground-summary" },
      ...names.flatMap(([name, color]) => {
        const swatch = element("span", { className: "playground-swatch" });
        swatch.style.background = color;
        return [element("span", {}, swatch, name), "\u2003"];
      }),
    );

  const drawCharts = () => {
    for (const one of drawn) one.destroy();
    drawn = [];
    charts.replaceChildren();
    if (played === undefined) return;
    const { admitted, denied, slot_us: slotUs } = played.timeline;
    const x = admitted.map((_, at) => ((at + 0.5) * slotUs) / 1e6);
    const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();
    const bars = (name) => ({
      stroke: color(name),
      fill: color(name),
      width: 0,
      paths: uPlot.paths.bars({ size: [0.9, 40] }),
      points: { show: false },
    });
    chart(
      `Requests in each ${seconds(slotUs)}`,
      [
        ["admitted", color("--admitted")],
        ["denied", color("--denied")],
      ],
      // What is admitted covers the lower part of all.
      [x, admitted.map((number, at) => number + denied[at]), admitted],
      [bars("--denied"), bars("--admitted")],
    );
    if (played.groups.length < 2) return;
    const palette = isDark() ? DARK_COLORS : COLORS;
    const colorOf = (at) => palette[at % palette.length];
    chart(
      `Admitted in each ${seconds(slotUs)}, by group`,
      played.groups.map(({ group }, at) => [group, colorOf(at)]),
      [x, ...played.groups.map(({ timeline }) => timeline.admitted)],
      played.groups.map((_, at) => ({ stroke: colorOf(at), width: 2, points: { show: false } })),
    );
  };

  const table = (head, rows) => {
    const row = (cells, name) => element("tr", {}, ...cells.map((cell) => element(name, {}, cell)));
    return element(
      "table",
      {},
      element("thead", {}, row(head, "th")),
      element("tbody", {}, ...rows.map((cells) => row(cells, "td"))),
    );
  };

  const show = () => {
    const { total } = played;
    const attempts = total.admitted + total.denied;
    summary.textContent =
      `${count(attempts)} requests: ${count(total.admitted)} admitted${share(total.admitted, attempts)}, ` +
      `${count(total.denied)} denied${share(total.denied, attempts)}.`;
    drawCharts();
    const sum = (numbers) => numbers.reduce((all, number) => all + number, 0);
    const groupRows = played.groups.map(({ group, timeline }) => [
      group,
      count(sum(timeline.admitted)),
      count(sum(timeline.denied)),
    ]);
    const policyRows = played.policies.flatMap(({ policy, quotas, counts }) =>
      quotas.map(({ quota, most_admitted: most, bound }, at) => [
        at === 0 ? policy : "",
        quota,
        at === 0 ? count(counts.admitted) : "",
        at === 0 ? count(counts.denied) : "",
        at === 0 ? count(counts.keys) : "",
        count(most) + (bound === null ? "" : ` of ${count(bound)}`),
      ]),
    );
    const denied = played.most_denied.map((one) => [
      one.key ?? one.key_base64,
      count(one.admitted),
      count(one.denied),
      seconds(one.longest_block_us),
    ]);
    tables.replaceChildren(
      element("h3", {}, "Groups"),
      table(["group", "admitted", "denied"], groupRows),
      element("h3", {}, "Policies"),
      table(["policy", "quota", "admitted", "denied", "keys", "most units in a period"], policyRows),
      ...(denied.length === 0
        ? []
        : [element("h3", {}, "Clients denied most often"), table(["client", "admitted", "denied", "longest denied"], denied)]),
    );
  };

  // --- running ---

  let polylimit;
  let timer;
  const changed = () => {
    clearTimeout(timer);
    timer = setTimeout(run, WAIT_MS);
  };

  /** The policies that can be chosen are those of the document. */
  const offerPolicies = (names) => {
    const chosen = policy.value;
    policy.replaceChildren(
      new Option("the rules of the document", ""),
      ...names.map((name) => new Option(`the policy ${name}, for each client`, name)),
    );
    policy.value = names.includes(chosen) ? chosen : "";
  };

  const run = () => {
    drawLines();
    if (polylimit === undefined) return;
    const checked = polylimit.checkDocument(text.value);
    showProblem(checked);
    results.classList.toggle("playground-stale", !checked.ok);
    if (!checked.ok) return;
    offerPolicies(checked.policies);
    trafficProblem.hidden = true;
    try {
      const all = [...groups.children].map(values);
      const requests = Object.fromEntries(all.map((group) => [group.name, requestOf(group)]));
      played = polylimit.simulate({
        document: text.value,
        traffic: trafficText(all),
        requests,
        ...(policy.value === "" ? {} : { policy: policy.value }),
        for: duration.value.trim(),
        seed: Number(seed.value),
      });
      show();
    } catch (error) {
      trafficProblem.hidden = false;
      trafficProblem.textContent = error.message;
      results.classList.add("playground-stale");
    }
  };

  const start = (at) => {
    const chosen = PLAYGROUND_EXAMPLES[at];
    text.value = chosen.document;
    duration.value = chosen.duration;
    groups.replaceChildren(...chosen.groups.map(groupFields));
    offerPolicies(chosen.policy === undefined ? [] : [chosen.policy]);
    policy.value = chosen.policy ?? "";
    run();
  };

  add.addEventListener("click", () => {
    const names = new Set([...groups.children].map((box) => values(box).name));
    let number = groups.children.length + 1;
    while (names.has(`group-${number}`)) number += 1;
    groups.append(groupFields({ name: `group-${number}` }));
    changed();
  });
  example.addEventListener("change", () => start(Number(example.value)));
  const form = element(
    "form",
    {},
    element("div", { className: "playground-bar" }, labelled("example", example)),
    editor,
    problem,
    element("h3", {}, "Traffic"),
    groups,
    element(
      "div",
      { className: "playground-bar" },
      add,
      labelled("decided by", policy),
      labelled("for", duration),
      labelled("seed", seed),
    ),
    trafficProblem,
  );
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", changed);
  // Letters typed here are no shortcuts of the book.
  form.addEventListener("keydown", (event) => event.stopPropagation());

  const load = async () => {
    try {
      polylimit = await import(entry);
    } catch (error) {
      const why =
        location.protocol === "file:"
          ? "Browsers load modules over HTTP only. Serve the site, for example with: python3 -m http.server --directory target/site"
          : `The module cannot be loaded (${error.message}). It is part of the site after: make wasm`;
      root.replaceChildren(element("p", { className: "playground-notice" }, why));
      return;
    }
    root.replaceChildren(form, element("h3", {}, "What is admitted"), results);
    start(0);
    let width = root.clientWidth;
    new ResizeObserver(() => {
      if (root.clientWidth === width) return;
      width = root.clientWidth;
      drawCharts();
    }).observe(root);
    new MutationObserver(drawCharts).observe(document.documentElement, { attributeFilter: ["class"] });
  };
  load();
})();
