"""A bootstrap particle filter: the near-optimal line for small nonlinear systems."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.gaussian import condition, log_prob, safe_cholesky
from ..core.layout import Layout
from ..core.system import System
from ..data.protocols import Records
from ..errors import ConfigError
from ..shapes import Float


def particle_filter(
    task: Records, particles: int = 2000, seed: int = 0, jitter: float = 0.4, block: int = 50
) -> Float[Tensor, "N T n"]:
    """Posterior means by sampling: systematic resampling, and a little kernel noise after it.

    The kernel (``jitter`` times the weighted spread of the cloud) keeps the cloud from collapsing onto a few particles;
    the cloud is shrunk towards its mean by as much, so that its covariance stays what it was (Liu and West 2001). Where
    there is no process noise (Lorenz) the kernel is all that moves particles between resamplings: much less than 0.4
    lets the cloud collapse.
    """
    if task.system is None:
        raise ConfigError(f"task {task.name!r} has no system, so there is nothing to sample from")
    generator = torch.Generator().manual_seed(seed)
    parts = [
        _run(task.take(torch.arange(at, min(at + block, len(task)))), task.system, particles, jitter, generator)
        for at in range(0, len(task), block)
    ]
    return torch.cat(parts)


def _run(task: Records, system: System, count: int, jitter: float, generator: torch.Generator) -> Tensor:
    layout, batch = system.layout, len(task)
    d = layout.tangent_size

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=task.y.dtype)

    # Drawn from an EKF's update with the first measurement and weighted back to the prior: from the prior itself, all
    # but a few particles would die at once. With a linear observation the weights undo the first likelihood exactly.
    floor = 1e-12 * torch.eye(d).to(task.y)
    centre = task.start.mean.expand(batch, -1)
    cov = (task.start.cov + floor).expand(batch, d, d)
    predicted, H = system.linearize_observation(centre)
    apart = system.observation_layout.boxminus(torch.where(task.mask[:, 0], task.y[:, 0], predicted), predicted)
    update = condition(cov, apart, H, system.measurement_noise(), task.mask[:, 0].to(task.y.dtype))
    root, _ = safe_cholesky(update.cov + floor)
    drawn = normal(batch, count, d)
    near = update.correction.unsqueeze(1) + drawn @ root.mT
    cloud = layout.boxplus(centre.unsqueeze(1).expand(-1, count, -1), near)
    under_prior, _ = log_prob(near, cov.unsqueeze(1).expand(-1, count, -1, -1))
    under_proposal, _ = log_prob(drawn @ root.mT, (update.cov + floor).unsqueeze(1).expand(-1, count, -1, -1))
    log_weight = under_prior - under_proposal
    R = system.measurement_covariance()
    means = []
    for t in range(task.y.shape[1]):
        u = None if task.u is None else task.u[:, t].repeat_interleave(count, 0)
        dt = task.dt[:, t].repeat_interleave(count, 0)
        moved = system.transition(cloud.flatten(0, 1), u, dt).unflatten(0, (batch, count))
        spread = torch.diagonal(system.process_noise(task.dt[:, t]), dim1=-2, dim2=-1).clamp_min(0).sqrt()
        cloud = layout.boxplus(moved, normal(batch, count, d) * spread.unsqueeze(1))
        apart = system.observation_layout.boxminus(
            task.y[:, t].unsqueeze(1).expand(-1, count, -1), system.observe(cloud)
        )
        present = task.mask[:, t].unsqueeze(1).expand_as(apart)
        apart = torch.where(present, apart, 0.0)
        log_weight = log_weight + log_prob(apart, R.expand(batch, count, *R.shape), present.to(apart.dtype))[0]
        weight = log_weight.softmax(-1)
        heaviest = torch.gather(cloud, 1, weight.argmax(-1)[:, None, None].expand(-1, 1, cloud.shape[-1]))
        offset = layout.boxminus(cloud, heaviest.expand_as(cloud))
        mean_offset = (weight.unsqueeze(-1) * offset).sum(1)
        mean = layout.boxplus(heaviest.squeeze(1), mean_offset)
        means.append(mean)
        poor = 1 / weight.square().sum(-1) < 0.5 * count
        cloud, log_weight = _resample(layout, cloud, weight, log_weight, mean, poor, jitter, generator)
    return torch.stack(means, 1)


def _resample(
    layout: Layout,
    cloud: Tensor,
    weight: Tensor,
    log_weight: Tensor,
    mean: Tensor,
    poor: Tensor,
    jitter: float,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Systematic resampling with a shrunk kernel, for the records that need it."""
    batch, count = weight.shape
    centred = layout.boxminus(cloud, mean.unsqueeze(1).expand_as(cloud))
    cov = torch.einsum("bk,bki,bkj->bij", weight, centred, centred)
    root, _ = safe_cholesky(cov + 1e-12 * torch.eye(cov.shape[-1]).to(cov))
    start = torch.rand(batch, 1, generator=generator, dtype=weight.dtype)
    comb = (start + torch.arange(count, dtype=weight.dtype)) / count
    chosen = torch.searchsorted(weight.cumsum(-1).contiguous(), comb.contiguous()).clamp_max(count - 1)
    kept = torch.gather(centred, 1, chosen.unsqueeze(-1).expand(-1, -1, centred.shape[-1]))
    noise = torch.randn(kept.shape, generator=generator, dtype=kept.dtype) @ root.mT
    moved = (1 - jitter**2) ** 0.5 * kept + jitter * noise
    fresh = layout.boxplus(mean.unsqueeze(1).expand(-1, count, -1), moved)
    here = poor[:, None]
    return torch.where(here.unsqueeze(-1), fresh, cloud), torch.where(here, 0.0, log_weight)
