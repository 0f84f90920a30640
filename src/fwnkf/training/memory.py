"""Estimate of the memory that a training step needs."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from ..data.protocols import Records
from ..errors import ConfigError
from ..filters.base import Filter
from ..filters.steps import dt_for
from .batches import Piece, Plan, gather
from .config import TrainerSection

PROBE = 2
"""Records in a probe; apart from the weights, the memory kept by autograd grows linearly with the records."""


def saved_bytes(model: Filter, records: Records, count: int, steps: int) -> int:
    """Bytes that autograd keeps for the backward pass over ``count`` records of ``steps`` time steps."""
    sizes: dict[int, int] = {}
    held: list[Tensor] = []  # keeps tensors alive, because the id of a freed tensor may be used again

    def keep(tensor: Tensor) -> Tensor:
        try:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        except RuntimeError:  # tensors inside forward-mode differentiation have no accessible storage
            sizes[id(tensor)] = tensor.numel() * tensor.element_size()
            held.append(tensor)
        return tensor

    rows = torch.arange(count) % len(records)
    batch = gather(records, Piece(rows, 0, steps))
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        track = model.run(
            batch.y,
            batch.u if model.control_dim else None,
            batch.mask,
            dt_for(model, batch.dt),
            prior=batch.prior,
            generator=torch.Generator().manual_seed(0),
        )
        held.append(track.mean.sum() + track.cov.sum() + track.innovation.sum())
    return sum(sizes.values())


def estimate(model: Filter, records: Records, plan: Plan, options: TrainerSection) -> int:
    """Bytes of one training step, extrapolated linearly from short probes to the batch size and length of the run.

    ``truncate`` saves no memory, because the graph is kept until the loss of the whole batch is computed; ``chunk``
    and ``recompute`` do.
    """
    length = min(plan.chunk, records.y.shape[1])
    # the hooks of a probe allow no reverse mode inside, so that Jacobians are slow: few steps, all but the first alike
    short, long = min(2, length), min(3, length)
    if long == short:
        return saved_bytes(model, records, PROBE, length) * plan.batch_size // PROBE
    at_short, at_long = saved_bytes(model, records, PROBE, short), saved_bytes(model, records, PROBE, long)
    wide = saved_bytes(model, records, 2 * PROBE, short)
    per_record = max(wide - at_short, 0) / PROBE / short  # for one time step
    slope = (at_long - at_short) / (long - short)  # for one time step, including weights saved again at each step
    step = max(slope - PROBE * per_record, 0) + per_record * (plan.batch_size // options.devices)
    fixed = max(at_short - slope * short, 0)
    if options.recompute is not None and options.recompute < length:
        state = per_record * (plan.batch_size // options.devices) / 8  # the state kept between blocks is small
        return int(fixed + step * options.recompute + state * length / options.recompute)
    return int(fixed + step * length)


def available() -> int | None:
    """Bytes of free memory; None if the operating system does not report it."""
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
    """A status line with the needed and the free memory; raises a ConfigError above the limit."""
    free = available()
    limit = options.memory_limit * 1e9 if options.memory_limit is not None else None if free is None else 0.9 * free
    text = f"memory of a training step: about {needed / 1e9:.2g} GB"
    if free is not None:
        text += f" of {free / 1e9:.2g} GB free"
    if limit is not None and needed > limit:
        raise ConfigError(
            f"{text}, above the limit of {limit / 1e9:.2g} GB. Lower trainer.batch_size, set trainer.chunk, "
            "or recompute in the backward pass with trainer.recompute (e.g. 10)"
        )
    return text
