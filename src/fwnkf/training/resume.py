"""The resume state of a run in one safetensors file: Lightning's checkpoint without pickle.

Tensors are stored as tensors, everything else as JSON in the header. Reading returns tensors, numbers, strings, lists
and mappings only. The file is replaced atomically, so that a run killed while writing keeps the previous state.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from lightning.fabric.plugins.io import CheckpointIO
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..errors import CheckpointError

FORMAT = "1"


class SafetensorsIO(CheckpointIO):
    """Lightning plugin that reads and writes checkpoints."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        write_state(checkpoint, Path(path))

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return read_state(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        Path(path).unlink(missing_ok=True)


def write_state(checkpoint: dict[str, Any], path: Path) -> None:
    """Write a tree of plain values and tensors atomically."""
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_pack(checkpoint, tensors, "checkpoint"))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    save_file(tensors, temporary, metadata={"fwnkf_run": FORMAT, "tree": tree})
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)


def read_state(path: Path) -> dict[str, Any]:
    """Read a tree written by :func:`write_state`; raises CheckpointError for any other file."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist: this run saved no state to resume from")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it has no __iter__
        if metadata.get("fwnkf_run") != FORMAT:
            raise CheckpointError(f"{path}: format {metadata.get('fwnkf_run')!r}, this version reads {FORMAT!r}")
        tree = _unpack(json.loads(metadata["tree"]), tensors)
    except (SafetensorError, RuntimeError, KeyError, ValueError, TypeError, OSError) as error:  # torch maps the file
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} is not the saved state of a run: {type(error).__name__}: {error}") from error
    if not isinstance(tree, dict):
        raise CheckpointError(f"{path} is not the saved state of a run: it does not hold a mapping")
    return tree


def _pack(value: Any, tensors: dict[str, Tensor], where: str) -> Any:
    """Plain values are kept; containers and tensors become a list that starts with their kind."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        name = f"t{len(tensors)}"
        # a separate copy: safetensors refuses tensors that share memory
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
        return ["tensor", name]
    if isinstance(value, dict):
        return ["dict", *([_pack(k, tensors, where), _pack(v, tensors, f"{where}.{k}")] for k, v in value.items())]
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, *(_pack(item, tensors, f"{where}[{i}]") for i, item in enumerate(value))]
    raise CheckpointError(
        f"{where} is a {type(value).__name__}; a state can hold only numbers, strings, lists, mappings and tensors"
    )


def _unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    kind, *items = value
    if kind == "tensor":
        return tensors[items[0]]
    if kind == "dict":
        return {_unpack(k, tensors): _unpack(v, tensors) for k, v in items}
    if kind in ("list", "tuple"):
        values = [_unpack(item, tensors) for item in items]
        return values if kind == "list" else tuple(values)
    raise ValueError(f"unknown kind {kind!r}")
