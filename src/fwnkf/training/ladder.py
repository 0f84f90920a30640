"""Whether training paid: simpler filters beside the trained one on the validation records, and the best of them kept.

Every rung is judged by its squared error on records that no weight was fitted to. Of those that are not measurably
worse than the best, the simplest is kept: a part that does not pay is not in the saved filter.
"""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..checkpoint import load, save
from ..data.protocols import Records
from ..errors import FwnkfError
from ..evaluation.baselines import hold, mean_state
from ..evaluation.evaluate import Estimate, estimate
from ..evaluation.rows import known_steps, record_errors
from ..filters.base import Filter
from ..filters.factory import build
from ..filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from ..metrics.accuracy import summarize
from ..shapes import Float
from .checkpointing import UNTRAINED
from .fit import Fitted, write_record
from .setup import regressed_system

TRAINED = "trained"
TOLERANCE = 0.01
"""A simpler filter may have this share more error, if the records cannot tell it from the best one."""
NORMAL = 1.96
"""Standard errors on either side of a 95 % interval."""
REMOVABLE = ("encoder", "residual")
"""Parts of a trained filter that are left out in turn."""


@dataclass(frozen=True)
class Rung:
    """A filter that was tried, and its figures on the validation records."""

    name: str
    learned: int
    """Numbers that training can change."""
    mse: float
    worse: float
    """Mean squared error over that of the best, less one."""
    worse_error: float
    """Standard error of the same, over records."""
    nees: float | None = None
    coverage95: float | None = None
    chosen: bool = False


@dataclass(frozen=True, eq=False)
class Ladder:
    """The filter that is kept, and all that were tried."""

    model: Filter
    rungs: tuple[Rung, ...]

    @property
    def chosen(self) -> str:
        """The name of the filter that is kept."""
        return next(rung.name for rung in self.rungs if rung.chosen)

    def as_rows(self) -> list[dict[str, Any]]:
        """Plain values of all rungs; what is not finite, as of a filter that is lost, is None."""
        return [
            {
                name: None if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in asdict(rung).items()
            }
            for rung in self.rungs
        ]


def climb(fitted: Fitted, say: Callable[[str], None] = lambda text: None) -> tuple[Fitted, Ladder]:
    """Compare a trained filter with simpler ones, and keep the best in the folder of the run.

    Where a simpler one is kept, ``best`` holds it and ``trained`` what training reached.

    Args:
        fitted: a finished run.
        say: called with status lines.

    Returns:
        The run with the filter that is kept, and the comparison.

    >>> import tempfile
    >>> from fwnkf.training.experiments import parse_experiment
    >>> from fwnkf.training.fit import fit
    >>> data = {"name": "simulated", "train": 2, "val": 2, "test": 1, "steps": 5}
    >>> filter = {"name": "fwnkf", "options": {"residual": {"width": 4}}}
    >>> values = {"data": data, "system": {"name": "pendulum"}, "filter": filter, "trainer": {"steps": 1}}
    >>> run, ladder = climb(fit(parse_experiment(values), tempfile.mkdtemp()))
    >>> [rung.name for rung in ladder.rungs][:3]
    ['hold', 'mean', 'white noise']
    """
    say("comparing with simpler filters on the validation records")
    ladder = compare(candidates(fitted), fitted.data.split.val, trivial(fitted))
    record = {**fitted.record, "ladder": ladder.as_rows(), "kept": ladder.chosen}
    best = fitted.folder / "best"
    if ladder.chosen != TRAINED:
        if not (fitted.folder / TRAINED).exists():
            shutil.copytree(best, fitted.folder / TRAINED)
        save(ladder.model, best)
    write_record(fitted.folder, record)
    return replace(fitted, model=ladder.model, record=record), ladder


def trivial(fitted: Fitted) -> dict[str, Estimate]:
    """What ignores the measurements: a reference, not a filter that could be kept."""
    split = fitted.data.split
    return {"hold": Estimate(hold(split.val)), "mean": Estimate(mean_state(split.train).expand_as(split.val.truth))}


