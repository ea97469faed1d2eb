// The experiments behind the answers: a term alone beside the same term in the step, and one line per factor.

const verdictBadge = (verdict) => html("span", { class: `badge is-${verdict}` }, verdict);

const whatOf = (factor) => factor.facts?.what ?? factor.factor;
const gainBatch = (factor) => (factor.batches.length ? factor.batches : factor.experiment.batches)[factor.gain_index];
const gainOf = (factor) => factor.gains[factor.gain_index];
const withChange = (factor) => timePoints({ batches: factor.batches, times_ms: factor.changed_ms });

// A term with what the page has beside its experiments.
function withTests(run, tested, term) {
  const { gain_indices: indices, ...beside } = run.tested[tested.functional.label][term.label];
  const factors = term.factors.map((factor, place) => ({ ...factor, gain_index: indices[place] }));
  return { ...term, ...beside, factors };
}

function experimentsSection(run) {
  const answers = run.explain.answers.filter((answer) => answer.evidence.length);
  if (!answers.length) return null;  // the answers say how to run them
  const host = html("div", {});
  const show = (tested) => host.replaceChildren(...tested.evidence.flatMap((term) => termExperiments(run, tested, withTests(run, tested, term))));
  show(answers[0]);
  const change = (one) => { show(one); redraw(); };
  const tools = answers.length > 1
    ? [choice("of", byFunctional(answers), answers[0], change)] : [];
  const made = block("experiments", answers.length > 1 ? "Experiments" : `Experiments on ${answers[0].functional.label}`, tools, host,
    note("Each change is made alone, in rounds interleaved with runs unmodified. The share removed is (F − F′)/F: F is the anomaly unmodified, " +
      "F′ with the change; lines are 95 % intervals. " +
      "A cause is confirmed where this share lies above one half, and is certainly above one fifth. " +
      "Certain is a one-sided p below 2 %, after Holm's correction over all changes that the recording tried. " +
      "A cause is refuted where the share's 95 % interval lies below one fifth. Else it is undecided. " +
      "Taking an anomaly away is a remedy only if the time gets shorter, too."));
  made.classList.add("long");
  return choosable(made, answers, tools[0], change);
}

function termExperiments(run, tested, term) {
  const changed = term.factors.filter((factor) => factor.changed_ms.length);
  // First the change that decides: factors are in the order of their verdicts.
  let chosen = changed.find((factor) => factor.verdict === "confirmed") ?? changed.find((factor) => (factor.taken?.low ?? null) !== null) ?? changed[0] ?? null;
  const curves = chart(`Time of ${term.label}`, (width) => termCurves(run, term, chosen, width));
  const choose = (factor) => { chosen = factor; curves.redraw(); };
  const select = changed.length
    ? choice("with", [[null, "no change"], ...changed.map((factor) => [factor, whatOf(factor)])], chosen, choose) : null;
  const tried = term.factors.filter((factor) => factor.verdict !== "untested");
  const drawn = tried.length
    ? chart(`Share of ${tested.functional.label} taken away by each change`, (width) => factorLines(run, tested, tried, width)) : null;
  return [
    html("div", { class: "head term" }, html("h3", {}, term.label), html("div", { class: "tools" }, select)),
    html("p", { class: "note" }, term.sentence, term.shape ? ` ${term.shape}` : ""),
    term.step.times_ms.length || term.alone?.times_ms.length ? [curves, curvesKey(term, changed.length > 0)] : null,
    drawn, untriedFactors(term.factors.filter((factor) => !tried.includes(factor))), term.notes.map((text) => note(text)),
  ].flat(Infinity).filter(Boolean);
}

function untriedFactors(factors) {
  if (!factors.length) return null;
  const title = factors.length === 1 ? "One change was not tried" : `${factors.length} changes were not tried`;
  return html("details", {}, html("summary", {}, html("span", { class: "cause" }, title)),
    html("ul", {}, factors.map((factor) => html("li", {}, `${whatOf(factor)}: ${factor.reason ?? "no reason is recorded"}`))));
}

function curvesKey(term, anyChanged) {
  const sample = (kind, text) => html("li", {}, svg("svg", { width: 28, height: 10, "aria-hidden": "true" },
    svg("line", { class: kind, x1: 0, x2: 26, y1: 5, y2: 5 })), ` ${text}`);
  return html("ul", { class: "key" }, sample("curve", "unmodified"), term.grid.times_ms.length ? sample("fine", "unmodified, finer grid") : null,
    anyChanged ? sample("with", "with the change") : null);
}

