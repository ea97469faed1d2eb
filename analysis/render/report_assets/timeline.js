// Steps on their lanes, two of them on one axis of time, aligned at the start or at a layer. A canvas: tens of thousands of
// spans; arrows pan, + and - zoom, as do the buttons and dragging; a table below says the same in words.

const LANE = 24;
const LANE_LABEL = 160; // px; on a narrow screen labels lie above their lane

// Timelines of all recordings, with the name of theirs.
const allTimelines = (run) => [run, ...report.runs.filter((other) => other !== run)].flatMap((one) =>
  one.timelines.filter((t) => t.spans.length).map((t) => ({ ...t, run: one,
    text: `${report.runs.length > 1 ? `${one.name}, ` : ""}${one.axis.name} ${batchName(t.batch)}` })));

function timelineSection(run) {
  const all = allTimelines(run);
  const own = all.filter((t) => t.run === run);
  if (!own.length) return null;
  let shown = own.find((t) => report.comparison && t.batch === report.comparison.batch) ?? own[own.length - 1];
  let beside = all.find((t) => t.run !== run && t.batch === shown.batch) ?? null;
  let layer = null; // where both are aligned: layer and phase; null for the start of the step
  let view = [0, 1];
  const canvas = html("canvas", { tabindex: "0", role: "img", "aria-describedby": "timeline-about" });
  const about = html("p", { class: "note", id: "timeline-about", role: "status" });
  const table = html("div", { class: "scroll" });
  const tools = html("span", { class: "tools" });
  const panels = () => [shown, beside].filter(Boolean);
  const layerStart = (one) => one.spans.find(([lane, , , name]) => one.lanes[lane].kind === "layer" && sameLayer(one.names[name], layer))?.[1] ?? 0;
  // Moves the second step so that both begin the chosen layer at one time, µs.
  const shift = (one) => (layer && one === beside ? layerStart(shown) - layerStart(beside) : 0);
  const extent = () => [Math.min(0, ...panels().map(shift)), Math.max(...panels().map((one) => shift(one) + one.step_us))];
  const rows = () => panels().flatMap((one) => [{ one, title: true }, ...one.lanes.map((lane, index) => ({ one, lane, index }))]);
  const narrow = () => host.clientWidth < 640;

  function draw() {
    const [width, pitch, left] = [host.clientWidth || 300, narrow() ? LANE + 14 : LANE, narrow() ? 0 : LANE_LABEL];
    const lines = rows().filter((row) => !row.title || beside);
    const height = lines.length * pitch + 22;
    const ratio = devicePixelRatio || 1;
    [canvas.width, canvas.height, canvas.style.height] = [width * ratio, height * ratio, `${height}px`];
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    const x = linear(view, [left, width]);
    lines.forEach(({ one, title, lane, index }, line) => {
      const y = line * pitch + (pitch - LANE);
      pen.fillStyle = colour(title ? "ink" : "soft");
      pen.font = `${title ? "600 " : ""}12px system-ui, sans-serif`;
      if (title) { pen.fillText(`${one.text}: ${number(one.step_us / 1e3)} ms`, 0, y + 16); return; }
      pen.fillText(cut(lane.label, narrow() ? 60 : 23), 0, narrow() ? y - 1 : y + 15);
      pen.fillStyle = colour("line");
      pen.globalAlpha = 0.4;
      pen.fillRect(left, y + 1, width - left, LANE - 3);
      pen.globalAlpha = 1;
      pen.save();
      pen.beginPath();
      pen.rect(left, y, width - left, LANE);
      pen.clip();
      for (const [at, start, length, name] of one.spans) {
        const begin = start + shift(one);
        if (at !== index || begin + length < view[0] || begin > view[1]) continue;
        const [from, wide] = [x(begin), Math.max(0.6, x(begin + length) - x(begin))];
        const named = one.names[name];
        pen.fillStyle = colour(spanColour(lane.kind, named[2]));
        pen.globalAlpha = lane.kind === "layer" ? 0.35 : lane.kind === "idle" ? 0.55 : 1;
        pen.fillRect(from, y + 1, wide - (wide > 3 ? 0.6 : 0), LANE - 3);
        pen.globalAlpha = 1;
        if (layer && sameLayer(named, layer) && lane.kind !== "idle") {
          pen.fillStyle = colour("ink");
          pen.fillRect(from, y + LANE - 4, wide, 3);
        }
        if (wide > 44) {
          const [visible, until] = [Math.max(from, left), Math.min(from + wide, width)];
          pen.fillStyle = colour(["layer", "idle"].includes(lane.kind) ? "ink" : "page");
          const text = cut(spanLabel(lane.kind, named), Math.floor((until - visible - 8) / 6.8));
          if (text.length > 2) pen.fillText(text, visible + 4, y + 15);
        }
      }
      pen.restore();
    });
    pen.fillStyle = colour("soft");
    pen.font = "12px system-ui, sans-serif";
    for (const tick of ticks(view[0] / 1e3, view[1] / 1e3, Math.max(2, Math.floor((width - left) / 110)))) {
      const [at, label] = [x(tick * 1e3), `${tickText(tick)} ms`];
      pen.fillRect(at, height - 22, 1, 4);
      const wide = pen.measureText(label).width;
      pen.fillText(label, Math.max(left, Math.min(at - wide / 2, width - wide)), height - 5);
    }
  }
  function tell() {
    const parts = panels().map((one) => `${one.text}: one profiled step (number ${one.step}) of ${number(one.step_us / 1e3)} ms with ${counted(one.kernels, "kernel")}` +
      (one.hidden ? `, ${one.hidden} of them on other streams and not drawn` : ""));
    canvas.setAttribute("aria-label", `Timeline. ${parts.join(". ")}`);
    about.textContent = `${parts.join(". ")}. ${beside ? (layer ? `Both are aligned where ${layer.join(" ")} begins, underlined. ` : "Both are aligned at their start. ") : ""}Spans too short for the screen are merged.`;
    table.replaceChildren(...panels().map(laneTable));
  }
  function reset() { view = extent(); draw(); tell(); offer(); }
  function move(from, span) {
    const [least, most] = extent();
    const wide = Math.min(most - least, Math.max((most - least) / 1e5, span));
    const start = Math.min(Math.max(least, from), most - wide);
    view = [start, start + wide];
    draw();
  }
  const zoom = (factor) => { const span = view[1] - view[0]; move((view[0] + view[1] - span * factor) / 2, span * factor); };
  const pan = (shareOfView) => move(view[0] + shareOfView * (view[1] - view[0]), view[1] - view[0]);
  function under(event) {
    const box = canvas.getBoundingClientRect();
    const at = linear([narrow() ? 0 : LANE_LABEL, box.width], view)(event.clientX - box.left);
    const row = rows().filter((one) => !one.title || beside)[Math.floor((event.clientY - box.top) / (narrow() ? LANE + 14 : LANE))];
    if (!row?.lane || at < view[0]) return null;
    const near = ((view[1] - view[0]) / box.width) * 1.5;
    const span = row.one.spans.find(([lane, start, length]) => lane === row.index && at >= start + shift(row.one) - near && at <= start + shift(row.one) + length + near);
    return span ? { ...row, span } : null;
  }
  const text = ({ one, lane, span: [, start, length, name, count] }) => {
    const [what, of, phase] = one.names[name];
    return `${count > 1 ? `${count} ${lane.kind === "idle" ? "gaps" : "spans"}, the longest ` : ""}${what}\n` +
      `${lane.kind === "idle" ? "before " : ""}${[of, phase].filter(Boolean).join(" ") || (lane.kind === "host" ? lane.label : "work outside layers")}\n${number(length / 1e3)} ms from ${number(start / 1e3)} ms`;
  };
  let held = null;
  let moved = false;
  canvas.addEventListener("pointerdown", (event) => { [held, moved] = [event.clientX, false]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", (event) => {
    held = null;
    const found = moved ? null : under(event);
    if (found && found.one.names[found.span[3]][1] && beside) { layer = found.one.names[found.span[3]].slice(1); reset(); }
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held !== null && Math.abs(held - event.clientX) > 2) { pan((held - event.clientX) / canvas.clientWidth); [held, moved] = [event.clientX, true]; }
    const found = under(event);
    if (found) showTip(text(found), event.clientX, event.clientY);
    else hideTip();
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("keydown", (event) => {
    const act = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => zoom(Infinity) }[event.key];
    if (act) { act(); event.preventDefault(); }
  });
  const host = html("div", { class: "chart" }, canvas);
  new ResizeObserver(draw).observe(host);
  host.redraw = draw;
  const button = (label, says, act) => html("button", { type: "button", "aria-label": says, onclick: act }, label);
  function offer() {
    const layersOf = (one) => [...new Map(one.spans.filter(([lane]) => one.lanes[lane].kind === "layer").map(([, , , name]) => [one.names[name].slice(1).join("\n"), one.names[name].slice(1)])).values()];
    const common = beside ? layersOf(shown).filter((one) => layersOf(beside).some((other) => sameLayer([null, ...other], one))) : [];
    tools.replaceChildren(...[
      own.length > 1 ? choice("step of", own.map((t) => [t, t.text]), shown, (value) => { shown = value; if (beside === value) beside = null; reset(); }) : "",
      all.length > 1 ? choice("beside", [[null, "nothing"], ...all.filter((t) => t !== shown).map((t) => [t, t.text])], beside, (value) => { beside = value; layer = null; reset(); }) : "",
      common.length ? choice("aligned at", [[null, "start"], ...common.map((one) => [one, one.filter(Boolean).join(" ")])], common.find((one) => layer && sameLayer([null, ...one], layer)) ?? null,
        (value) => { layer = value; reset(); }) : ""]);
  }
  reset();
  const kinds = new Set(all.flatMap((t) => t.names.map(([, , phase]) => phaseClass(phase))));
  return block("timeline", "The step in time", [tools, html("span", { class: "together" }, button("−", "Zoom out", () => zoom(2)), button("+", "Zoom in", () => zoom(0.5)), button("all", "Show the whole step", () => zoom(Infinity)))],
    host, key(kinds), about, html("details", {}, html("summary", {}, html("span", { class: "cause" }, "Lanes and longest idle times as a table")), table));
}

