"""Faults of sensors and clocks: range, sign, axis, scale, bias, samples, stamps, magnetometer, GNSS."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..flights import GRAVITY
from .draft import Draft
from .labels import GYRO_FAULT, Label
from .vibration import CHANNELS

GYRO_LIMIT = np.deg2rad(250.0)
"""rad/s: a gyro that was left at its smallest range."""


def clipped_accel(draft: Draft) -> None:
    """Shaking beyond the range of the accelerometer."""
    generator = draft.generator
    limit = GRAVITY * float(generator.choice([2, 4, 8]))
    centre = GRAVITY if limit < 3 * GRAVITY else 0.0
    size = (limit - centre) / float(generator.uniform(2.2, 2.9))
    moving = (draft.motion.speed.mean(1) / draft.craft.hover)[:, None] ** 2
    values = draft.values[:, 3:] + size * generator.normal(size=(len(draft.values), 3)) * np.clip(moving, 0, 1.3)
    share = float((np.abs(values) >= limit).any(1).mean())
    draft.values[:, 3:] = np.clip(values, -limit, limit)
    # lines of the accelerometer are below this shaking: what the gyro has of them decides
    draft.labels[:] = [
        label if strongest_gyro(label) >= GYRO_FAULT else replace(label, required=False) for label in draft.labels
    ]
    draft.labels.append(
        Label("clipping", "accelerometer", channels=CHANNELS[3:], figures={"limit": limit, "share": share})
    )
    draft.labels.append(Label("broadband", "the shaking that is clipped", required=False))


def strongest_gyro(label: Label) -> float:
    """Amplitude (rad/s) of the strongest line of a label in the gyro; of a label without lines, infinite."""
    sizes = [size for line in label.lines for name, size in line.amplitude.items() if name.startswith("gyro")]
    return max(sizes, default=np.inf)


def clipped_gyro(draft: Draft) -> None:
    """Flips faster than the range of the gyro; the flips are part of the motion."""
    share = float((np.abs(draft.values[:, :3]) >= GYRO_LIMIT).any(1).mean())
    draft.values[:, :3] = np.clip(draft.values[:, :3], -GYRO_LIMIT, GYRO_LIMIT)
    draft.labels.append(Label("clipping", "gyro", channels=CHANNELS[:3], figures={"limit": GYRO_LIMIT, "share": share}))
    for cause in ("drift", "bias_step", "scale"):  # the angle that is missing against the attitude
        draft.labels.append(Label(cause, "the angle that was clipped", required=False))


def axis_sign(draft: Draft) -> None:
    """One axis of the gyro is mirrored."""
    axis = int(draft.generator.integers(3))
    draft.values[:, axis] *= -1
    draft.labels.append(Label("axis_sign", "mirrored axis", channels=(CHANNELS[axis],)))


def axis_swap(draft: Draft) -> None:
    """Two axes of the gyro are exchanged; without a change of handedness one of them is mirrored as well."""
    first, second = draft.generator.choice(3, size=2, replace=False).tolist()
    draft.values[:, [first, second]] = draft.values[:, [second, first]]
    if draft.generator.random() < 0.5:
        draft.values[:, second] *= -1
    draft.labels.append(Label("axis_swap", "exchanged axes", channels=(CHANNELS[first], CHANNELS[second])))


def scale(draft: Draft) -> None:
    """Gyro in degrees or off by a factor; accelerometer in g or off by a factor."""
    generator = draft.generator
    factor = float(generator.uniform(1.25, 2.0))
    factor = 1 / factor if generator.random() < 0.5 else factor
    sensor = "gyro" if draft.craft.pose and generator.random() < 0.6 else "accel"
    columns = range(3) if sensor == "gyro" else range(3, 6)
    if generator.random() < 0.3:
        factor = 180 / np.pi if sensor == "gyro" else 1 / GRAVITY
    draft.values[:, list(columns)] *= factor
    channels = tuple(CHANNELS[column] for column in columns)
    draft.labels.append(Label("scale", f"{sensor} by {factor:.3g}", channels=channels, figures={"factor": factor}))


def bias_step(draft: Draft) -> None:
    """The bias of a gyro axis jumps."""
    motion, generator = draft.motion, draft.generator
    axis = int(generator.integers(3))
    at = float(generator.uniform(motion.begin + 3, motion.end - 3))
    size = float(generator.uniform(0.06, 0.2)) * float(generator.choice([-1, 1]))
    draft.values[motion.time >= at, axis] += size
    figures = {"at_s": at, "step": size}
    draft.labels.append(Label("bias_step", "gyro", ("drift",), (CHANNELS[axis],), figures=figures))


def drift(draft: Draft) -> None:
    """The bias of a gyro axis follows the temperature of the sensor."""
    motion, generator = draft.motion, draft.generator
    axis = int(generator.integers(3))
    change = float(generator.uniform(8, 25)) * float(generator.choice([-1, 1]))
    rise = 1 - np.exp(-motion.time / (draft.craft.seconds * float(generator.uniform(0.3, 1.0))))
    temperature = 35 + change * rise / rise[-1]
    size = float(generator.uniform(0.08, 0.2)) * float(generator.choice([-1, 1]))
    draft.values[:, axis] += size * rise / rise[-1]
    if generator.random() < 0.5:
        draft.temperature = temperature + 0.02 * generator.normal(size=len(temperature))
    draft.labels.append(Label("drift", "temperature", channels=(CHANNELS[axis],), figures={"change": size}))


def interference(draft: Draft) -> None:
    """The field of the supply current at the magnetometer."""
    generator = draft.generator
    direction = generator.normal(size=3)
    size = float(generator.uniform(8, 30))
    draft.mag_per_ampere = size / 18.5 * direction / np.linalg.norm(direction)
    draft.labels.append(
        Label("interference", "current", channels=("mag_x", "mag_y", "mag_z"), figures={"at_hover_ut": size})
    )


def gnss_glitch(draft: Draft) -> None:
    """The position of the receiver jumps, and comes back."""
    motion, generator = draft.motion, draft.generator
    for _ in range(int(generator.integers(1, 4))):
        at = float(generator.uniform(motion.begin + 2, motion.end - 5))
        offset = np.append(generator.normal(size=2), 0.5 * generator.normal())
        offset *= float(generator.uniform(8, 60)) / np.linalg.norm(offset)
        draft.gnss_jumps.append((at, at + float(generator.uniform(0.6, 4)), offset))
    first = min(draft.gnss_jumps, key=lambda jump: jump[0])
    figures = {"at_s": first[0], "size_m": float(np.linalg.norm(first[2])), "count": float(len(draft.gnss_jumps))}
    draft.labels.append(Label("gnss_glitch", "jumps", figures=figures))


def pose_delay(draft: Draft) -> None:
    """The attitude is late."""
    draft.pose_delay = float(draft.generator.uniform(0.15, 0.4))
    draft.labels.append(Label("delay", "attitude", figures={"delay_s": draft.pose_delay}))


def gnss_delay(draft: Draft) -> None:
    """The receiver is late."""
    draft.gnss_delay = float(draft.generator.uniform(0.4, 0.8))
    draft.labels.append(Label("delay", "GNSS", figures={"delay_s": draft.gnss_delay}))


# ---- samples and stamps ---------------------------------------------------------------------------------------------


def dropouts(draft: Draft) -> None:
    """The logger loses up to two seconds at a time."""
    generator, time = draft.generator, draft.motion.time
    present = np.ones(len(time), bool)
    lengths = []
    blows = [float(label.figures["at_s"]) for label in draft.labels if label.cause == "impact"]
    for start in generator.uniform(0.1, 0.85, size=int(generator.integers(1, 5))) * time[-1]:
        length = float(np.exp(generator.uniform(np.log(0.15), np.log(min(2.0, 0.1 * time[-1])))))
        if any(start - 0.2 < blow < start + length for blow in blows):
            continue  # what happens within a gap is not in the log
        present &= ~((time > start) & (time < start + length))
        lengths.append(length)
    draft.rows = draft.rows[present]
    figures = {"share": float(1 - present.mean()), "longest_s": max(lengths, default=0.0)}
    draft.labels.append(Label("gaps", "dropouts", required=bool(lengths), figures=figures))


def skipped(draft: Draft) -> None:
    """Single samples are missing throughout."""
    present = draft.generator.random(len(draft.rows)) > float(draft.generator.uniform(0.03, 0.12))
    draft.rows = draft.rows[present]
    draft.labels.append(Label("gaps", "skipped samples", figures={"share": float(1 - present.mean())}))


def duplicated(draft: Draft) -> None:
    """Single samples are logged twice, with the same stamp."""
    twice = draft.generator.random(len(draft.rows)) < float(draft.generator.uniform(0.03, 0.1))
    draft.rows = np.repeat(draft.rows, 1 + twice)
    draft.labels.append(Label("time_base", "duplicates", ("gaps",), figures={"share": float(twice.mean())}))


def clock(draft: Draft) -> None:
    """The clock of the sensor is wrong by a few per cent against that of the recorder."""
    error = float(draft.generator.uniform(0.015, 0.06) * draft.generator.choice([-1, 1]))
    draft.stamps = draft.stamps * (1 + error)
    draft.labels.append(Label("time_base", "clock", figures={"factor": 1 + error}))


def jitter(draft: Draft) -> None:
    """Stamps scatter by a quarter to a third of a step."""
    share = float(draft.generator.uniform(0.25, 0.36))
    scatter = draft.generator.uniform(-1, 1, size=len(draft.stamps)) * share * np.sqrt(1.5)
    draft.stamps = draft.stamps + scatter / draft.craft.rate
    draft.labels.append(Label("time_base", "jitter", figures={"share": share}))


def disorder(draft: Draft) -> None:
    """Packets with the stamps of the ones after them."""
    stamps, count = draft.stamps.copy(), len(draft.stamps)
    for start in draft.generator.integers(0, count - 60, size=int(draft.generator.integers(5, 20))):
        stamps[start : start + 20] = stamps[start + 20 : start + 40] + 0.1 / draft.craft.rate
    draft.stamps = stamps
    draft.labels.append(Label("time_base", "order"))
    draft.labels.append(Label("gaps", "stamps that are missing", required=False))


def unit(draft: Draft) -> None:
    """Stamps in milliseconds instead of seconds."""
    draft.stamps = draft.stamps * 1e3
    draft.labels.append(Label("time_base", "unit", figures={"factor": 1e3}))
