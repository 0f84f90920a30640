"""A filter as Lightning trains it: the step, the validation, the optimizer. The filter itself knows nothing of this."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import lightning
import torch
from lightning.fabric.utilities import move_data_to_device
from torch import Tensor

from ..core.gaussian import log_prob
from ..core.tree import tree_map
from ..data.protocols import Records
from ..errors import NumericalFailureError
from ..filters.base import Filter
from ..metrics.accuracy import summarize
from ..metrics.consistency import nis
from ..types import Trajectory
from .batches import Piece, Plan, gather
from .config import Experiment
from .losses import Batch, weighted_sum

VALIDATION_BATCH = 1024
"""Records filtered at a time when nothing is learned."""


class TrainingModule(lightning.LightningModule):
    """One filter and what it is trained for."""

    def __init__(self, model: Filter, experiment: Experiment, plan: Plan, val: Records, steps: int) -> None:
        super().__init__()
        self.model, self.experiment, self.plan, self.val, self.steps = model, experiment, plan, val, steps
        self.loss = weighted_sum(experiment.loss)
        self.carry: Any = None
        self._advance: Callable[..., Any] | None = None
        if experiment.trainer.compile:
            warnings.filterwarnings("ignore", message=".*_prims_common.check.*")
            # one step, fixed sizes: unrolling more of them compiles for minutes and runs no faster
            self._advance = torch.compile(model.advance, fullgraph=True, dynamic=False)

    def training_step(self, item: tuple[Batch, Piece], index: int) -> Tensor:
        batch, piece = item
        options = self.experiment.trainer
        going_on = piece.start > 0
        track = self.run(
            batch,
            prior=None if going_on else batch.prior,
            state=self.carry if going_on else None,
            truncate=options.truncate,
            checkpoint=options.recompute,
            advance=self._advance,
        )
        self.carry = tree_map(Tensor.detach, track.state) if self.plan.pieces > 1 else None
        value, parts = self.loss(self.model, batch, track)
        # shares are of the whole batch, and gradients are averaged over processes: hence the factor
        total = value * self.trainer.world_size + self.model.regularization()
        if not bool(total.isfinite()):
            self._complain(batch, track, parts)
        world = self.trainer.world_size
        told = {"loss": total.detach(), **{f"loss_{name}": part * world for name, part in parts.items()}}
        self.log_dict(told, sync_dist=world > 1, batch_size=len(batch.y))
        return total

    def run(self, batch: Batch, **options: Any) -> Trajectory:
        """The filter over a batch; randomness comes from the seed and the number of the step."""
        generator = torch.Generator(device=batch.y.device)
        generator.manual_seed(7_368_787 * (self.experiment.seed + 1) + self.global_step)
        if options.get("state") is None:
            options["generator"] = generator
        dt = batch.dt if self.model.takes_dt else None
        u = batch.u if self.model.control_dim else None
        return self.model.run(batch.y, u, batch.mask, dt, **options)

    @torch.no_grad()
    def validation_step(self, item: Any, index: int) -> None:
        """The whole validation set at once, the same on every process."""
        found = {f"val_{name}": value for name, value in self.validate_on(self.val).items()}
        self.log_dict(found, batch_size=len(self.val))

    @torch.no_grad()
    def validate_on(self, task: Records) -> dict[str, float]:
        """Loss, error and consistency over a task, in batches that fit any memory."""
        tracks, total = [], 0.0
        for first in range(0, len(task), VALIDATION_BATCH):
            rows = torch.arange(first, min(first + VALIDATION_BATCH, len(task)))
            batch = gather(task, Piece(rows, 0, task.y.shape[1]))
            batch = move_data_to_device(batch, self.device)
            track = self.run(batch, prior=batch.prior)
            total += float(self.loss(self.model, batch, track)[0]) * len(rows) / len(task)
            tracks.append(track._replace(state=None))
        mean, cov, innovation, spread = (
            torch.cat([getattr(track, name) for track in tracks]).cpu()
            for name in ("mean", "cov", "innovation", "innovation_cov")
        )
        valid = task.truth.isfinite().all(-1)
        found = {"loss": total}
        if bool(valid.any()):
            row = summarize(task.layout, (mean, cov), task.truth, valid=valid)
            found |= {name: float(row[name]) for name in ("mse", "nees", "coverage95")}
            residual = task.layout.boxminus(torch.where(valid[..., None], task.truth, mean), mean)
            found["nll"] = float(-log_prob(residual.double(), cov.double())[0][valid].mean())
        present = task.mask & task.y.isfinite()
        if innovation.shape == task.y.shape:  # filters with a latent observation have no innovation of the sensor
            likelihood = log_prob(innovation.double(), spread.double(), present.double())[0]
            found["innovation_nll"] = float(-likelihood[present.any(-1)].mean())
            whole = present.all(-1)
            found["nis"] = (
                float(nis(innovation[whole].double(), spread[whole].double()).mean()) if whole.any() else math.nan
            )
        return found

    def configure_optimizers(self) -> Any:
        options = self.experiment.optimizer
        kind = torch.optim.AdamW if options.name == "adamw" else torch.optim.Adam
        groups: dict[float, list[Tensor]] = {}
        for name, parameter in self.model.named_parameters():
            factor = next((float(f) for start, f in options.rates.items() if name.startswith(start)), 1.0)
            if parameter.requires_grad and factor > 0:
                groups.setdefault(factor, []).append(parameter)
        trained = [{"params": group, "lr": factor * options.learning_rate} for factor, group in groups.items()]
        optimizer = kind(trained, lr=options.learning_rate, weight_decay=options.weight_decay)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(options, step / self.steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _complain(self, batch: Batch, track: Trajectory, parts: dict[str, Tensor]) -> None:
        strange = [name for name, part in parts.items() if not bool(part.isfinite())]
        lost = (~track.mean.isfinite().all(-1)).nonzero()
        place = f"; the estimate is lost first at step {int(lost[:, 1].min())} of time" if len(lost) else ""
        raise NumericalFailureError(
            f"the loss is not finite at training step {self.global_step} "
            f"({', '.join(strange) or 'regularisation'}){place}. "
            "Lower optimizer.learning_rate, set optimizer.clip, or train in float64 (data.dtype)"
        )


def rate(options: Any, share: float) -> float:
    """Learning rate over its highest value after a share of the run.

    ``one_cycle`` rises and falls along half cosines, from a twenty-fifth to ``final``; ``cosine`` rises in a line;
    ``constant`` stays up.
    """
    if share < options.warmup:
        if options.schedule == "one_cycle":
            return 0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * share / options.warmup))
        return max(share / options.warmup, 1e-3)
    if options.schedule == "constant":
        return 1.0
    fall = (share - options.warmup) / (1 - options.warmup)
    return float(options.final + (1 - options.final) * 0.5 * (1 + math.cos(math.pi * min(fall, 1.0))))
