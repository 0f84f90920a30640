"""BROAD at twelve steps a second: what a strapdown filter needs of the samples in between, without loss.

Within a block of samples the gyroscope turns every force into the frame of the block, so that vibration averages out
where it should: in a frame that does not turn with the sensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.core.gaussian import matvec
from fwnkf.data import broad, catalogue
from fwnkf.data.recording import Recording
from fwnkf.errors import DataError
from fwnkf.shapes import Bool, Float

TRAIN = ("01", "06", "08", "12", "16", "21")
"""Undisturbed trials: rotation, translation and both, slow and fast."""
TEST = ("24", "25", "26", "27")
"""Tapping and a vibrating phone."""
SAMPLES = 24
"""In a block: 84 ms."""
REST_SECONDS, REST_MEMORY = 1.5, 0.5
REST_RATE, REST_FORCE = math.radians(2.0), 0.5
"""VQF's thresholds of rest, in rad/s and m/s², against means of half a second."""
SPEED_MEMORY, SPEED_LEAK = 3.0, 1.0
"""Seconds: over which the speed of the hand is averaged, and over which force becomes speed."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """One trial in blocks; the samples left over at its end belong to no block."""

    trial: Recording
    rate: Float[Tensor, "K 3"]
    """The constant rate that turns as the samples did, rad/s."""
    force: Float[Tensor, "K 3"]
    """Mean specific force in the frame halfway, m/s²."""
    turned: Float[Tensor, "K N 4"]
    """Orientation after each sample relative to the block's begin, by the gyroscope alone."""
    resting: Bool[Tensor, " K"]
    speed: Float[Tensor, " K"]
    """Of the hand, root mean square of an axis, m/s: see :func:`speeds`."""
    dt: float

    def part(self, count: int) -> Blocks:
        """The first blocks, with the samples that belong to them."""
        trial = self.trial.slice(0, count * SAMPLES)
        rate, force, speed = self.rate[:count], self.force[:count], self.speed[:count]
        return Blocks(trial, rate, force, self.turned[:count], self.resting[:count], speed, self.dt)


def trials(names: Sequence[str], folder: Path | None = None) -> list[Blocks]:
    """Trials by number, in blocks; ``folder`` is ``$FWNKF_DATA/broad`` unless given."""
    place = catalogue.folder_of("broad") if folder is None else folder
    found = {name[:2]: path for name, path in broad.find(place).items()}
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(f"{place}: no trial {', '.join(missing)}. {catalogue.info('broad').manual}")
    return [in_blocks(broad.read(found[name])) for name in names]


def in_blocks(trial: Recording) -> Blocks:
    """Gyroscope and accelerometer integrated over blocks of :data:`SAMPLES`."""
    if not bool(trial.mask[:, :6].all()):
        raise DataError(f"{trial.name}: a sample of gyroscope or accelerometer is missing")
    step, count = 1 / trial.rate, len(trial.time) // SAMPLES
    samples = trial.observations[: count * SAMPLES, :6].unflatten(0, (count, SAMPLES))
    q = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=samples.dtype).expand(count, 4)
    total, turned = torch.zeros_like(samples[:, 0, 3:]), []
    for gyro, force in ((sample[:, :3], sample[:, 3:]) for sample in samples.unbind(1)):
        halfway = rotation.multiply(q, rotation.exp(gyro * step / 2))
        total = total + matvec(rotation.to_matrix(halfway), force)
        q = rotation.multiply(q, rotation.exp(gyro * step))
        turned.append(q)
    dt = SAMPLES * step
    rate = rotation.log(q) / dt
    middle = matvec(rotation.to_matrix(rotation.exp(-rate * dt / 2)), total / SAMPLES)
    still, speed = resting(rate, middle, dt), speeds(rate, middle, dt)
    return Blocks(trial, rate, middle, torch.stack(turned, 1), still, speed, dt)


def resting(rate: Float[Tensor, "K 3"], force: Float[Tensor, "K 3"], dt: float) -> Bool[Tensor, " K"]:
    """Whether the sensor has not moved for a while: causal, by deviations from short means, as VQF does it."""
    both = torch.cat((rate, force), -1)
    mean, kept, since, found = both[0], math.exp(-dt / REST_MEMORY), 0.0, []
    for now in both.unbind(0):
        mean = kept * mean + (1 - kept) * now
        apart = now - mean
        still = apart[:3].norm() < REST_RATE and apart[3:].norm() < REST_FORCE and mean[:3].abs().max() < REST_RATE
        since = since + dt if bool(still) else 0.0
        found.append(since >= REST_SECONDS)
    return torch.tensor(found)


