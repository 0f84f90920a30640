"""The autoregressive Kalman filter: a transition of order ``k`` on an augmented state, with exact covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ...core.forms import measured_precisely
from ...core.gaussian import Noise, condition, matvec, prediction_keeps_digits, propagate
from ...core.linear import LinearConfig, LinearSystem
from ...core.smoothing import LinearStep, Measurement
from ...core.system import System, as_layout
from ...errors import ConfigError
from ...registry import FILTERS, at_least
from ...types import Gaussian, StepOutput
from ..base import Filter, LinearModel, Prediction, arguments
from ..kalman import infer_sizes
from ..outputs import step_output


@dataclass(frozen=True)
class AutoregressiveConfig:
    """The options of :class:`AutoregressiveKalmanFilter`, which describes them."""

    state_dim: int
    observation_dim: int
    order: int = at_least(1, 2)
    control_dim: int = 0
    learn: tuple[str, ...] = ()
    diagonal_noise: bool = False
    lags: Literal["estimated", "known"] = "estimated"
    start: Literal["independent", "random_walk"] = "independent"
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

    The state of the filter is ``[x_t; …; x_{t-k+1}]`` in companion form, so that every measurement also corrects the
    lagged states and mean and covariance are exact. Sizes and order follow from the matrices and need not be given.

    Args:
        F: coefficients ``[order, n, n]``, the matrix of the last state first; by default a random walk.
        B: control input ``[n, p]``.
        H: observation ``[m, n]``; by default the first ``m`` components.
        Q: covariance of the process noise ``[n, n]``; by default the identity.
        R: covariance of the measurement noise ``[m, m]``; by default the identity.
        step_cov: ``[n, n]``, covariance of the steps of ``start="random_walk"``.
        state_dim, observation_dim, control_dim: ``n``, ``m`` and ``p``.
        order: number of lags.
        learn: which of ``"F"``, ``"B"``, ``"H"``, ``"Q"``, ``"R"`` are parameters.
        diagonal_noise: whether the channels are independent.
        lags: ``"known"`` takes past states for equal to their estimates: the mean is the autoregression of past
            estimates and the covariance that of a filter with ``F_1`` alone.
        start: how the lagged states before the first step are distributed: independent, each as the prior, or a
            ``"random_walk"`` back from it. Without one, a prior that is exact would state that the system was at rest.
            Known lags are equal to the prior's mean.
        layout: name, kind and size of the parts of the state. Angles say how errors are measured; the autoregression
            itself is linear in the plain numbers and wraps nothing.
        solve: implementation of the small linear solve (see :mod:`fwnkf.core.gaussian`).

    >>> import torch, fwnkf
    >>> F = torch.tensor([[[1.8]], [[-0.9]]])  # a damped oscillation
    >>> one = torch.eye(1)
    >>> arkf = fwnkf.ARKF(F=F, H=one, Q=0.1 * one, R=one, learn=("F", "Q", "R"))
    >>> arkf.run(torch.zeros(1, 5, 1)).mean.shape
    torch.Size([1, 5, 1])
    """

    Config = AutoregressiveConfig
    arrays = ("F", "B", "H", "Q", "R", "step_cov")
    takes_system = False
    instead_of_system = "matrices F [order, n, n], H, Q, R"
    step_cov: Tensor

    def __init__(
        self,
        *,
        F: Tensor | None = None,
        B: Tensor | None = None,
        H: Tensor | None = None,
        Q: Tensor | None = None,
        R: Tensor | None = None,
        step_cov: Tensor | None = None,
        state_dim: int | None = None,
        observation_dim: int | None = None,
        control_dim: int | None = None,
        order: int | None = None,
        learn: tuple[str, ...] = (),
        diagonal_noise: bool | None = None,
        lags: Literal["estimated", "known"] = "estimated",
        start: Literal["independent", "random_walk"] | None = None,
        layout: tuple[Any, ...] = (),
        solve: Literal["auto", "cholesky", "unrolled", "sequential"] = "auto",
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: AutoregressiveConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        n = config.state_dim
        matrices = dict(arrays)
        coefficients, step_cov = matrices.pop("F", None), matrices.pop("step_cov", None)
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
        if config.start == "random_walk":
            self.register_buffer("step_cov", torch.eye(n) if step_cov is None else step_cov.clone())
            if self.step_cov.shape != (n, n):
                raise ConfigError(f"step_cov has shape {tuple(self.step_cov.shape)}, wanted {(n, n)}")

    @classmethod
    def infer_options(cls, options: dict[str, Any], arrays: dict[str, Tensor], system: System | None) -> dict[str, Any]:
        more: dict[str, Any] = {"order": arrays["F"].shape[0]} if "F" in arrays else {}
        if "step_cov" in arrays:
            more["start"] = "random_walk"
        return {**infer_sizes(options, arrays), **more, **options}

    @property
    def takes_dt(self) -> bool:
        return False

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Gaussian:
        order = self.config.order
        number = torch.arange(order, device=belief.cov.device)
        if self.config.lags == "known":
            blocks = [((number == 0).diag(), belief.cov)]
        elif self.config.start == "independent":
            blocks = [(torch.eye(order), belief.cov)]
        else:  # lags i and j share the steps back to the nearer one
            shared = torch.minimum(number, number.unsqueeze(-1))
            blocks = [(torch.ones(order, order), belief.cov), (shared, self.step_cov.expand_as(belief.cov))]
        parts = [torch.einsum("ij,bkl->bikjl", weight.to(cov), cov) for weight, cov in blocks]
        return Gaussian(belief.mean.repeat(1, order), torch.stack(parts).sum(0).flatten(1, 2).flatten(2, 3))

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

    def observe(self, x: Tensor) -> Tensor:
        return self.noise.observe(x)

    def predict_state(
        self,
        prepared: Companion,
        state: Gaussian,
        u: Tensor | None,
        dt: Tensor | None,
        measured: tuple[Tensor, Tensor] | None = None,
    ) -> Prediction:
        if dt is not None:
            raise ConfigError("filter 'arkf' is discrete: its lags are in steps, not in seconds; leave dt out")
        mean = matvec(prepared.F, state.mean)
        mean = mean if u is None else mean + matvec(prepared.B, u)
        cov = propagate(state.cov, prepared.F, prepared.Q)
        cov = cov if prepared.estimated is None else cov * prepared.estimated  # no gain reaches a known lag
        precise = prediction_keeps_digits(state.cov, prepared.F, cov)
        return Prediction(Gaussian(mean, cov), prepared.F, prepared.Q, precise)

    def update_state(
        self, prepared: Companion, ahead: Prediction, y: Tensor, weight: Tensor
    ) -> tuple[Gaussian, StepOutput, LinearStep]:
        mean, cov = ahead.state
        innovation = (y - matvec(prepared.H, mean)) * weight
        update = condition(cov, innovation, prepared.H, prepared.R, weight, self.config.solve)
        posterior = Gaussian(mean + update.correction, update.cov)
        n = self.layout.size
        current = Gaussian(posterior.mean[..., :n], posterior.cov[..., :n, :n])
        prior = Gaussian(mean[..., :n], cov[..., :n, :n])
        precise = ahead.keeps_digits(measured_precisely(update.precise, y, prepared.R, weight))
        out = step_output(prior, current, innovation, update.innovation_cov, update.ok, precise)
        measurement = Measurement(innovation, prepared.H, prepared.R, weight, update.ok)
        linear = LinearStep(ahead.F, ahead.Q, measurement, update.correction, current.mean, posterior.mean[..., n:])
        return posterior, out, linear

    @property
    def smooths(self) -> bool:  # type: ignore[override]
        """Not with known lags: their covariance is not that of the linear model."""
        return bool(self.config.lags == "estimated")

    def _not_smoothed(self) -> str:
        return (
            "filter 'arkf' with lags='known' cannot be smoothed: its covariance is not that of its linear model. "
            "Use lags='estimated'"
        )

    def linear_model(self, prepared: Companion | None = None, dt: Tensor | None = None) -> LinearModel:
        if self.config.lags == "known" or not self.layout.flat:
            return LinearModel("state_dependent")
        prepared = self.prepare() if prepared is None else prepared
        return LinearModel("constant", prepared.F, prepared.B, prepared.H, prepared.Q, prepared.R)
