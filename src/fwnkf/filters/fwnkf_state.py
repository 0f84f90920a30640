"""What an FW-NKF hands on: from step to step, from ``prepare`` to all steps, and within a step."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..core.gaussian import Noise
from ..core.levels import Levels
from ..core.shaped import Shaper
from .networks import CellWeights, Hidden
from .shaping import OscillatorMatrices


class FWState(NamedTuple):
    """Everything the next step needs.

    ``cov`` is over the state, over ``[state; noise states]``, or over ``[state error; shaper memory]``, as configured;
    with ``solve="square_root"`` it holds the factors of :mod:`fwnkf.core.ud`. ``levels`` is empty where none is
    tracked.
    """

    mean: Tensor
    cov: Tensor
    noise: Tensor
    memory: Tensor
    seen: Tensor
    hidden: Hidden
    levels: Levels | tuple[()] = ()


class Prepared(NamedTuple):
    """What no step changes, from raw parameters once per run."""

    cells: tuple[CellWeights, ...]
    Q: Tensor
    R: Noise
    base: Tensor
    shaper: Tensor | None
    blocks: Shaper | None
    oscillators: OscillatorMatrices | None


class Prediction(NamedTuple):
    """One step before its measurement: prior mean, linear models, noises, and the encoder's new memory."""

    mean: Tensor
    F: Tensor
    Q: Tensor
    observed: Tensor
    H: Tensor
    noise: Noise
    hidden: Hidden
