"""Methods that are not trained through a filter, on the same records: trivial ones, classical ones, least squares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fwnkf.data.protocols import SIMULATED_SIZES, Protocol
from fwnkf.evaluation.baselines import hold, mean_state
from fwnkf.evaluation.evaluate import Estimate
from tasks.simulated.lorenz_pendulum import simulated_references, timed

Methods = Iterator[tuple[str, tuple[Estimate, float]]]


def references(config: Mapping[str, Any]) -> tuple[Protocol, Methods]:
    """Records, and what each method estimates on the test records, with the CPU seconds it took."""
    from fwnkf.training.experiments import parse_experiment
    from fwnkf.training.setup import load_data

    # any filter: the experiment only says which records
    data = load_data(parse_experiment({**config, "filter": {"name": "fwnkf", "equations": False}}))
    if data.data in SIMULATED_SIZES:
        return data, iter(simulated_references(data).items())
    return data, _recorded(data)


def _recorded(data: Protocol) -> Methods:
    """Without equations: what ignores the sensor."""
    train, test = data.split.train, data.split.test
    yield "mean_state", timed(lambda: Estimate(mean_state(train).expand_as(test.truth)))
    yield "hold", timed(lambda: Estimate(hold(test)))
