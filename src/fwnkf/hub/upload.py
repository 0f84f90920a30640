"""Filters to a Hugging Face hub: the files of :func:`fwnkf.save`, a card, and nothing else."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from ..checkpoint import save
from ..errors import CheckpointError, ConfigError
from ..filters.base import Filter
from ..registry import SYSTEMS
from .card import metadata
from .client import check_repository, client, readable
from .loading import FILES, NEEDED

CARD = "README.md"


def push_to_hub(
    model: Filter,
    repo_id: str,
    *,
    folder: str | Path | None = None,
    private: bool | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    message: str | None = None,
) -> str:
    """Upload a filter; see :meth:`fwnkf.Filter.push_to_hub`."""
    check_repository(repo_id)
    api = client().HfApi(token=token)
    beside = [] if folder is None else _beside(Path(folder))
    with tempfile.TemporaryDirectory() as place:
        save(model, place)
        for path in beside:
            shutil.copyfile(path, Path(place) / path.name)
        with readable(repo_id, revision, doing="uploading to"):
            api.create_repo(repo_id, private=private, exist_ok=True)
            if CARD not in [path.name for path in beside] and not api.file_exists(repo_id, CARD, revision=revision):
                (Path(place) / CARD).write_text(plain_card(model, repo_id), encoding="utf-8")
            done = api.upload_folder(
                repo_id=repo_id,
                folder_path=place,
                revision=revision,
                commit_message=message or f"Upload filter {model.name}",
                allow_patterns=list(FILES),
            )
    return str(done.commit_url)


def plain_card(model: Filter, repo_id: str) -> str:
    """The card of a filter of which nothing is known but its kind: how to load it, and what to add."""
    name = SYSTEMS.name_of(type(model.system))
    system = f" on the system `{name}`" if name else ""
    return "\n".join(
        [
            metadata([model.name]),
            "",
            f"# {repo_id.partition('/')[2]}",
            "",
            f"A filter `{model.name}`{system}, saved by [fwnkf](https://pypi.org/project/fwnkf/).",
            "",
            "```python",
            "import fwnkf",
            "",
            f'filter = fwnkf.from_pretrained("{repo_id}")',
            "```",
            "",
        ]
    )


def _beside(folder: Path) -> list[Path]:
    """Card, columns and figures in a folder, within the bounds that hold when they are loaded."""
    if not folder.is_dir():
        raise ConfigError(f"folder={str(folder)!r} is no folder; it holds README.md, columns.json or results.json")
    found = [folder / name for name in FILES if name not in NEEDED and (folder / name).is_file()]
    for path in found:
        if path.stat().st_size > FILES[path.name]:
            raise CheckpointError(f"{path} has {path.stat().st_size:,} bytes, at most {FILES[path.name]:,} are read")
    return found
