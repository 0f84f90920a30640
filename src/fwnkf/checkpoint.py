"""Filters and states on disk: safetensors and JSON, strict and versioned, never pickle.

A filter is a folder with ``config.json`` (names and plain options) and ``model.safetensors`` (all tensors). Loading
looks names up in the registry, parses the options, and requires exactly the tensors of the filter, so an untrusted file
cannot execute code. Constructing the filter may take no more memory and operations than the header of the tensor file
explains, so that a small file cannot take much time or memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import load_file, save_file
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from .core.budget import Budget, BudgetExceededError
from .core.preprocess import build_preprocess
from .core.system import build_system
from .core.tree import named_leaves, tree_unflatten
from .errors import CheckpointError, ConfigError, FwnkfError, listed, shown
from .filters.base import Filter
from .filters.factory import options_of
from .migration import Migrated, migrate, renamed
from .plain import is_text
from .registry import FILTERS, PREPROCESS, SYSTEMS, Registry, as_tuples, parse_config

FORMAT = 3
"""Format 2 added preprocessing and covariance calibration; format 1 is read as a filter without them."""
STATE_FORMAT = 3
"""Format 3 of a state added a checksum; states of format 2, which version 0.2 wrote, are read without one."""
CONFIG_FILE = "config.json"
TENSOR_FILE = "model.safetensors"
CONFIG_LIMIT = 1 << 20
"""Largest size of a config in bytes; a larger file is not read."""
VALUES_LIMIT = 50_000
"""Most commas of a config: a file of its largest size has room for as many numbers of full precision."""
BYTES_BASE, BYTES_PER_BYTE = 1 << 24, 12
"""Memory that constructing a filter may take: 16 MB for constants, and this many bytes per byte of its tensor file."""
OPERATIONS_BASE, OPERATIONS_PER_TENSOR = 2000, 20
"""Calls of torch that constructing a filter may take: a constant, and this many per tensor in its file."""
TENSOR_LIMIT = 500
"""Most tensors of a filter; a GRU of 100 layers has 400."""
FILE_LIMIT = 1 << 26
"""Largest size of a tensor file in bytes, 16 million numbers: one of zeros takes no place on a disk, however large."""
HEADER_LIMIT = 1 << 20
"""Largest size of the header of a tensor file in bytes: names, shapes and places of its tensors."""
NESTING_LIMIT = 3
"""A preprocessing may have an inner filter, which may itself have a preprocessing, up to this depth."""
_DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
_SAFETENSORS_DTYPES = {"F32": "float32", "F64": "float64", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}
_FIELDS = {"format", "dtype", "filter", "config", "system", "preprocess", "covariance_scale"}
_PART_FIELDS = {"name", "config"}


def save(model: Filter, folder: str | Path) -> Path:
    """Write a filter to a folder: ``config.json`` with names and options, ``model.safetensors`` with its tensors.

    Args:
        model: a registered filter, with its system and its preprocessing.
        folder: where to; it is created if needed.

    Returns:
        The folder.

    Raises:
        CheckpointError: the filter, its system or its preprocessing is not registered.

    >>> import tempfile, torch, fwnkf
    >>> eye = torch.eye(1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = fwnkf.save(fwnkf.KF(F=eye, H=eye, Q=eye, R=eye), folder)
    ...     fwnkf.load(folder).name
    'kf'
    """
    description = {
        "format": FORMAT,
        "dtype": str(model.dtype).removeprefix("torch."),
        **_describe_filter(model),
    }
    tensors = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    if len(tensors) > TENSOR_LIMIT:
        raise CheckpointError(f"the filter has {len(tensors):,} tensors; one of more than {TENSOR_LIMIT:,} is not read")
    size = sum(value.numel() * value.element_size() for value in tensors.values())
    if size > FILE_LIMIT - HEADER_LIMIT:
        raise CheckpointError(f"the filter has {size:,} bytes of tensors; a file above {FILE_LIMIT:,} is not read")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / TENSOR_FILE, metadata={"format": "pt"})
    (folder / CONFIG_FILE).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
    return folder


def check_writable(folder: str | Path) -> None:
    """Raise ConfigError unless a filter can be written there: before hours of training, not after them.

    A file is created and removed again, with the folders that were created for it: permissions alone do not tell.
    """
    folder = Path(folder)
    created = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}; name another folder") from error
    finally:
        for place in created:
            with contextlib.suppress(OSError):
                place.rmdir()


def load(folder: str | Path, device: str | torch.device = "cpu") -> Filter:
    """Read a filter written by :func:`save`. Reading runs no code of the files.

    Args:
        folder: the folder of the filter.
        device: where its tensors go.

    Returns:
        The filter, preprocessing included.

    Raises:
        CheckpointError: the files do not fit each other; the message names file and field.

    >>> import tempfile, torch, fwnkf
    >>> eye = torch.eye(1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = fwnkf.save(fwnkf.KF(F=eye, H=eye, Q=eye, R=3 * eye), folder)
    ...     fwnkf.load(folder).system.measurement_covariance()
    tensor([[3.]])
    """
    folder = Path(folder)
    description = _read_config(folder / CONFIG_FILE)
    saved = _read_header(folder / TENSOR_FILE)
    place = str(folder / CONFIG_FILE)
    migrated = Migrated(description, {}) if description["format"] == FORMAT else migrate(description, place)
    names = {name: renamed(name, migrated) for name in saved}
    saved = {new: saved[name] for name, new in names.items() if new is not None}
    model = _construct(migrated.description, folder, len(saved))
    own = model.state_dict()
    _compare({name: value for name, value in own.items() if name not in migrated.added}, saved, folder / TENSOR_FILE)
    stored = load_file(folder / TENSOR_FILE)
    tensors = {new: stored[name] for name, new in names.items() if new is not None}
    model.load_state_dict({name: own[name] for name in migrated.added} | tensors, strict=True)
    return model.to(device)


def dump_state(model: Filter, state: Any) -> bytes:
    """A filter's state as safetensors bytes with a checksum, from which another process can continue.

    Args:
        model: the filter.
        state: the state of a step, or ``trajectory.state`` of a run.

    Returns:
        The bytes, for :func:`load_state`.

    >>> import torch, fwnkf
    >>> eye = torch.eye(1)
    >>> kf = fwnkf.KF(F=eye, H=eye, Q=eye, R=eye)
    >>> data = fwnkf.dump_state(kf, kf.run(torch.ones(1, 5, 1)).state)
    >>> kf.run(torch.ones(1, 5, 1), state=fwnkf.load_state(kf, data)).mean.shape
    torch.Size([1, 5, 1])
    """
    tensors = {key: value.detach().cpu().contiguous() for key, value in named_leaves(state)}
    return seal(tensors, {"fwnkf_state": str(STATE_FORMAT), "filter": model.name})


def load_state(model: Filter, data: bytes) -> Any:
    """The state written by :func:`dump_state`, on the device of the filter.

    Args:
        model: a filter of the same kind and sizes.
        data: the bytes.

    Returns:
        The state, bit for bit.

    Raises:
        CheckpointError: the bytes are not a state, are damaged, or are one of another filter.

    >>> import torch, fwnkf
    >>> eye = torch.eye(1)
    >>> kf = fwnkf.KF(F=eye, H=eye, Q=eye, R=eye)
    >>> fwnkf.load_state(kf, fwnkf.dump_state(kf, kf.init(2))).mean.shape
    torch.Size([2, 1])
    """
    tensors, metadata = unseal(data, "fwnkf_state", STATE_FORMAT, "a saved state")
    if metadata.get("filter") != model.name:
        raise CheckpointError(f"this state is of filter {metadata.get('filter')!r}; wanted filter {model.name!r}")
    template = model.init(1)
    names = [name for name, _ in named_leaves(template)]
    _check_names(set(names), set(tensors), "the saved state")
    for name, leaf in named_leaves(template):
        tensor = tensors[name]
        if tensor.shape[1:] != leaf.shape[1:] or tensor.dtype != leaf.dtype:
            raise CheckpointError(
                f"the saved state: {name} is {tensor.dtype} {tuple(tensor.shape)}, wanted {leaf.dtype} [B, "
                f"{', '.join(str(size) for size in leaf.shape[1:])}]"
            )
    return tree_unflatten(template, iter([tensors[name].to(model.device) for name in names]))


_FIELD, _BLANK = b'"sha256":"', b"0" * 64
_CHECKSUM = re.compile(_FIELD + b'([0-9a-f]{64})"')


def seal(tensors: dict[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Safetensors bytes whose metadata have a SHA-256 of all bytes, taken with zeros in its own place."""
    blank = tensors_to_bytes(tensors, metadata={**metadata, "sha256": _BLANK.decode()})
    return blank.replace(_FIELD + _BLANK, _FIELD + hashlib.sha256(blank).hexdigest().encode(), 1)


def unseal(data: bytes, kind: str, wanted: int, what: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of sealed bytes; raises CheckpointError if any bit is not as it was written.

    Args:
        data: the bytes.
        kind: the field of the metadata with the number of the format.
        wanted: that number. The format before it had no checksum, and is read as it is.
        what: the thing in messages.
    """
    header = data[8 : 8 + int.from_bytes(data[:8], "little")]
    sums = _CHECKSUM.findall(header)
    if sums:
        blank = data[:8] + header.replace(_FIELD + sums[0], _FIELD + _BLANK) + data[8 + len(header) :]
        if len(sums) > 1 or hashlib.sha256(blank).hexdigest().encode() != sums[0]:
            raise CheckpointError(f"{what} is damaged: its checksum is not that of its bytes; use an older copy")
    try:
        tensors = tensors_from_bytes(data)
    except SafetensorError as error:
        raise CheckpointError(f"these bytes are not {what}: {error}") from error
    metadata = metadata_of(data)
    found = metadata.get(kind)
    if found != str(wanted if sums else wanted - 1):
        raise CheckpointError(
            f"these bytes are not {what} of this version: format {found!r} {'with' if sums else 'without'} a checksum; "
            f"format {wanted} with one is read, and {wanted - 1} without"
        )
    return tensors, metadata


def _describe_filter(model: Filter) -> dict[str, Any]:
    """Names and plain options of a filter, its system and its preprocessing with its inner filter."""
    name = FILTERS.name_of(type(model))
    if name is None:
        raise CheckpointError(f"{type(model).__name__} is not registered; use @fwnkf.register_filter('…') on it")
    system = None if model.owns_system or model.system is None else _describe(model.system, SYSTEMS, "system")
    preprocess = None
    if model.preprocess is not None:
        preprocess = _describe(model.preprocess, PREPROCESS, "preprocess")
        if model.preprocess.inner is not None:
            preprocess["filter"] = _describe_filter(model.preprocess.inner)
    return {
        "filter": name,
        "config": options_of(model.config, saved=True),
        "system": system,
        "preprocess": preprocess,
        "covariance_scale": model.covariance_scale is not None,
    }


def _describe(part: Any, registry: Registry[Any], kind: str) -> dict[str, Any]:
    name = registry.name_of(type(part))
    if name is None:
        raise CheckpointError(
            f"{kind} {type(part).__name__} is not registered, so it could not be rebuilt on loading; "
            f"put @fwnkf.register_{kind}('…') on the class and give it a Config of plain values"
            + (", or give System.of(…) a name=…" if kind == "system" else "")
        )
    return {"name": name, "config": options_of(part.config)}


def _build_filter(description: dict[str, Any], where: str) -> Filter:
    cls = FILTERS[description["filter"]]
    config = parse_config(cls.Config, description["config"], f"{where}: filter {description['filter']}")
    part = description["system"]
    model: Filter = cls.from_config(config, None if part is None else build_system(part["name"], part["config"]))
    _check_sizes(model, where)
    part = description["preprocess"]
    if part is not None:
        inner = None if part.get("filter") is None else _build_filter(part["filter"], where)
        model.preprocess = build_preprocess(part["name"], part["config"], model.system, inner)
    if description["covariance_scale"]:
        model.calibrate_covariance(torch.ones(model.layout.tangent_size))
    return model


def _check_sizes(model: Filter, where: str) -> None:
    """Sizes in the config of a filter on a system repeat those of the system, and must be equal to them."""
    actual: dict[str, float] = {
        "state_dim": model.layout.size,
        "observation_dim": model.observation_layout.size,
        "control_dim": model.control_dim if model.system is None else model.system.control_dim,
    }
    if model.system is not None and not model.owns_system:
        actual["dt"] = model.system.dt
    for name, value in actual.items():
        stated = getattr(model.config, name, value)
        if stated != value:
            raise CheckpointError(f"{where}: filter {model.name}: {name} = {stated}, but its system has {value}")
    layout = getattr(model.config, "layout", ())
    if layout and as_tuples(layout) != as_tuples(model.layout.describe()):
        raise CheckpointError(f"{where}: filter {model.name}: layout is not that of its system")


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; a saved filter is a folder with {CONFIG_FILE} and {TENSOR_FILE}")
    if path.stat().st_size > CONFIG_LIMIT:
        raise CheckpointError(f"{path} is larger than {CONFIG_LIMIT} bytes, so it is not a config of this package")
    content = path.read_bytes()
    if content.count(b",") > VALUES_LIMIT:
        raise CheckpointError(f"{path} has more than {VALUES_LIMIT} values, so it is not a config of this package")
    try:
        description = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # no text, no JSON, or an integer of thousands of digits
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not is_text(description):
        raise CheckpointError(f"{path}: a text has half of a surrogate pair, which is no character")
    version = description.get("format") if isinstance(description, dict) else None
    if isinstance(version, bool) or version not in range(1, FORMAT + 1):
        raise CheckpointError(f"{path}: format {shown(version)}, this version reads 1 to {FORMAT}")
    if version == 1:
        description = {**description, "preprocess": None, "covariance_scale": False}
    _check_names(_FIELDS, set(description), str(path))
    if description["dtype"] not in list(_DTYPES):  # a list, because the value may not be hashable
        raise CheckpointError(f"{path}: dtype {shown(description['dtype'])} is none of {', '.join(_DTYPES)}")
    _check_filter({name: description[name] for name in description if name not in ("format", "dtype")}, str(path))
    return description


def _check_filter(description: Any, where: str, depth: int = 0) -> None:
    """Check the form of a description before anything is built from it."""
    if not isinstance(description, dict) or depth > NESTING_LIMIT:
        raise CheckpointError(f"{where}: a filter is a mapping, nested at most {NESTING_LIMIT} deep")
    _check_names(_FIELDS - {"format", "dtype"}, set(description), where)
    scaled = description["covariance_scale"]
    if not (
        isinstance(description["filter"], str) and isinstance(description["config"], dict) and isinstance(scaled, bool)
    ):
        raise CheckpointError(f"{where}: filter or config does not have the form save() writes")
    for kind in ("system", "preprocess"):
        part = description[kind]
        if part is None:
            continue
        names = set(part) if isinstance(part, dict) else set()
        if (
            names - {"filter"} != _PART_FIELDS
            or not isinstance(part["config"], dict)
            or not isinstance(part["name"], str)
        ):
            raise CheckpointError(f"{where}: {kind} does not have the form save() writes")
        if "filter" in names:
            _check_filter(part["filter"], where, depth + 1)


TensorSignature = tuple[tuple[int, ...], str]
"""Shape and dtype of a tensor."""


def _construct(description: dict[str, Any], folder: Path, count: int) -> Filter:
    """The filter that the config describes, if it is no larger than the ``count`` tensors of its file explain."""
    where = folder / CONFIG_FILE
    size = (folder / TENSOR_FILE).stat().st_size
    budget = Budget(BYTES_BASE + BYTES_PER_BYTE * size, OPERATIONS_BASE + OPERATIONS_PER_TENSOR * count)
    try:
        with budget:
            model = _build_filter(description, str(where)).to(dtype=_DTYPES[description["dtype"]])
    except BudgetExceededError as error:
        raise CheckpointError(
            f"{where} describes a filter that does not belong to {TENSOR_FILE}: {error}, which its {count} tensor(s) "
            f"({size:,} bytes) do not explain"
        ) from error
    except FwnkfError as error:
        if str(where) in str(error):
            raise
        raise type(error)(f"{where}: {error}") from error
    except (TypeError, ValueError, ArithmeticError, RuntimeError, MemoryError) as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{where}: no filter can be built from these options: {first_line}") from error
    return model


def _read_header(path: Path) -> dict[str, TensorSignature]:
    """Names, shapes and dtypes of the tensors in a file, without reading the tensors."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; copy it beside {CONFIG_FILE}")
    if path.stat().st_size > FILE_LIMIT:
        raise CheckpointError(f"{path} has {path.stat().st_size:,} bytes; a filter has at most {FILE_LIMIT:,}")
    try:
        with path.open("rb") as raw:
            size = int.from_bytes(raw.read(8), "little")
        if size > HEADER_LIMIT:
            raise CheckpointError(f"{path}: its header would have {size:,} bytes; wanted at most {HEADER_LIMIT:,}")
        with safe_open(path, "pt") as file:
            names = file.keys()
            if len(names) > TENSOR_LIMIT:
                raise CheckpointError(f"{path} has {len(names):,} tensors; a filter has at most {TENSOR_LIMIT:,}")
            slices = {name: file.get_slice(name) for name in names}
            return {
                name: (tuple(item.get_shape()), _SAFETENSORS_DTYPES.get(item.get_dtype(), item.get_dtype()))
                for name, item in slices.items()
            }
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}") from error


def _compare(wanted: dict[str, Tensor], saved: dict[str, TensorSignature], path: Path) -> None:
    """Names, shapes and dtypes must match exactly."""
    _check_names(set(wanted), set(saved), str(path))
    for name, tensor in wanted.items():
        shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        if saved[name] != (shape, dtype):
            saved_shape, saved_dtype = saved[name]
            raise CheckpointError(f"{path}: {name} is {saved_dtype} {saved_shape}, wanted {dtype} {shape}")


def _check_names(wanted: set[str], names: set[str], where: str) -> None:
    if wanted != names:
        raise CheckpointError(
            f"{where}: missing {listed(sorted(wanted - names))}; unexpected {listed(sorted(names - wanted))}"
        )


def metadata_of(data: bytes) -> dict[str, str]:
    """The metadata of the header; safetensors has parsed the bytes before, so the header is valid JSON."""
    size = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + size]).get("__metadata__", {})
    return {str(key): str(value) for key, value in metadata.items()}
