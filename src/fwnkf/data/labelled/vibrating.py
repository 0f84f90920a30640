"""Faults that vibrate: rotors, bearings, fixed lines, resonances, loose mounts, impacts."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..flights import GRAVITY
from .draft import Draft, fault_size
from .labels import ACCEL_FAULT, ACCEL_WEAK, GYRO_FAULT, GYRO_WEAK, Label, Line
from .vibration import (
    CHANNELS,
    Wave,
    audible,
    fixed_wave,
    line_of,
    order_wave,
    resonant_noise,
    resonant_wave,
    strength,
)

STEADY = 0.012
"""Relative spread of a line below which a log without rotor speeds cannot tell it from a fixed one."""
SMEARED = 0.06
"""Spread of a folded line over the sampling rate from which it cannot be followed in the samples."""
BLOW = 35.0
"""m/s² that the peaks of a vibration stay below, so that none of them is an impact."""


def unbalance(draft: Draft) -> None:
    """One rotor out of balance: its speed, and weaker multiples of it."""
    weights = {1.0: 1.0, 2.0: float(draft.generator.uniform(0.05, 0.5)), 3.0: float(draft.generator.uniform(0.0, 0.3))}
    _rotor(draft, "unbalance", weights)


def bent_shaft(draft: Draft) -> None:
    """Mostly at twice the speed."""
    weights = {2.0: 1.0, 1.0: float(draft.generator.uniform(0.1, 0.4)), 4.0: float(draft.generator.uniform(0, 0.2))}
    _rotor(draft, "bent shaft", weights)


def blade_pass(draft: Draft) -> None:
    """A damaged propeller: the number of blades times the speed."""
    blades = float(draft.generator.choice([2, 3]))
    _rotor(draft, "blade pass", {blades: 1.0, 1.0: float(draft.generator.uniform(0.1, 0.5))})


def bearing(draft: Draft) -> None:
    """A damaged rolling bearing: not a whole multiple of the speed, and twice that."""
    order = float(draft.generator.integers(2, 5)) + float(draft.generator.uniform(0.2, 0.8))
    _rotor(draft, "bearing", {order: 1.0, 2 * order: float(draft.generator.uniform(0.1, 0.4))}, slip=0.002)


def _rotor(draft: Draft, kind: str, weights: Mapping[float, float], slip: float = 0.0) -> None:
    """Orders of one rotor whose relative weights are those in the log."""
    craft, motion, generator = draft.craft, draft.motion, draft.generator
    rotor = int(generator.integers(craft.rotors))
    waves = []
    for order, weight in weights.items():
        waves.append(audible(motion, order_wave(craft, motion, rotor, order, generator, slip)).scaled(weight))
    scaled, amplitudes = draft.add(waves, *fault_size(generator))
    lines = draft.lines(scaled, amplitudes)
    draft.labels.append(_rotor_label(draft, kind, lines, rotor + 1))


def _rotor_label(draft: Draft, kind: str, lines: tuple[Line, ...], rotor: int | None) -> Label:
    """What a log can tell of lines of rotors depends on what it has of their speed."""
    craft, top = draft.craft, lines[0]
    still = top.spread < STEADY * top.frequency
    also: tuple[str, ...] = ()
    if not craft.speeds:
        crossing = top.folded or top.frequency + 2 * top.spread > craft.rate / 2
        also = (*(("vibration",) if still else ()), *(("aliasing",) if crossing else ()))
    # a folded line that sweeps over much of the band is found by its speed alone, if that is known well enough
    smeared = top.spread > SMEARED * craft.rate
    unseen = top.folded and (craft.speeds < 20 if smeared else not craft.speeds and not craft.commands)
    figures = {"folded": float(top.folded)}
    return Label("rotor_vibration", kind, also, _channels(top), lines, rotor, required=not unseen, figures=figures)


def rough_rotors(draft: Draft) -> None:
    """All rotors vibrate alike: worn propellers, or a frame that is too soft for them. A hump, not a line."""
    craft, motion, generator = draft.craft, draft.motion, draft.generator
    order = float(generator.choice([1, 2]))
    waves = []
    for rotor in range(craft.rotors):
        wave = audible(motion, order_wave(craft, motion, rotor, order, generator))
        waves.append(wave.scaled(float(generator.uniform(0.5, 1.0))))
    total = Wave(
        order,
        np.sum([wave.values for wave in waves], axis=0),
        np.concatenate([wave.frequency for wave in waves]),
        np.concatenate([wave.amplitude for wave in waves]),
    )
    factor = 1 / strength(motion, total.values)
    amplitudes = draft.spread(*(1.5 * size for size in fault_size(generator)))
    draft.values += factor * total.values[:, None] * amplitudes
    air = np.tile(motion.air, craft.rotors)
    named = dict(zip(CHANNELS, np.abs(amplitudes).tolist(), strict=True))
    hump = line_of(craft, order, total.frequency[air], total.amplitude[air], named)
    single = draft.lines([wave.scaled(factor) for wave in waves], amplitudes)
    draft.labels.append(_rotor_label(draft, "all rotors", (hump, *single), None))


def fixed_line(draft: Draft) -> None:
    """A pump, a fan, a gimbal or a generator: the same frequency whatever the rotors do, on the ground too."""
    craft, motion, generator = draft.craft, draft.motion, draft.generator
    speeds = motion.speed[motion.air]
    orders = np.array([1.0, 2.0, 3.0, 4.0])[:, None, None] * speeds
    mean, spread = craft.folded(orders).mean(1), craft.folded(orders).std(1)
    for _ in range(50):
        folded = bool(generator.random() < 0.15) and craft.rate < 900
        low, high = (0.55, 0.9) if folded else (max(15 / craft.rate, 0.05), min(0.45, 900 / craft.rate))
        frequency = float(generator.uniform(low, high)) * craft.rate
        seen = float(craft.folded(np.array([frequency]))[0])
        # with speeds that hardly change, a line at one of them would be a line of that rotor to anybody
        alone = np.abs(mean - seen) > np.maximum(0.04 * seen, 2 * np.where(spread < 0.05 * mean, spread, 0))
        if alone.all() and seen > 8 and _apart(draft, seen):
            break
    active = np.ones(len(motion.time))
    if generator.random() < 0.25:
        start = float(generator.uniform(0.0, 0.35)) * craft.seconds
        active = ((motion.time > start) & (motion.time < start + 0.6 * craft.seconds)).astype(np.float64)
    (wave,), amplitudes = draft.add([fixed_wave(craft, frequency, active, generator)], *fault_size(generator))
    lines = draft.lines([wave], amplitudes)
    draft.labels.append(Label("vibration", "fixed line", ("aliasing",) if folded else (), _channels(lines[0]), lines))


def _apart(draft: Draft, frequency: float) -> bool:
    """Whether no line of another fault is near."""
    lines = [line for label in draft.labels for line in label.lines]
    return all(abs(frequency - line.frequency) > 0.25 * line.frequency + 2 * line.spread for line in lines)


def resonance(draft: Draft) -> None:
    """A mode of the airframe or of the mount, excited by the rotors as they pass and by the flow."""
    craft, motion, generator = draft.craft, draft.motion, draft.generator
    quality = float(np.exp(generator.uniform(math.log(6), math.log(25))))
    speeds = motion.speed[motion.air]
    centre, order = 0.0, 1.0
    alone = not any(label.required for label in draft.labels)
    for order in (1.0, 2.0):
        low, high = np.quantile(order * speeds, [0.1, 0.9])
        at = float(generator.uniform(low, high))
        if craft.style != "steady" and 15 < at < 0.42 * craft.rate and high / low > 1.06 and alone:
            centre = at
            break
    noise_share = 1.0
    swept: list[Wave] = []
    if centre:
        noise_share = float(generator.uniform(0.2, 0.8))
        swept = [
            resonant_wave(craft, motion, rotor, order, centre, quality, generator) for rotor in range(craft.rotors)
        ]
    else:
        for _ in range(50):
            centre = float(np.exp(generator.uniform(math.log(max(15, 0.04 * craft.rate)), math.log(0.42 * craft.rate))))
            centre = min(centre, 700.0)
            if _apart(draft, centre):
                break
    noise = resonant_noise(craft, motion, centre, quality, generator)
    total = math.sqrt(noise_share) * noise
    if swept:
        passed = np.sum([wave.values for wave in swept], axis=0)
        total = total + math.sqrt(1 - noise_share) * passed / passed[motion.air].std()
    gyro, accel = fault_size(generator)
    total = total / strength(motion, total)
    accel = min(2 * accel, BLOW / float(np.abs(total[motion.air]).max()))
    amplitudes = draft.spread(2 * gyro, accel)  # spread over a band, not gathered in a line
    draft.values += total[:, None] * amplitudes
    width = centre / quality
    low, high = np.quantile(order * speeds, [0.05, 0.95])
    # rotors that hardly leave a wide resonance look the same with it and without it
    also = ("rotor_vibration",) if swept and high - low < 2.5 * width else ()
    line = Line(order, centre, width / 2, dict(zip(CHANNELS, np.abs(amplitudes).tolist(), strict=True)))
    draft.labels.append(
        Label(
            "resonance", "swept by rotors" if swept else "in the flow", also, _channels(line), (line,),
            figures={"width_hz": width, "quality": quality},
        )
    )  # fmt: skip
    if swept:  # the rotors that excite it are there as well
        draft.labels.append(Label("rotor_vibration", "exciting rotors", required=False))


def loose_mount(draft: Draft) -> None:
    """A sensor or battery that is not held: broad shaking with the rotors, and rattling."""
    craft, motion, generator = draft.craft, draft.motion, draft.generator
    centre = float(generator.uniform(0.08, 0.3)) * min(craft.rate, 400)
    noise = resonant_noise(craft, motion, centre, float(generator.uniform(1.0, 2.5)), generator)
    rattle = np.exp(0.5 * generator.normal(size=int(craft.seconds * 10) + 2))
    noise = noise * np.interp(motion.time, np.arange(len(rattle)) / 10, rattle)
    noise = noise / strength(motion, noise)
    accel = min(float(generator.uniform(4, 10)), BLOW / float(np.abs(noise[motion.air]).max()))
    draft.values += noise[:, None] * draft.spread(float(generator.uniform(0.2, 0.6)), accel)
    draft.labels.append(Label("broadband", "loose mount", ("resonance",), CHANNELS))


def quiet_landing(draft: Draft) -> None:
    """An ordinary touchdown."""
    _shock(draft, draft.motion.end, float(draft.generator.uniform(5, 22)), kick=0.3)


def impact(draft: Draft) -> None:
    """A collision in the air, or a hard landing where the log has one."""
    motion, generator = draft.motion, draft.generator
    size = float(np.exp(generator.uniform(math.log(85), math.log(250))))
    if draft.craft.landing and generator.random() < 0.6:
        at, kind, kick = motion.end, "hard landing", 0.02 * size
    else:
        at, kind, kick = (
            float(generator.uniform(motion.begin + 2, motion.end - 2)),
            "collision",
            generator.uniform(1, 6),
        )
        if draft.craft.landing:
            quiet_landing(draft)
    _shock(draft, at, size, kick)
    draft.labels.append(Label("impact", kind, channels=CHANNELS[3:], figures={"at_s": at, "size": size}))
    _limited(draft, 16 * GRAVITY)


def _shock(draft: Draft, at: float, size: float, kick: float) -> None:
    """A blow and its ringing; the magnitude of the logged acceleration changes by ``size`` (m/s²) at most."""
    craft, generator = draft.craft, draft.generator
    since = draft.motion.time - at
    rows = (since >= 0) & (since < 1.0)
    ring = min(float(generator.uniform(15, 60)), 0.3 * craft.rate)
    decay = float(generator.uniform(0.02, 0.08))
    wave = np.exp(-since[rows] / decay) * np.cos(2 * np.pi * ring * since[rows])
    up = np.sign(np.median(draft.values[draft.motion.air, 5]))
    direction = np.append(generator.normal(size=2) * 0.4, up)
    before = draft.values[rows, 3:].copy()
    usual = float(np.median(np.linalg.norm(draft.values[draft.motion.air, 3:], axis=1)))
    factor = size / float(np.linalg.norm(direction))
    for _ in range(4):  # the magnitude is not linear in the blow
        draft.values[rows, 3:] = before + factor * wave[:, None] * direction
        factor *= size / float(np.abs(np.linalg.norm(draft.values[rows, 3:], axis=1) - usual).max())
    draft.values[rows, :3] += float(kick) * wave[:, None] * generator.uniform(-1, 1, size=3)


def _limited(draft: Draft, limit: float) -> None:
    """Clip a shock that is beyond the range of the accelerometer; that it is clipped may be said too."""
    if (np.abs(draft.values[:, 3:]) > limit).any():
        np.clip(draft.values[:, 3:], -limit, limit, out=draft.values[:, 3:])
        draft.labels.append(Label("clipping", "by the impact", required=False))


def grey_line(draft: Draft) -> None:
    """A fixed line or one of a rotor that is neither weak nor strong: it may be named, and need not be."""
    craft, motion, generator = draft.craft, draft.motion, draft.generator
    share = float(generator.uniform(0.1, 0.9))
    sizes = [low + share * (high - low) for low, high in ((GYRO_WEAK, GYRO_FAULT), (ACCEL_WEAK, ACCEL_FAULT))]
    if generator.random() < 0.5:
        rotor = int(generator.integers(craft.rotors))
        wave, cause = order_wave(craft, motion, rotor, float(generator.choice([1, 2])), generator), "rotor_vibration"
    else:
        frequency = float(generator.uniform(max(15 / craft.rate, 0.05), 0.45)) * craft.rate
        wave, cause = fixed_wave(craft, frequency, np.ones(len(motion.time)), generator), "vibration"
    scaled, amplitudes = draft.add([wave], *sizes)
    draft.labels.append(Label(cause, "line of medium strength", lines=draft.lines(scaled, amplitudes), required=False))


def _channels(line: Line) -> tuple[str, ...]:
    """Those with a fair share of the amplitude, of each sensor."""
    result: list[str] = []
    for sensor in ("gyro", "accel"):
        own = {name: value for name, value in line.amplitude.items() if name.startswith(sensor)}
        result += [name for name, value in own.items() if value > 0.3 * max(own.values())]
    return tuple(result)