def candidates(fitted: Fitted) -> Iterator[tuple[str, Filter]]:
    """The filters of a run, the simplest first; one that cannot be made from these records is left out."""
    section, train = fitted.experiment.filter, fitted.data.split.train
    dtype = fitted.model.dtype
    if section.equations:
        if train.system is not None:
            yield "white noise", build("ekf", system=train.system)
    elif section.regression is None:  # else the untrained filter is on it
        moments = section.options.get("moments", "linear")
        with contextlib.suppress(FwnkfError):  # too few states, or none that follow each other
            yield "regression", build("fwnkf", system=regressed_system(train, moments), moments=moments)
    untrained = fitted.folder / UNTRAINED
    best_step = int(fitted.record["best_step"])
    if untrained.is_dir():
        yield UNTRAINED, without_idle(load(untrained).to(dtype), train)
    trained = load(fitted.folder / TRAINED if (fitted.folder / TRAINED).is_dir() else fitted.folder / "best")
    if best_step > 0:
        if isinstance(trained, FrequencyWeightedNeuralKalmanFilter):
            for part in REMOVABLE:
                if getattr(trained.config, part) is not None:
                    yield f"trained, without {part}", trained.with_parts(**{part: None})
        yield TRAINED, trained


def without_idle(model: Filter, records: Records) -> Filter:
    """An untrained filter without the parts that change nothing yet: their output is zero until they are trained."""
    if not isinstance(model, FrequencyWeightedNeuralKalmanFilter) or model.config.transition is not None:
        return model
    few = records.take(range(min(len(records), 2)))
    means = estimate(model, few).mean
    for part in REMOVABLE:
        if getattr(model.config, part) is not None:
            smaller = model.with_parts(**{part: None})
            if torch.allclose(means, estimate(smaller, few).mean, rtol=1e-5):
                model = smaller
    return model


def compare(filters: Iterator[tuple[str, Filter]], records: Records, trivial: dict[str, Estimate]) -> Ladder:
    """Judge filters, the simplest first, on records that none of them was fitted to.

    Args:
        filters: by name.
        records: with true states.
        trivial: estimates that are listed, and not chosen.

    Returns:
        The comparison.
    """
    known = known_steps(records)
    errors, rungs, models = [], [], []
    named: list[tuple[str, Filter | None, Estimate]] = [(name, None, one) for name, one in trivial.items()]
    named += [(name, model, estimate(model, records)) for name, model in filters]
    for name, model, estimated in named:
        errors.append(record_errors(records, estimated.mean))
        both = (estimated.mean, estimated.cov)
        summary = summarize(records.layout, both, records.truth, valid=known)
        nees, covered = (float(summary[key]) if estimated.cov is not None else None for key in ("nees", "coverage95"))
        learned = 0 if model is None else sum(p.numel() for p in model.parameters() if p.requires_grad)
        models.append(model)
        rungs.append(Rung(name, learned, float(errors[-1].mean()), 0.0, 0.0, nees, covered))
    table = torch.stack(errors)
    index, best = pick(table, [model is not None for model in models])
    kept = models[index]
    assert kept is not None
    centre = table.mean(1)
    scale = float(centre[best]) or 1.0
    said = [
        replace(
            rung,
            worse=float(centre[k] - centre[best]) / scale,
            worse_error=standard_error(table[k] - table[best]) / scale,
            chosen=k == index,
        )
        for k, rung in enumerate(rungs)
    ]
    return Ladder(kept, tuple(said))


def pick(errors: Float[Tensor, "K N"], allowed: Sequence[bool]) -> tuple[int, int]:
    """The first, which is the simplest, that records cannot tell from the best, and that is hardly worse; and the best.

    >>> exact = torch.tensor([[1.0, 2.0, 3.0], [0.5, 1.0, 1.5], [0.499, 1.001, 1.499]])
    >>> pick(exact, [True, True, True])
    (1, 2)
    """
    means = torch.where(torch.tensor(allowed), errors.mean(1), torch.inf)
    best = int(means.argmin())
    for k in range(best):
        worse = errors[k] - errors[best]
        told_apart = float(worse.mean()) > NORMAL * standard_error(worse)
        if allowed[k] and not told_apart and float(means[k]) <= (1 + TOLERANCE) * float(means[best]):
            return k, best
    return best, best


def standard_error(values: Float[Tensor, " N"]) -> float:
    """Of the mean; zero of a single value."""
    return float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else 0.0
