"""Simulated records of any system: initial states from a prior, process noise, and the noise scenarios of sensors."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..core.gaussian import safe_cholesky
from ..core.system import System
from ..errors import ConfigError
from ..shapes import Float
from ..systems import noise
from ..systems.noise import Scenario
from ..types import Gaussian
from .simulated import Simulated, _streams

__all__ = ["RandomControl", "simulate"]


@dataclass(frozen=True)
class RandomControl:
    """Independent normal controls, each held for some steps.

    >>> RandomControl(std=(2.0,), hold=5).sample((1, 10, 1), np.random.default_rng(0)).unique().numel()
    2
    """

    mean: tuple[float, ...] = ()
    """Mean of each control; empty for zeros."""
    std: tuple[float, ...] = ()
    """Standard deviation of each control; empty for ones."""
    hold: int = 1
    """Steps for which a value is held."""

    def sample(self, shape: tuple[int, int, int], generator: np.random.Generator) -> Float[Tensor, "N T p"]:
        """Draw controls.

        Args:
            shape: trajectories, steps, controls.
            generator: where every draw comes from.

        Returns:
            The controls.

        Raises:
            ConfigError: the number of means or deviations is another than that of the controls.
        """
        count, steps, size = shape
        mean, std = (np.array(given or [default] * size) for given, default in ((self.mean, 0.0), (self.std, 1.0)))
        if len(mean) != size or len(std) != size:
            raise ConfigError(f"{self}: wanted {size} numbers, one for each control of the system")
        drawn = mean + std * generator.standard_normal((count, -(-steps // self.hold), size))
        return torch.from_numpy(np.repeat(drawn, self.hold, axis=1)[:, :steps].copy())


@torch.no_grad()
def simulate(
    system: System,
    trajectories: int,
    steps: int = 100,
    *,
    prior: Gaussian | None = None,
    control: RandomControl | Float[Tensor, "N T p"] | None = None,
    scenario: str | Scenario = "white",
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Simulated:
    """Trajectories of a system with its own process and measurement noise, computed in float64.

    Args:
        system: the system.
        trajectories: how many.
        steps: samples of each.
        prior: where initial states are drawn from; by default the system's own, or standard normal about the origin.
        control: the controls, or how to draw them; by default standard normal.
        scenario: the spectrum of the measurement noise, whose covariance is that of the system; a composed
            :class:`~fwnkf.systems.noise.Scenario` is used in units of its standard deviation.
        seed: equal seeds give equal bits.
        dtype: of the result.

    Returns:
        True states, measurements, controls and the prior.

    Raises:
        ConfigError: there is nothing to simulate, or the controls do not fit the system.

    >>> from fwnkf.systems import Pendulum, PendulumConfig
    >>> data = simulate(Pendulum(PendulumConfig()), 3, steps=5, scenario="drift", seed=1)
    >>> data.truth.shape, data.u.shape
    (torch.Size([3, 5, 2]), torch.Size([3, 5, 1]))
    """
    if trajectories < 1 or steps < 1:
        raise ConfigError(f"{trajectories} trajectories of {steps} steps: there must be at least one of each")
    exact = copy.deepcopy(system).double()
    layout, seen, like = exact.layout, exact.observation_layout, torch.zeros((), dtype=torch.float64)
    prior = exact.prior() if prior is None else Gaussian(prior.mean.double(), prior.cov.double())
    if prior is None:
        prior = Gaussian(layout.origin(like), torch.eye(layout.tangent_size, dtype=torch.float64))
    moving, measuring = _streams(seed)

    def normal(size: int) -> Tensor:
        return torch.from_numpy(moving.standard_normal((trajectories, size)))

    u = None
    if exact.control_dim:
        shape = (trajectories, steps, exact.control_dim)
        u = control.double() if isinstance(control, Tensor) else (control or RandomControl()).sample(shape, moving)
        if u.shape != shape:
            raise ConfigError(f"controls of shape {list(u.shape)}; wanted {list(shape)}")
    x = layout.boxplus(prior.mean.expand(trajectories, -1), normal(layout.tangent_size) @ _root(prior.cov).mT)
    truth = [x]
    step = like.new_full((trajectories,), exact.dt) if exact.takes_dt else None
    spread = _root(exact.process_noise(None)).mT
    for t in range(1, steps):
        moved = exact.transition(x, None if u is None else u[:, t], step)
        x = layout.boxplus(moved, normal(layout.tangent_size) @ spread)
        truth.append(x)
    states = torch.stack(truth, 1)
    clean = exact.observe(states)
    if isinstance(scenario, str):
        scenario = noise.scenario(scenario, 1.0)
    drawn = torch.from_numpy(scenario.sample((trajectories, steps, seen.tangent_size), measuring))
    y = seen.boxplus(clean, drawn @ _root(exact.measurement_covariance()).mT).numpy()
    mask = np.ones(y.shape, bool)
    for operation in scenario.operations:
        y, mask = operation.apply(y, mask, measuring)
    dt = torch.full((trajectories, steps), exact.dt, dtype=torch.float64)
    dt[:, 0] = 0.0
    belief = Gaussian(prior.mean.to(dtype), prior.cov.to(dtype))
    return Simulated(
        truth=states.to(dtype),
        y=torch.from_numpy(y).to(dtype),
        clean=clean.to(dtype),
        mask=torch.from_numpy(mask),
        dt=dt.to(dtype),
        u=None if u is None else u.to(dtype),
        prior=belief,
        start=Gaussian(*(part.clone() for part in belief)),
        system=system.to(dtype),
    )


def _root(cov: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """A factor of a covariance that may be singular, to rounding."""
    variance = cov.diagonal()
    tiny = torch.finfo(cov.dtype).eps * variance.mean() + 1e-30
    factor, ok = safe_cholesky(cov + tiny * torch.eye(len(cov), dtype=cov.dtype))
    if not bool(ok):
        raise ConfigError(f"a covariance of the system is not positive semidefinite: diagonal {variance.tolist()}")
    return torch.where((variance > 0).unsqueeze(-1), factor, 0.0)
