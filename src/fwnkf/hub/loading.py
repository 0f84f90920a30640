"""Filters by the name of a shipped one, by path, or by ``owner/name`` on a hub.

Of a repository only the files of a filter are downloaded. Their sizes are compared with the bounds of
:func:`fwnkf.load` before that, where the hub states them; loading compares them again.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from ..checkpoint import CONFIG_FILE, CONFIG_LIMIT, FILE_LIMIT, TENSOR_FILE, load
from ..errors import CheckpointError, ConfigError, DataError, listed, shown
from ..filters.base import Filter
from ..logs import choice
from .client import UnreachableError, check_repository, client, readable
from .index import models_folder, shipped

PAGE_LIMIT = 1 << 20
"""Largest size of a card and of its figures in bytes."""
FILES = {
    CONFIG_FILE: CONFIG_LIMIT,
    TENSOR_FILE: FILE_LIMIT,
    choice.FILE: choice.FILE_LIMIT,
    "README.md": PAGE_LIMIT,
    "results.json": PAGE_LIMIT,
}
"""The files that are downloaded and uploaded, and the largest size of each in bytes."""
NEEDED = (CONFIG_FILE, TENSOR_FILE)


def from_pretrained(
    name: str | Path,
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
    device: str | torch.device = "cpu",
) -> Filter:
    """A saved filter by path, by the name of a shipped one, or from a Hugging Face hub (extra ``hub``).

    Args:
        name: a folder; a name of ``fwnkf list models``; or ``owner/name`` on the hub. A folder that exists comes first.
        revision: branch, tag or commit on the hub. A commit is always the same filter.
        cache_dir: where downloads are kept; by default the cache of huggingface_hub.
        token: for private repositories; by default that of ``hf auth login``. False sends none.
        local_files_only: use the copy in the cache and do not ask the hub.
        device: where the tensors go.

    Returns:
        The filter, as :func:`fwnkf.load` gives it, with the same bounds on its files.

    Raises:
        CheckpointError: the files are no filter, or too large.
        DataError: the hub has no such repository or cannot be reached.

    >>> import tempfile, torch, fwnkf
    >>> eye = torch.eye(1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fwnkf.from_pretrained(fwnkf.save(fwnkf.KF(F=eye, H=eye, Q=eye, R=eye), folder)).name
    'kf'
    """
    folder = _local(name, revision)
    if folder is None:
        folder = download(
            str(name), revision=revision, cache_dir=cache_dir, token=token, local_files_only=local_files_only
        )
    return load(folder, device)


def _local(name: str | Path, revision: str | None) -> Path | None:
    """The folder of a filter by path or by the name of a shipped one; None for one on a hub."""
    if isinstance(name, Path) or Path(name).is_dir():
        if revision is not None:
            raise ConfigError(f"revision={revision!r} is for a repository of a hub, but {name} is a folder")
        return Path(name)
    if "/" in name:
        return None
    if name not in shipped():
        raise ConfigError(
            f"{shown(name)} is neither a folder nor a shipped filter ({listed(sorted(shipped()))}); a filter on a hub "
            "has a name with its owner, owner/name"
        )
    folder = models_folder()
    if folder is None or not (folder / name).is_dir():
        raise ConfigError(
            f"the filter {name!r} comes with the source of fwnkf and not with its wheel"
            + ("" if folder is None else f", and is not in {folder}")
            + f"; set FWNKF_MODELS to the folder models of a checkout, or load a copy from a hub: owner/{name}"
        )
    return folder / name


def download(
    repo_id: str,
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
) -> Path:
    """Download the files of a filter from a hub, for commands that take the folder of a filter.

    Args:
        repo_id: ``owner/name``.
        revision: branch, tag or commit; by default ``main``.
        cache_dir: where downloads are kept; by default the cache of huggingface_hub.
        token: for private repositories; by default that of ``hf auth login``.
        local_files_only: use the copy in the cache and do not ask the hub.

    Returns:
        The folder in the cache; nothing may be changed in it.

    >>> download("my-filter")
    Traceback (most recent call last):
    fwnkf.errors.ConfigError: 'my-filter' is no repository of a hub: write owner/name, such as 'ada/my-filter'
    """
    check_repository(repo_id)
    hub = client()
    offline = local_files_only or hub.constants.HF_HUB_OFFLINE
    if not offline:
        try:
            with readable(repo_id, revision, doing="loading"):
                stated = hub.HfApi(token=token).model_info(repo_id, revision=revision, files_metadata=True)
        except UnreachableError as error:  # what the hub refuses is not taken from the cache
            try:
                folder = _snapshot(hub, repo_id, revision, cache_dir, token, offline=True)
            except DataError:
                raise error from error.__cause__
            warnings.warn(f"{error}; the copy in the cache is used", stacklevel=3)
            return folder
        _check_sizes({one.rfilename: one.size for one in stated.siblings or []}, repo_id)
    return _snapshot(hub, repo_id, revision, cache_dir, token, offline=offline)


def _snapshot(
    hub: Any, repo_id: str, revision: str | None, cache_dir: str | Path | None, token: str | bool | None, offline: bool
) -> Path:
    with readable(repo_id, revision, doing="loading"):
        return Path(
            hub.snapshot_download(
                repo_id,
                revision=revision,
                cache_dir=cache_dir,
                token=token,
                local_files_only=offline,
                allow_patterns=list(FILES),
            )
        )


def _check_sizes(sizes: dict[str, int | None], repo_id: str) -> None:
    """Raise CheckpointError for a repository that is no filter, or has a file above its bound."""
    missing = [name for name in NEEDED if name not in sizes]
    if missing:
        raise CheckpointError(
            f"{repo_id} has no {listed(missing)}, so it is not a filter of this package; it has "
            f"{listed(sorted(sizes)) or 'no files'}"
        )
    for name, limit in FILES.items():
        size = sizes.get(name)
        if size is not None and size > limit:
            raise CheckpointError(f"{repo_id}: {name} has {size:,} bytes, at most {limit:,} are read; not downloaded")
