// The time of a step by layer, operator and kernel as nested bars, and its difference from another batch size or recording.

const ICICLE_ROW = 25;
const LEAST_WIDTH = 1.5; // px; a narrower bar is not drawn, the bar above it is

// The bars as a tree. `pairs` are rows of the table of kernels with two times in ms; a bar is as wide as the larger times below it.
function timeTree(pairs) {
  const bar = (parent, name, kind, phase, filters) => ({ parent, name, kind, phase, filters, a: 0, b: 0, wide: 0, below: new Map() });
  const root = bar(null, "the step", "step", null, null);
  for (const [row, a, b] of pairs) {
    let at = root;
    const add = () => { at.a += a; at.b += b; at.wide += Math.max(a, b); };
    const down = (name, kind, phase, filters) => {
      const id = [kind, name, phase].join("\n");
      if (!at.below.has(id)) at.below.set(id, bar(at, name, kind, phase, filters));
      at = at.below.get(id);
      add();
    };
    add();
    if (row.apart) { down(row.apart, row.kind, null, null); continue; }
    if (row.path === null) down("work outside layers", "layer", null, { layer: "" });
    else row.path.split(".").forEach((part, index, all) => down(part, "layer", null, { under: all.slice(0, index + 1).join(".") }));
    const own = { layer: row.layer ?? "", phase: row.phase ?? "" };
    if (row.op) down(row.op, "operator", row.phase, { ...own, op: row.op });
    down(row.short, "kernel", row.phase, { ...own, op: row.op ?? "", kernel: row.short });
  }
  return root;
}

// Rows of a table of kernels at one of its batch sizes, with what is not in them; times are multiplied by `factor`.
function timesAt(kernels, index, factor = 1) {
  return [...kernels.rows.map((row) => [row, (row.ms[index] ?? 0) * factor]),
    [{ apart: "idle", kind: "idle" }, kernels.idle_ms[index] * factor],
    [{ apart: "smaller rows", kind: "rest" }, (kernels.more_ms[index] ?? 0) * factor]].filter(([, time]) => time > 0);
}

// What a step can be compared with: another batch size of the recording, times the ratio, or another recording.
function icicleRivals(run, index) {
  const batch = run.kernels.batches[index];
  const inRun = batch === null ? [] : run.kernels.batches.flatMap((other, at) => other === null || at === index ? [] :
    [{ text: `${few(batch / other)} × ${run.axis.name} ${other}`, kernels: run.kernels, index: at, factor: batch / other }]);
  const inOthers = report.runs.filter((one) => one !== run).map((one) => ({ text: one.name, kernels: one.kernels, index: one.kernels.batches.indexOf(batch), factor: 1 }));
  return [...inOthers.filter((rival) => rival.index >= 0), ...inRun];
}

function icicleSection(run) {
  if (!run.kernels.rows.length) return null;
  const { batches } = run.kernels;
  const anomaly = firstAnomaly(run);
  const shared = report.comparison ? batches.indexOf(report.comparison.batch) : -1;
  let index = shared >= 0 ? shared : anomaly && batches.includes(lastBatch(anomaly.functional)) ? batches.indexOf(lastBatch(anomaly.functional)) : batches.length - 1;
  let rival = report.runs.length > 1 ? icicleRivals(run, index)[0] ?? null : null;
  let focus = null;
  // Idle as long as the work would leave no room for it.
  let withIdle = run.kernels.idle_ms[index] < run.kernels.rows.reduce((sum, row) => sum + (row.ms[index] ?? 0), 0);
  const about = html("p", { class: "note", role: "status" });
  const against = html("span", {});
  const drawn = chart("Time by layer, operator and kernel", (width) => icicle(focus, rival, width, zoom));
  const head = (bar) => (bar.parent ? `${head(bar.parent)} › ${bar.name}` : bar.name);
  function zoom(bar) {
    focus = bar;
    const [own, other] = [`${run.axis.name} ${batchName(batches[index])}`, rival?.text];
    about.replaceChildren(`${head(bar)}: ${barText(bar, rival)}. `, bar.filters ? rowsLink("Its rows", "kernels", { batch: batchName(batches[index]), ...bar.filters }) : "",
      bar.parent ? "" : rival ? `${own} against ${other}: a bar is as wide as the longer of both times, and shows how much longer it is here.` : `Mean of profiled steps at ${own}; bars add up exactly.${withIdle ? "" : " Idle is left out."}`);
    drawn.redraw();
  }
  function rebuild() {
    const pairs = new Map();
    for (const [side, list] of [timesAt(run.kernels, index), rival ? timesAt(rival.kernels, rival.index, rival.factor) : []].entries()) {
      for (const [row, time] of list) {
        if (row.kind === "idle" && !withIdle) continue;
        const id = row.apart ?? [row.path, row.phase, row.op, row.name].join("\n");
        const pair = pairs.get(id) ?? pairs.set(id, [row, 0, 0]).get(id);
        pair[1 + side] += time;
      }
    }
    focus = timeTree([...pairs.values()]);
    zoom(focus);
  }
  function offer() {
    const rivals = icicleRivals(run, index);
    rival = rivals.find((one) => one.text === rival?.text) ?? null;
    against.replaceChildren(rivals.length ? choice("against", [[null, "nothing"], ...rivals.map((one) => [one, one.text])], rival, (value) => { rival = value; rebuild(); }) : "");
  }
  offer();
  rebuild();
  const tools = [toggles("Idle", [[true, "with idle"], [false, "without"]], withIdle, (value) => { withIdle = value; rebuild(); }),
    batches.length > 1 ? choice(run.axis.name, batches.map((b, i) => [i, batchName(b)]), index, (value) => { index = value; offer(); rebuild(); }) : null, against];
  const kinds = new Set(run.kernels.rows.map((row) => phaseClass(row.phase)));
  return block("icicle", "Time by layer, operator and kernel", tools, drawn, about,
    key(kinds), note("Choose a bar to enlarge it, and the bar above it to go back: click, or arrow keys and Enter. In a comparison, + and red are longer, − and green shorter."));
}

