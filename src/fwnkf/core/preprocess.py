"""What happens to raw samples before a filter: units, axes, biases, delays, averaging over blocks of samples.

A :class:`Preprocess` belongs to a filter (``filter.preprocess``), is saved with it, and is applied by ``run`` and
``step`` alike, so that a loaded filter takes the samples of the sensor as they come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ..registry import PREPROCESS, at_least, parse_config
from ..shapes import Float
from .gaussian import matvec
from .system import System


class Inputs(NamedTuple):
    """What one step of a filter reads; ``weight`` is 1 where a channel was measured, else 0."""

    y: Float[Tensor, "*B m"]
    weight: Float[Tensor, "*B m"]
    u: Float[Tensor, "*B p"] | None
    dt: Float[Tensor, "*B"] | None


class Preprocessed(NamedTuple):
    """The state of a filter with preprocessing: its memory of earlier samples, and the filter's own state."""

    preprocess: Any
    filter: Any


class Preprocess(nn.Module):
    """Base of all preprocessing: a pure function of its state and the samples of one step of the filter.

    ``block`` raw samples make one step. With ``block > 1`` a step reads ``[B, block, …]`` and ``run`` gives one output
    for each whole block; samples that do not fill a block at the end are left out.
    """

    Config: ClassVar[type]
    observation_dim: int
    """Channels of a raw sample."""
    control_dim: int = 0
    """Raw control inputs."""
    block: int = 1
    inner: Any = None
    """A filter that runs inside the preprocessing, where there is one: it is saved and loaded with it."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    def init(self, batch: int, like: Tensor) -> Any:
        """The memory before the first sample: a tuple of tensors with a batch axis, empty for most."""
        return ()

    def forward(self, state: Any, raw: Inputs) -> tuple[Any, Inputs]:
        """The next memory, and what the filter reads."""
        raise NotImplementedError


@dataclass(frozen=True)
class CalibrationConfig:
    """Sizes of a :class:`Calibration`; the numbers themselves are tensors of the module."""

    channels: int = at_least(1, 1)
    block: int = at_least(1, 1)


@PREPROCESS.register("calibration")
class Calibration(Preprocess):
    """``y' = A (y - b)``, then the mean over a block: constant bias, and units, axes or scale in ``A``.

    Channels are taken as missing where any channel that enters them is missing; the mean is over the samples that are
    there. Control and ``dt`` are handed on, of a block the mean and the sum.

    >>> unit = Calibration(CalibrationConfig(channels=2), bias=torch.ones(2))
    >>> unit((), Inputs(torch.zeros(1, 2), torch.ones(1, 2), None, None))[1].y
    tensor([[-1., -1.]])
    """

    Config = CalibrationConfig
    bias: Tensor
    matrix: Tensor

    def __init__(
        self,
        config: CalibrationConfig,
        system: System | None = None,
        *,
        bias: Tensor | None = None,
        matrix: Tensor | None = None,
    ) -> None:
        super().__init__(config)
        self.observation_dim, self.block = config.channels, config.block
        self.control_dim = 0 if system is None else system.control_dim
        self.register_buffer("bias", torch.zeros(config.channels) if bias is None else bias.clone())
        self.register_buffer("matrix", torch.eye(config.channels) if matrix is None else matrix.clone())

    def forward(self, state: Any, raw: Inputs) -> tuple[Any, Inputs]:
        missing = matvec((self.matrix != 0).to(raw.y), 1 - raw.weight)
        weight = (missing == 0).to(raw.y)
        y = matvec(self.matrix, (raw.y - self.bias) * raw.weight) * weight
        if self.block == 1:
            return state, Inputs(y, weight, raw.u, raw.dt)
        count = weight.sum(1)
        u, dt = (None if raw.u is None else raw.u.mean(1)), (None if raw.dt is None else raw.dt.sum(1))
        return state, Inputs(y.sum(1) / count.clamp_min(1), (count > 0).to(y), u, dt)


def grouped(item: Tensor | None, block: int) -> Tensor | None:
    """``[B, T, …]`` as ``[B, T // block, block, …]``; a rest that fills no block is left out."""
    if item is None or block == 1:
        return item
    whole = item.shape[1] // block
    return item[:, : whole * block].unflatten(1, (whole, block))


def build_preprocess(name: str, config: dict[str, Any], system: System | None, inner: Any = None) -> Preprocess:
    """A registered preprocessing from its name and plain configuration; its tensors are loaded afterwards."""
    cls = PREPROCESS[name]
    parsed = parse_config(cls.Config, config, f"preprocess {name}")
    built: Preprocess = cls(parsed, system) if inner is None else cls(parsed, system, inner)
    return built
