"""Methods that are not trained through a filter, on the same records: trivial ones, classical ones, least squares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fwnkf.data.protocols import SIMULATED_SIZES, Protocol
from fwnkf.errors import ConfigError
from fwnkf.evaluation.baselines import estimates, mean_state
from fwnkf.evaluation.evaluate import Estimate
from tasks.euroc import strapdown
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
    if data.data == "simulated":
        return data, ((name, (estimated, 0.0)) for name, estimated in estimates(data))
    if data.data == "euroc":
        return data, _euroc(data)
    raise ConfigError(f"no references are known for data {data.data!r}; add them to {__name__}")


def _euroc(data: Protocol) -> Methods:
    """What ignores the sensor, and strapdown integration of it, without and with one bias for each flight."""
    train, test = data.split.train, data.split.test
    yield "mean_state", timed(lambda: Estimate(mean_state(train).expand_as(test.truth)))
    yield "hold", timed(lambda: Estimate(strapdown.hold(test)))
    yield "constant_velocity", timed(lambda: Estimate(strapdown.constant_velocity(test)))
    yield "strapdown", timed(lambda: Estimate(strapdown.strapdown(test)))
    yield "strapdown_bias", timed(lambda: Estimate(strapdown.strapdown(test, strapdown.constant_bias(test))))
