"""What a module computes with, as a key: equal keys, equal constants in the code that is made of it."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

PLAIN = (bool, int, float, complex, str, bytes, enum.Enum, torch.dtype, torch.device, type(None))

INTERNAL = vars(nn.Module()).keys() - {"training"}
"""Where modules keep their parts, tensors and hooks."""


def key_of(module: nn.Module) -> tuple[Any, ...]:
    """A key that changes with the module: its parts, their plain attributes, and the bytes of its tensors.

    Parameters may be changed in place between two runs, so that they are read every time; they are small. Objects of
    other kinds (functions, generators) count as the same while they are the same object; what a function of the user's
    closes over is not seen.

    >>> import torch
    >>> layer = torch.nn.Linear(2, 1)
    >>> before = key_of(layer)
    >>> before == key_of(layer)
    True
    >>> _ = layer.weight.data.mul_(2)
    >>> before == key_of(layer)
    False
    """
    digest, parts = hashlib.sha256(), []
    for name, part in module.named_modules():
        held = {**part._parameters, **part._buffers}
        for tensor in held.values():
            if tensor is not None:
                digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        plain = {key: item for key, item in vars(part).items() if key not in INTERNAL}
        parts.append((name, type(part), _frozen(held), _frozen(plain)))
    return (*parts, digest.digest())


def _frozen(item: Any) -> Any:
    if isinstance(item, PLAIN):
        return type(item), item if item == item else "nan"
    if isinstance(item, Tensor):
        return item.shape, item.dtype, item.device
    if isinstance(item, nn.Module):
        return "module"  # one of the parts
    if isinstance(item, list | tuple):
        return type(item), tuple([_frozen(part) for part in item])
    if isinstance(item, Mapping):
        return type(item), tuple([(key, _frozen(part)) for key, part in item.items()])
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return type(item), tuple([_frozen(getattr(item, field.name)) for field in dataclasses.fields(item)])
    return Same(item)


class Same:
    """Equal to another one of the same object, which it keeps alive, so that its identity is not given away."""

    __slots__ = ("item",)

    def __init__(self, item: Any) -> None:
        self.item = item

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.item is other.item

    def __hash__(self) -> int:
        return id(self.item)
