"""Where parts are filtered: one after the other in this process, or side by side by Ray Data."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from ..errors import ConfigError
from ..extras import need
from .part import PartRunner
from .settings import Settings

OBJECT_STORE = 128 << 20
"""Bytes of Ray's shared memory on one machine: only names and records pass through it."""


STARTS = 3
"""Attempts to start Ray on this machine, which gives up after 30 seconds on a busy one."""


class Item(NamedTuple):
    """A part to filter: its file, the size of it, and the files with the states it goes on from, with their digests."""

    name: str
    size: int
    before: tuple[tuple[str, str | None], ...] = ()


class Engine(Protocol):
    """Filters parts that do not depend on each other, in any order."""

    name: str

    def run(self, items: Sequence[Item]) -> Iterator[dict[str, Any]]:
        """The record of each part as it is done."""
        ...

    def close(self) -> None:
        """Stop what was started."""
        ...


class Loop:
    """One part after the other in this process."""

    name = "loop"

    def __init__(self, settings: Settings) -> None:
        self._runner = PartRunner(settings)

    def run(self, items: Sequence[Item]) -> Iterator[dict[str, Any]]:
        """The record of each part, in their order."""
        for item in items:
            yield self._runner(*item)

    def close(self) -> None:
        """Nothing was started."""


class RayData:
    """Parts as rows of a Ray data set, mapped by a pool of workers that hold the filter.

    Ray starts workers again that die, and gives their parts to others. Its usage statistics are off unless
    ``RAY_USAGE_STATS_ENABLED=1`` is set.

    Args:
        settings: of the run.
        workers: number of processes, each on one core.
        address: of a cluster; None starts Ray on this machine.
    """

    name = "ray"

    def __init__(self, settings: Settings, workers: int, address: str | None = None) -> None:
        ray = self._ray = start_ray(workers, address)
        self._settings, self.workers = settings, workers
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False

    def run(self, items: Sequence[Item]) -> Iterator[dict[str, Any]]:
        """The record of each part as it is done."""
        data = self._ray.data
        rows = [{"item": json.dumps(item)} for item in items]
        table = data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            _Worker,
            fn_constructor_args=(json.dumps(self._settings.as_dict()),),
            batch_size=1,
            batch_format="pandas",
            compute=data.ActorPoolStrategy(size=min(self.workers, len(rows)), max_tasks_in_flight_per_actor=2),
            num_cpus=1,
            zero_copy_batch=True,
        )
        for row in table.iter_rows():
            yield json.loads(row["record"])

    def close(self) -> None:
        """End Ray's processes on this machine, or leave the cluster."""
        self._ray.shutdown()


def start_ray(workers: int, address: str | None = None, object_store: int | None = OBJECT_STORE) -> Any:
    """Ray on this machine with so many cores, or connected to a cluster; without usage statistics.

    ``object_store`` is the size of its shared memory in bytes, None its own choice.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a warning about future versions
    ray = need("ray", extra="scale")
    need("ray.data", extra="scale")
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    options: dict[str, Any] = {"address": address}
    if address is None:
        options = {"num_cpus": workers, "include_dashboard": False, "object_store_memory": object_store}
    for attempt in range(STARTS):
        try:
            ray.init(**options, log_to_driver=False, logging_level="ERROR")
            return ray
        except Exception as error:  # Ray raises no narrower one when its processes do not come up in its 30 seconds
            ray.shutdown()
            if attempt == STARTS - 1 or address is not None:
                raise ConfigError(
                    f"Ray did not start: {str(error).splitlines()[0]} On a busy machine use --engine loop, or try again"
                ) from error
    raise AssertionError("unreachable")


class _Worker:
    """A process of the pool."""

    def __init__(self, settings: str) -> None:
        self._runner = PartRunner(Settings.of(json.loads(settings)))

    def __call__(self, batch: Any) -> Any:
        records = []
        for text in batch["item"]:
            name, size, before = json.loads(text)
            records.append(json.dumps(self._runner(name, size, before)))
        return {"record": records}
