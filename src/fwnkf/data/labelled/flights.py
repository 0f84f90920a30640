"""Logs with their labels: which faults a seed draws, and in what order they are put into the signals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from ...errors import ConfigError
from ...logs.memory import MemoryLog
from . import sensing, vibrating
from .craft import Craft, Generator, random_craft
from .draft import Draft, begin, to_log
from .labels import Label
from .motion import fly

HEALTHY, TWO, GREY = 0.4, 0.15, 0.1
"""Shares of logs without a fault, with two, and of logs with a line that is neither weak nor strong."""


class Fault(NamedTuple):
    """A fault that can be drawn."""

    group: str
    """Two faults of a log are of different groups, or a :data:`PAIRS` of one."""
    apply: Callable[[Draft], None]
    weight: float = 1.0
    needs: Mapping[str, Any] = {}
    """What the vehicle has to log for it to be seen."""


ATTITUDE = {"pose": 50.0}
FAULTS: Mapping[str, Fault] = {
    "unbalance": Fault("vibration", vibrating.unbalance, 3),
    "bent_shaft": Fault("vibration", vibrating.bent_shaft, 1.5),
    "blade_pass": Fault("vibration", vibrating.blade_pass, 1),
    "bearing": Fault("vibration", vibrating.bearing, 1),
    "rough_rotors": Fault("vibration", vibrating.rough_rotors, 2),
    "fixed_line": Fault("vibration", vibrating.fixed_line, 4),
    "resonance": Fault("vibration", vibrating.resonance, 3),
    "loose_mount": Fault("vibration", vibrating.loose_mount, 0.7),
    "impact": Fault("shock", vibrating.impact, 2.5),
    "clipped_accel": Fault("range", sensing.clipped_accel, 1.2),
    "clipped_gyro": Fault("range", sensing.clipped_gyro, 1, {"flips": 3}),
    "axis_sign": Fault("axes", sensing.axis_sign, 2.5, ATTITUDE),
    "axis_swap": Fault("axes", sensing.axis_swap, 1, ATTITUDE),
    "scale": Fault("axes", sensing.scale, 1.2, ATTITUDE),
    "bias_step": Fault("axes", sensing.bias_step, 1, ATTITUDE),
    "drift": Fault("axes", sensing.drift, 1, ATTITUDE),
    "interference": Fault("aiding", sensing.interference, 1, {**ATTITUDE, "mag": 25.0}),
    "gnss_glitch": Fault("aiding", sensing.gnss_glitch, 1, {**ATTITUDE, "gnss": 5.0}),
    "pose_delay": Fault("axes", sensing.pose_delay, 0.6, ATTITUDE),
    "gnss_delay": Fault("aiding", sensing.gnss_delay, 0.6, {**ATTITUDE, "gnss": 5.0}),
    "dropouts": Fault("stamps", sensing.dropouts, 1.3),
    "skipped": Fault("stamps", sensing.skipped, 1.3),
    "duplicated": Fault("stamps", sensing.duplicated, 0.6),
    "clock": Fault("stamps", sensing.clock, 1.2, {"two_clocks": True}),
    "jitter": Fault("stamps", sensing.jitter, 0.8),
    "disorder": Fault("stamps", sensing.disorder, 0.5),
    "unit": Fault("stamps", sensing.unit, 0.5, {"two_clocks": True}),
}
"""By name; the order in which they are applied is that of the groups."""
ORDER = ("vibration", "shock", "axes", "range", "aiding", "stamps")
PAIRS = {
    frozenset(pair)
    for pair in (
        *((rotor, other) for rotor in ("unbalance", "bent_shaft", "bearing") for other in ("fixed_line", "resonance")),
        ("fixed_line", "resonance"),
    )
}
"""Faults of one group that a log may have together."""
LONG = ("axes", "range", "aiding")
"""Groups whose faults need a log of some length, which the fastest ones are not."""
APART = {
    frozenset(pair)
    for pair in (
        ("clock", "vibration"), ("unit", "vibration"), ("axes", "range"), ("scale", "vibration"), ("scale", "shock"),
        ("axis_swap", "vibration"),
    )
}  # fmt: skip
"""Faults and groups that a log does not have together: one would change what the other's label says."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """A simulated log and what is wrong with it.

    >>> labelled_flight(0, ()).healthy
    True
    """

    seed: int
    """It draws all of it."""
    faults: tuple[str, ...]
    """Names of :data:`FAULTS`; empty for a healthy flight."""
    craft: Craft
    """The vehicle and its logger."""
    log: MemoryLog
    """For :func:`fwnkf.diagnosis.diagnose`."""
    labels: tuple[Label, ...]
    """What is wrong with it."""

    @property
    def healthy(self) -> bool:
        """Whether nothing has to be found."""
        return not self.faults


def labelled_flight(
    seed: int, faults: tuple[str, ...] | None = None, vehicle: Mapping[str, Any] | None = None
) -> Labelled:
    """A log with its labels. Equal arguments give equal bits.

    Args:
        seed: draws vehicle, flight and figures of the faults.
        faults: names of :data:`FAULTS`; by default none, one or two are drawn.
        vehicle: fields of :class:`~fwnkf.data.labelled.craft.Craft` that are not to be drawn, such as ``rate``.

    Returns:
        The log in memory, which :func:`fwnkf.diagnosis.diagnose` takes, and its labels.

    Raises:
        ConfigError: there is no such fault, or no such field of a vehicle.

    >>> one = labelled_flight(3, ("unbalance",))
    >>> one.labels[0].cause, one.log.signal("motor" if one.craft.commands else "imu").role in ("motor", "imu")
    ('rotor_vibration', True)
    """
    unknown = [name for name in faults or () if name not in FAULTS]
    if unknown:
        raise ConfigError(f"no fault named {unknown[0]!r}; there are: {', '.join(FAULTS)}")
    known = [entry.name for entry in fields(Craft)]
    strange = [name for name in vehicle or {} if name not in known]
    if strange:
        raise ConfigError(f"a vehicle has no {strange[0]!r}; it has: {', '.join(known)}")
    draws = [np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(4)]
    chosen = drawn_faults(draws[0]) if faults is None else faults
    chosen = tuple(sorted(chosen, key=lambda name: (ORDER.index(FAULTS[name].group), list(FAULTS).index(name))))
    long = any(FAULTS[name].group in LONG for name in chosen)
    craft = random_craft(draws[1], 2000.0 if long else math.inf)
    needs: dict[str, Any] = {}
    for name in chosen:
        needs |= FAULTS[name].needs
    craft = replace(craft, **{**needs, **(vehicle or {})})
    craft = replace(craft, acrobatic=craft.acrobatic and not craft.pose)
    draft = begin(craft, fly(craft, draws[2]), draws[3])
    if craft.landing and "impact" not in chosen:
        vibrating.quiet_landing(draft)
    if not any(FAULTS[name].group == "vibration" for name in chosen) and draws[0].random() < GREY:
        vibrating.grey_line(draft)
    for name in chosen:
        FAULTS[name].apply(draft)
    return Labelled(seed, chosen, craft, to_log(draft, f"simulated flight {seed}"), tuple(draft.labels))


def drawn_faults(generator: Generator) -> tuple[str, ...]:
    """None, one or two faults."""
    kind = generator.random()
    if kind < HEALTHY:
        return ()
    names = list(FAULTS)
    weights = np.array([FAULTS[name].weight for name in names])
    first = str(generator.choice(names, p=weights / weights.sum()))
    if kind < 1 - TWO:
        return (first,)
    allowed = np.array([_together(first, name) for name in names])
    weights = weights * allowed
    return first, str(generator.choice(names, p=weights / weights.sum()))


def _together(first: str, second: str) -> bool:
    groups = FAULTS[first].group, FAULTS[second].group
    pairs = {frozenset((a, b)) for a in (first, groups[0]) for b in (second, groups[1])}
    return (groups[0] != groups[1] and not pairs & APART) or frozenset((first, second)) in PAIRS
