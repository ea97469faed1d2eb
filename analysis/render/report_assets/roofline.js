// Arithmetic intensity against achieved rate, under the device's roofs, both axes logarithmic.

function rooflineSection(run) {
  const drawn = run.roofline;
  if (!drawn || !drawn.points.some((p) => p.levels.length)) return null;
  const kinds = [...new Set(drawn.roofs.map((roof) => `${roof.kind}s`))].join(" and ");
  const sources = drawn.roofs.map((roof) => html("li", {}, `${roof.level}${roof.precision ? ` (${roof.precision})` : ""}: ${roof.kind}, ${roof.source}`));
  const whole = drawn.points.reduce((sum, p) => sum + p.time_s, drawn.time_without_work_s);
  return block("roofline", "Roofline", [], chart("Roofline", (width) => rooflineChart(drawn, width)),
    note((drawn.roofs.length ? `Roofs are ${kinds}. ` : "No roof of this device is known. ") +
      `Circles are kernels at ${run.axis.name} ` + batchName(drawn.batch) + ", their area is time; hollow ones have compulsory bytes (a lower bound), " +
      "filled ones measured DRAM bytes." + (drawn.time_without_work_s > 0 ? ` ${share(drawn.time_without_work_s, whole)} of the time is of kernels whose work is unknown.` : "") +
      (drawn.more ? ` ${drawn.more} shorter kernels are left out.` : "")),
    sources.length ? html("details", {}, html("summary", {}, html("span", { class: "cause" }, "Sources of the roofs")), html("ul", {}, sources)) : null);
}

