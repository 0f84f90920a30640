"""Filters and states on disk: safetensors and JSON, strict and versioned, never pickle.

A filter is a folder with ``config.json`` (names and plain options) and ``model.safetensors`` (every tensor). Loading
looks names up in the registry, parses the options, and demands exactly the tensors the filter has: a file from outside
can do nothing but fail to load.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import load_file, save_file
from safetensors.torch import save as tensors_to_bytes

from .core.system import System, build_system
from .core.tree import named_leaves, tree_unflatten
from .errors import CheckpointError
from .filters.base import Filter, make, options_of
from .registry import FILTERS, SYSTEMS, parse_config

FORMAT = 1
CONFIG_FILE = "config.json"
TENSOR_FILE = "model.safetensors"
CONFIG_LIMIT = 1 << 20
"""A config is a page of text; anything larger is refused unread."""
_DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
_FIELDS = {"format", "filter", "config", "system", "dtype"}


def save(model: Filter, folder: str | Path) -> Path:
    """Write a filter to a folder, made if it is missing; returns the folder."""
    name = FILTERS.name_of(type(model))
    if name is None:
        raise CheckpointError(f"{type(model).__name__} is not registered; use @fwnkf.register_filter('…') on it")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    description = {
        "format": FORMAT,
        "filter": name,
        "config": options_of(model.config),
        "system": None if model.owns_system or model.system is None else _describe_system(model.system),
        "dtype": str(model._like().dtype).removeprefix("torch."),
    }
    tensors = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    save_file(tensors, folder / TENSOR_FILE, metadata={"format": "pt"})
    (folder / CONFIG_FILE).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
    return folder


def load(folder: str | Path, device: str | torch.device = "cpu") -> Filter:
    """Read a filter written by :func:`save`; every mismatch is an error that names file and field."""
    folder = Path(folder)
    description = _read_config(folder / CONFIG_FILE)
    cls = FILTERS[description["filter"]]
    config = parse_config(cls.Config, description["config"], f"{folder / CONFIG_FILE}: filter {description['filter']}")
    system = None
    if description["system"] is not None:
        system = build_system(description["system"]["name"], description["system"]["config"])
    model = make(cls, config, system, {}).to(dtype=_DTYPES[description["dtype"]])
    _fill(model, folder / TENSOR_FILE)
    return model.to(device)


def dump_state(model: Filter, state: Any) -> bytes:
    """A filter's state as safetensors bytes: stop here, go on anywhere."""
    tensors = {key: value.detach().cpu().contiguous() for key, value in named_leaves(state)}
    return tensors_to_bytes(tensors, metadata={"fwnkf_state": str(FORMAT), "filter": model.name})


def load_state(model: Filter, data: bytes) -> Any:
    """The state written by :func:`dump_state`, on the device of the filter; anything else is refused."""
    try:
        tensors = tensors_from_bytes(data)
    except SafetensorError as error:
        raise CheckpointError(f"these bytes are no saved state: {error}") from error
    metadata = _metadata(data)
    if metadata.get("fwnkf_state") != str(FORMAT) or metadata.get("filter") != model.name:
        raise CheckpointError(
            f"this state is of filter {metadata.get('filter')!r}, format {metadata.get('fwnkf_state')!r}; "
            f"wanted filter {model.name!r}, format {FORMAT}"
        )
    template = model.init(1)
    names = [name for name, _ in named_leaves(template)]
    _same_names(set(names), set(tensors), "the saved state")
    like = model._like()
    for name, leaf in named_leaves(template):
        found = tensors[name]
        if found.shape[1:] != leaf.shape[1:] or found.dtype != leaf.dtype:
            raise CheckpointError(
                f"the saved state: {name} is {found.dtype} {tuple(found.shape)}, wanted {leaf.dtype} [B, "
                f"{', '.join(str(size) for size in leaf.shape[1:])}]"
            )
    return tree_unflatten(template, iter([tensors[name].to(like.device) for name in names]))


def _describe_system(system: System) -> dict[str, Any]:
    name = SYSTEMS.name_of(type(system))
    if name is None:
        raise CheckpointError(
            f"system {type(system).__name__} is not registered, so it could not be rebuilt on loading; "
            "put @fwnkf.register_system('…') on the class and give it a Config of plain values"
        )
    return {"name": name, "config": options_of(system.config)}


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; a saved filter is a folder with {CONFIG_FILE} and {TENSOR_FILE}")
    if path.stat().st_size > CONFIG_LIMIT:
        raise CheckpointError(f"{path} is larger than {CONFIG_LIMIT} bytes; that is no config of this package")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        version = found.get("format") if isinstance(found, dict) else None
        raise CheckpointError(f"{path}: format {version!r}, this version reads {FORMAT}")
    _same_names(_FIELDS, set(found), str(path))
    nested = found["system"]
    well_formed = (
        isinstance(found["filter"], str)
        and isinstance(found["config"], dict)
        and found["dtype"] in _DTYPES
        and (
            nested is None
            or (isinstance(nested, dict) and set(nested) == {"name", "config"} and isinstance(nested["config"], dict))
        )
    )
    if not well_formed:
        raise CheckpointError(f"{path}: filter, config, system or dtype is not of the form save() writes")
    return found


def _fill(model: Filter, path: Path) -> None:
    """Load tensors strictly: same names, shapes and dtypes, or an error that lists what differs."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; copy it beside {CONFIG_FILE}")
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}") from error
    wanted = model.state_dict()
    _same_names(set(wanted), set(tensors), str(path))
    for name, tensor in wanted.items():
        found = tensors[name]
        if found.shape != tensor.shape or found.dtype != tensor.dtype:
            raise CheckpointError(
                f"{path}: {name} is {found.dtype} {tuple(found.shape)}, wanted {tensor.dtype} {tuple(tensor.shape)}"
            )
    model.load_state_dict(tensors, strict=True)


def _same_names(wanted: set[str], found: set[str], where: str) -> None:
    if wanted != found:
        raise CheckpointError(
            f"{where}: missing {sorted(wanted - found) or 'nothing'}, unexpected {sorted(found - wanted) or 'nothing'}"
        )


def _metadata(data: bytes) -> dict[str, str]:
    """The header's metadata; the bytes have already been parsed once, so the header is sound JSON."""
    size = int.from_bytes(data[:8], "little")
    found = json.loads(data[8 : 8 + size]).get("__metadata__", {})
    return {str(key): str(value) for key, value in found.items()}
