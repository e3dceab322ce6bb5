"use strict";
// Everything that comes from the data is shown as text, never as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const courses = [data.live, ...data.candidates];
const number = (value) => (value === null ? "-" : value.toLocaleString("en"));
const duration = (us) => {
  for (const [unit, length] of [["d", 864e8], ["h", 36e8], ["min", 6e7], ["s", 1e6], ["ms", 1e3]]) {
    if (us >= length) return `${+(us / length).toPrecision(3)} ${unit}`;
  }
  return `${us} us`;
};
const keyOf = (of) => of.key ?? (of.key_base64 === undefined ? "" : `base64:${of.key_base64}`);

const element = (name, text, parent) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
};
const table = (title, header, rows) => {
  if (rows.length === 0) return;
  const place = document.getElementById("tables");
  element("h2", title, place);
  const made = element("table", undefined, place);
  const head = element("tr", undefined, element("thead", undefined, made));
  for (const cell of header) element("th", cell, head);
  const body = element("tbody", undefined, made);
  for (const row of rows) {
    const line = element("tr", undefined, body);
    for (const cell of row) element("td", typeof cell === "number" ? number(cell) : cell, line);
  }
};

const { traffic, demand } = data;
let summary = `${number(demand.requests)} requests of ${number(demand.clients)} clients in ${duration(traffic.duration_us)} from ${traffic.start}.`;
if (traffic.log?.spread_inside_seconds) {
  summary += " The log has whole seconds only: the requests of each second are spread evenly inside of it.";
}
if (traffic.log?.malformed) summary += ` ${number(traffic.log.malformed)} malformed lines are left out.`;
document.getElementById("summary").textContent = summary;

const percentiles = (name, of) => [name, of.p50, of.p90, of.p95, of.p99, of.p999, of.max];
table(
  "Units of each client in its busiest second, minute and hour, without limits",
  ["busiest", "p50", "p90", "p95", "p99", "p99.9", "max"],
  [
    percentiles("second", demand.busiest_second),
    percentiles("minute", demand.busiest_minute),
    percentiles("hour", demand.busiest_hour),
  ],
);
table(
  "Decisions",
  ["limits", "admitted", "denied", "clients denied", "never admitted", "longest block"],
  courses.map(({ label, total }) => [
    label, total.admitted, total.denied, `${number(total.keys_denied)} of ${number(total.keys)}`,
    total.keys_never_admitted, duration(total.longest_block_us),
  ]),
);
table(
  "The most units that a key got in any span of a quota's period",
  ["quota", "most in a period", "can be at most", "key"],
  courses.flatMap((course) => course.policies).flatMap(({ policy, quotas }) =>
    quotas.map((quota) => [`${policy}: ${quota.quota}`, quota.most_admitted, number(quota.bound), keyOf(quota)])),
);
const SPANS = 6;
for (const { label, policies, timeline } of courses) {
  const slots = timeline.admitted.length;
  const span = Math.max(1, Math.ceil(slots / SPANS));
  const starts = Array.from({ length: Math.ceil(slots / span) }, (_, at) => at * span);
  const unitsFrom = (values, start) => values.slice(start, start + span).reduce((sum, units) => sum + units, 0);
  for (const { policy, groups = [] } of policies) {
    const all = starts.map((start) => groups.reduce((sum, group) => sum + unitsFrom(group.timeline, start), 0));
    table(
      `Shares of the groups of ${policy} under ${label}`,
      ["group", "admitted units", "denied units", ...starts.map((start) => `from ${duration(start * timeline.slot_us)}`)],
      groups.map((group) => [
        group.group, group.admitted_units, group.denied_units,
        ...starts.map((start, at) => (all[at] === 0 ? "-" : `${((100 * unitsFrom(group.timeline, start)) / all[at]).toFixed(1)} %`)),
      ]),
    );
  }
}
table(
  "Waits of admitted requests that had to wait",
  ["limits", "waited", "p50", "p90", "p99", "p99.9", "max"],
  courses.filter(({ waits }) => waits.waited > 0).map(({ label, waits }) => [
    label, waits.waited, ...[waits.p50_us, waits.p90_us, waits.p99_us, waits.p999_us, waits.max_us].map(duration),
  ]),
);
const keyRows = (keys) =>
  keys.map((of) => [keyOf(of), of.admitted, of.denied, duration(of.longest_block_us)]);
const keyHeader = ["client", "admitted", "denied", "longest block"];
table(`Clients that are denied most by ${data.live.label}`, keyHeader, keyRows(data.live.most_denied));
for (const { label, agreement, newly_denied, newly_admitted } of data.candidates) {
  table(`First attempts, compared with ${label}`, ["", "it admits", "it denies"], [
    ["the active limits admit", agreement.both_allow, agreement.only_candidate_denies],
    ["the active limits deny", agreement.only_live_denies, agreement.both_deny],
  ]);
  table(`${number(newly_denied.clients)} clients are denied that were never denied`, keyHeader, keyRows(newly_denied.examples));
  table(`${number(newly_admitted.clients)} clients are never denied any more`, keyHeader, keyRows(newly_admitted.examples));
}

const slot = demand.timeline.slot_us;
const start = Date.parse(traffic.start) / 1000;
const times = demand.timeline.admitted.map((_, at) => start + (at * slot) / 1e6);
const colours = ["#8a8f98", "#0969da", "#bc4c00", "#1a7f37", "#8250df", "#cf222e", "#9a6700"];
const series = [{ label: "requests", values: demand.timeline.admitted, stroke: colours[0] }];
courses.forEach(({ label, timeline }, at) => {
  const stroke = colours[1 + (at % (colours.length - 1))];
  series.push({ label: `admitted, ${label}`, values: timeline.admitted, stroke });
  series.push({ label: `denied, ${label}`, values: timeline.denied, stroke, dash: [4, 4] });
});
const place = document.getElementById("plot");
const plot = new uPlot(
  {
    width: place.clientWidth || 900,
    height: 360,
    title: `Requests in slots of ${duration(slot)}`,
    tzDate: (time) => uPlot.tzDate(new Date(time * 1e3), "Etc/UTC"),
    axes: [{ stroke: "#8a8f98" }, { stroke: "#8a8f98" }],
    series: [{ label: "time (UTC)" }, ...series.map(({ label, stroke, dash }) => ({ label, stroke, dash, width: 1.5 }))],
  },
  [times, ...series.map(({ values }) => values)],
  place,
);
addEventListener("resize", () => plot.setSize({ width: place.clientWidth, height: 360 }));
