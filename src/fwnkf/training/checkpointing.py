"""What a run keeps as it goes: the best and the last filter, its history, and the state to resume from.

Saved states are safe at any moment a run may be killed: each file is replaced whole, the state to resume from is
written only between batches of records, and what was written after it is written again, bit for bit, by the run that
resumes.
"""

from __future__ import annotations

import json
import math
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


class StoppedError(Exception):
    """The user asked the run to stop; its state is saved."""


class CheckpointCallback(Callback):
    """Writes history and filters after every validation, and the state to resume from now and then."""

    def __init__(self, folder: Path, monitor: str, patience: int | None, save_seconds: float, cpu_start: float) -> None:
        self.folder, self.monitor, self.patience, self.save_seconds = folder, monitor, patience, save_seconds
        self.best, self.best_step, self.waited = math.inf, -1, 0
        self.cpu_before, self._cpu_start = 0.0, cpu_start
        self.stop_asked = False
        self._last_save = time.monotonic()

    # ---- Lightning's protocol for what a callback remembers

    def state_dict(self) -> dict[str, Any]:
        return {
            "best": self.best,
            "best_step": self.best_step,
            "waited": self.waited,
            "cpu_seconds": self.cpu_seconds,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.best_step = float(state_dict["best"]), int(state_dict["best_step"])
        self.waited, self.cpu_before = int(state_dict["waited"]), float(state_dict["cpu_seconds"])

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the whole run, stops and resumes included."""
        return self.cpu_before + time.process_time() - self._cpu_start

    # ---- hooks

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Rows that a killed run wrote after the state we go on from will be written again.

        A new run is validated before its first step: a filter that training only makes worse stays as it was.
        """
        assert isinstance(pl_module, TrainingModule)
        if trainer.is_global_zero:
            stands = trainer.global_step or -1  # a run that starts anew has no rows yet, not even that of step 0
            kept = [row for row in read_history(self.folder) if row["step"] <= stands]
            text = "".join(json.dumps(row) + "\n" for row in kept)
            (self.folder / HISTORY_FILE).write_text(text, encoding="utf-8")
        if trainer.global_step == 0:
            pl_module.eval()
            found = pl_module.validate_on(pl_module.val)
            pl_module.train()
            self._judge(trainer, pl_module, {f"val_{name}": value for name, value in found.items()})

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, TrainingModule)
        between = trainer.global_step % pl_module.plan.pieces == 0
        if not between or trainer.world_size > 1 or batch_idx + 1 == trainer.num_training_batches:
            return  # several processes do not share a clock: they save after validations only
        if self.stop_asked or time.monotonic() - self._last_save > self.save_seconds:
            self.save_state(trainer)
        if self.stop_asked:
            raise StoppedError

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        assert isinstance(pl_module, TrainingModule)
        self._judge(trainer, pl_module, {name: float(value) for name, value in trainer.callback_metrics.items()})

    def _judge(self, trainer: lightning.Trainer, module: TrainingModule, found: dict[str, float]) -> None:
        """Keep the filter if it is the best so far, and write down what was found."""
        value = found.get(self.monitor, math.nan)
        if math.isnan(value) and self.best_step < 0 and trainer.global_step:
            known = ", ".join(name for name in found if name.startswith("val_") and not math.isnan(found[name]))
            raise ConfigError(
                f"trainer.monitor = {self.monitor!r} is no number on the validation records, so no filter is the best; "
                f"these are numbers: {known}"
            )
        better = value < self.best
        self.waited = 0 if better else self.waited + 1
        if better:
            self.best, self.best_step = value, trainer.global_step
        if self.patience is not None and self.waited >= self.patience:
            trainer.should_stop = True  # every process sees the same validation, so all stop together
        if trainer.is_global_zero:
            if better:
                save(module.model, self.folder / "best")
            save(module.model, self.folder / "last")
            row = {"step": trainer.global_step, "learning_rate": trainer.optimizers[0].param_groups[0]["lr"], **found}
            with (self.folder / HISTORY_FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self.save_state(trainer)
        if self.stop_asked:
            raise StoppedError

    def save_state(self, trainer: lightning.Trainer) -> None:
        trainer.save_checkpoint(self.folder / STATE_FILE)
        self._last_save = time.monotonic()


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The validations of a run, in order; a line cut short by a kill is left out."""
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