function rooflineChart(drawn, width) {
  const height = Math.min(420, Math.max(260, width * 0.5));
  const [left, right, top, bottom] = [74, 24, 22, 40];
  const points = drawn.points.filter((p) => p.levels.length).map((p) => ({ ...p, level: p.levels[0], x: p.levels[0].flops_per_byte, y: p.flops_per_s / 1e9 }));
  const roof = (level) => drawn.roofs.filter((r) => r.level === level).sort((a) => (a.kind === "ceiling" ? -1 : 1))[0];
  // The roofs of compute by precision, ceilings before peaks, the highest first.
  const computes = [...new Set(drawn.roofs.filter((r) => r.level === "compute").map((r) => r.precision))].map((precision) =>
    drawn.roofs.filter((r) => r.level === "compute" && r.precision === precision).sort((a) => (a.kind === "ceiling" ? -1 : 1))[0]).sort((a, b) => b.per_s - a.per_s);
  const [compute, dram] = [computes[0], roof("DRAM")];
  const ridge = compute && dram ? compute.per_s / dram.per_s : null;
  const xs = [...points.map((p) => p.x), ...(ridge ? [ridge / 4, ridge * 4] : [])];
  const ys = [...points.map((p) => p.y), ...(compute ? [compute.per_s / 1e9] : [])];
  const x0 = 10 ** Math.floor(Math.log10(Math.min(...xs)));
  const x1 = 10 ** Math.ceil(Math.log10(Math.max(...xs)));
  const y0 = 10 ** Math.floor(Math.log10(Math.min(...ys)));
  const y1 = 10 ** Math.ceil(Math.log10(Math.max(...ys) * 1.2));
  const x = logarithmic([x0, Math.max(x1, x0 * 10)], [left, width - right]);
  const y = logarithmic([y0, Math.max(y1, y0 * 10)], [height - bottom, top]);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": "Roofline" });
  const decades = (from, until) => Array.from({ length: Math.round(Math.log10(until / from)) + 1 }, (_, i) => from * 10 ** i);
  const every = (list, room) => list.filter((_, i) => i % Math.ceil(list.length / room) === 0);
  for (const tick of every(decades(x0, x1), Math.floor((width - left) / 60))) {
    root.append(svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: top, y2: height - bottom }),
      svg("text", { x: x(tick), y: height - bottom + 18, "text-anchor": "middle" }, tickText(tick)));
  }
  for (const tick of every(decades(y0, y1), 8)) {
    root.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, tickText(tick)));
  }
  root.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, "FLOP per byte"),
    svg("text", { x: 8, y: 13, class: "strong" }, "GFLOP/s"));
  const labels = []; // of roofs, over the marks
  const longest = Math.max(...points.map((p) => p.time_s));
  const radius = (p) => 3 + 13 * Math.sqrt(p.time_s / longest);
  if (dram) {
    const end = ridge ? Math.min(ridge, x1) : x1;
    const from = Math.max(x0, (y0 * 1e9) / dram.per_s);
    if (end > from) root.append(svg("path", { class: "roof", d: `M${x(from)},${y((from * dram.per_s) / 1e9)}L${x(end)},${y((end * dram.per_s) / 1e9)}` }));
    const middle = Math.sqrt(from * Math.max(end, from));
    // Below its roof, where no roof of a cache is.
    labels.push(svg("text", { class: "over-marks", x: x(middle) + 10, y: y((middle * dram.per_s) / 1e9) + 16 }, `DRAM ${quantity(dram.per_s, "B/s")} (${dram.kind})`));
  }
  let above = -Infinity; // where the roof before this one, or its label, ends
  for (const one of computes) {
    const [from, at] = [dram ? Math.max(one.per_s / dram.per_s, x0) : x0, y(one.per_s / 1e9)];
    root.append(svg("path", { class: "roof", d: `M${x(from)},${at}H${width - right}` }));
    const label = `${computes.length > 1 && one.precision ? `${one.precision} ` : ""}${quantity(one.per_s, "FLOP/s")} (${one.kind})`;
    const hidden = (baseline) => points.filter((p) => x(p.x) > width - right - 7 * label.length && Math.abs(y(p.y) - baseline + 4) < 7 + radius(p)).length;
    // A label that would lie on what is above it, or on more points there, goes below its roof.
    const labelAt = at - 20 < above || hidden(at - 7) > hidden(at + 14) ? at + 14 : at - 7;
    above = Math.max(at, labelAt);
    labels.push(svg("text", { class: "over-marks", x: width - right, y: labelAt, "text-anchor": "end" }, label));
  }
  for (const level of ["L3", "L2", "L1"]) {
    const memory = roof(level);
    if (!memory) continue;
    const from = Math.max(x0, (y0 * 1e9) / memory.per_s);
    const end = compute ? Math.min(x1, compute.per_s / memory.per_s) : x1;
    if (end <= from) continue;
    root.append(svg("path", { class: "roof", "stroke-dasharray": "5 4", d: `M${x(from)},${y((from * memory.per_s) / 1e9)}L${x(end)},${y((end * memory.per_s) / 1e9)}` }),
      svg("text", { x: x(end), y: Math.max(10, y((end * memory.per_s) / 1e9) - 6), "text-anchor": "end" }, level));
  }
  for (const p of [...points].sort((a, b) => b.time_s - a.time_s)) {
    const measured = p.level.source === "measured";
    const colour = { memory: "var(--forward)", compute: "var(--backward)", neither: "var(--none)", unknown: "var(--none)" }[p.bound];
    const mark = svg("circle", { cx: x(p.x), cy: y(p.y), r: radius(p) });
    mark.style.fill = measured ? colour : `color-mix(in srgb, ${colour} 18%, transparent)`;
    mark.style.stroke = colour;
    mark.style.strokeWidth = "1.5";
    root.append(svgRowsLink("kernels", { batch: batchName(drawn.batch), kernel: p.label }, described(mark, `${p.label}${p.precisions?.length ? ` (${p.precisions.join(", ")})` : ""}\n${number(p.time_s * 1e3)} ms, ${few(p.calls, 6)} calls\n${quantity(1e9 * p.y, "FLOP/s")} (${p.flops_source}), ` +
      p.levels.map((l) => `${number(l.flops_per_byte, 3)} FLOP/B and ${quantity(l.bytes_per_s, "B/s")} of ${l.level} (${l.source})`).join(", ") +
      `${p.exceeded_roofs?.length ? `\nabove the roof of ${p.exceeded_roofs.join(" and ")}` : ""}\nbound: ${p.bound}${p.utilisation === null ? "" : `, ${share(p.utilisation, 1)} of the ${p.roof_kind}`}`)));
  }
  root.append(...labels);
  return root;
}
