"""Checkpointing of a run: the best and the last filter, the history, and the state to resume from.

A run may be killed at any time: files are replaced atomically, and the resume state is written only between batches of
records. Whatever was written after the resume state is written again, bit for bit, by the resumed run.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback

from ..checkpoint import save
from ..errors import ConfigError
from .module import TrainingModule

STATE_FILE = "state.safetensors"
HISTORY_FILE = "history.jsonl"
UNTRAINED = "untrained"
"""Folder of the filter before the first step, in the folder of a run."""


class StoppedError(Exception):
    """The run was interrupted by the user; its state is saved.

    >>> issubclass(StoppedError, Exception)
    True
    """


def cpu_time() -> float:
    """Processor time in seconds of this process and of those it waited for, such as a compiler."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class CheckpointCallback(Callback):
    """Writes the history and the filters after every validation, and the resume state every ``save_seconds``."""

    def __init__(self, folder: Path, monitor: str, patience: int | None, save_seconds: float, cpu_start: float) -> None:
        self.folder, self.monitor, self.patience, self.save_seconds = folder, monitor, patience, save_seconds
        self.best, self.best_step, self.waited = math.inf, -1, 0
        self.cpu_before, self._cpu_start = 0.0, cpu_start
        self.compilation_seconds = 0.0
        """CPU seconds of the first step after every start of a compiled run, which compiles."""
        self._batches, self._clock = 0, 0.0
        self.stop_requested = False
        self._last_save = time.monotonic()

    # ---- Lightning's interface for the state of a callback

    def state_dict(self) -> dict[str, Any]:
        return {
            "best": self.best,
            "best_step": self.best_step,
            "waited": self.waited,
            "cpu_seconds": self.cpu_seconds,
            "compilation_seconds": self.compilation_seconds,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.best_step = float(state_dict["best"]), int(state_dict["best_step"])
        self.waited, self.cpu_before = int(state_dict["waited"]), float(state_dict["cpu_seconds"])
        self.compilation_seconds = float(state_dict.get("compilation_seconds", 0.0))

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the whole run, summed over all resumes."""
        return self.cpu_before + cpu_time() - self._cpu_start

    # ---- hooks

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Drop history rows later than the resume state: the resumed run writes them again.

        A new run is validated before its first step, so that ``best`` is the initial filter if training does not
        improve it.
        """
        assert isinstance(pl_module, TrainingModule)
        if trainer.is_global_zero:
            last_step = trainer.global_step or -1  # a new run has no rows yet, not even that of step 0
            rows = [row for row in read_history(self.folder) if row["step"] <= last_step]
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (self.folder / HISTORY_FILE).write_text(text, encoding="utf-8")
        if trainer.global_step == 0:
            if trainer.is_global_zero:
                save(pl_module.model, self.folder / UNTRAINED)
            pl_module.eval()
            metrics = pl_module.validate_on(pl_module.val)
            pl_module.train()
            self._after_validation(trainer, pl_module, {f"val_{name}": value for name, value in metrics.items()})

    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._batches == 0:
            self._clock = cpu_time()

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, TrainingModule)
        if self._batches == 0 and pl_module.experiment.trainer.compile:
            self.compilation_seconds += cpu_time() - self._clock
        self._batches += 1
        batch_complete = trainer.global_step % pl_module.plan.pieces == 0
        if not batch_complete or trainer.world_size > 1 or batch_idx + 1 == trainer.num_training_batches:
            return  # processes have no common clock: with several of them the state is saved after validations only
        if self.stop_requested or time.monotonic() - self._last_save > self.save_seconds:
            self.save_state(trainer)
        if self.stop_requested:
            raise StoppedError

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        assert isinstance(pl_module, TrainingModule)
        self._after_validation(
            trainer, pl_module, {name: float(value) for name, value in trainer.callback_metrics.items()}
        )

    def _after_validation(self, trainer: lightning.Trainer, module: TrainingModule, metrics: dict[str, float]) -> None:
        """Save the filter (as ``best`` if it is the best so far) and append the metrics to the history."""
        value = metrics.get(self.monitor, math.nan)
        if math.isnan(value) and self.best_step < 0 and trainer.global_step:
            defined = ", ".join(name for name in metrics if name.startswith("val_") and not math.isnan(metrics[name]))
            raise ConfigError(
                f"trainer.monitor = {self.monitor!r} is not defined on the validation records; choose one of: {defined}"
            )
        better = value < self.best
        self.waited = 0 if better else self.waited + 1
        if better:
            self.best, self.best_step = value, trainer.global_step
        if self.patience is not None and self.waited >= self.patience:
            trainer.should_stop = True  # all processes see the same validation, so they stop together
        if trainer.is_global_zero:
            if better:
                save(module.model, self.folder / "best")
            save(module.model, self.folder / "last")
            row = {"step": trainer.global_step, "learning_rate": trainer.optimizers[0].param_groups[0]["lr"], **metrics}
            with (self.folder / HISTORY_FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self.save_state(trainer)
        if self.stop_requested:
            raise StoppedError

    def save_state(self, trainer: lightning.Trainer) -> None:
        trainer.save_checkpoint(self.folder / STATE_FILE)
        self._last_save = time.monotonic()


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The validations of a run, in order; a line left incomplete by a kill is skipped."""
    path = folder / HISTORY_FILE
    if not path.is_file():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    return rows
