// The history of a step over recordings, oldest first: each size's time as a share of its first, and where the times changed.

function historySection() {
  const { history } = report;
  if (!history) return null;
  return block("history", "History", [], chart("History", (width) => historyChart(history, width)),
    html("ul", { class: "key" }, history.sizes.map((size, index) => html("li", {}, svg("svg", { width: 28, height: 10, "aria-hidden": "true" },
      svg("line", { class: "curve", x1: 0, x2: 26, y1: 5, y2: 5, "stroke-dasharray": DASHES[index % DASHES.length] })), ` ${history.axis} ${size}`))),
    history.changes.length ? html("ol", {}, history.changes.map((change) => html("li", {}, change.said))) : note("No lasting change. A single odd recording is none."));
}

function historyChart({ recordings, sizes, shares, changes }, width) {
  const [height, left, right, top, bottom] = [260, 56, 18, 22, 40];
  const all = shares.flat();
  const room = 0.08 * (Math.max(...all) - Math.min(...all)) || 1;
  const [low, high] = [Math.min(...all) - room, Math.max(...all) + room];
  const x = linear([0, recordings.length - 1], [left + 14, width - right - 14]);
  const y = linear([low, high], [height - bottom, top]);
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": "Time over recordings" },
    ...valueAxis(ticks(low, high), y, left, width - right),
    svg("text", { x: left, y: 13, class: "strong" }, "% of the first"),
    svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, `${recordings[0]} to ${recordings.at(-1)}`),
    changes.map(({ place }, index) => [
      svg("line", { class: "gap", x1: x(place - 0.5), x2: x(place - 0.5), y1: top, y2: height - bottom }),
      svg("text", { class: "alarm", x: x(place - 0.5), y: height - bottom + 16, "text-anchor": "middle" }, index + 1)]),
    sizes.map((size, index) => [
      svg("path", { class: "curve", "stroke-dasharray": DASHES[index % DASHES.length], d: shares.map((row, at) => `${at ? "L" : "M"}${x(at)},${y(row[index])}`).join("") }),
      shares.map((row, at) => described(svg("circle", { class: "dot", cx: x(at), cy: y(row[index]), r: 3 }), `${recordings[at]}\n${number(row[index])} % at ${size}`))]));
}
