"""How much memory a training step will take, before it takes it."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from ..data.protocols import Records
from ..errors import ConfigError
from ..filters.base import Filter
from .batches import Piece, Plan, gather
from .config import TrainerSection

PROBE = 2
"""Records of the probe; what autograd keeps grows with the number of records, but for the weights."""


def saved_bytes(model: Filter, task: Records, records: int, steps: int) -> int:
    """Bytes that autograd keeps for the backward pass over so many records and steps."""
    seen: dict[int, int] = {}
    held: list[Tensor] = []  # or the address of one that is freed would stand for two tensors

    def keep(tensor: Tensor) -> Tensor:
        try:
            storage = tensor.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
        except RuntimeError:  # a tensor within forward differentiation has no storage of its own to show
            seen[id(tensor)] = tensor.numel() * tensor.element_size()
            held.append(tensor)
        return tensor

    rows = torch.arange(records) % len(task)
    batch = gather(task, Piece(rows, 0, steps))
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        track = model.run(
            batch.y,
            batch.u if model.control_dim else None,
            batch.mask,
            batch.dt if model.takes_dt else None,
            prior=batch.prior,
            generator=torch.Generator().manual_seed(0),
        )
        held.append(track.mean.sum() + track.cov.sum() + track.innovation.sum())
    return sum(seen.values())


def estimate(model: Filter, task: Records, plan: Plan, options: TrainerSection) -> int:
    """Bytes of one training step: a line through two short probes, drawn out to the run's batch and length.

    Gradients cut by ``truncate`` still live until the loss of the whole stretch is taken, so it saves no memory;
    ``chunk`` and ``recompute`` do.
    """
    length = min(plan.chunk, task.y.shape[1])
    short, long = min(4, length), min(8, length)
    if long == short:
        return saved_bytes(model, task, PROBE, length) * plan.batch_size // PROBE
    a, b = saved_bytes(model, task, PROBE, short), saved_bytes(model, task, PROBE, long)
    wide = saved_bytes(model, task, 2 * PROBE, short)
    per_record = max(wide - a, 0) / PROBE / short  # of one step
    slope = (b - a) / (long - short)  # of one step, weights that are stored again each step included
    step = max(slope - PROBE * per_record, 0) + per_record * (plan.batch_size // options.devices)
    fixed = max(a - slope * short, 0)
    if options.recompute is not None and options.recompute < length:
        state = per_record * (plan.batch_size // options.devices) / 8  # what stays between blocks is small
        return int(fixed + step * options.recompute + state * length / options.recompute)
    return int(fixed + step * length)


def available() -> int | None:
    """Bytes of free memory, where the system says."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def check(needed: int, options: TrainerSection) -> str:
    """A line that says what is needed and what there is, or an error that says how to need less."""
    free = available()
    limit = options.memory_limit * 1e9 if options.memory_limit is not None else None if free is None else 0.9 * free
    text = f"memory of a training step: about {needed / 1e9:.2g} GB"
    if free is not None:
        text += f" of {free / 1e9:.2g} GB free"
    if limit is not None and needed > limit:
        raise ConfigError(
            f"{text}, above the limit of {limit / 1e9:.2g} GB. Lower trainer.batch_size, cut records with chunk, "
            "or recompute in the backward pass with trainer.recompute (e.g. 10)"
        )
    return text
