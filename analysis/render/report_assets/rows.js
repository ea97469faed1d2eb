// The rows of a recording that numbers rest on: timed steps, runs of experiments. Links filter them.

function rowsSection(id, table) {
  if (!table) return null;
  const { title, columns } = table;
  const rows = table.rows.map((row) => Object.fromEntries(columns.map((column, index) => [column, row[index]])));
  let filters = {};
  let limit = PAGE_ROWS;
  const chips = html("p", { class: "chips" });
  const body = html("tbody", {});
  const count = html("span", { role: "status", class: "note" });
  const further = html("button", { type: "button", onclick: () => { limit += 5 * PAGE_ROWS; draw(); } }, "show more");
  function draw() {
    const found = rows.filter((row) => matches(row, filters));
    chips.replaceChildren(...filterButtons(filters, draw));
    body.replaceChildren(...found.slice(0, limit).map((row) => html("tr", {}, columns.map((column) =>
      html("td", { class: column === "factor" ? "left" : null }, column === "ms" || column === "J" ? number(row[column], 5) : String(row[column] ?? ""))))));
    count.textContent = `${found.length} of ${counted(rows.length + table.more, "row")}` + (table.more ? `; ${table.more} in the recording only` : "");
    further.hidden = found.length <= limit;
  }
  draw();
  const made = block(id, title, [], html("details", {}, html("summary", {}, html("span", { class: "cause" }, `${counted(rows.length + table.more, "row")} of the recording`)), chips,
    html("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": title },
      html("table", {}, html("thead", {}, html("tr", {}, columns.map((column) => html("th", { scope: "col", class: column === "factor" ? "left" : null }, column)))), body)),
    html("p", { class: "note" }, count, " ", further)));
  made.classList.add("long", "data");
  made.show = (wanted) => {
    filters = { ...wanted };
    limit = PAGE_ROWS;
    made.querySelector("details").open = true;
    draw();
  };
  return made;
}
