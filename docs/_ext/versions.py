"""The menu of versions: a site for each release and one for ``dev``, in folders beside each other.

    python docs/_ext/versions.py FOLDER      write versions.json and index.html of a folder that holds built sites

``index.html`` leads to the newest release, or to ``dev`` before there is one. Pages read ``versions.json`` when they
are opened, so that the menu of an old release has the new ones too; a site that stands alone has no menu.
"""

from __future__ import annotations

import html
import json
import re
import sys
from pathlib import Path
from typing import Any

DEVELOPMENT = "dev"
_RELEASE = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?")


def order(name: str) -> tuple[tuple[int, ...], bool, str]:
    """Sorts releases by number, and what comes before a release below it.

    >>> sorted(["0.10.0", "0.9.0", "0.10.0rc1"], key=order)
    ['0.9.0', '0.10.0rc1', '0.10.0']
    """
    numbers, _, before = name.partition(next(iter(re.findall("a|b|rc", name)), "-"))
    return tuple(int(part) for part in numbers.split(".")), not before, name


def versions(folder: Path) -> list[dict[str, str]]:
    """The sites in a folder, as the menu lists them: ``dev`` first, then releases, the newest first."""
    built = {path.name for path in folder.iterdir() if (path / "index.html").is_file()}
    releases = sorted((name for name in built if _RELEASE.fullmatch(name)), key=order, reverse=True)
    rows = [{"name": DEVELOPMENT, "title": "development"}] if DEVELOPMENT in built else []
    final = next((name for name in releases if order(name)[1]), None)
    return [*rows, *({"name": name, "title": f"{name} (stable)" if name == final else name} for name in releases)]


def write(folder: Path) -> list[str]:
    """Write the menu and the page that leads to the site a reader wants, and return the names in the menu."""
    rows = versions(folder)
    if not rows:
        raise SystemExit(f"{folder} has no built site: a folder {DEVELOPMENT}, or named after a release")
    names = [row["name"] for row in rows]
    target = next((row["name"] for row in rows if row["title"].endswith("(stable)")), names[0])
    (folder / "versions.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    link = html.escape(f"{target}/index.html")
    (folder / "index.html").write_text(
        f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>fwnkf</title>'
        f'<meta http-equiv="refresh" content="0; url={link}"><a href="{link}">fwnkf {html.escape(target)}</a></html>\n',
        encoding="utf-8",
    )
    (folder / ".nojekyll").touch()  # otherwise Pages leaves out folders that begin with an underscore
    return names


def setup(app: Any) -> dict[str, bool]:
    """The extension: the script that fills the menu, for which the sidebar has a place."""
    app.add_js_file("versions.js", loading_method="defer")
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python docs/_ext/versions.py FOLDER")
    print(*write(Path(sys.argv[1])))
