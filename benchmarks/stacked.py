"""Training several filters together: processor time of a training step for one filter, and for a stack of them.

    python benchmarks/stacked.py [--filters kalmannet rkn …] [--members 9] [--rounds 5] [--markdown FILE]

The filters are the recipes of the paper's Lorenz table. ``alone`` is forward and backward pass of one filter on a
batch, as :func:`fwnkf.training.fit.fit` has them without compilation; ``together`` is the same of a stack
(:class:`fwnkf.filters.stacked.FilterStack`), each member on a batch of its own. Both are measured in turn, medians of
processor time, one thread. ``gain`` is how many times more filters are trained in the same processor time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from tables import write

from fwnkf.evaluation.timing import interleave
from fwnkf.filters.stacked import FilterStack
from fwnkf.runtime.recordings import dt_for
from fwnkf.training.batches import Plan, gather
from fwnkf.training.experiments import parse_experiment
from fwnkf.training.fit import prepare_filter
from fwnkf.training.losses import weighted_sum
from fwnkf.training.setup import load_data
from tasks.paper import matrix
from tasks.paper.stacked import Objective

WEIGHT = 0.01
"""Weight of the spectral loss."""


def steps_of(recipe: str, members: int) -> dict[str, Callable[[], None]]:
    """One training step without the optimizer, of one filter and of a stack."""
    table = matrix.read()
    values = table.config(matrix.Cell("lorenz", "paper", recipe, WEIGHT, 0))
    values["data"] |= {"train": 64, "val": 1, "test": 1}
    values["trainer"] |= {"pretrain": 0}
    experiments = [parse_experiment({**values, "seed": seed}) for seed in range(members)]
    records = [load_data(experiment).split.train for experiment in experiments]
    models = [prepare_filter(one, some) for one, some in zip(experiments, records, strict=True)]
    piece = Plan(64, records[0].y.shape[1], experiments[0].trainer.batch_size, None, 0).at(0)
    batches = [gather(some, piece) for some in records]
    single, first, loss = models[0], batches[0], weighted_sum(experiments[0].loss)
    stack = FilterStack(models)
    objective = Objective(experiments, stack)

    def alone() -> None:
        dt = dt_for(single, first.dt)
        generator = torch.Generator().manual_seed(0)
        u = first.u if single.control_dim else None
        track = single.run(first.y, u, first.mask, dt, prior=first.prior, generator=generator)
        (loss(single, first, track)[0] + single.regularization()).backward()

    def together() -> None:
        objective(batches, 0).sum().backward()

    return {"alone": alone, "together": together}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filters", nargs="+", default=["fwnkf", "kalmannet", "recursive_kalmannet", "rkn", "kf"])
    parser.add_argument("--members", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for recipe in options.filters:
        candidates = steps_of(recipe, options.members)
        taken = interleave(candidates, options.rounds, clock=time.process_time)
        alone, together = taken["alone"], taken["together"]
        row = {"filter": recipe, "alone, s": alone, f"{options.members} together, s": together}
        rows.append({**row, "gain": options.members * alone / together})
        print(rows[-1], flush=True)
    if options.markdown:
        note = "Processor seconds of one training step on Lorenz, 100 time steps, the batches of the paper's tables."
        write(options.markdown, "Training several filters together", note, rows)


if __name__ == "__main__":
    main()
