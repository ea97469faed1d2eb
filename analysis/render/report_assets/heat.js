// A table whose cells are coloured, readable, printable, by keyboard: time per sample of every term over batch sizes.

function heatCell(value, least, most, link = null) {
  const heat = value === null || most === least ? 0 : (value - least) / (most - least);
  const cell = html("td", { class: heat > 0.62 ? "hot" : null }, link && value !== null ? html("a", { href: link }, number(value, 3)) : number(value, 3));
  cell.style.background = `color-mix(in oklab, var(--heat) ${Math.round(92 * Math.sqrt(heat))}%, var(--card))`;
  return cell;
}

function heatSection(run) {
  const { batches, rows, more } = run.heat;
  if (!rows.length) return null;
  let byRow = false;
  const host = html("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Heat map" });
  const draw = () => {
    const whole = Math.max(...rows.flatMap((row) => row.values.map((value) => value ?? 0)));
    host.replaceChildren(html("table", { class: "heat" },
      html("thead", {}, html("tr", {}, html("th", { scope: "col" }, "layer"), html("th", { scope: "col", class: "left" }, "phase"),
        batches.map((batch) => html("th", { scope: "col" }, batchName(batch))))),
      html("tbody", {}, rows.map((row) => {
        const most = byRow ? Math.max(...row.values.map((value) => value ?? 0)) : whole;
        const least = byRow ? Math.min(...row.values.map((value) => value ?? 0)) : 0;
        return html("tr", {}, html("th", { scope: "row", title: row.label }, row.label), html("td", { class: "phase" }, row.phase ?? ""),
          row.values.map((value, index) => heatCell(value, least, most, row.label === "idle" ? null : rowsHref("kernels",
            { batch: batchName(batches[index]), layer: row.layer ?? "", phase: row.phase ?? "" }))));
      }))));
    rove(host, "td a");
  };
  draw();
  const unit = batches.includes(null) ? "per step" : `per ${run.axis.one}`;
  return block("heat", `Time ${unit} by layer and ${run.axis.title}`,
    [toggles("Colour by", [[false, "whole map"], [true, "each row"]], byRow, (value) => { byRow = value; draw(); })],
    host, note(`ms ${unit}, columns are ${run.axis.values}.${more ? ` Omitted: ${counted(more, "smaller term")}.` : ""}`));
}
