// Builds the sections of the chosen recording.

const MOST_CAUSE_TERMS = 5;
// One fact in a line, with its table; `names` are short names of kernels.
function evidenceText({ what, before, after, unit, table }, names) {
  const [first, last] = [before, after].map((value) => value === null ? "unknown" : typeof value === "string" ? cut(names.get(value) ?? value, 60)
    : unit === "B" ? quantity(value, unit) : number(value, 3));
  return `${what}: ${first === last ? first : `${first} → ${last}`}${["", "1", "B"].includes(unit) ? "" : ` ${unit}`} [${table}]`;
}
const refutation = ({ refuted_by: text }) => `Refuted if: ${text[0].toLowerCase()}${text.slice(1)}`;

function causesSection(run) {
  if (!run.anomalies.length) return null;
  const host = html("div", {});
  const names = new Map(run.kernels.rows.map((row) => [row.name, row.short]));
  const show = (anomaly) => {
    const { functional: { unit }, value: whole } = anomaly;
    const causes = anomaly.attribution.causes.filter((one) => one.amount);
    const largest = Math.max(...causes.map((c) => Math.abs(c.amount)), 1e-12);
    host.replaceChildren(...causes.map((total, index) => {
      const apart = total.cause === "not significant";
      const verdict = apart || total.cause === "unexplained" ? null : total.verdict;
      const more = total.terms.length - MOST_CAUSE_TERMS;
      const bar = html("i", { class: total.amount > 0 ? "up" : "down" });
      const half = (50 * Math.abs(total.amount)) / largest;
      bar.style.left = `${total.amount > 0 ? 50 : 50 - half}%`;
      bar.style.width = `${half}%`;
      return html("details", { open: index === 0 },
        html("summary", { class: apart ? "apart" : null }, html("span", { class: "cause" }, total.cause, verdict ? [" ", verdictBadge(verdict)] : null), html("span", { class: "bar", "aria-hidden": "true" }, bar),
          html("span", {}, `${signed(total.amount)} ${unit} ${share(total.amount, whole.value)}`)),
        apart ? html("p", {}, "These terms cannot be distinguished from 0. They are no cause; more rounds would tell.") : null,
        total.reason ? html("p", {}, `${total.cause} is ${total.verdict}: ${total.reason}.`) : null,
        total.measured ? html("p", {}, `Measured on the complete step: ${signed(total.measured.value)} ${unit} (${between(total.measured.low, total.measured.high, 3)}).`) : null,
        total.terms.slice(0, MOST_CAUSE_TERMS).map((term) => [
          html("p", {}, html("b", {}, term.label), " ", termRows(anomaly, term.label, `${signed(term.amount)} ${unit}`)),
          html("ul", {}, (term.claim?.evidence ?? []).map((one) => html("li", {}, evidenceText(one, names)))),
          term.claim && !["confirmed", "refuted"].includes(total.verdict) ? html("p", { class: "refuted" }, refutation(term.claim)) : null,
        ]),
        more > 0 ? html("p", {}, `and ${counted(more, "smaller term")}`) : null);
    }));
  };
  show(run.anomalies[0]);
  const tools = run.anomalies.length > 1
    ? [choice("of", byFunctional(run.anomalies), run.anomalies[0], show)] : [];
  const made = block("causes", "Causes", tools, host, note("Amounts add up to the anomaly. A cause accounts for the amount of a term that its evidence in the recording supports; the rest is unexplained. Only an experiment confirms or refutes a cause."));
  made.classList.add("long");
  return choosable(made, run.anomalies, tools[0], show);
}

// A number with a link to the kernels of a term at the larger batch size of its anomaly; plain where the term has no kernels.
function termRows(anomaly, label, text) {
  const share = anomaly.shares.find((one) => one.label === label && one.key.kind === "kernels");
  return share ? rowsLink(text, "kernels", shareFilters(anomaly, share)) : text;
}