function termCurves(run, term, factor, width) {
  const stacked = width < 640;
  const panels = [
    [term.share ? "ms in the step" : "ms, the step in the sweep", [["curve", timePoints(term.step)]]],
    [term.share ? "ms alone" : "ms, the step in the experiment", [["fine", timePoints(term.grid)], ["curve", term.alone ? timePoints(term.alone) : []], ["with", factor ? withChange(factor) : []]]],
  ].filter(([, lines]) => lines.some(([, points]) => points.length));
  const every = panels.flatMap(([, lines]) => lines.flatMap(([, points]) => points));
  const top = Math.max(...every.map((p) => Math.max(p.ms, Math.min(p.high ?? p.ms, 2 * p.ms)))) * 1.08;
  const batches = every.map((p) => p.batch);
  const height = 230;
  const across = stacked ? 1 : panels.length;
  const wide = width / across;
  const whole = height * Math.ceil(panels.length / across);
  const root = svg("svg", { viewBox: `0 0 ${width} ${whole}`, height: whole, role: "group", "aria-label": `Time of ${term.label}` });
  panels.forEach(([title, lines], index) => {
    const [x0, y0] = stacked ? [0, index * height] : [index * wide, 0];
    root.append(svg("g", { transform: `translate(${x0},${y0})` },
      termPanel(run, title, lines, factor, [Math.min(...batches), Math.max(...batches)], top, wide, height)));
  });
  return root;
}

function termPanel(run, title, lines, factor, [b0, b1], highest, width, height) {
  const [left, right, top, bottom] = [52, 14, 22, 40];
  const x = b0 === b1 ? () => (left + width - right) / 2 : logarithmic([b0, b1], [left + 12, width - right - 12]);
  const y = linear([0, highest], [height - bottom, top]);
  // The batch sizes of the anomaly get their labels before those of the finer grid.
  const points = lines.toSorted(([kind]) => (kind === "fine" ? 1 : -1)).flatMap(([, list]) => list);
  const drawn = [...valueAxis(ticks(0, highest, 4), y, left, width - right), ...batchAxis(points.map((p) => p.batch), x, height - bottom + 18),
    svg("line", { class: "axis", x1: left, x2: width - right, y1: y(0), y2: y(0) }),
    svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, run.axis.title),
    svg("text", { x: left, y: 13, class: "strong" }, title)];
  for (const [kind, list] of lines) {
    if (!list.length) continue;
    drawn.push(svg("path", { class: kind, d: list.map((p, i) => `${i ? "L" : "M"}${x(p.batch)},${y(p.ms)}`).join("") }));
    if (kind !== "fine") drawn.push(...list.map((p) => whisker(p, x(p.batch), (value) => y(Math.min(value, highest)))));
  }
  for (const [kind, list] of lines) {
    drawn.push(...list.map((p) => described(
      svg("circle", { class: kind === "with" ? "dot with" : kind === "fine" ? "faint" : "dot", cx: x(p.batch), cy: y(p.ms), r: kind === "fine" ? 3 : 4.5 }),
      `${run.axis.name} ${p.batch}${kind === "with" ? `, ${whatOf(factor)}` : ", unmodified"}\n${number(p.ms)} ms (${between(p.low, p.high)})`)));
  }
  return drawn;
}

