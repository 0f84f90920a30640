"""Fit constant noise, then train an encoder on top of it, on the same records by the same likelihood, without truth."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fwnkf
from fwnkf import Gaussian
from fwnkf.identify.fitting import Fit
from fwnkf.identify.likelihood import Measurements
from fwnkf.training.likelihood_fit import fit_encoder
from tasks.encoder.cases import CASES, Case
from tasks.interface import Say

HIDDEN, ITERATIONS = 16, 3
FITTED = 12
"""Records of the fit of constants, evenly chosen; the encoder is trained on all."""
Row = dict[str, Any]


def measure(name: str, seeds: tuple[int, ...], models: Path, store: Path, say: Say) -> None:
    """The seeds of one case that the store does not have, written one by one."""
    rows = read(store)
    missing = [seed for seed in seeds if f"{name}/{seed}" not in rows]
    if not missing:
        return
    case = CASES[name](models)
    constant = fit_constant(case, say)
    error = dict(case.errors(constant.filter))
    for seed in missing:
        found = fit_encoder(
            constant, hidden=HIDDEN, steps=case.steps, seed=seed, progress=say, learning_rate=case.learning_rate
        )
        report = found.report
        row = {
            "case": name, "seed": seed, "unit": case.unit, "steps": case.steps,
            "rate": case.learning_rate, "records": report.trained_records,
            "gain": by_recording(case.names, report.gain_by_record, case),
            "nis": [report.before.nis, report.after.nis], "used": report.used, "cpu_seconds": report.seconds,
            "error": error, "error_with_encoder": dict(case.errors(found.trained)),
        }  # fmt: skip
        rows[f"{name}/{seed}"] = row
        store.parent.mkdir(parents=True, exist_ok=True)
        store.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        say(f"encoder, {name}, seed {seed}: gain {report.gain:.4f} per value, NIS {row['nis']}")


def fit_constant(case: Case, say: Say) -> Fit:
    """The filter with constant ``Q`` and ``R`` of the largest likelihood; test records are held out."""
    assert case.prior is not None
    u, dt = (None if item is None else item.double() for item in (case.u, case.dt))
    mask, prior = case.mask & case.y.isfinite(), Gaussian(*(item.double() for item in case.prior))
    everything = Measurements(torch.where(mask, case.y, torch.nan).double(), mask, u, dt, prior)
    rows = torch.arange(len(case.y))
    train, test = rows[: -len(case.names)], rows[-len(case.names) :]
    few = everything.take(train[torch.linspace(0, len(train) - 1, min(len(train), FITTED)).long()])
    fitted = fwnkf.fit(
        case.filter, few.y, few.u, few.present, few.dt, few.prior,
        learn=case.learn, held_out=0.0, iterations=ITERATIONS, progress=say,
    )  # fmt: skip
    return dataclasses.replace(fitted, fitted_records=everything.take(train), held_out_records=everything.take(test))


def by_recording(names: tuple[str, ...], gains: tuple[float, ...], case: Case) -> dict[str, float]:
    """Log-likelihood per measured value that an encoder adds on each recording."""
    counts = case.mask[-len(names) :].sum((1, 2)).double().numpy()
    found = {}
    for name in dict.fromkeys(names):
        mine = np.array([one == name for one in names])
        found[name] = float(np.sum(np.array(gains)[mine] * counts[mine]) / max(counts[mine].sum(), 1.0))
    return found


def read(store: Path) -> dict[str, Row]:
    """The rows measured so far, by case and seed."""
    return json.loads(store.read_text(encoding="utf-8")) if store.exists() else {}
