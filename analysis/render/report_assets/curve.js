// The cost curve with intervals and the first anomaly marked, and the waterfall of an anomaly's terms.

const DASHES = ["none", "6 4", "2 3", "9 3 2 3"];

function curveSection(run, others) {
  const { curve: points, statistic, rounds } = run.explain;
  const { unit } = run.explain;
  let perSample = isOfSteps(run) && points.every((p) => p.batch);
  const drawn = chart("Cost curve", (width) => curveChart(run, others, perSample, width));
  const tools = perSample
    ? [toggles("What to show", [[true, `per ${run.axis.one}`], [false, `${unit} time`]], perSample, (value) => {
        perSample = value;
        drawn.redraw();
      })] : [];
  const unstable = points.filter((p) => p.n > 1 && !p.stable).map((p) => batchName(p.batch));
  return block("curve", `Cost over ${run.axis.title}`, tools, drawn,
    others.length ? html("ul", { class: "key" }, [run, ...others].map((one, index) => html("li", {}, svg("svg", { width: 28, height: 10, "aria-hidden": "true" },
      svg("line", { class: index ? "other" : "curve", x1: 0, x2: 26, y1: 5, y2: 5, "stroke-dasharray": index ? DASHES[(index - 1) % DASHES.length] : "none" })), ` ${one.name}`))) : null,
    note((statistic === "modelled" ? "T(b) is modelled, nothing was measured" : `T(b) is the ${statistic} of ${unit}s`) + (statistic === "modelled" ? "; intervals are of the model's error." : rounds > 1 ? ` in ${rounds} rounds, with 95 % intervals.` : " of one round: nothing is known of its spread.") +
      (unstable.length ? ` Not stable (spread over 2 %): ${run.axis.name} ${unstable.join(", ")}.` : "")),
    run.energy ? energyPart(run) : null, run.explain.findings.length ? findings(run) : null);
}

// The two charts of the first screen: how far each size is off the cost line, and the experiment behind the first answer.
function firstCharts(run) {
  const made = [];
  const title = (text, small) => html("h2", {}, text, " ", html("small", {}, small));
  if (run.first.line_ms) {
    const [fixed, each] = run.first.line_ms.map((ms) => number(ms, 3));
    made.push(html("div", {}, title(`${run.explain.unit[0].toUpperCase()}${run.explain.unit.slice(1)} time`, `ms, as a difference from ${fixed} + ${each} × ${run.axis.name}`),
      chart("Time off the cost line", (width) => offLineChart(run, width))));
  }
  const tested = run.explain.answers.find((answer) => answer.evidence.some((term) => term.alone?.times_ms.length));
  const term = tested?.evidence.find((one) => one.alone?.times_ms.length);
  if (term) {
    const whole = { ...term, ...run.tested[tested.functional.label][term.label] };
    const factor = whole.factors.find((one) => one.verdict === "confirmed" && one.changed_ms.length) ?? whole.factors.find((one) => one.changed_ms.length);
    const lines = [["curve", timePoints(whole.alone)], ["with", factor ? withChange(factor) : []]];
    made.push(html("div", {}, title(term.label, "alone, ms"), chart(`Time of ${term.label} alone`, (width) => aloneChart(run, lines, factor, width)),
      factor ? html("p", { class: "note" }, html("span", { class: `badge is-${factor.verdict}` }, factor.verdict), ` dashed: ${whatOf(factor)}`) : null));
  }
  return made;
}

function aloneChart(run, lines, factor, width) {
  const points = lines.flatMap(([, list]) => list);
  const highest = 1.08 * Math.max(...points.map((p) => Math.max(p.ms, Math.min(p.high ?? p.ms, 2 * p.ms))));
  const batches = points.map((p) => p.batch);
  return svg("svg", { viewBox: `0 0 ${width} 230`, height: 230, role: "group", "aria-label": "Time alone" },
    termPanel(run, "", lines, factor, [Math.min(...batches), Math.max(...batches)], highest, width, 230));
}

