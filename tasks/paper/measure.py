"""The rows of one group: its runs trained and scored, or its references."""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fwnkf import save
from fwnkf.data.protocols import Protocol, digest
from fwnkf.errors import FwnkfError
from fwnkf.evaluation.evaluate import Estimate, estimate
from tasks.paper.matrix import REFERENCES, Cell, Group, Matrix
from tasks.paper.scores import block_errors, scores
from tasks.paper.store import RUNTIME, Row, short_name

if TYPE_CHECKING:
    from tasks.paper.search import Found
    from tasks.paper.stacked import Member

COMMAND = "python -m tasks paper"
Say = Callable[[str], None]


def measure(matrix_of_runs: Matrix, group: Group, runs: Path, say: Say = print) -> list[Row]:
    """Rows of a group; a run that cannot be trained is a row with the reason."""
    torch.set_num_threads(1)
    try:
        if group.recipe == REFERENCES:
            return list(_references(matrix_of_runs, group))
        return _trained(matrix_of_runs, group, runs, say)
    except Exception as error:  # one group that fails must not end the others
        if not isinstance(error, FwnkfError):
            say(traceback.format_exc())
        return failed(matrix_of_runs, group, f"{type(error).__name__}: {error}")


def runtime_rows() -> list[Row]:
    """Parameters and time of a step of each filter."""
    from fwnkf.training import provenance
    from tasks.paper.runtime import measure_runtime

    origin = {"versions": provenance.versions(), "commit": provenance.commit(), "finished": _now()}
    return [
        {"key": f"{RUNTIME}/{row.filter}", "kind": RUNTIME, "recipe": row.filter, "status": "done",
         "command": f"{COMMAND} --runtime", **{k: v for k, v in row._asdict().items() if k != "filter"}, **origin}
        for row in measure_runtime()
    ]  # fmt: skip


def failed(matrix_of_runs: Matrix, group: Group, reason: str) -> list[Row]:
    """A row with the reason for each run of a group."""
    if group.recipe == REFERENCES:
        key = f"{group.name}/failed"
        return [{**_where(group.data, group.protocol, REFERENCES), "key": key, "kind": "reference",
                 "status": "failed", "reason": _line(reason)}]  # fmt: skip
    return [{**_identity(matrix_of_runs, cell), "status": "failed", "reason": _line(reason)} for cell in group.cells]


def run_folder(matrix_of_runs: Matrix, group: Group, runs: Path) -> Path:
    """Where a group is trained; another recipe or budget has another folder."""
    configs = [matrix_of_runs.row_config(cell) for cell in group.cells]
    return runs / f"{group.name.replace('/', '-')}-{short_name(configs)}"


def _trained(matrix_of_runs: Matrix, group: Group, runs: Path, say: Say) -> list[Row]:
    from tasks.paper.search import STATES, search
    from tasks.paper.stacked import fit_together

    folder = run_folder(matrix_of_runs, group, runs)
    rows = []
    experiments = [matrix_of_runs.experiment(cell) for cell in group.cells]
    found = None
    plan = matrix_of_runs.search()
    if plan is None:
        members = fit_together(experiments, say=say)
    else:
        found = search(experiments, plan, folder, say, group.trials, group.patience)
        members = found.members
    for number, (cell, member) in enumerate(zip(group.cells, members, strict=True)):
        save(member.model, folder / str(number))  # for drawings
        rows.append({**_identity(matrix_of_runs, cell), **_scored(member)})
        say(f"{cell.key}: mse {rows[-1]['metrics']['mse']:.4g}")
    if found is not None:
        rows = [{**row, **_budget(found, member)} for row, member in zip(rows, members, strict=True)]
        for number, member in found.doubled.items():
            rows[number]["doubled"] = _doubled(member, members[number])
    shutil.rmtree(folder / STATES, ignore_errors=True)
    return rows


def _budget(found: Found, member: Member) -> Row:
    """What the rule of the budget chose for a run, and how its training went."""
    return {
        "rate": member.rate,
        "batch": found.batch,
        "patience": found.patience,
        "converged": member.converged,
        "restarts": member.restarts,
        "history": _curve(member),
        "trials": found.trials,
    }


def _doubled(member: Member, usual: Member) -> Row:
    """A run with twice the budget, as which it went on after ``usual``."""
    test = member.data.split.test
    figures = scores(test, estimate(member.model, test))
    return {"mse": figures["mse"], "mse_arc": figures["mse_arc"], "steps": member.steps, "best_step": member.best_step,
            "converged": member.converged, "history": _curve(member),
            "cpu_seconds": round(member.training_seconds - usual.training_seconds, 2)}  # fmt: skip


def _curve(member: Member) -> list[list[float]]:
    """Step and validation error of each evaluation."""
    return [[entry["step"], float(f"{entry['val_mse']:.3g}")] for entry in member.history]


def _scored(member: Member) -> Row:
    from fwnkf.training import provenance

    begin = time.process_time()
    estimated = estimate(member.model, member.data.split.test)
    seconds = {
        "preparation": member.preparation_seconds,
        "training": member.training_seconds,
        "scoring": time.process_time() - begin,
    }
    trainer = member.experiment.trainer
    return {
        "status": "done",
        **_figures(member.data, estimated),
        "parameters": sum(p.numel() for p in member.model.parameters() if p.requires_grad),
        "pretrain": trainer.pretrain,
        "steps": member.steps,
        "best_step": member.best_step,
        "failed_at": member.failed_at,
        "data_digest": _short(digest(*member.data.split)),
        "test_digest": _short(digest(member.data.split.test)),
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "cpu_seconds": {name: round(value, 2) for name, value in seconds.items()},
        "finished": _now(),
    }


def _references(matrix_of_runs: Matrix, group: Group) -> Iterator[Row]:
    from tasks.paper.references import references

    matrix_of_runs.register_data()
    for seed in group.seeds:
        config = matrix_of_runs.reference_config(group, seed)
        data, methods = references(config)
        for name, (estimated, seconds) in methods:
            yield {
                **_where(group.data, group.protocol, name),
                "key": f"{group.name}/{name}/{seed}",
                "kind": "reference",
                "seed": seed,
                "config": config,
                "command": COMMAND,
                "status": "done",
                **_figures(data, estimated),
                "test_digest": _short(digest(data.split.test)),
                "cpu_seconds": {"scoring": round(seconds, 2)},
                "finished": _now(),
            }


def _figures(data: Protocol, estimated: Estimate) -> Row:
    test = data.split.test
    # a start that is given exactly has a singular covariance
    first = 1 if data.name == "paper" else 0
    return {
        "records": len(test),
        "metrics": scores(test, estimated, first),
        "errors": block_errors(test, estimated),
    }


def _identity(matrix_of_runs: Matrix, cell: Cell) -> Row:
    return {
        **_where(cell.data, cell.protocol, cell.recipe),
        "key": cell.key,
        "kind": "trained",
        "weight": cell.weight,
        "seed": cell.seed,
        "config": matrix_of_runs.row_config(cell),
        "command": COMMAND,
    }


def _where(data: str, protocol: str, recipe: str) -> Row:
    return {"data": data, "protocol": protocol, "recipe": recipe}


def _line(reason: str) -> str:
    """The first line of a reason, which a table can hold."""
    return reason.strip().splitlines()[0][:300] if reason.strip() else "no reason given"


def _short(text: str) -> str:
    """Enough of a SHA-256 to tell records apart."""
    return text[:16]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
