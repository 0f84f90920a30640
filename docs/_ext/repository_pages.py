"""Pages of the site that are files elsewhere in the repository, the reference, and links between all of them.

Markdown in the repository links to files as they lie there, so that it can be read there too. Here such links become
links between pages; a link to a file that is no page (code, a folder) becomes its path as text.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
from pathlib import Path
from typing import Any

import fwnkf

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
GENERATED = DOCS / "_pages"
written: set[Path] = set()
"""Pages of this build."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!\w+:)([^)#\s]+)(#[^)]*)?\)")
_IMAGE = re.compile(r"!\[([^\]]*)\]\((?!\w+:)([^)\s]+)\)")


def copied() -> dict[Path, Path]:
    """Files of the repository that are pages, and where they are copied to."""
    files = {
        ROOT / f"{name}.md": GENERATED / f"{name.lower()}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")
    }
    for card in sorted((ROOT / "models").glob("*/README.md")):
        files[card] = GENERATED / "models" / f"{card.parent.name}.md"
    return {source: page for source, page in files.items() if source.is_file()}


def generate(app: Any) -> None:
    """Copy pages and write the lists of the reference; files that did not change are left alone, others removed."""
    written.clear()
    for source, page in copied().items():
        _write(page, linked(source.read_text(encoding="utf-8"), source.parent, page.parent))
    toctree = "\n".join(page.stem for page in copied().values() if page.parent.name == "models")
    _write(
        GENERATED / "models" / "index.md",
        "# Trained filters\n\n"
        "Filters in `models/` of the repository, each with its card: data, protocol, figures, limits.\n\n"
        f"```{{toctree}}\n:maxdepth: 1\n\n{toctree}\n```\n",
    )
    documented: dict[int, str] = {}
    for package in public_packages():
        write_reference(package, documented)
    for path in GENERATED.rglob("*.md"):
        if path not in written:
            path.unlink()


def public_packages() -> list[str]:
    """The package, those of its subpackages that say in ``__all__`` what is public, and the modules listed there."""
    inner = [f"fwnkf.{item.name}" for item in pkgutil.iter_modules(fwnkf.__path__) if item.ispkg]
    packages = ["fwnkf", *(name for name in inner if getattr(importlib.import_module(name), "__all__", ()))]
    modules = [
        f"{package}.{name}"
        for package in packages
        for name in importlib.import_module(package).__all__
        if inspect.ismodule(getattr(importlib.import_module(package), name))
    ]
    return sorted({*packages, *modules})


def write_reference(package: str, documented: dict[int, str]) -> None:
    """A page for each public name of a package, and one that lists them; a name of two packages has one page."""
    module = importlib.import_module(package)
    rows, pages = [], []
    for name in sorted(module.__all__, key=str.lower):
        item = getattr(module, name)
        if inspect.ismodule(item) or not (callable(item) and hasattr(item, "__module__")):
            continue
        page = f"{package}.{name}"
        if not inspect.ismethod(item):  # a bound method is a new object whenever it is looked up
            page = documented.setdefault(id(item), page)
        if page == f"{package}.{name}":
            pages.append(page)
            _write(GENERATED / "reference" / "names" / f"{page}.md", name_page(page, item))
        summary = " ".join((inspect.getdoc(item) or "").split("\n\n")[0].split())
        rows.append(f"   * - :doc:`{name} <names/{page}>`\n     - {summary}")
    if not rows:  # its modules have pages of their own
        return
    table = "\n".join(rows)
    toctree = "\n".join(f"names/{page}" for page in pages)
    summary = (module.__doc__ or "").strip().splitlines()[0]
    _write(
        GENERATED / "reference" / f"{package}.md",
        f"# {package}\n\n{summary}\n\n```{{eval-rst}}\n.. list-table::\n   :widths: 30 70\n\n{table}\n```\n\n"
        f"```{{toctree}}\n:hidden:\n\n{toctree}\n```\n",
    )


def name_page(page: str, item: Any) -> str:
    """A class or function, described where it is defined and shown under its public name."""
    module = importlib.import_module(item.__module__)
    if inspect.ismethod(item):  # of a registry, and the same one for several names
        owner = type(item.__self__).__name__
        directive = f"automethod:: {item.__module__}.{owner}.{item.__name__}\n   :no-index:"
    else:
        path = f"{item.__module__}.{item.__name__}" if getattr(module, item.__name__, None) is item else page
        options = "\n   :members:\n   :show-inheritance:" if inspect.isclass(item) else ""
        directive = f"auto{'class' if inspect.isclass(item) else 'function'}:: {path}{options}"
    return f"# {page}\n\n```{{eval-rst}}\n.. {directive}\n```\n"