function compareSection() {
  const c = report.comparison;
  if (!c) return null;
  const cell = (change) => change === null ? html("td", {}, "") : described(html("td", { class: change.real && change.speedup < 1 ? "verdict-anomaly" : null },
    `${number(change.speedup, 3)}×${change.real ? " *" : ""}`), `${number(change.speedup, 3)}× (${between(change.low, change.high, 3)})`);
  const remark = (line) => line.remarks.map((text, i) => text && (c.names.length > 2 ? `${c.names[i + 1]}: ${text}` : text)).filter(Boolean).join("; ");
  const table = (first, lines) => html("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": `Comparison by ${first}` }, html("table", {},
    html("thead", {}, html("tr", {}, html("th", { scope: "col", class: "left" }, first), c.names.map((n) => html("th", { scope: "col" }, `${n} ms`)),
      c.names.slice(1).map((n) => html("th", { scope: "col" }, `speed-up ${n}`)), html("th", { scope: "col", class: "left" }, "remark"))),
    html("tbody", {}, lines.map((line) => html("tr", {}, html("th", { scope: "row", class: "left" }, line.label), line.times_ms.map((t, i) => html("td", {}, t === null ? "" : first === c.by
      ? rowsLink(number(t), "kernels", { run: i, batch: batchName(c.batch), words: line.label.replace(/ ?(work )?outside layers$/, "") })
      : rowsLink(number(t), "steps", { run: i, batch: line.label }))),
      line.changes.map(cell), html("td", { class: "remark" }, remark(line)))))));
  const made = block("compare", "Comparison", [], table(report.runs[0].axis.name, c.steps), c.rows.length ? html("h3", {}, `By ${c.by} at ${report.runs[0].axis.name} ${batchName(c.batch)}`) : null,
    c.rows.length ? table(c.by, c.rows) : null,
    note(`Speed-up over ${c.names[0]}: above 1 is faster; * is significant.` + Object.entries(c.differences).map(([name, values], i) =>
      `${i ? "; " : " Recorded with different settings: "}${name}: ${values.join(", ")}`).join("")));
  made.classList.add("long");
  return made;
}

function recordingSection(run) {
  return block("recording", "Recording", [],
    html("dl", { class: "facts" }, run.facts.map(([label, text]) => html("div", {}, html("dt", {}, label), html("dd", {}, text)))),
    run.lost.map((text) => html("p", { class: "note warn" }, text)),
    run.caveats.map((text) => note(text)),
    note(`Based on ${counted(run.kernels.calls, "kernel")} of the profiled steps. Curvescope ${report.version}.`));
}

// Names of the sections in the head of the page.
const SHORT = { curve: "Curve", terms: "Terms", causes: "Causes", experiments: "Experiments", icicle: "Icicle", timeline: "Step",
  roofline: "Roofline", kernels: "Kernels", history: "History", compare: "Comparison", steps: "Steps", "experiment-rows": "Runs", recording: "Recording" };

function show(index) {
  const run = report.runs[index];
  const others = report.runs.filter((other) => other !== run);
  const sections = [curveSection(run, others), termsSection(run), causesSection(run), experimentsSection(run), icicleSection(run), timelineSection(run),
    rooflineSection(run), kernelsSection(run), historySection(), compareSection(), rowsSection("steps", run.steps),
    rowsSection("experiment-rows", run.runs_of_experiments), recordingSection(run)].filter(Boolean);
  document.querySelectorAll(".verdict").forEach((verdict) => { verdict.hidden = verdict.dataset.run !== String(index); });
  for (const answer of document.querySelectorAll(`.verdict[data-run="${index}"] .answers li`)) {
    answer.querySelector(".more")?.remove();
    answer.append(html("p", { class: "more" }, ["terms", "causes", "experiments"].filter((id) => sections.some((section) => section.id === id && section.show?.has(answer.dataset.of)))
      .map((id) => rowsLink(SHORT[id], id, { of: answer.dataset.of }))));
  }
  document.getElementById(`charts-${index}`)?.replaceChildren(...(run.first ? firstCharts(run) : []));
  document.getElementById("body").replaceChildren(...sections);
  document.getElementById("sections").replaceChildren(html("a", { href: "#report" }, "Verdict"),
    ...sections.map((section) => html("a", { href: `#${section.id}` }, SHORT[section.id])));
  redraw();
}

// Follows a link to rows, see `rowsHref`.
function follow() {
  const [id, query] = location.hash.slice(1).split("?");
  const { run, ...filters } = Object.fromEntries(new URLSearchParams(query ?? ""));
  if (run !== undefined) document.querySelectorAll("#runs button")[run]?.click();
  const section = query === undefined ? null : document.getElementById(id);
  if (!section?.show) return;
  section.show(filters);
  section.scrollIntoView();
}
addEventListener("hashchange", follow);
addEventListener("click", (event) => { if (event.target.closest?.("a")?.getAttribute("href") === location.hash) follow(); });

function redraw() {
  document.querySelectorAll(".chart").forEach((node) => node.redraw());
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", () => { document.querySelectorAll("details").forEach((node) => { node.open = true; }); redraw(); });
if (report.runs.length > 1) {
  document.getElementById("runs").append(toggles("Recording", report.runs.map((run, index) => [index, run.name]), 0, show));
}
show(0);
follow();