function offLineChart(run, width) {
  const [fixed, each] = run.first.line_ms;
  const [height, left, right, top, bottom] = [230, 52, 18, 14, 40];
  const off = (p, ms) => ms - fixed - each * p.batch;
  const points = run.explain.curve.map((p) => timePoint(p.time_ms, p.batch));
  const offs = points.map((p) => off(p, p.ms));
  // An interval far wider than what is seen is cut at the border.
  const seen = Math.max(...offs.map(Math.abs));
  const most = Math.max(seen, ...points.map((p) => (p.low === null || p.high === null ? 0 : Math.min(Math.max(Math.abs(off(p, p.low)), Math.abs(off(p, p.high))), 2 * seen)))) * 1.15 || 1;
  const batches = points.map((p) => p.batch);
  const x = logarithmic([batches[0], batches.at(-1)], [left + 14, width - right - 14]);
  const y = linear([-most, most], [height - bottom, top]);
  const within = (ms) => Math.max(-most, Math.min(most, ms));
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": "Time off the cost line" },
    ...valueAxis(ticks(-most, most, 4), y, left, width - right), ...batchAxis(batches, x, height - bottom + 18),
    svg("line", { class: "axis", x1: left, x2: width - right, y1: y(0), y2: y(0) }),
    svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, run.axis.title),
    svg("path", { class: "curve", d: points.map((p, i) => `${i ? "L" : "M"}${x(p.batch)},${y(offs[i])}`).join("") }));
  points.forEach((p, i) => {
    if (p.low !== null && p.high !== null) {
      root.append(svg("path", { class: "whisker", d: `M${x(p.batch)},${y(within(off(p, p.low)))}V${y(within(off(p, p.high)))}` }));
    }
    const slow = run.first.slow.includes(p.batch);
    root.append(svgRowsLink("steps", { batch: p.batch, profiled: run.explain.profiled }, described(
      svg("circle", { class: slow ? "dot alarm" : "dot", cx: x(p.batch), cy: y(offs[i]), r: 5 }),
      `${run.axis.name} ${p.batch}\n${number(p.ms)} ms (${between(p.low, p.high)})\n${signed(offs[i])} ms off the line`)));
  });
  return root;
}

// The energy of a step beside its time, where it was measured.
function energyPart(run) {
  const { source, unmeasured_steps: unmeasured } = run.energy;
  const points = run.energy.curve.map((p) => ({ ...p, ...p.energy_j }));
  const anomalies = run.energy.findings.filter((f) => f.verdict === "anomaly").map((f) =>
    `${f.functional}: ${signed(f.value.value)} J, by time ${signed(f.by_time_j)}, by power ${signed(f.by_power_j)}`);
  const highest = 1.08 * Math.max(...points.map((p) => Math.max(p.value, Math.min(p.high ?? p.value, 2 * p.value)) / p.batch));
  const batches = points.map((p) => p.batch);
  const drawn = chart("Energy", (width) => {
    const [height, left, right, top, bottom] = [200, 56, 18, 22, 40];
    const x = batches.length === 1 ? () => (left + width - right) / 2 : logarithmic([Math.min(...batches), Math.max(...batches)], [left + 14, width - right - 14]);
    const y = linear([0, highest], [height - bottom, top]);
    return svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": `Energy over ${run.axis.title}` },
      ...valueAxis(ticks(0, highest, 4), y, left, width - right), ...batchAxis(batches, x, height - bottom + 18),
      svg("line", { class: "axis", x1: left, x2: width - right, y1: y(0), y2: y(0) }),
      svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, run.axis.title),
      svg("text", { x: left, y: 13, class: "strong" }, `J per ${run.axis.one}`),
      svg("path", { class: "curve", d: points.map((p, i) => `${i ? "L" : "M"}${x(p.batch)},${y(p.value / p.batch)}`).join("") }),
      points.map((p) => [whisker(p, x(p.batch), (value) => y(Math.min(value / p.batch, highest))),
        svgRowsLink("steps", { batch: p.batch, profiled: false }, described(svg("circle", { class: "dot", cx: x(p.batch), cy: y(p.value / p.batch), r: 5 }),
          `${run.axis.name} ${p.batch}\n${number(p.value)} J per step (${between(p.low, p.high)})\n${number(p.power_w, 3)} W on average, n = ${p.n}`))]));
  });
  return [html("h3", {}, "Energy"), drawn, note(`Energy of ${source.scope}, by ${source.name}. Mean power: ${points.map((p) => `${run.axis.name} ${p.batch} ${number(p.power_w, 3)} W`).join(", ")}.` +
    (anomalies.length ? ` Anomalies of energy: ${anomalies.join("; ")}.` : " No anomaly of energy.") + (unmeasured ? ` ${unmeasured} timed steps have no energy.` : ""))];
}

