"""A filter and a loss of your own, trained and compared with a filter of the package: the example of ``train.md``.

    python docs/howto/own_filter.py                       # both filters, two seeds, one table
    python docs/howto/own_filter.py train my.yaml         # the command line with your filter

The filter is a common remedy for coloured noise: an extended Kalman filter with a larger measurement covariance, here
with two learned factors on ``Q`` and ``R``. The loss limits the influence of single large errors.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import fwnkf
from fwnkf.cli import main as command_line
from fwnkf.core.trajectory import Trajectory
from fwnkf.filters.extended import ExtendedConfig, ExtendedKalmanFilter, Noises
from fwnkf.registry import limited
from fwnkf.training.losses import LOSSES, Batch, Loss, mean_over

# ---- the filter -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TunedConfig(ExtendedConfig):
    """``trust`` is the initial factor on ``R``."""

    trust: float = limited(1.0, above=0.0)


@fwnkf.register_filter("tuned_ekf")
class TunedKalmanFilter(ExtendedKalmanFilter):
    """EKF with ``a Q`` and ``b R`` instead of the ``Q`` and ``R`` of its system; ``a`` and ``b`` are learned."""

    Config = TunedConfig

    def setup(self, config: TunedConfig, system: fwnkf.System | None, arrays: dict[str, Tensor]) -> None:
        super().setup(config, system, arrays)
        self.log_model = nn.Parameter(torch.zeros(()))
        self.log_sensor = nn.Parameter(torch.tensor(math.log(config.trust)))  # the factor is positive for any value

    def prepare(self) -> Noises:
        nominal, R = super().prepare()
        return Noises(nominal, type(R)(*(self.log_sensor.exp() * part for part in R)))

    def transition_model(
        self, prepared: Noises, x: Tensor, u: Tensor | None, dt: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean, F, Q = super().transition_model(prepared, x, u, dt)
        return mean, F, self.log_model.exp() * Q


# ---- the loss -------------------------------------------------------------------------------------------------------


@LOSSES.register("bounded")
@dataclass(frozen=True)
class BoundedLoss(Loss):
    """``log(1 + |e|² / size²)`` of the posterior mean: quadratic for small errors, logarithmic for large ones."""

    size: float = limited(1.0, above=0.0)

    def __call__(self, model: fwnkf.Filter, batch: Batch, track: Trajectory) -> Tensor:
        error = model.layout.boxminus(track.mean, batch.truth)
        return mean_over(self.counted(batch), (error.square().sum(-1) / self.size**2).log1p())


# ---- the comparison -------------------------------------------------------------------------------------------------

EXPERIMENT = Path(__file__).with_suffix(".yaml")
FILTERS = {
    "tuned_ekf": ["filter.name=tuned_ekf", "loss=[{kind: bounded, size: 0.5}]"],
    "fwnkf": ["filter.name=fwnkf", "filter.options={noise: {part: lines}, encoder: {units: 16}}"],
}


def compare(folder: Path, seeds: int, overrides: list[str], more: tuple[str, ...] = ()) -> int:
    """Train every filter with every seed on the same records, and print one table."""
    runs = []
    for name, options in FILTERS.items():
        for seed in range(seeds):
            runs.append(str(folder / f"{name}-{seed}"))
            overridden = [f"name={name}", *options, *overrides]
            sets = [word for text in overridden for word in ("--set", text)]
            target = ["--seed", str(seed), "--run", runs[-1]]
            code = command_line(["train", str(EXPERIMENT), *sets, *target, "--no-plots", *more])
            if code:
                return code
    return command_line(["compare", *runs])


if __name__ == "__main__":
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        sys.exit(command_line())
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/own_filter"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="as in `fwnkf train`")
    options = parser.parse_args()
    sys.exit(compare(options.folder, options.seeds, options.set))
