"""Progress display of a run: step, loss, validation error, NEES and remaining time."""

from __future__ import annotations

from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..plain import printable
from ..remaining import Remaining


class ProgressLine(Callback):
    """A rich progress bar on a terminal; elsewhere one line of text after every validation."""

    def __init__(self, name: str, steps: int) -> None:
        self.name, self.steps = printable(name), steps  # from a file
        self.console = Console(stderr=True)
        self.bar: Progress | None = None
        self.remaining = Remaining(steps)

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self.remaining = Remaining(self.steps, trainer.global_step)
        if trainer.is_global_zero and self.console.is_terminal:
            self.bar = Progress(
                TextColumn("{task.description}", style="bold", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(elapsed_when_finished=False),
                console=self.console,
            )
            self.bar.start()
            self.task = self.bar.add_task(self.name, total=self.steps, completed=trainer.global_step, figures="")

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=trainer.global_step, figures=self._figures(trainer))

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        if trainer.is_global_zero and self.bar is None:
            left = self.remaining.added(trainer.global_step, "  ")
            self.console.print(
                f"{self.name}: step {trainer.global_step}/{self.steps}  {self._figures(trainer)}{left}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._close()

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _figures(self, trainer: lightning.Trainer) -> str:
        metrics = trainer.callback_metrics
        names = {"loss": "loss", "val_mse": "val mse", "val_nees": "NEES"}
        return "  ".join(f"{text} {float(metrics[name]):.4g}" for name, text in names.items() if name in metrics)
