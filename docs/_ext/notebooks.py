"""Tutorials as notebooks: the files that Colab and Binder open, and the badges that lead there.

    python docs/_ext/notebooks.py        write docs/notebooks from docs/tutorials (extra: docs)

Colab opens files of a repository only, so that the notebooks are in it; a test compares them with the tutorials. Which
repository that is, a build says: GITHUB_REPOSITORY, which GitHub sets, or the URL of the repository in pyproject.toml.
Without either, the pages have no badges.
"""

from __future__ import annotations

import copy
import json
import os
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
TUTORIALS, NOTEBOOKS = DOCS / "tutorials", DOCS / "notebooks"
BRANCH = "main"
FIRST_CELL = """\
# On Colab, and wherever fwnkf is missing, this installs it.
import importlib.util

if importlib.util.find_spec("fwnkf") is None:
    %pip install -q "fwnkf[train,plot,logs]"\
"""


def notebook(tutorial: Path) -> dict[str, Any]:
    """A tutorial as a notebook, without what depends on the Python that writes it."""
    from sphinx_gallery.gen_gallery import DEFAULT_GALLERY_CONF
    from sphinx_gallery.notebook import jupyter_notebook
    from sphinx_gallery.py_source_parser import split_code_and_text_blocks

    settings = copy.deepcopy(DEFAULT_GALLERY_CONF) | {"first_notebook_cell": FIRST_CELL}
    _, blocks = split_code_and_text_blocks(str(tutorial))
    made: dict[str, Any] = jupyter_notebook(blocks, settings, str(NOTEBOOKS))
    made["metadata"] = {"kernelspec": made["metadata"]["kernelspec"], "language_info": {"name": "python"}}
    return made


def tutorials() -> list[Path]:
    """The tutorials, in their order."""
    return sorted(TUTORIALS.glob("[0-9]*.py"))


def write() -> None:
    """Write all notebooks, and remove those whose tutorial is gone."""
    NOTEBOOKS.mkdir(exist_ok=True)
    for old in NOTEBOOKS.glob("*.ipynb"):
        old.unlink()
    for tutorial in tutorials():
        path = NOTEBOOKS / f"{tutorial.stem}.ipynb"
        path.write_text(json.dumps(notebook(tutorial), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


# ---- pages of the site -----------------------------------------------------------------------------------------------


def repository() -> str | None:
    """OWNER/NAME on GitHub of the repository that the site is built from."""
    if named := os.environ.get("GITHUB_REPOSITORY"):
        return named
    found = re.search(
        r"^repository\s*=\s*[\"']https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?[\"']",
        (DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"),
        re.MULTILINE | re.IGNORECASE,
    )
    return found[1] if found else None


def badges(name: str, place: str) -> str:
    """HTML that opens the notebook of a tutorial on Colab and on Binder.

    >>> "colab.research.google.com/github/me/fwnkf/blob/main/docs/notebooks/a.ipynb" in badges("a", "me/fwnkf")
    True
    """
    file = f"docs/notebooks/{name}.ipynb"
    links = {
        "Open in Colab": f"https://colab.research.google.com/github/{place}/blob/{BRANCH}/{file}",
        "Open in Binder": f"https://mybinder.org/v2/gh/{place}/{BRANCH}?labpath={file}",
    }
    return " ".join(f'<a class="badge" href="{target}">{words}</a>' for words, target in links.items())


def add_badges(app: Any, docname: str, source: list[str]) -> None:
    """Put the badges of a tutorial below its title."""
    folder, _, name = docname.rpartition("/")
    place = repository()
    if place is None or folder != "_tutorials" or not (NOTEBOOKS / f"{name}.ipynb").is_file():
        return
    html = f".. raw:: html\n\n   <p>{badges(name, place)}</p>\n"
    source[0] = re.sub(r"(?m)^(\S.*\n=+\n)", lambda title: f"{title[1]}\n{html}\n", source[0], count=1)


def setup(app: Any) -> dict[str, Any]:
    """The extension."""
    app.connect("source-read", add_badges)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    write()
