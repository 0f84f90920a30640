"""Preprocessing of raw samples before a filter: units, axes, biases, delays, averaging over blocks of samples.

A :class:`Preprocess` belongs to a filter (``filter.preprocess``), is saved with it, and is applied by both ``run`` and
``step``, so that a loaded filter takes the raw samples of the sensor.
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
    """The inputs of one step of a filter; ``weight`` is 1 where a channel was measured, else 0."""

    y: Float[Tensor, "*B m"]
    weight: Float[Tensor, "*B m"]
    u: Float[Tensor, "*B p"] | None
    dt: Float[Tensor, "*B"] | None


class Preprocessed(NamedTuple):
    """The state of a filter with preprocessing: the memory of the preprocessing and the filter's own state."""

    preprocess: Any
    filter: Any


class Preprocess(nn.Module):
    """Base class of all preprocessing: a pure function of its memory and the raw samples of one step.

    One step of the filter takes ``block`` raw samples. With ``block > 1`` a step reads ``[B, block, …]`` and ``run``
    returns one output for each complete block; an incomplete block at the end is dropped. A subclass implements
    :meth:`forward`, and :meth:`init` if it has a memory.

    Args:
        config: options, a frozen dataclass of plain values; saved with the filter.

    >>> import torch, fwnkf
    >>> from fwnkf.core.preprocess import Calibration, CalibrationConfig
    >>> kf = fwnkf.KF(F=torch.eye(1), H=torch.eye(1), Q=torch.eye(1), R=torch.eye(1))
    >>> kf.preprocess = Calibration(CalibrationConfig(channels=1, block=10))
    >>> kf.run(torch.zeros(1, 100, 1)).mean.shape  # one output for ten samples
    torch.Size([1, 10, 1])
    """

    Config: ClassVar[type]
    observation_dim: int
    """Number of channels of a raw sample."""
    control_dim: int = 0
    """Number of raw control inputs."""
    block: int = 1
    """Number of raw samples that one step of the filter reads."""
    inner: Any
    """An optional filter that runs inside the preprocessing; it is saved and loaded with it."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.inner = None  # set on the instance, because a class attribute would hide a module assigned to it

    def init(self, batch: int, like: Tensor) -> Any:
        """The memory before the first sample.

        Args:
            batch: number of batch items.
            like: a tensor with the dtype and device of the filter.

        Returns:
            A tuple of tensors with a batch axis, empty by default.
        """
        return ()

    def forward(self, state: Any, raw: Inputs) -> tuple[Any, Inputs]:
        """Turn the raw samples of one step into the inputs of the filter.

        Args:
            state: the memory of the step before.
            raw: the raw inputs; with ``block > 1`` they have a second axis, the samples of the block.

        Returns:
            The next memory and the inputs of the filter.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class CalibrationConfig:
    """Sizes of a :class:`Calibration`; bias and matrix are tensors of the module."""

    channels: int = at_least(1, 1)
    """Number of channels of a raw sample."""
    block: int = at_least(1, 1)
    """Number of samples in a block."""


@PREPROCESS.register("calibration")
class Calibration(Preprocess):
    """``y' = A (y - b)``, then the mean over a block: constant bias ``b``; units, axes and scale factors in ``A``.

    An output channel is missing where any input channel with a nonzero entry in its row of ``A`` is missing. The mean
    is over the samples that are not missing. For a block the control is averaged and ``dt`` is summed.

    Args:
        config: sizes.
        system: that of the filter, whose controls are passed on.
        bias: ``b``, one number for each channel; by default zero.
        matrix: ``A``; by default the identity.

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
    """``[B, T, …]`` as ``[B, T // block, block, …]``; an incomplete block at the end is dropped."""
    if item is None or block == 1:
        return item
    whole = item.shape[1] // block
    return item[:, : whole * block].unflatten(1, (whole, block))


def build_preprocess(name: str, config: dict[str, Any], system: System | None, inner: Any = None) -> Preprocess:
    """Build a registered preprocessing from its name and plain configuration; its tensors are loaded afterwards."""
    cls = PREPROCESS[name]
    parsed = parse_config(cls.Config, config, f"preprocess {name}")
    built: Preprocess = cls(parsed, system) if inner is None else cls(parsed, system, inner)
    return built
