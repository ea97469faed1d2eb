"use strict";
// Helpers for all charts: elements (text is never markup), numbers, scales, the tooltip.

const report = JSON.parse(document.getElementById("data").textContent);
// The anomalies of each recording, the largest first, and last its fixed cost.
for (const run of report.runs) run.anomalies = [...run.explain.anomalies, run.explain.fixed_cost].filter(Boolean);
// How many samples a whole recording processed is unknown: only the time of a step is divided by its samples.
const isOfSteps = (run) => run.explain.unit === "step";
const SVG_NS = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG_NS, tag), attributes, children);

// `number`, `signed` and `quantity` print as curvescope/base/numbers.py does, with a true minus sign.
function number(value, digits = 4) {
  if (value === null || value === undefined) return "";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const decimals = Math.max(0, Math.min(6, digits - 1 - Math.floor(Math.log10(Math.abs(value)))));
  const shown = value.toFixed(decimals);
  return Number(shown) ? shown.replace("-", "−") : "0";
}
const signed = (value, digits = 3) => (value > 0 ? "+" : "") + number(value, digits);
function quantity(value, unit, digits = 3) {
  if (unit === "Hz") return `${number(value / 1e6)} MHz`;
  const [size, prefix] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([least]) => value >= least) ?? [1, ""];
  return `${number(value / size, digits)} ${prefix}${unit}`;
}
// A count with its noun, as curvescope/base/counted.py.
const counted = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
// Empty where the parts cancel: they are then more than twice the whole.
const share = (part, whole) => (whole && Math.abs(part / whole) <= 2 ? `${Math.round((100 * part) / whole)}%`.replace("-", "−") : "");
const between = (low, high, digits = 4) =>
  low === null || high === null ? "interval unknown" : `${number(low, digits)} … ${number(high, digits)}`;
const batchName = (batch) => (batch === null ? "unknown" : String(batch));

function linear([d0, d1], [r0, r1]) {
  const slope = d1 === d0 ? 0 : (r1 - r0) / (d1 - d0);
  return (value) => r0 + (value - d0) * slope;
}
function logarithmic([d0, d1], range) {
  const scale = linear([Math.log(d0), Math.log(d1)], range);
  return (value) => scale(Math.log(value));
}
function ticks(low, high, count = 5) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(value);
  return found.map((value) => (Math.abs(value) < step * 1e-9 ? 0 : value));
}
const few = (value, digits = 3) => value === null || value === undefined ? "" : String(Number(value.toPrecision(digits)));
const tickText = (value) => String(Number(value.toPrecision(4))).replace("-", "−");

// Grid lines and labels of a vertical axis.
const valueAxis = (values, y, left, right) => values.flatMap((value) => [
  svg("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
  svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, tickText(value))]);
// Labels of the batch sizes that have room, of the first ones before the others.
function batchAxis(batches, x, y) {
  const placed = [];
  for (const batch of new Set(batches)) {
    if (placed.every((other) => Math.abs(x(batch) - x(other)) >= 26)) placed.push(batch);
  }
  return placed.map((batch) => svg("text", { x: x(batch), y, "text-anchor": "middle" }, batch));
}
// A name that a line may end after its parts, not inside them: `_`, `.`, `::` and before a capital.
const breakable = (name) => name.split(/(?<=[_.:,])(?![_.:,])|(?<=[a-z])(?=[A-Z])/).flatMap((part, index) => (index ? [html("wbr", {}), part] : [part]));
const cut = (text, letters) => (text.length > letters ? `${text.slice(0, letters - 1)}…` : text);
// A text on at most two lines of so many letters.
function inTwoLines(text, letters) {
  const words = text.split(" ");
  const first = [];
  while (words.length && (!first.length || [...first, words[0]].join(" ").length <= letters)) first.push(words.shift());
  return [first.join(" "), words.join(" ")].filter(Boolean).map((line) => cut(line, letters));
}
// The interval of a point; nothing where it is unknown.
function whisker(point, x, y) {
  if (point.low === null || point.high === null) return "";
  const [low, high] = [y(Math.max(0, point.low)), y(point.high)];
  return svg("path", { class: "whisker", d: `M${x},${low}V${high}M${x - 4},${low}h8M${x - 4},${high}h8` });
}

// Whether it is one; the fixed cost is none, nor what is drawn where there is nothing else.
const isAnomaly = (run, one) => one !== run.explain.fixed_cost && run.explain.answers.some((answer) => answer.functional.label === one.functional.label);
const firstAnomaly = (run) => run.anomalies.find((one) => isAnomaly(run, one));
// The largest batch size in a functional.
const lastBatch = (functional) => functional.to ?? Math.max(...functional.coefficients.map(([batch]) => batch));
const valueText = ({ functional, value }) => `${signed(value.value)} ${functional.unit}`;
// What a `choice` offers for anomalies or answers.
const byFunctional = (list) => list.map((one) => [one, `${one.functional.label}: ${valueText(one)}`]);
// A time with its interval as a point of a chart.
const timePoint = (time, batch, more = {}) => ({ ...more, batch, ms: time.value, low: time.low, high: time.high });
const timePoints = ({ batches, times_ms: times }) => times.map((time, index) => timePoint(time, batches[index]));