function findings(run) {
  return html("details", {}, html("summary", {}, html("span", { class: "cause" }, run.explain.findings.length === 1 ? "The one test" : `All ${run.explain.findings.length} tests`)),
    html("div", { class: "scroll" }, html("table", {},
      html("thead", {}, html("tr", {}, ["functional", "value", "95 % interval", "unit", "shape", "verdict"].map((text, index) =>
        html("th", { scope: "col", class: index === 0 || index > 2 ? "left" : null }, text)))),
      html("tbody", {}, run.explain.findings.map((f) => html("tr", {},
        html("td", { class: "left" }, f.shown.label), html("td", {}, signed(f.value.value)), html("td", {}, between(f.value.low, f.value.high, 3)),
        html("td", { class: "left" }, f.shown.unit.replace("/sample", `/${run.axis.one}`)), html("td", { class: "left" }, f.shape),
        html("td", { class: `left verdict-${f.verdict.split(" ")[0]}` }, f.verdict)))))));
}

function curveChart(run, others, perSample, width) {
  const measured = (one) => one.explain.curve.map((p) => timePoint(p.time_ms, p.batch, p));
  const height = run.explain.curve.length === 1 ? 150 : Math.min(340, Math.max(220, width * 0.42));
  const [left, right, top, bottom] = [56, 18, 22, 40];
  const points = measured(run).map((p) => ({ ...p, x: p.batch || 1, by: perSample ? p.batch : 1 }));
  const pale = others.map((other) => measured(other).filter((p) => p.batch).map((p) => ({ ...p, x: p.batch, by: perSample ? p.batch : 1 })));
  const anomaly = firstAnomaly(run);
  const at = anomaly && points.find((p) => p.batch === anomaly.functional.at);
  const to = anomaly && points.find((p) => p.batch === lastBatch(anomaly.functional));
  const expected = to ? (to.ms - anomaly.value.value) / to.by : null;
  const everything = [...points, ...pale.flat()];
  const highest = Math.max(...everything.map((p) => Math.max(p.ms, Math.min(p.high ?? p.ms, 2 * p.ms)) / p.by), expected ?? 0);
  const xs = everything.map((p) => p.x);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  const x = x0 === x1 ? () => (left + width - right) / 2 : logarithmic([x0, x1], [left + 14, width - right - 14]);
  const y = linear([0, highest * 1.08], [height - bottom, top]);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": `Time over ${run.axis.title}` });
  if (at && to) root.append(svg("rect", { class: "band", x: x(at.x), y: top, width: x(to.x) - x(at.x), height: height - bottom - top }));
  root.append(...valueAxis(ticks(0, highest * 1.08, height < 200 ? 3 : 5), y, left, width - right),
    ...batchAxis(points[0].batch ? xs.toSorted((a, b) => a - b) : ["unknown"], points[0].batch ? x : () => x(1), height - bottom + 18));
  root.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: y(0), y2: y(0) }),
    svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, run.axis.title),
    svg("text", { x: left, y: 13, class: "strong" }, perSample ? `ms per ${run.axis.one}` : `ms per ${run.explain.unit}`));
  const path = (list) => list.map((p, i) => `${i ? "L" : "M"}${x(p.x)},${y(p.ms / p.by)}`).join("");
  pale.forEach((list, index) => {
    root.append(svg("path", { class: "other", d: path(list), "stroke-dasharray": DASHES[index % DASHES.length] }));
    for (const p of list) {
      root.append(described(svg("circle", { class: "faint", cx: x(p.x), cy: y(p.ms / p.by), r: 3 }),
        `${others[index].name}, ${run.axis.name} ${p.batch}\n${number(p.ms)} ms per step (${between(p.low, p.high)})`));
    }
  });
  root.append(svg("path", { class: "curve", d: path(points) }));
  for (const p of points) {
    root.append(whisker(p, x(p.x), (value) => y(Math.min(value / p.by, highest * 1.08))));
  }
  if (at && to) {
    const above = to.ms / to.by >= expected;
    root.append(svg("path", { class: "expected", d: `M${x(at.x)},${y(at.ms / at.by)}L${x(to.x)},${y(expected)}` }),
      svg("line", { class: "gap", x1: x(to.x), x2: x(to.x), y1: y(expected), y2: y(to.ms / to.by) }),
      svg("text", { class: "alarm", x: x(to.x) - 10, y: Math.max(top + 10, y(to.ms / to.by) + (above ? -10 : 20)), "text-anchor": "end" },
        `${number(Math.abs(anomaly.value.value), 3)} ms ${anomaly.value.value < 0 ? "below" : "over"} ${anomaly.functional.kind === "excess" ? `${few(to.batch / at.batch)} × ${run.axis.name} ${at.batch}` : "the straight line"}`));
  }
  for (const p of points) {
    const text = `${run.axis.name} ${batchName(p.batch)}\n${number(p.ms)} ms per ${run.explain.unit} (${between(p.low, p.high)})` +
      (p.batch && isOfSteps(run) ? `\n${number(p.ms / p.batch)} ms per ${run.axis.one}, ${number((1e3 * p.batch) / p.ms)} ${run.axis.unit}/s` : "") +
      `\nn = ${p.n}${p.n === 1 ? "" : `, spread ${number(100 * p.spread, 2)}%`}`;
    root.append(svgRowsLink("steps", { batch: p.batch ?? "", profiled: run.explain.profiled }, described(svg("circle", { class: p === to ? "dot alarm" : "dot", cx: x(p.x), cy: y(p.ms / p.by), r: 5 }), text)));
  }
  return root;
}

