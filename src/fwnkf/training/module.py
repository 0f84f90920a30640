"""The Lightning module around a filter: training step, validation and optimizer."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import lightning
import torch
from lightning.fabric.utilities import move_data_to_device
from torch import Tensor

from ..core.gaussian import log_prob
from ..core.trajectory import Trajectory
from ..core.tree import tree_map
from ..data.protocols import Records
from ..errors import NumericalFailureError
from ..filters import engines
from ..filters.base import Filter
from ..filters.steps import dt_for
from ..metrics.accuracy import summarize
from ..metrics.consistency import nis
from .adabelief import AdaBelief
from .batches import Piece, Plan, gather
from .config import Experiment, OptimizerSection
from .losses import Batch, weighted_sum

VALIDATION_BATCH = 1024
"""Records filtered at a time during validation."""


class TrainingModule(lightning.LightningModule):
    """A filter with its loss, training plan and validation records."""

    def __init__(self, model: Filter, experiment: Experiment, plan: Plan, val: Records, steps: int) -> None:
        super().__init__()
        self.model, self.experiment, self.plan, self.val, self.steps = model, experiment, plan, val, steps
        self.loss = weighted_sum(experiment.loss)
        self.carry: Any = None
        self._advance: Callable[..., Any] | None = None
        options = experiment.trainer
        whole = options.truncate is None and options.recompute is None
        scans = whole and plan.chunk >= engines.LINEAR_STEPS and engines.is_linear(model, model.prepare())
        self.engine = "scan: all steps at once" if scans else "compiled steps" if options.compile else "loop"
        if options.compile and not scans:
            warnings.filterwarnings("ignore", message=".*_prims_common.check.*")
            # a single step of fixed sizes: unrolling several steps takes minutes to compile and is no faster
            self._advance = torch.compile(model.advance, fullgraph=True, dynamic=False)

    def training_step(self, item: tuple[Batch, Piece], index: int) -> Tensor:
        batch, piece = item
        options = self.experiment.trainer
        continued = piece.start > 0
        track = self.run(
            batch,
            prior=None if continued else batch.prior,
            state=self.carry if continued else None,
            truncate=options.truncate,
            checkpoint=options.recompute,
            advance=self._advance,
        )
        self.carry = tree_map(Tensor.detach, track.state) if self.plan.pieces > 1 else None
        value, parts = self.loss(self.model, batch, track)
        # shares are relative to the whole batch, but gradients are averaged over processes
        total = value * self.trainer.world_size + self.model.regularization()
        if not bool(total.isfinite()):
            self._raise_not_finite(batch, track, parts)
        world = self.trainer.world_size
        logged = {"loss": total.detach(), **{f"loss_{name}": part * world for name, part in parts.items()}}
        self.log_dict(logged, sync_dist=world > 1, batch_size=len(batch.y))
        return total

    def run(self, batch: Batch, **options: Any) -> Trajectory:
        """Run the filter over a batch; random numbers depend only on the seed and the step."""
        generator = torch.Generator(device=batch.y.device).manual_seed(
            noise_seed(self.experiment.seed, self.global_step)
        )
        if options.get("state") is None:
            options["generator"] = generator
        dt = dt_for(self.model, batch.dt, continued=options.get("state") is not None)
        u = batch.u if self.model.control_dim else None
        return self.model.run(batch.y, u, batch.mask, dt, **options)

    @torch.no_grad()
    def validation_step(self, item: Any, index: int) -> None:
        """Validate on the whole validation set, identically on every process."""
        metrics = {f"val_{name}": value for name, value in self.validate_on(self.val).items()}
        self.log_dict(metrics, batch_size=len(self.val))

    @torch.no_grad()
    def validate_on(self, records: Records) -> dict[str, float]:
        """Loss, accuracy and consistency over records, computed in batches of limited size."""
        tracks, total = [], 0.0
        for first in range(0, len(records), VALIDATION_BATCH):
            rows = torch.arange(first, min(first + VALIDATION_BATCH, len(records)))
            batch = gather(records, Piece(rows, 0, records.y.shape[1]))
            batch = move_data_to_device(batch, self.device)
            track = self.run(batch, prior=batch.prior)
            total += float(self.loss(self.model, batch, track)[0]) * len(rows) / len(records)
            tracks.append(track._replace(state=None))
        mean, cov, innovation, innovation_cov = (
            torch.cat([getattr(track, name) for track in tracks]).cpu()
            for name in ("mean", "cov", "innovation", "innovation_cov")
        )
        valid = records.truth.isfinite().all(-1)
        metrics = {"loss": total}
        if bool(valid.any()):
            row = summarize(records.layout, (mean, cov), records.truth, valid=valid)
            metrics |= {name: float(row[name]) for name in ("mse", "nees", "coverage95")}
            residual = records.layout.boxminus(torch.where(valid[..., None], records.truth, mean), mean)
            metrics["nll"] = float(-log_prob(residual.double(), cov.double())[0][valid].mean())
        present = records.mask & records.y.isfinite()
        # after preprocessing there may be other channels or steps than the records have
        if innovation.shape == records.y.shape and not self.model.latent_innovations:
            likelihood = log_prob(innovation.double(), innovation_cov.double(), present.double())[0]
            metrics["innovation_nll"] = float(-likelihood[present.any(-1)].mean())
            whole = present.all(-1)
            metrics["nis"] = (
                float(nis(innovation[whole].double(), innovation_cov[whole].double()).mean())
                if whole.any()
                else math.nan
            )
        return metrics

    def configure_optimizers(self) -> Any:
        optimizer, scheduler = make_optimizer(
            self.experiment.optimizer, dict(self.model.named_parameters()), self.steps
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _raise_not_finite(self, batch: Batch, track: Trajectory, parts: dict[str, Tensor]) -> None:
        not_finite = [name for name, part in parts.items() if not bool(part.isfinite())]
        failed = (~track.mean.isfinite().all(-1)).nonzero()
        where = f"; the estimate is first not finite at time step {int(failed[:, 1].min())}" if len(failed) else ""
        raise NumericalFailureError(
            f"the loss is not finite at training step {self.global_step} "
            f"({', '.join(not_finite) or 'regularisation'}){where}. "
            "Lower optimizer.learning_rate, set optimizer.clip, or train in float64 (data.dtype)"
        )


def noise_seed(seed: int, step: int) -> int:
    """The seed of the random numbers that filters draw in one training step."""
    return 7_368_787 * (seed + 1) + step


def make_optimizer(
    options: OptimizerSection, parameters: Mapping[str, Tensor], steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
    """The optimizer of an experiment over parameters by name, and the schedule of its learning rate."""
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "adabelief": AdaBelief}[options.name]
    groups: dict[float, list[Tensor]] = {}
    for name, parameter in parameters.items():
        factor = next((float(f) for start, f in options.rates.items() if name.startswith(start)), 1.0)
        if parameter.requires_grad and factor > 0:
            groups.setdefault(factor, []).append(parameter)
    trained = [{"params": group, "lr": factor * options.learning_rate} for factor, group in groups.items()]
    optimizer = kind(trained, lr=options.learning_rate, weight_decay=options.weight_decay)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(options, step / steps))


def rate(options: Any, share: float) -> float:
    """Learning rate relative to its highest value, after a fraction ``share`` of the run.

    ``one_cycle`` rises from 1/25 and falls to ``final`` along half cosines; ``cosine`` rises linearly and falls along a
    half cosine; ``exponential`` rises linearly and falls by the same factor in every step; ``constant`` rises linearly
    and stays constant.
    """
    if share < options.warmup:
        if options.schedule == "one_cycle":
            return 0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * share / options.warmup))
        return max(share / options.warmup, 1e-3)
    if options.schedule == "constant":
        return 1.0
    fall = (share - options.warmup) / (1 - options.warmup)
    if options.schedule == "exponential":
        return float(options.final ** min(fall, 1.0))
    return float(options.final + (1 - options.final) * 0.5 * (1 + math.cos(math.pi * min(fall, 1.0))))