function factorLines(run, tested, factors, width) {
  const narrow = width < 640;
  const longest = Math.max(...factors.map((factor) => whatOf(factor).length));
  const left = narrow ? 10 : Math.min(340, 0.36 * width, Math.max(140, longest * 7.4 + 16));
  const [right, step, top] = [narrow ? 14 : 190, narrow ? 58 : 34, 36];
  const height = top + factors.length * step + 10;
  const x = linear([-0.25, 1.25], [left, width - right]);
  const [low, high] = [x(-0.25), x(1.25)];
  const { refuted_below: refuted, confirmed_above: confirmed } = report;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": `Share of ${tested.functional.label} taken away by each change` });
  root.append(svg("rect", { class: "confirms", x: x(confirmed), y: top - 8, width: high - x(confirmed), height: height - top }),
    svg("rect", { class: "refutes", x: low, y: top - 8, width: x(refuted) - low, height: height - top }));
  for (const [value, text, limit] of [[0, "0"], [refuted, "1/5", true], [confirmed, "1/2", true], [1, "all"]]) {
    root.append(svg("line", { class: limit ? "limit" : "grid", x1: x(value), x2: x(value), y1: top - 8, y2: height - 8 }),
      svg("text", { x: x(value), y: top - 13, "text-anchor": "middle" }, text));
  }
  root.append(svg("text", { x: left, y: 10, class: "strong" }, "share removed"));
  if (!narrow) root.append(svg("text", { x: width - 6, y: 10, "text-anchor": "end", class: "strong" }, `time at ${run.axis.name} ${gainBatch(factors[0])}`));
  factors.forEach((factor, index) => {
    const y = top + index * step;
    const middle = narrow ? y + 30 : y + step / 2 - 4;
    const room = Math.floor((narrow ? width - 110 : left - 14) / (factor.verdict === "confirmed" ? 7.9 : 7));
    const label = narrow ? [cut(whatOf(factor), room)] : inTwoLines(whatOf(factor), room);
    const strong = factor.verdict === "confirmed" ? "strong" : null;
    const gain = gainOf(factor);
    const saved = gain ? `${signed(-100 * gain.value, 2)} %` : "";
    root.append(...[narrow ? svg("text", { x: 10, y: y + 12, class: strong }, label[0])
      : label.map((line, row) => svg("text", { x: left - 12, y: middle + 4 + 13 * (row - (label.length - 1) / 2), "text-anchor": "end", class: strong }, line)),
      svg("text", { class: `verdict is-${factor.verdict}`, x: narrow ? width - 8 : width - right + 14, y: narrow ? y + 12 : middle + 4, "text-anchor": narrow ? "end" : null }, factor.verdict),
      svg("text", { x: width - (narrow ? 8 : 6), y: narrow ? y + 50 : middle + 4, "text-anchor": "end" }, narrow && saved ? `${saved} time at ${run.axis.name} ${gainBatch(factor)}` : saved)].flat());
    root.append(svgRowsLink("experiment-rows", { experiment: factor.experiment.number, factor: factor.factor }, described(factorMark(factor, x, middle, [low, high]), factorTip(run, tested, factor))));
  });
  return root;
}

// A dot with its interval; arrows where the interval goes on beyond the chart, a dashed line where it is unknown.
function factorMark(factor, x, y, [low, high]) {
  const group = svg("g", { class: `mark is-${factor.verdict}` }, svg("rect", { class: "hit", x: low, y: y - 11, width: high - low, height: 22 }));
  if (!factor.taken) {
    group.append(svg("text", { x: low + 6, y: y + 4 }, "not measured"));
    return group;
  }
  const { value, low: from, high: until } = factor.taken;
  const within = (position) => Math.max(low, Math.min(high, position));
  if (from === null || until === null) {
    group.append(svg("line", { class: "unknown", x1: low, x2: high, y1: y, y2: y }));
  } else {
    const [start, end] = [within(x(from)), within(x(until))];
    group.append(svg("line", { x1: start, x2: end, y1: y, y2: y }));
    if (x(from) < low) group.append(svg("path", { d: `M${low + 7},${y - 4}L${low},${y}L${low + 7},${y + 4}` }));
    if (x(until) > high) group.append(svg("path", { d: `M${high - 7},${y - 4}L${high},${y}L${high - 7},${y + 4}` }));
  }
  if (x(value) >= low && x(value) <= high) group.append(svg("circle", { cx: x(value), cy: y, r: 5 }));
  return group;
}

function factorTip(run, tested, factor) {
  const percent = (value) => number(100 * value, 2);
  const estimate = (one, unit) => `${signed(one.value)} ${unit} (${between(one.low, one.high, 3)})`;
  const gain = gainOf(factor);
  const lines = [`${whatOf(factor)}: ${factor.verdict}${factor.reason ? ` (${factor.reason})` : ""}`];
  if (factor.taken) {
    lines.push(`removes ${percent(factor.taken.value)} %` +
      (factor.taken.low === null || factor.taken.high === null ? ", interval unknown" : ` (${percent(factor.taken.low)} … ${percent(factor.taken.high)} %)`));
  }
  if (factor.value && factor.changed) lines.push(`${tested.functional.label}: ${estimate(factor.value, tested.functional.unit)} unmodified, ${estimate(factor.changed, tested.functional.unit)} with the change`);
  if (gain) {
    lines.push(`time at ${run.axis.name} ${gainBatch(factor)}: ${signed(-100 * gain.value, 2)} %` +
      (gain.low === null || gain.high === null ? "" : ` (${percent(-gain.high)} … ${percent(-gain.low)} %)`));
  }
  if (factor.rounds) lines.push(counted(factor.rounds, "round"));
  if (factor.changed_results) lines.push(`changes the results: ${factor.changed_results}`);
  return lines.join("\n");
}
