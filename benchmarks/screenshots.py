"""Open reports in headless Chromium: screenshots at the width of a desk and of a phone, light and dark, and overflow.

    python benchmarks/screenshots.py report.html … -o FOLDER

prints a row for each report: its size, and by how many pixels it is wider than a phone of 360 pixels (0: it fits).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import tempfile
from html import unescape
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PHONE = 360
SHOTS = {"desk": (1280, 6000, False), "phone": (390, 8000, False), "dark": (1280, 2400, True)}
"""Width, height and whether dark, by name."""
PROBE = """<script>
const wide = [...document.querySelectorAll("body *")].filter(
  e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll"));
const texts = [...document.querySelectorAll("svg.plot text")].map(e => parseFloat(e.style.fontSize) *
  e.ownerSVGElement.getBoundingClientRect().width / e.ownerSVGElement.viewBox.baseVal.width);
const clipped = [...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth + 1);
const crossed = [...document.querySelectorAll("svg.plot")].flatMap(plot => {
  const boxes = [...plot.querySelectorAll("text")].map(e => [e.textContent, e.getBoundingClientRect()]);
  return boxes.flatMap(([one, a], k) => boxes.slice(k + 1).filter(([, b]) =>
    a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom).map(([two]) => [one, two]));
});
parent.postMessage(JSON.stringify({
  clipped: clipped.map(e => [e.textContent.trim().slice(0, 40), e.scrollWidth - e.clientWidth]),
  crossed: crossed.slice(0, 8),
  width: innerWidth, overflow: document.documentElement.scrollWidth - innerWidth,
  wide: wide.slice(0, 5).map(e => e.tagName), smallest: texts.length ? Math.min(...texts) : null,
  background: getComputedStyle(document.body).backgroundColor}), "*");
</script>"""
FRAME = """<!DOCTYPE html><body style="margin:0"><script>
addEventListener("message", event => document.body.dataset.probe = event.data);
</script><iframe src="page.html" style="border:0;width:{width}px;height:{height}px"></iframe></body>"""
"""A page around the page, because a window of Chromium is at least 500 pixels wide."""


def browser() -> str | None:
    """Path of an installed Chromium."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def run_browser(page: Path | str, width: int, height: int, *options: str, dark: bool = False) -> str:
    """Standard output of a headless Chromium that opens ``page``, a file or an address."""
    program = browser()
    if program is None:
        raise SystemExit(f"no browser: install one of {', '.join(BROWSERS)}")
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    with tempfile.TemporaryDirectory() as profile:
        arguments = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
            f"--window-size={width},{height}", *scheme, *options,
            page if isinstance(page, str) else page.resolve().as_uri(),
        ]  # fmt: skip
        return subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=120).stdout


def framed(text: str, width: int, height: int, *options: str, dark: bool = False) -> str:
    """Standard output of a browser that shows a page in a frame of the given size."""
    with tempfile.TemporaryDirectory() as folder:
        page, frame = Path(folder) / "page.html", Path(folder) / "frame.html"
        page.write_text(text, encoding="utf-8")
        frame.write_text(FRAME.format(width=width, height=height), encoding="utf-8")
        return run_browser(frame, width, height, *options, dark=dark)


def probe(page: Path, width: int = PHONE, *, dark: bool = False) -> dict[str, Any]:
    """What the layout is like at a width: pixels of overflow, elements outside, tables that have to be scrolled, texts
    of figures that lie over each other, and the smallest size of text in figures."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)  # which forbids the probe, rightly
    dom = framed(text.replace("</body>", f"{PROBE}</body>"), width, 900, "--dump-dom", dark=dark)
    match = re.search(r'data-probe="([^"]*)"', dom)
    assert match is not None, "the probe did not run"
    values: dict[str, Any] = json.loads(unescape(match[1]))
    return values


def main() -> None:
    """Screenshots of the reports named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path, metavar="HTML")
    parser.add_argument("-o", "--output", type=Path, default=Path("screenshots"), metavar="FOLDER")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for page in options.pages:
        for name, (width, height, dark) in SHOTS.items():
            target = options.output / f"{page.stem}-{name}.png"
            framed(page.read_text(encoding="utf-8"), width, height, f"--screenshot={target.resolve()}", dark=dark)
        found = probe(page)
        print(
            f"{page.name}: {page.stat().st_size / 1e3:.0f} kB, overflow {found['overflow']} px at {found['width']} px"
        )


if __name__ == "__main__":
    main()
