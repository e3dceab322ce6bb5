// The view of the policies, with a chart of what they have decided.

import { decimal, element, minute, paragraph, rate, table, whole } from "./elements.js";
import { deniedNow } from "./denied.js";
import { ask, get, leaving, live, on, policyText, refusal, view } from "./server.js";

// index.html loads it.
const { uPlot } = window;

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

/** What the document says of a policy, as labels. */
function about_of(policy) {
  if (!policy) return [];
  const modes = { shadow: "in shadow: denies nothing", off: "off: admits everything" };
  const labels = policy.mode in modes ? [element("strong", { class: "mode" }, modes[policy.mode])] : [];
  if (policy.candidate) labels.push("with a candidate");
  if (policy.elastic) labels.push(`elastic, by the pool ${policy.elastic.policy}`);
  if (policy.plans) labels.push(`plans: ${Object.keys(policy.plans).join(", ")}`);
  if (policy.penalty) labels.push("with a penalty");
  return labels;
}

export async function policies() {
  const place = element("div", { class: "chart", role: "img", "aria-label": "Admitted and denied a second over two hours" });
  const about = paragraph("", "quiet");
  const rows = element("div", { class: "cards" }, paragraph("Waiting for the first counts …"));
  const denied = element("div", { class: "cards" });
  view.replaceChildren(element("h1", {}, "Policies"), denied, element("h2", {}, "Decisions"), about, place, rows);
  deniedNow(denied);
  /** The settings of each policy in the document, without its quotas. */
  let modes = {};
  const readModes = async () => {
    try {
      const { value } = await ask("v1/policies", { signal: leaving.signal });
      modes = value.document?.policies ?? {};
      show();
    } catch {
      // A server without a document has policies without a mode.
    }
  };
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
    const shadowed = snapshot.shadowed ?? {};
    const hasShadow = names.some((name) => shadowed[name] > 0 || modes[name]?.mode === "shadow");
    const hasOutage = Object.values(snapshot.policies).some(({ outage }) => outage > 0);
    const made = names.map((name) => {
      const now = rates(name);
      const { allowed, denied, outage } = snapshot.policies[name] ?? { allowed: 0, denied: 0, outage: 0 };
      const share = allowed + denied > 0 ? `${decimal.format((100 * denied) / (allowed + denied))} %` : "–";
      const title = element("button", { type: "button", class: "row-name", "aria-pressed": String(chosen === name), onclick: () => choose(name) }, policyText(name));
      title.dataset.policy = name;
      const about = [about_of(modes[name]), policyText(name) === name ? (quotas.get(name) ?? "not active") : ""];
      const cells = [
        [title, ...about.flat().filter(Boolean).map((text) => element("span", { class: "remark" }, text))],
        now ? rate(now.allowed) : "–",
        now ? rate(now.denied) : "–",
        share,
      ];
      if (hasShadow) {
        const checks = allowed + denied;
        const would = shadowed[name] ?? 0;
        cells.push(would > 0 ? `${whole.format(would)} (${decimal.format((100 * would) / checks)} %)` : "–");
      }
      if (hasOutage) cells.push(outage > 0 ? element("span", { class: "bad" }, whole.format(outage)) : "0");
      return cells;
    });
    const titles = ["policy", "#admitted/s", "#denied/s", "#denied"];
    if (hasShadow) titles.push("#would be denied");
    if (hasOutage) titles.push("#by outage policies");
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
  on("configuration", readModes);
  show();
  readModes();
  try {
    traffic = await get("v1/traffic");
    draw();
  } catch (error) {
    if (error.name !== "AbortError") place.replaceChildren(refusal(error));
  }
}