def speeds(rate: Float[Tensor, "K 3"], force: Float[Tensor, "K 3"], dt: float) -> Float[Tensor, " K"]:
    """How fast the hand moves to and fro, from the sensors alone and causal.

    In the frame the gyroscope holds, gravity is what stays; what is left of the force is summed up as far as a leaky
    sum can. The frame's slow drift falls out with the means.
    """
    q, turned = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=rate.dtype), []
    for half in rotation.exp(rate * dt / 2).unbind(0):
        q = rotation.multiply(q, half)
        turned.append(q)
        q = rotation.multiply(q, half)
    still = matvec(rotation.to_matrix(torch.stack(turned)), force)
    pull = still - running_mean(still, SPEED_MEMORY, dt)
    velocity = SPEED_LEAK * running_mean(pull, SPEED_LEAK, dt)
    velocity = velocity - running_mean(velocity, SPEED_MEMORY, dt)
    return running_mean(velocity.square().mean(-1, keepdim=True), SPEED_MEMORY, dt).sqrt().squeeze(-1)


def running_mean(x: Float[Tensor, "K n"], seconds: float, dt: float) -> Float[Tensor, "K n"]:
    """``m ← r m + (1 - r) x`` with ``r = exp(-dt / seconds)``, from the first value on."""
    kept, mean, found = math.exp(-dt / seconds), x[0], []
    for now in x.unbind(0):
        mean = kept * mean + (1 - kept) * now
        found.append(mean)
    return torch.stack(found)


def magnetic(
    blocks: Blocks, path: Float[Tensor, "T 4"], delay: float
) -> tuple[Float[Tensor, "K 3"], Float[Tensor, "K 4"]]:
    """Of each block the mean magnetic field in the frame of ``path``, and the sensor's orientation there halfway.

    Every reading is ``delay`` seconds old, so that the orientation it was made in has to be turned back.
    """
    count = len(blocks.rate)
    then = turned_on(path[: count * SAMPLES], blocks.trial, -delay).unflatten(0, (count, SAMPLES))
    field = blocks.trial.observations[: count * SAMPLES, 6:].unflatten(0, (count, SAMPLES))
    return matvec(rotation.to_matrix(then), field.to(then)).mean(1), then[:, SAMPLES // 2]


def headed(path: Float[Tensor, "T 4"], headings: Float[Tensor, " K"]) -> Float[Tensor, "T 4"]:
    """The path turned about the vertical; the first heading is the start's, the others hold after each block."""
    known = headings.repeat_interleave(SAMPLES)[: len(path)].to(path)
    zero = torch.zeros_like(known)
    return rotation.multiply(rotation.exp(torch.stack((zero, zero, known), -1)), path)


def at_samples(
    blocks: Blocks, start: Float[Tensor, " 4"], q: Float[Tensor, "K 4"], bias: Float[Tensor, "K 3"], delay: float = 0.0
) -> Float[Tensor, "T 4"]:
    """The orientation at every sample, causal: the last estimate and the gyroscope since, less its bias.

    The samples left over at the end go on from the last block's estimate. Readings that are ``delay`` seconds old are
    turned on by as much, at the rate of the sample itself.
    """
    bias = bias.to(blocks.rate)
    before = torch.cat((start[None], q[:-1])).to(blocks.rate)
    drift = torch.cat((torch.zeros_like(bias[:1]), bias[:-1]))
    seconds = torch.arange(1, SAMPLES + 1).to(bias) * (blocks.dt / SAMPLES)
    within = rotation.multiply(before.unsqueeze(1), blocks.turned)
    within = rotation.multiply(within, rotation.exp(-drift.unsqueeze(1) * seconds.unsqueeze(-1)))
    within = torch.cat((within[:, :-1], q.to(bias).unsqueeze(1)), 1).flatten(0, 1)
    tail, last = [], within[-1]
    for gyro in blocks.trial.observations[len(within) :, :3].unbind(0):
        last = rotation.multiply(last, rotation.exp((gyro - bias[-1]) * (blocks.dt / SAMPLES)))
        tail.append(last)
    path = torch.cat((within, torch.stack(tail))) if tail else within
    return turned_on(path, blocks.trial, delay)


def turned_on(path: Float[Tensor, "T 4"], trial: Recording, seconds: float) -> Float[Tensor, "T 4"]:
    """Where an orientation of every sample will be shortly, at the rate of that sample (less no bias: it is small)."""
    gyro = trial.observations[: len(path), :3].to(path)
    return rotation.multiply(path, rotation.exp(gyro * seconds))
