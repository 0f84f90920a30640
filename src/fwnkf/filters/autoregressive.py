"""The autoregressive Kalman filter: a transition of order ``k`` on an augmented state, with exact covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ..core.gaussian import Noise, condition, matvec, propagate
from ..core.linear import LinearConfig, LinearSystem
from ..core.smoothing import LinearStep, Measurement
from ..core.system import System, as_layout
from ..errors import ConfigError
from ..registry import FILTERS, at_least
from ..types import Gaussian, StepOutput
from .base import Filter
from .kalman import infer_sizes
from .options import arguments
from .outputs import step_output


@dataclass(frozen=True)
class AutoregressiveConfig:
    """``x_t = Σ F_i x_{t-i} + B u + w``; ``learn`` lists which of ``F B H Q R`` are parameters.

    ``lags`` says whether past states are estimated with the present one or taken for known once they are past.
    """

    state_dim: int
    observation_dim: int
    order: int = at_least(1, 2)
    control_dim: int = 0
    learn: tuple[str, ...] = ()
    diagonal_noise: bool = False
    lags: Literal["estimated", "known"] = "estimated"
    layout: tuple[Any, ...] = ()
    solve: Literal["auto", "cholesky", "unrolled", "sequential"] = "auto"


class Companion(NamedTuple):
    """The matrices of the augmented state in companion form."""

    F: Tensor
    B: Tensor
    Q: Tensor
    H: Tensor
    R: Noise
    estimated: Tensor | None
    """With known lags: 1 at the covariances of the present state, 0 elsewhere."""


@FILTERS.register("arkf")
class AutoregressiveKalmanFilter(Filter):
    """Kalman filter of an autoregression ``x_t = Σ F_i x_{t-i} + B u + w``, ``y = H x + v``.

    ``F`` is ``[order, n, n]``, the matrix of the last state first; the default is a random walk. The state of the
    filter is ``[x_t; …; x_{t-k+1}]`` in companion form, so that every measurement also corrects the lagged states and
    mean and covariance are exact. With ``lags="known"`` past states are taken for equal to their estimates: the mean is
    the autoregression of past estimates and the covariance that of a filter with ``F_1`` alone.

    The lagged states before the first step are assumed independent, each distributed as the prior (known lags: equal to
    its mean). A ``layout`` with
    angles says how errors are measured; the autoregression itself is linear in the plain numbers and wraps nothing.

    >>> import torch, fwnkf
    >>> F = torch.tensor([[[1.8]], [[-0.9]]])  # a damped oscillation
    >>> one = torch.eye(1)
    >>> arkf = fwnkf.ARKF(F=F, H=one, Q=0.1 * one, R=one, learn=("F", "Q", "R"))
    >>> arkf.run(torch.zeros(1, 5, 1)).mean.shape
    torch.Size([1, 5, 1])
    """

    Config = AutoregressiveConfig
    arrays = ("F", "B", "H", "Q", "R")
    takes_system = False
    instead_of_system = "matrices F [order, n, n], H, Q, R"

    def __init__(
        self,
        *,
        F: Tensor | None = None,
        B: Tensor | None = None,
        H: Tensor | None = None,
        Q: Tensor | None = None,
        R: Tensor | None = None,
        state_dim: int | None = None,
        observation_dim: int | None = None,
        control_dim: int | None = None,
        order: int | None = None,
        learn: tuple[str, ...] = (),
        diagonal_noise: bool | None = None,
        lags: Literal["estimated", "known"] = "estimated",
        layout: tuple[Any, ...] = (),
        solve: Literal["auto", "cholesky", "unrolled", "sequential"] = "auto",
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: AutoregressiveConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        n = config.state_dim
        matrices = dict(arrays)
        coefficients = matrices.pop("F", None)
        if coefficients is None:
            coefficients = torch.cat((torch.eye(n)[None], torch.zeros(config.order - 1, n, n)))
        if coefficients.shape != (config.order, n, n):
            raise ConfigError(f"F has shape {tuple(coefficients.shape)}, wanted {(config.order, n, n)}: one per lag")
        learn = "F" in config.learn
        if learn:
            self.coefficients = nn.Parameter(coefficients.clone())
        else:
            self.register_buffer("coefficients", coefficients.clone())
        linear = LinearConfig(
            n,
            config.observation_dim,
            config.control_dim,
            tuple(name for name in config.learn if name != "F"),
            diagonal_noise=config.diagonal_noise,
        )
        self.noise = LinearSystem(linear, **matrices)
        self.layout, self.observation_layout = as_layout(config.layout, n), self.noise.observation_layout
        if self.layout.tangent_size != n:
            raise ConfigError("filter 'arkf' is linear in its state, which a rotation is not: use numbers and angles")
        self.control_dim = config.control_dim

    @classmethod
    def infer_options(cls, options: dict[str, Any], arrays: dict[str, Tensor], system: System | None) -> dict[str, Any]:
        order = {"order": arrays["F"].shape[0]} if "F" in arrays else {}
        return {**infer_sizes(options, arrays), **order, **options}

    @property
    def takes_dt(self) -> bool:
        return False

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Gaussian:
        order = self.config.order
        uncertain = torch.arange(order) < (1 if self.config.lags == "known" else order)
        blocks = uncertain.diag().to(belief.cov)
        cov = torch.einsum("ij,bkl->bikjl", blocks, belief.cov).flatten(1, 2).flatten(2, 3)
        return Gaussian(belief.mean.repeat(1, order), cov)

    def prepare(self) -> Companion:
        n, order = self.layout.size, self.config.order
        _, B, Q = self.noise.matrices(None)
        top = self.coefficients.transpose(0, 1).flatten(1)  # [n, order · n]
        shift = torch.eye(n * (order - 1), n * order).to(top)
        pad = n * (order - 1)
        estimated = None
        if self.config.lags == "known":
            estimated = nn.functional.pad(torch.ones(n, n).to(top), (0, pad, 0, pad))
        return Companion(
            torch.cat((top, shift)),
            nn.functional.pad(B, (0, 0, 0, pad)),
            nn.functional.pad(Q, (0, pad, 0, pad)),
            nn.functional.pad(self.noise.H, (0, pad)),
            self.noise.measurement_noise(),
            estimated,
        )

    def at_rest(self, prepared: Companion, y: Tensor) -> tuple[Any, Companion, Tensor | None]:
        eye = torch.eye(len(prepared.F)).to(prepared.F)
        return self, prepared._replace(F=eye, B=torch.zeros_like(prepared.B), Q=torch.zeros_like(prepared.Q)), None

    def observe(self, x: Tensor) -> Tensor:
        return self.noise.observe(x)

    def advance(
        self,
        prepared: Companion,
        state: Gaussian,
        y: Tensor,
        weight: Tensor,
        u: Tensor | None,
        dt: Tensor | None,
    ) -> tuple[Gaussian, StepOutput]:
        return self._linear_step(prepared, state, y, weight, u, dt)[:2]

    def advance_linearized(
        self,
        prepared: Companion,
        state: Gaussian,
        y: Tensor,
        weight: Tensor,
        u: Tensor | None,
        dt: Tensor | None,
    ) -> tuple[Gaussian, StepOutput, LinearStep]:
        if self.config.lags == "known":
            raise ConfigError(
                "filter 'arkf' with lags='known' cannot be smoothed: its covariance is not that of its linear model. "
                "Use lags='estimated'"
            )
        return self._linear_step(prepared, state, y, weight, u, dt)

    def _linear_step(
        self,
        prepared: Companion,
        state: Gaussian,
        y: Tensor,
        weight: Tensor,
        u: Tensor | None,
        dt: Tensor | None,
    ) -> tuple[Gaussian, StepOutput, LinearStep]:
        if dt is not None:
            raise ConfigError("filter 'arkf' is discrete: its lags are in steps, not in seconds; leave dt out")
        mean = matvec(prepared.F, state.mean)
        mean = mean if u is None else mean + matvec(prepared.B, u)
        cov = propagate(state.cov, prepared.F, prepared.Q)
        cov = cov if prepared.estimated is None else cov * prepared.estimated  # no gain reaches a known lag
        innovation = (y - matvec(prepared.H, mean)) * weight
        update = condition(cov, innovation, prepared.H, prepared.R, weight, self.config.solve)
        posterior = Gaussian(mean + update.correction, update.cov)
        n = self.layout.size
        current = Gaussian(posterior.mean[..., :n], posterior.cov[..., :n, :n])
        prior = Gaussian(mean[..., :n], cov[..., :n, :n])
        out = step_output(prior, current, innovation, update.innovation_cov, update.ok)
        measurement = Measurement(innovation, prepared.H, prepared.R, weight, update.ok)
        lagged = posterior.mean[..., n:]
        return (
            posterior,
            out,
            LinearStep(prepared.F, prepared.Q, measurement, update.correction, current.mean, lagged),
        )
