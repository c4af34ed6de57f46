
"use strict";
// Tables are readable as they are. This makes their column names into buttons that sort, lets what
// is wider than the screen fade out where there is more to see, and prints what is folded.
(() => {
  const next = { none: "ascending", ascending: "descending", descending: "none" };
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  function compare(first, second, numeric) {
    return numeric ? Number(first) - Number(second) || 0 : collator.compare(first, second);
  }

  // Rows without a value come last in both directions; equal ones keep the order of the file.
  function arrange(rows, column, numeric, order) {
    if (order === "none") return rows;
    const value = (row) => row.cells[column].dataset.value;
    const sign = order === "ascending" ? 1 : -1;
    const present = rows.filter((row) => value(row) !== undefined);
    const missing = rows.filter((row) => value(row) === undefined);
    present.sort((a, b) => sign * compare(value(a), value(b), numeric));
    return present.concat(missing);
  }

  for (const table of document.querySelectorAll(".scroll table")) {
    const rows = Array.from(table.tBodies[0].rows);
    if (rows.length < 2) continue;
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const order = next[head.getAttribute("aria-sort") ?? "none"];
        for (const other of heads) other.removeAttribute("aria-sort");
        if (order !== "none") head.setAttribute("aria-sort", order);
        const fragment = document.createDocumentFragment();
        const numeric = head.classList.contains("number");
        for (const row of arrange(rows, column, numeric, order)) fragment.append(row);
        table.tBodies[0].append(fragment);
      });
    });
    const hint = document.createElement("span");
    hint.className = "hint";
    hint.textContent = ". Select a column name to sort.";
    table.caption.firstElementChild.append(hint);
  }

  for (const area of document.querySelectorAll("[role=region]")) {
    const fade = () => {
      const hidden = area.scrollWidth - area.clientWidth - area.scrollLeft;
      area.classList.toggle("more", hidden > 1);
    };
    area.addEventListener("scroll", fade, { passive: true });
    new ResizeObserver(fade).observe(area);
  }

  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details")) part.open = true;
  });
})();
