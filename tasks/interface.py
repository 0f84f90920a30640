"""What every task provides: records, baselines, training, evaluation, and the texts of its card."""

from __future__ import annotations

import importlib
import pkgutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import tasks
from fwnkf import Filter, save
from fwnkf.cli.output import UsageError
from fwnkf.errors import ConfigError
from tasks.results import Results, Score, SeedScore, Target

SEEDS = (0, 1, 2, 3, 4)
Say = Callable[[str], None]


class Task(ABC):
    """One row of the accuracy table: a data set under one protocol, and the filter trained for it.

    ``name`` is the folder of ``models/``. ``metric`` is the headline metric of :class:`Score`, ``label`` says in words
    what it is, unit included. ``recording`` names what the bootstrap draws (flight, trial, subject, session).
    """

    name: str
    title: str
    protocol: str
    metric: str
    label: str
    better: Literal["lower", "higher"] = "lower"
    recording: str = "record"
    published: str | None = None
    """The figure of the paper's public code for the same task, where there is one."""
    columns: Sequence[str] = ()
    """The metrics shown in the card's table, in this order; all if empty."""

    @abstractmethod
    def load(self, *, quick: bool = False) -> Any:
        """The test records; ``quick`` is a small fixed part of them."""

    @abstractmethod
    def baselines(self, data: Any, results: Results | None) -> Iterator[tuple[str, Score]]:
        """Methods that stand beside the filter, by name; ``results`` holds what was tuned for them in training."""

    @abstractmethod
    def evaluate(self, model: Filter, data: Any) -> Score:
        """The metrics of a filter on the test records."""

    def fit(self, seed: int, say: Say) -> Filter:
        """A filter learned from the training records, for tasks that train no other way than :meth:`train` does."""
        raise NotImplementedError

    def train(self, folder: Path, *, seeds: Sequence[int] = SEEDS, say: Say = print) -> Results:
        """Train every seed from scratch, save the first seed's filter to ``folder``, return all figures.

        A task whose baselines are tuned, whose split depends on the seed or that keeps details has its own.
        """
        data, scores = self.load(), []
        baselines = dict(self.baselines(data, None))
        for seed in seeds:
            begin = time.process_time()
            model = self.fit(seed, say)
            spent = time.process_time() - begin
            score = self.evaluate(model, data)
            metrics = score.metrics | self.compare(score, baselines)
            scores.append(SeedScore(metrics, score.by_recording, spent, seed))
            say(f"{self.name}, seed {seed}: {metrics}")
            if seed == seeds[0]:
                save(model, folder)
                learned, quick = self.learned(model), self.evaluate(model, self.load(quick=True)).metrics
        return Results(
            self.name, self.protocol, self.metric, tuple(scores), baselines, self.targets(baselines), learned,
            len(data), quick,
        )  # fmt: skip

    @abstractmethod
    def learned(self, model: Filter) -> dict[str, int]:
        """How many numbers were learned from data, by kind: GRU, Φ, noise states, network, constants."""

    @abstractmethod
    def about(self, results: Results) -> str:
        """The card's description: data, protocol, filter, how it was chosen."""

    @abstractmethod
    def limits(self, results: Results) -> str:
        """What limits the figures, where not to use the filter, what was tried and not shipped."""

    fits_without_truth = False
    """Whether :meth:`fit_without_truth` is implemented."""
    fit_note = ""
    """What the fit without truth learned, and why its error is what it is."""
    fit_baselines: Sequence[str] = ()
    """Baselines that stand beside the fit without truth."""

    def fit_without_truth(self, data: Any, results: Results, *, say: Say = print) -> Score:
        """Metrics of a filter fitted to the training recordings without their truth, which is for scoring alone."""
        raise NotImplementedError

    def innovation_metrics(self, model: Filter, data: Any) -> dict[str, float]:
        """NIS of a filter on the test records, for tasks whose metrics do not contain it."""
        return {}

    def targets(self, baselines: Mapping[str, Score]) -> dict[str, Target]:
        """Limits of metrics, one-sided in the direction of ``better`` or a band."""
        return {}

    def compare(self, score: Score, baselines: Mapping[str, Score]) -> dict[str, float]:
        """Metrics that need the baselines too, such as a ratio to the best of them."""
        return {}

    def report_baselines(self, results: Results) -> Mapping[str, Score]:
        """The baselines among which the best one is looked for in the tables; an oracle is not among them."""
        return results.baselines

    @property
    def command(self) -> str:
        return f"python -m tasks run {self.name}"


def all_tasks() -> dict[str, Task]:
    """Every task by name: each package below ``tasks`` lists its own in ``TASKS``."""
    by_name: dict[str, Task] = {}
    for module in data_sets().values():
        by_name |= {task.name: task for task in module.TASKS}
    return by_name


def data_sets() -> dict[str, Any]:
    """The packages below ``tasks`` that have tasks, by name; a study of several data sets has none of its own."""
    names = [module.name for module in pkgutil.iter_modules(tasks.__path__) if module.ispkg]
    modules = {name: importlib.import_module(f"tasks.{name}") for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "TASKS")}


def chosen(names: Sequence[str]) -> list[Task]:
    """Tasks by their own name or that of their data set; all if none is given."""
    known, sets = all_tasks(), data_sets()
    unknown = [name for name in names if name not in known and name not in sets]
    if unknown:
        raise ConfigError(f"no task is called {', '.join(unknown)}; there are: {', '.join((*sets, *known))}")
    wanted = {task.name for name in names if name in sets for task in sets[name].TASKS} | set(names)
    return [task for task in known.values() if not names or task.name in wanted]


def parameters(model: Filter, kinds: Mapping[str, str]) -> dict[str, int]:
    """Numbers of parameters and buffers by kind; ``kinds`` maps the beginning of a tensor's name to its kind.

    The first match counts, and a tensor that matches nothing is not learned.
    """
    counts: dict[str, int] = {}
    for name, tensor in model.state_dict().items():
        kind = next((kind for start, kind in kinds.items() if name.startswith(start)), None)
        if kind is not None:
            counts[kind] = counts.get(kind, 0) + tensor.numel()
    return counts


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds of a command line.

    >>> parse_seeds("0,1")
    (0, 1)
    """
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise UsageError(f"--seeds {text!r}: whole numbers separated by commas") from None