function barText(bar, rival) {
  if (!rival) return `${number(bar.a)} ms${bar.parent ? `, ${share(bar.a, root(bar).a)} of the step` : ""}`;
  return `${signed(bar.a - bar.b)} ms (${number(bar.a)} ms, and ${number(bar.b)} ms in ${rival.text})`;
}
const root = (bar) => (bar.parent ? root(bar.parent) : bar);

function icicle(focus, rival, width, zoom) {
  const above = [];
  for (let bar = focus; bar; bar = bar.parent) above.unshift(bar);
  const bars = [];
  let deepest = above.length;
  const place = (bar, x, wide, row) => {
    bars.push([bar, x, wide, row]);
    deepest = Math.max(deepest, row + 1);
    if (row < above.length - 1) return;
    let at = x;
    for (const child of [...bar.below.values()].sort((p, q) => q.wide - p.wide)) {
      const own = (wide * child.wide) / bar.wide;
      if (own >= LEAST_WIDTH) place(child, at, own, row + 1);
      at += own;
    }
  };
  above.slice(0, -1).forEach((bar, row) => place(bar, 0, width, row));
  place(focus, 0, width, above.length - 1);
  const height = deepest * ICICLE_ROW;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": "Bars of time", class: "icicle" });
  for (const [bar, x, wide, row] of bars) {
    const name = bar.name.replace(/^aten::/, "");
    const y = row * ICICLE_ROW;
    const rect = svg("rect", { x, y, width: Math.max(1, wide - 1), height: ICICLE_ROW - 2, rx: 2 });
    const change = bar.a - bar.b;
    rect.style.fill = rival
      ? `color-mix(in oklab, var(--${change > 0 ? "accent" : "good"}) ${bar.wide ? Math.round((70 * Math.abs(change)) / bar.wide) : 0}%, var(--line))`
      : bar.kind === "step" || bar.kind === "layer" ? "var(--line)" : `color-mix(in srgb, var(--${phaseVar(bar)}) ${bar.kind === "kernel" ? 30 : 48}%, var(--card))`;
    const amount = rival ? signed(change) : number(bar.a, 3);
    const room = Math.floor((wide - 10) / 7.2);
    const label = room < 3 ? "" : room > amount.length + 6 ? `${cut(name, room - amount.length - 2)}  ${amount}` : cut(name, room);
    const mark = described(svg("g", { class: row < above.length - 1 ? "up" : null }, rect, svg("text", { x: x + 5, y: y + 16 }, label)),
      `${bar.kind === "step" ? "" : `${bar.kind} `}${bar.name}${bar.phase ? ` (${bar.phase})` : ""}\n${barText(bar, rival)}`);
    const act = () => zoom(bar === focus && bar.parent ? bar.parent : bar);
    mark.setAttribute("role", "img");
    mark.addEventListener("click", act);
    mark.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { act(); event.preventDefault(); drawing.parentNode?.querySelector("[tabindex='0']")?.focus(); } });
    drawing.append(mark);
  }
  return drawing;
}
const phaseVar = (bar) => ({ idle: "idle", rest: "faint" })[bar.kind] ?? phaseClass(bar.phase);
