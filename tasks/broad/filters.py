"""The filters of the two tasks from their learned numbers, one at a time or many candidates in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fwnkf import Filter, StepOutput, System, Trajectory, build
from fwnkf.core.preprocess import Inputs
from fwnkf.preprocess import (
    PreintegratedIMU,
    PreintegratedIMUConfig,
    TiltCompensatedMagnetometer,
    TiltCompensatedMagnetometerConfig,
)
from fwnkf.preprocess.magnetometer import leveled_field, with_heading
from fwnkf.shapes import Float
from fwnkf.systems import Handheld, HandheldConfig, HandheldMotion, Heading, HeadingConfig, HeadingMotion
from tasks.broad.trials import BLOCK

Numbers = dict[str, Any]
"""Constants of a system by the name in its configuration; ``delay`` in seconds; ``variance_scale`` of the tilt."""
NOT_OF_THE_SYSTEM = ("delay", "variance_scale")
Paths = Float[Tensor, "N T 4"]
TILT = slice(6, 9)
"""The orientation in the tangent space of the system ``handheld``."""


class Estimate(NamedTuple):
    """A filter's trajectory over its steps, and its orientation at every sample."""

    trajectory: Trajectory
    paths: Paths


def tilt_filter(numbers: Numbers, rate: float) -> Filter:
    """The filter without magnetometer for samples at ``rate`` hertz."""
    model = build("ekf", system=Handheld(HandheldConfig(**constants(numbers), dt=BLOCK / rate)).double())
    config = PreintegratedIMUConfig(sample_rate=rate, block=BLOCK, delay=numbers.get("delay", 0.0))
    model.preprocess = PreintegratedIMU(config, model.system)
    if "variance_scale" in numbers:
        model.calibrate_covariance(tilt_scale(model, numbers["variance_scale"]))
    return model


def tilt_scale(model: Filter, factor: float) -> Float[Tensor, " d"]:
    """A factor on the variances of the orientation, in the form the filter takes it."""
    scale = torch.ones(model.layout.tangent_size, dtype=torch.float64)
    scale[TILT] = factor
    return scale


def heading_filter(numbers: Numbers, tilt: Filter) -> Filter:
    """The filter with magnetometer, with a tilt filter inside."""
    model = build("ekf", system=Heading(HeadingConfig(**constants(numbers), dt=system_of(tilt).dt)).double())
    config = TiltCompensatedMagnetometerConfig(delay=numbers.get("delay", 0.0))
    model.preprocess = TiltCompensatedMagnetometer(config, model.system, tilt)
    return model


@torch.no_grad()
def run(model: Filter, samples: Float[Tensor, "N T 9"]) -> Estimate:
    """Raw samples through a filter, side by side."""
    front = model.preprocess
    if not isinstance(front, (PreintegratedIMU, TiltCompensatedMagnetometer)):
        raise TypeError("the filters of this task carry their preprocessing; this one has none")
    shown = samples[..., : front.observation_dim]
    trajectory = model.run(shown)
    return Estimate(trajectory, front.orientation(shown, trajectory))


def constants(numbers: Numbers) -> Numbers:
    """The fields of a system's configuration; a list, as read from JSON, becomes a tuple."""
    fields = {name: value for name, value in numbers.items() if name not in NOT_OF_THE_SYSTEM}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def system_of(model: Filter) -> System:
    """The equations of motion of a filter that has them."""
    if model.system is None:
        raise TypeError("the filters of this task are built on a system; this one has none")
    return model.system


# ---- many candidates in one batch -----------------------------------------------------------------------------------


def _stack(part: nn.Module, records: int, **tensors: list[Tensor]) -> None:
    for name, values in tensors.items():
        part.register_buffer(name, torch.stack(values).repeat_interleave(records, 0), persistent=False)


class HandheldMotions(HandheldMotion):
    """Several motions, each for as many consecutive records: a search costs little more than one run."""

    def __init__(self, motions: Sequence[HandheldMotion], records: int) -> None:
        super().__init__(motions[0].config)
        _stack(
            self,
            records,
            disturbance_matrices=[motion.disturbance_matrix(None) for motion in motions],
            process_noises=[motion.process_noise(None) for motion in motions],
            variances=[motion.initial_variances() for motion in motions],
            exponent=[motion.exponent for motion in motions],
        )

    def disturbance_matrix(self, dt: Tensor | None) -> Tensor:
        return self.get_buffer("disturbance_matrices")

    def process_noise(self, dt: Tensor | None) -> Tensor:
        return self.get_buffer("process_noises")

    def initial_variances(self) -> Tensor:
        return self.get_buffer("variances")


