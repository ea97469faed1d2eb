// One step on its streams. A canvas: tens of thousands of spans; arrows pan, + and - zoom, as do the buttons and dragging.

function timelineSection(run) {
  const drawable = run.timelines.filter((t) => t.spans.length);
  if (!drawable.length) return null;
  let shown = drawable[drawable.length - 1];
  let view = [0, shown.step_us];
  const laneHeight = 26;
  const canvas = html("canvas", { tabindex: "0", role: "img" });
  const about = note("");
  const text = (span) => {
    const [, start, length, index, count] = span;
    const [name, layer, phase] = shown.names[index];
    return (count > 1 ? `${count} kernels, the longest ` : "") + `${name}\n${[layer, phase].filter(Boolean).join(" ") || "no layer"}` +
      `\n${number(length / 1e3)} ms from ${number(start / 1e3)} ms`;
  };
  function draw() {
    const width = host.clientWidth || 300;
    const height = shown.lanes.length * laneHeight + 22;
    const ratio = devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.height = `${height}px`;
    const style = getComputedStyle(document.documentElement);
    const colour = Object.fromEntries(["forward", "backward", "optimizer", "none", "line", "soft", "idle"].map((name) => [name, style.getPropertyValue(`--${name}`)]));
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, sans-serif";
    const x = linear(view, [0, width]);
    shown.lanes.forEach((_, lane) => {
      pen.fillStyle = colour.line;
      pen.globalAlpha = 0.45;
      pen.fillRect(0, lane * laneHeight + 2, width, laneHeight - 5);
      pen.globalAlpha = 1;
    });
    for (const [lane, start, length, index] of shown.spans) {
      if (start + length < view[0] || start > view[1]) continue;
      pen.fillStyle = colour[phaseClass(shown.names[index][2])];
      const from = x(start);
      pen.fillRect(from, lane * laneHeight + 2, Math.max(0.6, x(start + length) - from), laneHeight - 5);
    }
    pen.fillStyle = colour.soft;
    const marks = ticks(view[0] / 1e3, view[1] / 1e3, Math.max(2, Math.floor(width / 110)));
    marks.forEach((tick) => {
      const at = x(tick * 1e3);
      pen.fillRect(at, shown.lanes.length * laneHeight, 1, 4);
      const label = `${tickText(tick)} ms`;
      const wide = pen.measureText(label).width;
      pen.fillText(label, Math.max(0, Math.min(at - wide / 2, width - wide)), shown.lanes.length * laneHeight + 17);
    });
    canvas.setAttribute("aria-label", `Step of ${run.axis.name} ${batchName(shown.batch)}: ${shown.kernels} kernels in ${number(shown.step_us / 1e3)} ms`);
    about.textContent = `One profiled step of ${run.axis.name} ${batchName(shown.batch)}, ${number(shown.step_us / 1e3)} ms, ${shown.kernels} kernels on ` +
      `${shown.lanes.length} stream${shown.lanes.length === 1 ? "" : "s"}; gaps are idle. ` +
      (shown.hidden ? `${shown.hidden} kernels on other streams are not drawn. ` : "") + "Spans too short for the screen are merged.";
  }
  function zoom(factor, middle = (view[0] + view[1]) / 2) {
    const span = Math.min(shown.step_us, Math.max(shown.step_us / 1e5, (view[1] - view[0]) * factor));
    const from = Math.min(Math.max(0, middle - ((middle - view[0]) / (view[1] - view[0])) * span), shown.step_us - span);
    view = [from, from + span];
    draw();
  }
  function pan(shareOfView) {
    const span = view[1] - view[0];
    const from = Math.min(Math.max(0, view[0] + shareOfView * span), shown.step_us - span);
    view = [from, from + span];
    draw();
  }
  function under(event) {
    const box = canvas.getBoundingClientRect();
    const time = linear([0, box.width], view)(event.clientX - box.left);
    const lane = Math.floor((event.clientY - box.top) / laneHeight);
    const near = ((view[1] - view[0]) / box.width) * 1.5;
    return shown.spans.find(([l, start, length]) => l === lane && time >= start - near && time <= start + length + near);
  }
  let held = null;
  canvas.addEventListener("pointerdown", (event) => { held = event.clientX; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (held !== null && view[1] - view[0] < shown.step_us) {
      pan((held - event.clientX) / canvas.clientWidth);
      held = event.clientX;
    }
    const span = under(event);
    if (span) showTip(text(span), event.clientX, event.clientY);
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
  const tools = [
    drawable.length > 1 ? choice(run.axis.name, drawable.map((t) => [t, batchName(t.batch)]), shown, (value) => { shown = value; view = [0, shown.step_us]; draw(); }) : null,
    button("−", "Zoom out", () => zoom(2)), button("+", "Zoom in", () => zoom(0.5)), button("all", "Show the whole step", () => zoom(Infinity)),
  ];
  const kinds = new Set(drawable.flatMap((t) => t.names.map(([, , phase]) => phaseClass(phase))));
  return block("timeline", "One step", tools, host, key(kinds), about);
}