const tip = document.getElementById("tip");
function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - box.width - 4))}px`;
  tip.style.top = `${y + 16 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 16}px`;
}
const hideTip = () => { tip.hidden = true; };
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
addEventListener("scroll", hideTip, { passive: true });

// A link to the rows of a table that make a number: `#kernels?batch=8&layer=conv1`. Missing values are left out.
function rowsHref(table, filters) {
  const given = Object.entries(filters).filter(([, value]) => value !== null && value !== undefined);
  return `#${table}?${new URLSearchParams(given)}`;
}
const rowsLink = (text, table, filters) => html("a", { href: rowsHref(table, filters), class: "rows" }, text);
// A link around the marks of a chart.
const svgRowsLink = (table, filters, ...children) => svg("a", { href: rowsHref(table, filters), tabindex: "-1" }, children);
// Whether a row of a table has the values of a link; an empty value asks for rows without one, `under` for a layer and all in it.
const matches = (row, filters) => Object.entries(filters).every(([name, value]) =>
  name === "under" ? row.path === value || row.path?.startsWith(`${value}.`) : String(row[name] ?? "") === value);
// The filters of a table as buttons that take them away again.
const filterButtons = (filters, change) => Object.entries(filters).map(([name, value]) => html("button", {
  type: "button", class: "chip", "aria-label": `Show all again, not only ${name} ${value || "unknown"}`,
  onclick: () => { delete filters[name]; change(); },
}, `${name === "under" ? "layer" : name} ${cut(value || "unknown", 40)} ×`));

// One tabulator stop for many marks: the arrow keys go to the nearest one in their direction, Enter follows a link.
const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
function rove(container, selector) {
  const marks = [...container.querySelectorAll(selector)];
  marks.forEach((mark, index) => mark.setAttribute("tabindex", index ? "-1" : "0"));
  if (container.roving) return;
  container.roving = true;
  container.addEventListener("keydown", (event) => {
    const direction = ARROWS[event.key];
    const from = event.target.closest(selector);
    if (event.key === "Enter" && from?.closest("a") && from.closest("a") !== from) location.hash = from.closest("a").getAttribute("href");
    if (!direction || !from) return;
    const own = from.getBoundingClientRect();
    const [along, across] = direction[0] ? ["x", "y"] : ["y", "x"];
    const side = { x: "width", y: "height" };
    let [best, least] = [null, Infinity];
    for (const mark of container.querySelectorAll(selector)) {
      const box = mark.getBoundingClientRect();
      const ahead = (direction[0] + direction[1]) * (box[along] + box[side[along]] / 2 - own[along] - own[side[along]] / 2);
      // Distance sideways: 0 for marks that lie beside each other.
      const aside = Math.max(0, box[across] - own[across] - own[side[across]], own[across] - box[across] - box[side[across]]);
      if (mark !== from && ahead > 0.5 && ahead + 3 * aside < least) [best, least] = [mark, ahead + 3 * aside];
    }
    if (best) {
      from.setAttribute("tabindex", "-1");
      best.setAttribute("tabindex", "0");
      best.focus();
    }
    event.preventDefault();
  });
}

// A mark with a description on hover, on focus and for screen readers.
function described(node, text) {
  node.setAttribute("tabindex", "0");
  node.setAttribute("role", "img");
  node.setAttribute("aria-label", text);
  node.addEventListener("pointermove", (event) => showTip(text, event.clientX, event.clientY));
  node.addEventListener("pointerleave", hideTip);
  node.addEventListener("focus", () => {
    const box = node.getBoundingClientRect();
    showTip(text, box.right, box.top);
  });
  node.addEventListener("blur", hideTip);
  return node;
}

// A chart that is redrawn if its width changes; `draw(width)` returns the element.
function chart(label, draw) {
  const host = html("div", { class: "chart", role: "group", "aria-label": label });
  let width = 0;
  const redraw = () => {
    width = Math.max(240, Math.floor(host.clientWidth));
    host.replaceChildren(draw(width));
    rove(host, "[role=img]");
  };
  new ResizeObserver(() => { if (Math.abs(host.clientWidth - width) > 1 && host.clientWidth) redraw(); }).observe(host);
  host.redraw = redraw;
  return host;
}

function choice(label, options, chosen, change) {
  const select = html("select", { onchange: () => change(options[select.selectedIndex][0]) },
    options.map(([value, text]) => html("option", { selected: value === chosen }, text)));
  const made = html("label", {}, label, select);
  made.choose = (value) => { select.selectedIndex = options.findIndex(([one]) => one === value); };
  return made;
}

function toggles(label, options, chosen, change) {
  const group = html("span", { role: "group", "aria-label": label });
  const buttons = options.map(([value, text]) => html("button", {
    type: "button", "aria-pressed": String(value === chosen),
    onclick: () => {
      buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(options[index][0] === value)));
      change(value);
    },
  }, text));
  group.append(...buttons);
  return group;
}

function block(id, title, tools, ...children) {
  return html("section", { id, "aria-labelledby": `${id}-title` },
    html("div", { class: "head" }, html("h2", { id: `${id}-title` }, title), html("div", { class: "tools" }, tools)),
    children);
}
// A section in which a link `?of=LABEL` chooses an anomaly.
function choosable(section, anomalies, select, change) {
  const find = (label) => anomalies.find((one) => one.functional.label === label);
  section.show = ({ of }) => {
    const chosen = find(of);
    if (!chosen) return;
    select?.choose(chosen);
    change(chosen);
  };
  section.show.has = find;
  return section;
}
const note = (text) => html("p", { class: "note" }, text);
const phaseClass = (phase, kind) => {
  if (kind === "idle" || kind === "rest" || kind === "total") return kind;
  if (kind === "profiling overhead") return "observer";
  return ["forward", "backward", "optimizer"].includes(phase) ? phase : "none";
};
const PHASES = [["forward", "forward"], ["backward", "backward"], ["optimizer", "optimizer"], ["none", "no phase"],
  ["idle", "idle"], ["observer", "profiling overhead"]];
function key(names) {
  return html("ul", { class: "key" }, PHASES.filter(([name]) => names.has(name)).map(([name, text]) => {
    const swatch = html("i", {});
    swatch.style.background = `var(--${name})`;
    return html("li", {}, swatch, text);
  }));
}
