// Tables that sort by a column: a button in each heading, aria-sort on the heading.

/** Rows in the order of a column; those without a value stay last either way. */
function sortRows(table, column, direction) {
  const body = table.tBodies[0];
  const key = (row) => {
    const cell = row.cells[column];
    if (cell.dataset.by !== undefined) return Number(cell.dataset.by);
    return cell.classList.contains("number") || cell.textContent === "" ? null : cell.textContent;
  };
  const rows = [...body.rows].map((row) => [key(row), row]);
  const order = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  rows.sort(([a], [b]) => (a === null ? (b === null ? 0 : 1) : b === null ? -1 : direction * order(a, b)));
  body.append(...rows.map(([, row]) => row));
  [...table.tHead.rows[0].cells].forEach((cell, i) => {
    cell.setAttribute("aria-sort", i !== column ? "none" : direction > 0 ? "ascending" : "descending");
  });
  chosen.sorted[table.id] = [column, direction];
}

/** Put a button into each heading, and sort as the reader had it before. */
function buildTables(root) {
  for (const table of root.querySelectorAll("table[id]")) {
    [...table.tHead.rows[0].cells].forEach((cell, i) => {
      if (cell.querySelector("button")) return;
      const button = element("button", { type: "button" }, cell.textContent);
      button.addEventListener("click", () => {
        const [column, direction] = chosen.sorted[table.id] || [-1, -1];
        sortRows(table, i, column === i ? -direction : 1);
      });
      cell.replaceChildren(button);
      cell.setAttribute("aria-sort", "none");
    });
    if (chosen.sorted[table.id]) sortRows(table, ...chosen.sorted[table.id]);
  }
}
