// The table of kernels: sorted by any column, filtered by any word, drawn a hundred rows at a time.

const PAGE_ROWS = 100;

function kernelsSection(run) {
  const { batches, rows, more, more_ms: moreMs } = run.kernels;
  if (!rows.length) return null;
  const anomaly = firstAnomaly(run);
  const focus = anomaly ? batches.indexOf(lastBatch(anomaly.functional)) : -1;
  let index = focus >= 0 ? focus : batches.length - 1;
  let words = [];
  let filters = {};
  let order = ["ms", -1];
  let limit = PAGE_ROWS;
  const hasRates = rows.some((row) => row.gflops.some((v) => v !== null) || row.gbs.some((v) => v !== null));
  const measured = [["occupancy", "occupancy"], ["tensor pipes", "tensor"]].filter(([, key]) => rows.some((row) => row[key]?.some((v) => v !== null)));
  const total = () => rows.reduce((sum, row) => sum + (row.ms[index] ?? 0), moreMs[index] ?? 0);
  const excess = (row) => index === 0 ? null : (row.ms[index] ?? 0) - (batches[index] / batches[index - 1]) * (row.ms[index - 1] ?? 0);
  const columns = [
    ["kernel", (r) => r.short, true], ["family", (r) => r.family, true], ["layer", (r) => r.layer ?? "", true],
    ...(rows.some((row) => row.op) ? [["operator", (r) => r.op ?? "", true]] : []), ["phase", (r) => r.phase ?? "", true], ["calls", (r) => r.calls[index]], ["ms", (r) => r.ms[index]],
    ["share", (r) => r.ms[index]], ...(batches.length > 1 ? [["excess ms", excess]] : []),
    ...(hasRates ? [["GFLOP/s", (r) => r.gflops[index]], ["GB/s", (r) => r.gbs[index]]] : []),
    ...measured.map(([name, key]) => [name, (r) => r[key][index]]),
  ];
  const rate = (row, value, roof) => html("td", {}, number(value, 3) + (row.exceeded?.[index]?.includes(roof) ? "†" : ""));
  const exceeds = rows.some((row) => row.exceeded?.some((roofs) => roofs?.length));
  const chips = html("p", { class: "chips" });
  const head = html("tr", {});
  const body = html("tbody", {});
  const count = html("span", { role: "status", class: "note" });
  const further = html("button", { type: "button", onclick: () => { limit += 5 * PAGE_ROWS; draw(); } }, "show more");
  function draw() {
    head.replaceChildren(...columns.map(([name, , text]) => html("th", {
      scope: "col", class: text ? "left" : null, "aria-sort": order[0] === name ? (order[1] > 0 ? "ascending" : "descending") : "none",
    }, html("button", { type: "button", onclick: () => { order = [name, order[0] === name ? -order[1] : text ? 1 : -1]; draw(); head.querySelectorAll("button")[columns.findIndex(([n]) => n === name)].focus(); } }, name))));
    const value = columns.find(([name]) => name === order[0])[1];
    const found = rows.filter((row) => matches(row, filters) && words.every((word) => row.text.includes(word)));
    found.sort((a, b) => {
      const [left, right] = [value(a), value(b)];
      if (left === right) return 0;
      if (left === null || left === undefined) return 1;
      if (right === null || right === undefined) return -1;
      return order[1] * (typeof left === "string" ? left.localeCompare(right) : left - right);
    });
    const whole = total();
    chips.replaceChildren(...filterButtons(filters, draw));
    body.replaceChildren(...found.slice(0, limit).map((row) => html("tr", {},
      html("td", { class: "name", title: row.name }, breakable(row.short)), html("td", { class: "left" }, row.family),
      html("td", { class: "left" }, row.layer ?? ""), columns.some(([name]) => name === "operator") ? html("td", { class: "left" }, breakable(row.op ?? "")) : null,
      html("td", { class: "left" }, row.phase ?? ""),
      html("td", {}, few(row.calls[index], 6)), html("td", {}, number(row.ms[index])), html("td", {}, row.ms[index] === null ? "" : share(row.ms[index], whole)),
      batches.length > 1 ? html("td", {}, excess(row) === null ? "" : signed(excess(row))) : null,
      hasRates ? [rate(row, row.gflops[index], "compute"), rate(row, row.gbs[index], "DRAM")] : null,
      measured.map(([, key]) => html("td", {}, row[key][index] === null ? "" : share(row[key][index], 1))))));
    const sum = found.reduce((s, row) => s + (row.ms[index] ?? 0), 0);
    count.textContent = `${found.length} of ${counted(rows.length, "row")}, ${number(sum)} ms per step`;
    further.hidden = found.length <= limit;
  }
  for (const row of rows) [row.kernel, row.text] = [row.short, [row.name, row.family, row.layer, row.phase, row.op].join(" ").toLowerCase()];
  const filter = html("input", {
    type: "search", placeholder: "filter: words", "aria-label": "Filter kernels", id: "filter",
    oninput: () => { words = filter.value.toLowerCase().split(/\s+/).filter(Boolean); limit = PAGE_ROWS; draw(); },
  });
  const batch = choice(run.axis.name, batches.map((b, i) => [i, batchName(b)]), index, (v) => { index = v; draw(); });
  const tools = [filter, batches.length > 1 ? batch : null];
  draw();
  const made = block("kernels", "Kernels", tools, chips,
    html("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Kernels" }, html("table", { id: "kernel-table" }, html("thead", {}, head), body)),
    html("p", { class: "note" }, count, " ", further),
    note("Per profiled step" + (batches.length > 1 ? `; excess is against the next smaller ${run.axis.value}.` : ".") + (more ? ` Omitted: the ${counted(more, "row")} with the least time (${number(moreMs[index])} ms per step).` : "") +
      (measured.length ? " Occupancy and the use of tensor pipes are measured, of the time of the kernels that have them." : "") +
      (exceeds ? " † above the roof of the device: the algorithm needs fewer FLOPs than the direct one, operands came from a cache, or another kernel did some of the work." : "")));
  made.classList.add("long");
  made.show = ({ batch: wanted, words: text = "", ...others }) => {
    if (wanted !== undefined) index = Math.max(0, batches.findIndex((one) => batchName(one) === wanted));
    batch.choose(index);
    [filters, limit, filter.value] = [others, PAGE_ROWS, text];
    words = text.toLowerCase().split(/\s+/).filter(Boolean);
    draw();
  };
  return made;
}
