"""States of many devices as rows of bytes, and the tables they are kept in from one chunk of a log to the next."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..checkpoint import CONFIG_FILE, TENSOR_FILE
from ..core.tree import named_leaves, tree_unflatten
from ..errors import CheckpointError
from ..extras import need
from ..filters.base import Filter

Bytes = NDArray[np.uint8]
METADATA = b"fwnkf.states"


class Snapshots(NamedTuple):
    """The state of each device after its last sample, and what the next step needs beside it."""

    device: NDArray[np.object_]
    time: NDArray[np.float64]
    """Seconds: of the last sample."""
    control: NDArray[np.float64]
    """``[devices, controls]``: the values that act until the next sample."""
    state: Bytes
    """``[devices, bytes]``: all tensors of the state, one after the other."""

    def take(self, rows: NDArray[Any]) -> Snapshots:
        """Some of the devices."""
        return Snapshots(*(item[rows] for item in self))


def filter_digest(folder: str | Path) -> str:
    """A name for a saved filter that changes with any of its bytes."""
    parts = (Path(folder) / CONFIG_FILE, Path(folder) / TENSOR_FILE)
    return hashlib.sha256(b"".join(hashlib.sha256(part.read_bytes()).digest() for part in parts)).hexdigest()


class StateBytes:
    """Converts the state of a batch to rows of bytes and back, without any change of a bit.

    >>> import fwnkf
    >>> one = torch.eye(1)
    >>> kf = fwnkf.KF(F=one, H=one, Q=one, R=one)
    >>> codec = StateBytes(kf)
    >>> rows = codec.pack(kf.init(3))
    >>> rows.shape, torch.equal(codec.unpack(rows).cov, kf.init(3).cov)
    ((3, 8), True)
    """

    def __init__(self, model: Filter) -> None:
        self.template = model.init(1)
        self.device = model.device
        self.controls = model.input_sizes.controls
        leaves = list(named_leaves(self.template))
        self.names = [name for name, _ in leaves]
        self.shapes = [tuple(leaf.shape[1:]) for _, leaf in leaves]
        self.dtypes = [leaf.dtype for _, leaf in leaves]
        self.sizes = [leaf[0].numel() * leaf.element_size() for _, leaf in leaves]

    @property
    def size(self) -> int:
        """Bytes of the state of one device."""
        return sum(self.sizes)

    def pack(self, state: Any) -> Bytes:
        """``[B, size]`` from a state of batch ``B``."""
        parts = [_as_bytes(leaf) for _, leaf in named_leaves(state)]
        return np.concatenate(parts, 1)

    def unpack(self, rows: Bytes) -> Any:
        """The state of the batch from which the rows were packed."""
        if rows.ndim != 2 or rows.shape[1] != self.size:
            raise CheckpointError(f"states of {rows.shape[-1]} bytes; a state of this filter has {self.size}")
        parts = np.split(rows, np.cumsum(self.sizes)[:-1], 1)
        leaves = [
            torch.from_numpy(np.ascontiguousarray(part)).view(dtype).reshape(len(rows), *shape).to(self.device)
            for part, dtype, shape in zip(parts, self.dtypes, self.shapes, strict=True)
        ]
        return tree_unflatten(self.template, iter(leaves))

    def seal(self, row: Bytes, label: bytes) -> bytes:
        """A row as bytes with a checksum over it, the layout of the state and a label, such as the device it is of."""
        data = row.tobytes()
        return data + self._checksum(data, label)

    def unseal(self, data: bytes, label: bytes) -> Bytes:
        """The row from :meth:`seal`; raises CheckpointError if a bit has changed, or it is of something else."""
        state, checksum = data[: self.size], data[self.size :]
        if checksum != self._checksum(state, label):
            raise CheckpointError(
                f"a state of {len(data)} bytes is damaged, of another filter, or not that of {ascii(label)[1:][:80]}"
            )
        return np.frombuffer(state, np.uint8)

    def _checksum(self, data: bytes, label: bytes) -> bytes:
        layout = json.dumps(self.describe()).encode()
        parts = (hashlib.sha256(part).digest() for part in (layout, label, data))
        return hashlib.sha256(b"".join(parts)).digest()

    def describe(self) -> list[list[Any]]:
        """Names, shapes and types of the tensors in a row."""
        return [
            [name, list(shape), str(dtype).removeprefix("torch.")]
            for name, shape, dtype in zip(self.names, self.shapes, self.dtypes, strict=True)
        ]


def _as_bytes(leaf: Tensor) -> Bytes:
    # a copy: with a single item any stride counts as contiguous, but not for a view of bytes
    flat = leaf.detach().cpu().clone(memory_format=torch.contiguous_format).reshape(len(leaf), -1)
    return flat.view(torch.uint8).numpy() if flat.shape[1] else np.empty((len(leaf), 0), np.uint8)


def states_table(snapshots: Snapshots, codec: StateBytes, digest: str) -> Any:
    """Snapshots as an Arrow table; its metadata say of which filter they are."""
    arrow = need("pyarrow", "scale")
    count, width = snapshots.state.shape
    binary = arrow.binary(width)
    state = arrow.FixedSizeBinaryArray.from_buffers(
        binary, count, [None, arrow.py_buffer(np.ascontiguousarray(snapshots.state))]
    )
    columns = {"device": arrow.array(snapshots.device, arrow.string()), "time": snapshots.time}
    columns |= {f"control_{k}": snapshots.control[:, k] for k in range(snapshots.control.shape[1])}
    columns["state"] = state
    about = {"filter": digest, "controls": snapshots.control.shape[1], "tensors": codec.describe()}
    return arrow.table(columns).replace_schema_metadata({METADATA: json.dumps(about).encode()})


def read_states(table: Any, codec: StateBytes, digest: str, where: str) -> Snapshots:
    """The snapshots of a table; raises CheckpointError if they are of another filter."""
    try:
        about = json.loads((table.schema.metadata or {}).get(METADATA, b"{}"))
    except (ValueError, RecursionError):
        about = None
    about = about if isinstance(about, dict) else {}
    if about.get("filter") != digest or about.get("tensors") != codec.describe():
        raise CheckpointError(
            f"{where} has states of another filter (digest {str(about.get('filter'))[:12]!r}, this one is "
            f"{digest[:12]}); states go on with the filter that made them: use another --output for this one"
        )
    arrow = need("pyarrow", "scale")
    controls = [f"control_{k}" for k in range(codec.controls)]
    number = arrow.float64()
    wanted = {"device": arrow.string(), "time": number, **dict.fromkeys(controls, number)}
    wanted["state"] = arrow.binary(codec.size)
    if dict(zip(table.column_names, table.schema.types, strict=True)) != wanted or any(
        column.null_count for column in table.columns
    ):
        raise CheckpointError(f"{where} is damaged: its columns are not those of states")
    device = np.array(table.column("device").to_pylist(), object)
    control = [table.column(name).to_numpy() for name in controls]
    state = table.column("state").combine_chunks()
    buffer = np.frombuffer(state.buffers()[1], np.uint8) if len(state) else np.empty(0, np.uint8)
    rows = buffer[state.offset * codec.size :][: len(state) * codec.size].reshape(len(state), codec.size)
    return Snapshots(
        device, table.column("time").to_numpy(), np.stack(control, 1) if control else np.empty((len(device), 0)), rows
    )


def latest(parts: Sequence[Snapshots]) -> Snapshots | None:
    """One snapshot for each device, the latest where there are several."""
    if not parts:
        return None
    joined = Snapshots(*(np.concatenate(items) for items in zip(*parts, strict=True)))
    order = np.lexsort((joined.time, joined.device.astype(str)))
    names = joined.device[order]
    last = np.append(names[1:] != names[:-1], True)
    return joined.take(order[last])
