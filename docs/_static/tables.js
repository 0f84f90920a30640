// Shows the rows of a table as cards where the table is wider than its place; see tables.css.
(() => {
  const tables = [...document.querySelectorAll("article table.docutils")].filter((table) => table.tHead);
  for (const table of tables) {
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, k) => {
        cell.dataset.column = names[k] || "";
        if (cell.textContent.trim() === "" && !cell.querySelector("img, svg")) cell.replaceChildren();
      });
    }
  }
  const fit = () => {
    for (const table of tables) {
      table.classList.remove("cards");
      const place = table.closest(".table-wrapper") || table.parentElement;
      const [right, end] = [table, place].map((item) => item.getBoundingClientRect().right);
      if (innerWidth < 800 && right > end + 1) table.classList.add("cards");
    }
  };
  addEventListener("resize", fit);
  fit();
})();
