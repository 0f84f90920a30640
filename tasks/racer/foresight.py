"""Two limits of the filter, measured: commands that nobody knows yet, and errors with heavy tails."""

from __future__ import annotations

from functools import cache

from torch import Tensor

from fwnkf import Filter
from fwnkf.metrics.consistency import coverage, nees
from tasks.racer import regression, scoring
from tasks.racer.protocol import AHEAD_MS, CONTEXT, TRAIN, Windows, control, flights, frames, held
from tasks.racer.scoring import Metrics

COMMANDS = ("last commands repeated", "commands forecast", "true commands")
"""What a filter may be given for the commands to come."""
LONGEST = frames(max(AHEAD_MS))
TAIL = 0.01
"""Share of the windows that counts as the tail."""
LENGTHS = ("step", "20", "50", "100")


@cache
def ridge_of_commands() -> regression.Ridge:
    return regression.fit_commands(flights(TRAIN), LONGEST)


def ahead(model: Filter, data: Windows, title: str) -> dict[str, Metrics]:
    """RMSE of the rate ahead, and of the commands on the way there, with one of :data:`COMMANDS`."""
    data = data.until(LONGEST)
    if title == COMMANDS[0]:
        u = held(data.motors)
    else:
        motors = data.motors if title == COMMANDS[2] else regression.forecast(ridge_of_commands(), data)
        u = control(motors)
    found = scoring.gaps(model, data, AHEAD_MS, u)
    wrong = (u - control(data.motors))[:, CONTEXT:, : data.motors.shape[-1]]

    def metrics(rows: Tensor) -> Metrics:
        errors = {f"ahead_{time}": scoring.rmse(found[str(time)].error[rows]) for time in AHEAD_MS}
        return errors | {"commands": float(wrong[rows].square().mean().sqrt())}

    return scoring.split(metrics, data)


def ridges_ahead(data: Windows) -> dict[str, Metrics]:
    """The ridges of the protocol, which read the past alone."""
    fits = {time: regression.fit_ridge(flights(TRAIN), frames(time), future=False) for time in AHEAD_MS}
    return {flight: score.metrics for flight, score in scoring.regressed({}, fits, data).items()}


def tail(model: Filter, data: Windows) -> dict[str, Metrics]:
    """Of windows without a collision: the NEES, the share of it that the largest 1 % make, and the NEES without them.

    For a normal distribution of three dimensions the largest 1 % make 4.5 % of the NEES.
    """
    data = data.rows(data.quiet)
    found = scoring.gaps(model, data, [int(name) for name in LENGTHS[1:]])

    def metrics(rows: Tensor) -> Metrics:
        values: Metrics = {}
        for name in LENGTHS:
            error, cov = (item[rows] for item in found[name])
            sorted_nees = nees(error, cov).sort(descending=True).values
            count = max(1, round(TAIL * len(sorted_nees)))
            values |= {
                f"nees_{name}": float(sorted_nees.mean()),
                f"tail_{name}": float(sorted_nees[:count].sum() / sorted_nees.sum()),
                f"rest_{name}": float(sorted_nees[count:].mean()),
                f"coverage_{name}": float(coverage(error, cov).overall),
            }
        return values

    return scoring.split(metrics, data)