function termsSection(run) {
  if (!run.anomalies.length) return null;
  let chosen = run.anomalies[0];
  const drawn = chart("Terms of the anomaly", (width) => waterfall(run, chosen, width));
  const about = note("");
  const tell = () => {
    about.textContent = `${remark(run, chosen)}Bars add up to ${valueText(chosen)} (${between(chosen.value.low, chosen.value.high, 3)})` +
      (chosen.also.length ? `; the same event is also seen as ${chosen.also.join(", ")}` : "") + ". Pale bars are not significant.";
  };
  tell();
  const change = (value) => { chosen = value; tell(); drawn.redraw(); };
  const tools = run.anomalies.length > 1
    ? [choice("of", byFunctional(run.anomalies), chosen, change)] : [];
  const kinds = new Set(run.anomalies.flatMap((a) => bars(a).map((p) => phaseClass(p.key.phase, p.key.kind))));
  return choosable(block("terms", run.anomalies.length > 1 ? "Terms" : `Terms of ${chosen.functional.label}`, tools, drawn, key(kinds), about), run.anomalies, tools[0], change);
}

// What is drawn, if it is not an anomaly.
function remark(run, one) {
  if (one === run.explain.fixed_cost) return `The fixed cost of a step is its time that does not grow with the ${run.axis.value}. `;
  return isAnomaly(run, one) ? "" : "Not an anomaly; shown to explain how the cost grows. ";
}

