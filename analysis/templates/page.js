"use strict";
// Tables sort by a click or Enter on a heading; rows without a figure stay at the end.
(function () {
  function key(row, index) {
    const text = row.children[index].dataset.sort;
    if (text === undefined) return null;
    const value = Number(text);
    return Number.isNaN(value) ? text : value;
  }
  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", {numeric: true});
  }
  function sort(table, heading, index) {
    const first = heading.classList.contains("number") ? "descending" : "ascending";
    const other = first === "descending" ? "ascending" : "descending";
    const order = heading.getAttribute("aria-sort") === first ? other : first;
    for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const rows = Array.from(table.tBodies[0].rows);
    rows.sort(function (a, b) {
      const x = key(a, index), y = key(b, index);
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * compare(x, y);
    });
    table.tBodies[0].append(...rows);
  }
  for (const table of document.querySelectorAll("table.sortable")) {
    Array.from(table.tHead.rows[0].cells).forEach(function (heading, index) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      heading.replaceChildren(button);
      button.addEventListener("click", function () { sort(table, heading, index); });
    });
  }
  // Everything is printed, also what is folded.
  const opened = [];
  window.addEventListener("beforeprint", function () {
    for (const part of document.querySelectorAll("details:not([open])")) {
      part.open = true;
      opened.push(part);
    }
  });
  window.addEventListener("afterprint", function () {
    for (const part of opened.splice(0)) part.open = false;
  });
})();
