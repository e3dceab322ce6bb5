// The views of the store and of the processes that share it.

import { button, element, foreign, keyCell, paragraph, table, time, whole } from "./elements.js";
import { fill, get, live, on, session, view } from "./server.js";

/** Whether the store answers, as far as this server knows, in words and with their kind: it notices an outage when it asks. */
function storeState({ store_up: up, stats }) {
  const { configuration } = session;
  if (up === false) return ["does not answer", "bad"];
  if (configuration?.source === "store" && configuration.unreachable_for_us > 0) return ["cannot be reached", "bad"];
  return stats.applied + stats.calls > 0 ? ["answers", "good"] : ["was not asked yet", ""];
}

export async function store() {
  const state = element("dl", { class: "facts" });
  const counts = element("div");
  const findings = element("div", { class: "cards" });
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
      const reply = await get("v1/doctor");
      const rows = reply.map((finding) => [
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

export async function processes() {
  const place = element("div", { class: "cards" });
  view.replaceChildren(
    element("h1", {}, "Processes"),
    paragraph("The last report of every process that shares this store.", "quiet"),
    place,
  );
  let isAlone = false;
  const show = () =>
    !isAlone &&
    fill(place, async () => {
      let reports;
      try {
        reports = await get("v1/processes");
      } catch (error) {
        if (error.status !== 400) throw error;
        // The store of this server stays what it is, so it is asked once.
        isAlone = true;
        return paragraph("Processes report through a store in Redis, and this server has another one: its own counts are those of the policies.");
      }
      const { processes: reply, denied } = reports;
      const versions = new Set(reply.map((report) => report.configuration_version));
      const rows = reply.map((report) => {
        const sum = (kind) => report.policies.reduce((total, counts) => total + counts[kind], 0);
        const late = Date.now() - report.at_ms > 2 * report.every_ms;
        return [
          foreign(`${report.host || "unknown host"}, ${report.pid}`),
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