const MOST_SHARES = 12;
const LEAST_SHARE = 0.005;  // of an anomaly; smaller terms of kernels are one bar
function bars({ shares, value }) {
  const kernels = shares.filter((one) => one.key.kind === "kernels");
  const shown = kernels.slice(0, MOST_SHARES).filter((one) => Math.abs(one.value.value) >= LEAST_SHARE * Math.abs(value.value));
  const rest = kernels.slice(shown.length);
  const small = { label: counted(rest.length, "smaller term"), key: { kind: "rest" }, value: { value: rest.reduce((sum, one) => sum + one.value.value, 0) } };
  return [...shown, ...(rest.length ? [small] : []), ...shares.filter((one) => one.key.kind !== "kernels" && (one.value.value || one.real))];
}

// The kernels of a term at the larger batch size of its anomaly.
const shareFilters = ({ functional }, { key, layer_class: kind }) =>
  ({ batch: lastBatch(functional), layer: key.layer === null ? "" : kind ? `${key.layer} (${kind})` : key.layer, phase: key.phase ?? "" });

function waterfall(run, anomaly, width) {
  const narrow = width < 560;
  const { functional, value: whole } = anomaly;
  const rows = [...bars(anomaly), { label: "total", key: { kind: "total" }, value: whole, real: true }];
  const longest = Math.max(...rows.map((p) => p.label.length));
  const left = narrow ? 8 : Math.min(300, Math.max(120, longest * 8 + 14));
  const [right, step, bar, top] = [narrow ? 78 : 148, narrow ? 38 : 27, 16, 6];
  let sum = 0;
  const spans = rows.map((row) => {
    const from = row.key.kind === "total" ? 0 : sum;
    sum = row.key.kind === "total" ? sum : sum + row.value.value;
    return [from, from + row.value.value];
  });
  const ends = spans.flat();
  const x = linear([Math.min(0, ...ends), Math.max(0, ...ends)], [left, width - right]);
  const height = top + rows.length * step + 8;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": `Terms of ${functional.label}` });
  root.append(svg("line", { class: "axis", x1: x(0), x2: x(0), y1: top, y2: height - 8 }));
  rows.forEach((row, index) => {
    const y = top + index * step;
    const barY = narrow ? y + 16 : y + (step - bar) / 2;
    const [from, until] = spans[index];
    const strong = row.key.kind === "total" || row.real ? "strong" : null;
    const room = Math.floor((narrow ? width - 10 : left - 12) / 7.6);
    const label = cut(row.label, room);
    root.append(narrow ? svg("text", { x: 14, y: y + 12, class: strong }, label)
      : svg("text", { x: left - 12, y: barY + 12, "text-anchor": "end", class: strong }, label));
    const mark = svg("rect", {
      class: `fill-${phaseClass(row.key.phase, row.key.kind)}${row.real === false ? " faded" : ""}`, rx: 2,
      x: Math.min(x(from), x(until)), y: barY, width: Math.max(1.5, Math.abs(x(until) - x(from))), height: bar,
    });
    const [before, after] = [row.kernel_before, row.kernel_after];
    const kernels = before || after ? `\n${before === after ? before : `${before ?? "none"} → ${after ?? "none"}`}` : "";
    const told = described(mark, `${row.label}: ${signed(row.value.value)} ${functional.unit}` +
      (row.value.low === undefined ? "" : ` (${between(row.value.low, row.value.high, 3)})`) + kernels +
      (row.line ? `\nat ${row.line}${run.source[row.line] ? `: ${run.source[row.line]}` : ""}` : ""));
    root.append(row.key.kind === "kernels" ? svgRowsLink("kernels", shareFilters(anomaly, row), told) : told);
    if (index < rows.length - 2) root.append(svg("line", { class: "grid", x1: x(until), x2: x(until), y1: barY + bar, y2: barY + step }));
    root.append(svg("text", { x: width - (narrow ? 6 : 72), y: barY + 12, "text-anchor": "end", class: strong }, signed(row.value.value)));
    if (!narrow) root.append(svg("text", { x: width - 6, y: barY + 12, "text-anchor": "end", class: strong }, share(row.value.value, whole.value)));
  });
  return root;
}