def linked(text: str, folder: Path, page_folder: Path) -> str:
    """Text whose relative links, written for ``folder``, lead from ``page_folder`` to pages of the site."""
    pages = copied()

    def target(path: str) -> str | None:
        found = (folder / path).resolve()
        found = pages.get(found, found)
        if found.is_relative_to(DOCS) and (found.is_file() or found in pages.values()):
            return os.path.relpath(found, page_folder)
        return None

    def link(match: re.Match[str]) -> str:
        label, path, anchor = match[1], match[2], match[3] or ""
        found = target(path)
        if found is None or Path(found).suffix not in (".md", ".rst", ".py", ".yaml", ".jsonl"):
            return label if path.strip("`") in label else f"{label} (`{_short(folder / path)}`)"
        return f"[{label}]({found}{anchor})"

    def image(match: re.Match[str]) -> str:
        found = target(match[2])
        return match[0] if found is None else f"![{match[1]}]({found})"

    return _IMAGE.sub(image, _LINK.sub(link, text))


GROUPS = {
    "The essentials": ("fwnkf",),
    "Logs and recordings": ("fwnkf.logs", "fwnkf.data", "fwnkf.preprocess"),
    "What is wrong": ("fwnkf.diagnosis", "fwnkf.settings", "fwnkf.airframes", "fwnkf.report"),
    "Systems and filters": ("fwnkf.systems", "fwnkf.filters", "fwnkf.navigation", "fwnkf.core"),
    "Fit and train": ("fwnkf.identify", "fwnkf.training"),
    "Judge": ("fwnkf.metrics", "fwnkf.evaluation"),
    "Run and deploy": ("fwnkf.runtime", "fwnkf.scale", "fwnkf.export", "fwnkf.hub", "fwnkf.cli"),
}
"""Packages of the reference by what a reader wants to do; those that nobody has put anywhere come last."""


def grouped(packages: list[str]) -> dict[str, list[str]]:
    """Packages by group, each in the group that names it or the package above it.

    >>> grouped(["fwnkf", "fwnkf.data.tables", "fwnkf.new"])
    {'The essentials': ['fwnkf'], 'Logs and recordings': ['fwnkf.data.tables'], 'More': ['fwnkf.new']}
    """
    found: dict[str, list[str]] = {title: [] for title in (*GROUPS, "More")}
    for package in packages:
        above = ".".join(package.split(".")[:2])
        found[next((title for title, names in GROUPS.items() if above in names), "More")].append(package)
    return {title: names for title, names in found.items() if names}


def reference_groups() -> str:
    """The first page of the reference: a section for each group, a line for each package."""
    parts = []
    packages = [name for name in public_packages() if (GENERATED / "reference" / f"{name}.md").is_file()]
    for title, names in grouped(packages).items():
        rows = [
            f"   * - :doc:`{name} </_pages/reference/{name}>`\n"
            f"     - {(importlib.import_module(name).__doc__ or '').strip().splitlines()[0]}"
            for name in names
        ]
        table = "\n".join(rows)
        pages = "\n".join(f"/_pages/reference/{name}" for name in names)
        parts.append(
            f"## {title}\n\n```{{eval-rst}}\n.. list-table::\n   :widths: 30 70\n\n{table}\n```\n\n"
            f"```{{toctree}}\n:hidden:\n\n{pages}\n```\n"
        )
    return "\n".join(parts)


def result_pages() -> str:
    """The pages of results that the page for developers does not have."""
    taken = set(re.findall(r"^results/(\w+)$", (DOCS / "development.md").read_text(encoding="utf-8"), re.MULTILINE))
    names = sorted({path.stem for path in (DOCS / "results").glob("*.md")} - taken - {"index"})
    return "```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```\n"


LISTS = {
    "reference/index": ("<!-- groups of packages -->", reference_groups),
    "results/index": ("<!-- pages of this folder -->", result_pages),
}
"""Pages with a place for a list that is made here."""


def rewrite(app: Any, name: str, source: list[str]) -> None:
    """Links of a page that lies in the documentation itself, and lists that are made here."""
    path = Path(app.env.doc2path(name))
    if name in LISTS:
        place, made = LISTS[name]
        source[0] = source[0].replace(place, made())
    if path.suffix == ".md" and not path.is_relative_to(GENERATED):
        source[0] = linked(source[0], path.parent, path.parent)


def _short(path: Path) -> str:
    resolved = path.resolve()
    return str(resolved.relative_to(ROOT)) if resolved.is_relative_to(ROOT) else str(path)


def _write(path: Path, text: str) -> None:
    written.add(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this."""
    app.connect("builder-inited", generate)
    app.connect("source-read", rewrite)
    return {"parallel_read_safe": True}