class HeadingMotions(HeadingMotion):
    """The same for headings."""

    def __init__(self, motions: Sequence[HeadingMotion], records: int) -> None:
        super().__init__(motions[0].config)
        _stack(
            self,
            records,
            decays=[torch.stack(motion.decay(None)) for motion in motions],
            process_noises=[motion.process_noise(None) for motion in motions],
            variances=[motion.initial_variances() for motion in motions],
        )

    def decay(self, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        rate, disturbance = self.get_buffer("decays").unbind(-2)
        return rate, disturbance

    def process_noise(self, dt: Tensor | None) -> Tensor:
        return self.get_buffer("process_noises")

    def initial_variances(self) -> Tensor:
        return self.get_buffer("variances")


class HandheldCandidates(Handheld):
    """The systems of several sets of numbers in one batch."""

    def __init__(self, systems: Sequence[Handheld], records: int) -> None:
        super().__init__(systems[0].config)
        self.motion = HandheldMotions([system.motion for system in systems], records)
        places = [system.get_buffer("sensors.position.displacement") for system in systems]
        _stack(self.get_submodule("sensors.position"), records, displacement=places)
        _stack(self, records, noises=[system.measurement_covariance() for system in systems])

    def measurement_covariance(self) -> Tensor:
        return self.get_buffer("noises")


class HeadingCandidates(Heading):
    """The same for headings."""

    def __init__(self, systems: Sequence[Heading], records: int) -> None:
        super().__init__(systems[0].config)
        self.motion = HeadingMotions([system.motion for system in systems], records)
        fields = [system.get_buffer("sensors.magnetometer.field") for system in systems]
        _stack(self.get_submodule("sensors.magnetometer"), records, field=fields)
        _stack(self, records, noises=[system.measurement_covariance() for system in systems])

    def measurement_covariance(self) -> Tensor:
        return self.get_buffer("noises")


@torch.no_grad()
def blocks_of(samples: Float[Tensor, "N T 9"], rate: float) -> Inputs:
    """What a tilt filter reads at each step; the same for all candidates."""
    imu = samples[..., :6]
    return tilt_filter({}, rate).preprocessed(Inputs(imu, torch.ones_like(imu), None, None))


@torch.no_grad()
def trajectories_of(candidates: Sequence[Numbers], blocks: Inputs, rate: float) -> list[Trajectory]:
    """What the filter of each candidate does with the same blocks, without the scale of its reported variances."""
    dt = BLOCK / rate
    systems = [Handheld(HandheldConfig(**constants(numbers), dt=dt)).double() for numbers in candidates]
    records, count = len(blocks.y), len(systems)
    together = build("ekf", system=HandheldCandidates(systems, records).double())
    assert blocks.u is not None
    mask = blocks.weight.bool().repeat(count, 1, 1)
    return _parts(together.run(blocks.y.repeat(count, 1, 1), blocks.u.repeat(count, 1, 1), mask), records)


@torch.no_grad()
def tilts_of(
    candidates: Sequence[Numbers], samples: Float[Tensor, "N T 9"], blocks: Inputs, rate: float
) -> list[Estimate]:
    """The orientations of each candidate, without magnetometer."""
    models = [tilt_filter(numbers, rate) for numbers in candidates]
    estimates = []
    for model, part in zip(models, trajectories_of(candidates, blocks, rate), strict=True):
        assert isinstance(model.preprocess, PreintegratedIMU)
        if model.covariance_scale is not None:
            root = model.covariance_scale.sqrt()
            part = part._replace(cov=part.cov * root.unsqueeze(-1) * root)
        estimates.append(Estimate(part, model.preprocess.orientation(samples[..., :6], part)))
    return estimates


@torch.no_grad()
def headings_of(
    candidates: Sequence[Numbers],
    samples: Float[Tensor, "N T 9"],
    paths: Paths,
    turning: Float[Tensor, "N K 1"],
    rate: float,
) -> list[Estimate]:
    """The orientations of each candidate: those of a tilt filter, rotated to north.

    ``turning`` is the norm of the rate at each step.
    """
    records, steps = turning.shape[:2]
    path, gyro, _, field = (
        item[:, : steps * BLOCK].unflatten(1, (steps, BLOCK)) for item in (paths, *samples.split(3, -1))
    )
    systems, y, u = [], [], []
    leveled = {
        delay: leveled_field(path, gyro, field, torch.ones_like(field), delay)
        for delay in {numbers.get("delay", 0.0) for numbers in candidates}
    }
    for numbers in candidates:
        systems.append(Heading(HeadingConfig(**constants(numbers), dt=BLOCK / rate)).double())
        now = leveled[numbers.get("delay", 0.0)]
        y.append(now.field)
        u.append(torch.cat((turning, now.orientation), -1))
    together = build("ekf", system=HeadingCandidates(systems, records).double())
    trajectory = together.run(torch.cat(y), torch.cat(u))
    estimates = []
    for system, field, control, part in zip(systems, y, u, _parts(trajectory, records), strict=True):
        first = system.initial_belief(field[:, :1], torch.ones_like(field[:, :1]), control[:, :1]).mean[:, :1]
        rotated = with_heading(paths, torch.cat((first, part.mean[..., 0]), 1), BLOCK)
        estimates.append(Estimate(part, rotated))
    return estimates


def _parts(trajectory: Trajectory, records: int) -> list[Trajectory]:
    """The trajectory of each candidate."""
    items = zip(*(getattr(trajectory, name).split(records) for name in StepOutput._fields), strict=True)
    # the state at the end is of all of them
    return [Trajectory(**StepOutput(*piece)._asdict(), state=None) for piece in items]
