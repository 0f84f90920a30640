"""Fit constant noise, then train an encoder on top of it, on the same records by the same likelihood, without truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import fwnkf
from fwnkf.identify.fitting import Fit
from fwnkf.training.likelihood_fit import fit_encoder
from tasks.encoder.cases import CASES, Case
from tasks.interface import Say

HIDDEN, STEPS, ITERATIONS = 16, 200, 3
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
        found = fit_encoder(constant, hidden=HIDDEN, steps=STEPS, seed=seed, progress=say)
        report = found.report
        row = {
            "case": name, "seed": seed, "unit": case.unit, "records": report.trained_records,
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
    test = range(len(case.y) - len(case.names), len(case.y))
    return fwnkf.fit(
        case.filter, case.y, case.u, case.mask, case.dt, case.prior,
        learn=("Q", "R"), held_out=tuple(test), iterations=ITERATIONS, progress=say,
    )  # fmt: skip


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
