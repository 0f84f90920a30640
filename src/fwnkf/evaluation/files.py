"""A filter on whole files of measurements, with or without true states: how well it predicts, and how consistently."""

from __future__ import annotations

import time

import torch

from ..data.files import WholeFiles
from ..errors import ConfigError
from ..filters.base import Filter
from ..filters.steps import dt_for
from ..identify.fit_report import consistency_of
from ..identify.start import starting_belief
from ..metrics.accuracy import summarize
from .rows import Row

__all__ = ["evaluate_files"]

SKIPPED = 100
"""First steps of a record that do not count in NIS and whiteness, at most: the filter forgets its start in them."""


@torch.no_grad()
def evaluate_files(model: Filter, files: WholeFiles, method: str) -> Row:
    """Log-likelihood, NIS and whiteness of the innovations of a filter on files, and its errors where truth is known.

    Args:
        model: the filter.
        files: the records, one for each file.
        method: what the row is called.

    Returns:
        One row of a table.

    Raises:
        ConfigError: the files have another number of columns than the filter has channels or states.

    >>> import tempfile, pathlib
    >>> from ..data.files import read_files
    >>> from ..data.tables import Columns
    >>> from ..filters.factory import build
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "walk.csv"
    >>> _ = path.write_text(chr(10).join(["t,x", *(f"{t / 10},{t % 7}" for t in range(60))]))
    >>> one = torch.eye(1)
    >>> files = read_files(path, Columns(state=(), observe=("x",), time="t"))
    >>> evaluate_files(build("kf", F=one, H=one, Q=one, R=one, dt=0.1), files, "kf")["records"]
    1
    """
    begin = time.perf_counter()
    channels, controls, _ = model.input_sizes
    given = 0 if files.u is None else files.u.shape[-1]
    if (files.y.shape[-1], given) != (channels, controls):
        raise ConfigError(
            f"the filter has {channels} channel(s) and {controls} control input(s), but {files.y.shape[-1]} and "
            f"{given} columns are named: --channels, --controls"
        )
    if not model.observes or model.latent_innovations:
        raise ConfigError(f"filter {model.name!r} has no innovations of its measurements, which are judged here")
    like = torch.zeros((), dtype=model.dtype, device=model.device)
    mask = files.mask.to(like.device)
    y = torch.where(files.mask, files.y, 0.0).to(like)
    u = None if files.u is None else files.u.to(like)
    dt = dt_for(model, files.dt.to(like))
    prior = None if model.initial_steps else starting_belief(model, y, u, mask, dt)
    wanted = ["innovation", "innovation_cov"] + (["mean", "cov"] if files.truth is not None else [])
    track = model.eval().run(y, u, mask, dt, prior, outputs=wanted)
    skip = min(y.shape[1] // 10, SKIPPED)
    total = float(track.log_likelihood.double().sum())
    weight = mask.double()
    innovation, cov = track.innovation.double(), track.innovation_cov.double()
    found = consistency_of(innovation * weight, cov.expand(len(y), -1, -1, -1), weight, total, skip)
    errors: Row = {}
    if files.truth is not None:
        if files.truth.shape[-1] != model.layout.size:
            raise ConfigError(f"--state names {files.truth.shape[-1]} column(s), the filter has {model.layout.size}")
        known = files.truth.isfinite().all(-1)
        errors = summarize(model.layout, (track.mean, track.cov), files.truth.to(like), valid=known)
    finite = innovation.isfinite().all(-1).all(-1)
    return {
        "method": method,
        "data": "tables",
        "records": len(y),
        **errors,
        "log_likelihood": found.log_likelihood,
        "nis": found.nis,
        "white": min(found.white),
        "failures": int((~finite).sum()),
        "flagged_steps": int((track.status != 0).sum()),
        "seconds": round(time.perf_counter() - begin, 2),
    }
