"""Training of the runs of one group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fwnkf import load
from fwnkf.errors import FwnkfError

if TYPE_CHECKING:
    from fwnkf.training.config import Experiment
    from fwnkf.training.fit import Fitted


def fit_together(
    experiments: Sequence[Experiment], folder: Path, *, say: Callable[[str], None], command: str = ""
) -> list[Fitted | FwnkfError]:
    """Train each experiment in a folder of its own, or continue where it was stopped; failures are returned."""
    from fwnkf.training.fit import Fitted, fit, read_record
    from fwnkf.training.setup import load_data

    results: list[Fitted | FwnkfError] = []
    for number, experiment in enumerate(experiments):
        run = folder / str(number)
        try:
            started = (run / "run.json").is_file()
            if started and read_record(run)["status"] == "done":
                results.append(Fitted(run, experiment, load(run / "best"), load_data(experiment), read_record(run)))
                continue
            fitted = fit(experiment, run, resume=started, command=command, say=say)
            assert fitted is not None, "only processes of nonzero rank get no result"
            results.append(fitted)
        except FwnkfError as error:
            results.append(error)
    return results