const sameLayer = ([, layer, phase], other) => layer === other[0] && phase === other[1];
const spanColour = (kind, phase) => ({ host: "host", copies: "copies", communication: "communication", idle: "idle" })[kind] ?? phaseClass(phase);
const spanLabel = (kind, [name, layer, phase]) => (kind === "layer" ? [layer, phase].filter(Boolean).join(" ") : name.replace(/^idle: /, ""));

// What the lanes hold, and the longest idle times with what the host did.
function laneTable(one) {
  const row = (...cells) => html("tr", {}, cells.map((cell, index) => html(index ? "td" : "th", { scope: index ? null : "row", class: index === 1 || index === 0 ? "left" : null }, cell)));
  const idle = one.lanes.findIndex((lane) => lane.kind === "idle");
  const longest = one.spans.filter(([lane]) => lane === idle).sort((a, b) => b[2] - a[2]).slice(0, 8);
  return html("table", {}, html("caption", {}, one.text), html("thead", {}, html("tr", {}, ["lane", "holds", "spans", "busy ms", "of the step"].map((text, index) => html("th", { scope: "col", class: index < 2 ? "left" : null }, text)))),
    html("tbody", {}, one.lanes.map((lane) => row(lane.label, lane.kind, lane.count, number(lane.busy_us / 1e3), share(lane.busy_us, one.step_us))),
      longest.map(([, start, length, name, count]) => row(one.names[name][0], `before ${one.names[name].slice(1).filter(Boolean).join(" ") || "work without a layer"}, at ${number(start / 1e3)} ms`, count, number(length / 1e3), share(length, one.step_us)))));
}
