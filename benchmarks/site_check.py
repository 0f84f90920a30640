"""Open pages of the built site in headless Chromium at the width of a desk and of a phone.

    python benchmarks/site_check.py SITE                           pages at 390 pixels with a table that hides a column
    python benchmarks/site_check.py SITE index.html … -o FOLDER    also screenshots of these at 1,280 and 390 pixels

The exit code is 1 if a page is wider than a phone, or the last column of one of its tables lies outside. Pages of
single names of the reference are left out. Without a browser nothing is checked.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # started as a file, Python looks for modules beside the file only

from benchmarks.screenshots import browser, run_browser  # noqa: E402

WIDTHS = {"desk": (1280, 1000), "phone": (390, 1400)}
PHONE = 390
FRAME = """<!DOCTYPE html><body style="margin:0">
<iframe style="display:block;border:0;width:{width}px;height:{height}px"></iframe><script>
const frame = document.querySelector("iframe"), pages = {pages}, found = {{}};
const look = () => {{
  const page = frame.contentDocument, width = frame.clientWidth;
  const tables = [...page.querySelectorAll("article table.docutils")].filter(table => table.rows.length);
  const hidden = tables.filter(table => [...table.rows].some(row => {{
    const cell = row.cells[row.cells.length - 1], box = cell.getBoundingClientRect();
    const place = (table.closest(".table-wrapper") || table.parentElement).getBoundingClientRect();
    return box.width > 0 && box.right > Math.min(place.right, width) + 1;
  }}));
  return {{tables: tables.length, wide: page.documentElement.scrollWidth - width,
    hidden: hidden.map(table => table.rows[0].textContent.trim().replace(/\\\\s+/g, " ").slice(0, 60))}};
}};
(async () => {{
  for (const page of pages) {{
    await new Promise(ready => {{ frame.onload = ready; frame.src = page; }});
    found[page] = look();
  }}
  document.body.dataset.found = JSON.stringify(found);
}})();
</script></body>"""
"""A page around the pages, because a window of Chromium is at least 500 pixels wide; it looks at each of them."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and says nothing."""

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


class Server(http.server.ThreadingHTTPServer):
    """Serves in threads, and says nothing of a browser that has left a page before all of it was sent."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing, if the connection was closed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine; yields its address."""
    with Server(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def look(site: Path, pages: list[str], width: int = PHONE) -> dict[str, dict[str, object]]:
    """How many tables each page has, which of them hide their last column, and by how much the page is too wide."""
    frame = site / "_frame.html"
    frame.write_text(FRAME.format(width=width, height=900, pages=json.dumps(pages)), encoding="utf-8")
    try:
        with served(site) as address:
            budget = f"--virtual-time-budget={2000 + 1000 * len(pages)}"
            dom = run_browser(f"{address}/{frame.name}", 1280, 900, budget, "--dump-dom")
    finally:
        frame.unlink()
    match = re.search(r'data-found="([^"]*)"', dom)
    if match is None:
        raise SystemExit(f"the browser did not get to the end of {len(pages)} pages")
    found: dict[str, dict[str, object]] = json.loads(unescape(match[1]))
    return found


def shoot(site: Path, page: str, folder: Path) -> list[Path]:
    """Screenshots of a page at all widths."""
    made = []
    frame = site / "_frame.html"
    for name, (width, height) in WIDTHS.items():
        frame.write_text(FRAME.format(width=width, height=height, pages=json.dumps([page])), encoding="utf-8")
        target = folder / f"{Path(page).with_suffix('').as_posix().replace('/', '-')}-{name}.png"
        with served(site) as address:
            options = ("--virtual-time-budget=4000", f"--screenshot={target.resolve()}")
            run_browser(f"{address}/{frame.name}", width, height, *options)
        made.append(target)
    frame.unlink()
    return made


def main() -> int:
    """Check the tables of a site, and take screenshots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path, metavar="SITE")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="pages to take screenshots of")
    parser.add_argument("-o", "--output", type=Path, default=Path("screenshots"), metavar="FOLDER")
    options = parser.parse_args()
    if browser() is None:
        print("no browser is installed: tables of the site were not looked at")
        return 0
    if options.pages:
        options.output.mkdir(parents=True, exist_ok=True)
    for page in options.pages:
        print(*shoot(options.site, page, options.output))
    pages = [path.relative_to(options.site).as_posix() for path in sorted(options.site.rglob("*.html"))]
    found = look(options.site, [page for page in pages if "/names/" not in page])
    bad = {page: facts for page, facts in found.items() if facts["hidden"] or facts["wide"]}
    for page, facts in bad.items():
        print(f"{page}: {facts['wide']} px too wide, tables that hide a column: {facts['hidden']}")
    tables = sum(int(str(facts["tables"])) for facts in found.values())
    print(f"{len(found)} pages with {tables} tables at {PHONE} px: {len(bad)} hide a column or are too wide")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
