"""The model of a system: transition, observation and their noise.

The EKF, the UKF, KalmanNet and the FW-NKF all work on a :class:`System`. Jacobians are computed by automatic
differentiation unless the system defines its own, which are faster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import ConfigError
from ..registry import SYSTEMS, parse_config
from ..shapes import Float
from ..types import Gaussian
from . import constrain, linearize
from .gaussian import DiagonalNoise, FullNoise, Noise, matvec
from .layout import Layout


class System(nn.Module):
    """Transition, observation and noise of a system. Subclass it, and register the subclass to save filters on it.

    ``dt`` is the nominal step in seconds, used where a call has no ``dt``. ``diagonal_noise`` declares the channels of
    the measurement noise independent, which allows the fastest updates.
    """

    Config: ClassVar[type]
    layout: Layout
    observation_layout: Layout
    control_dim: int = 0
    dt: float = 1.0
    diagonal_noise: bool = False

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    @property
    def takes_dt(self) -> bool:
        """Whether ``dt`` can be given for each step; a discrete system has a fixed step length."""
        return True

    initial_steps: int = 0
    """Number of steps that :meth:`initial_belief` reads; 0 for a system that needs a prior."""

    def initial_belief(
        self, y: Float[Tensor, "B k m"], weight: Float[Tensor, "B k m"], u: Float[Tensor, "B k p"] | None
    ) -> Gaussian:
        """The belief before the first step, from the first ``k ≤ initial_steps`` steps of a recording."""
        raise NotImplementedError

    def complete_prior(self, prior: Gaussian) -> Gaussian:
        """Complete a prior on the first parts of the state with the system's own prior on the other parts."""
        return prior

    def transition(
        self, x: Float[Tensor, "B n"], u: Float[Tensor, "B p"] | None, dt: Float[Tensor, "B"] | None
    ) -> Float[Tensor, "B n"]:
        """The next state without noise."""
        raise NotImplementedError

    def observe(self, x: Float[Tensor, "*B n"]) -> Float[Tensor, "*B m"]:
        """The measurement without noise; must accept any number of leading axes."""
        raise NotImplementedError

    def process_noise(self, dt: Float[Tensor, "B"] | None) -> Float[Tensor, "*B d d"]:
        """``Q`` of one step."""
        raise NotImplementedError

    def measurement_covariance(self) -> Float[Tensor, "m m"]:
        """``R``."""
        raise NotImplementedError

    def linearize_transition(
        self, x: Float[Tensor, "B n"], u: Float[Tensor, "B p"] | None, dt: Float[Tensor, "B"] | None
    ) -> tuple[Float[Tensor, "B n"], Float[Tensor, "*B d d"]]:
        """The next state and its Jacobian ``F`` in the tangent space."""
        return linearize.jacobian(lambda z: self.transition(z, u, dt), x, self.layout, self.layout)

    def linearize_observation(self, x: Float[Tensor, "B n"]) -> tuple[Float[Tensor, "B m"], Float[Tensor, "*B m d"]]:
        """The measurement and its Jacobian ``H`` in the tangent space."""
        return linearize.jacobian(self.observe, x, self.layout, self.observation_layout)

    def measurement_noise(self) -> Noise:
        """``R`` in the form that the updates take."""
        R = self.measurement_covariance()
        return DiagonalNoise(torch.diagonal(R, dim1=-2, dim2=-1)) if self.diagonal_noise else FullNoise(R)


class Covariance(nn.Module):
    """A covariance that is either fixed (zeros allowed) or learned (positive definite by construction)."""

    value: Tensor

    def __init__(self, value: Tensor, learn: bool) -> None:
        super().__init__()
        self.learn = learn
        if learn:
            log_std, slopes = constrain.inverse_covariance(value)
            self.log_std = nn.Parameter(log_std.clone())
            self.slopes = nn.Parameter(slopes.clone())
        else:
            self.register_buffer("value", value.clone())

    def forward(self) -> Float[Tensor, "n n"]:
        if self.learn:
            return constrain.covariance(self.log_std, self.slopes)
        return self.value


@dataclasses.dataclass(frozen=True)
class LinearConfig:
    """Sizes and options of a :class:`LinearSystem`; the matrices themselves are tensors of the module.

    ``learn`` lists which of ``F B H Q R`` are parameters. With ``continuous``, ``F`` is the drift matrix of
    ``dx = F x dt + B u dt + noise`` and ``Q`` its spectral density, discretised exactly for every ``dt``.
    """

    state_dim: int
    observation_dim: int
    control_dim: int = 0
    learn: tuple[str, ...] = ()
    continuous: bool = False
    diagonal_noise: bool = False
    dt: float = 1.0
    layout: tuple[Any, ...] = ()


@SYSTEMS.register("linear")
class LinearSystem(System):
    """``x⁺ = F x + B u + w``, ``y = H x + v`` with ``w ~ N(0, Q)``, ``v ~ N(0, R)`` (Eqs. ssm_state, ssm_measure)."""

    Config = LinearConfig
    F: Tensor
    B: Tensor
    H: Tensor
    Q: Covariance
    R: Covariance

    def __init__(
        self,
        config: LinearConfig,
        F: Tensor | None = None,
        B: Tensor | None = None,
        H: Tensor | None = None,
        Q: Tensor | None = None,
        R: Tensor | None = None,
    ) -> None:
        super().__init__(config)
        unknown = set(config.learn) - set("FBHQR")
        if unknown:
            raise ConfigError(f"learn = {config.learn}: only F, B, H, Q and R can be learned, not {sorted(unknown)}")
        n, m, p = config.state_dim, config.observation_dim, config.control_dim
        self.layout = Layout.parse(config.layout) if config.layout else Layout.euclidean(n)
        if self.layout.size != n or not self.layout.flat:
            raise ConfigError("a linear system has a Euclidean state; its layout must have state_dim components")
        self.observation_layout = Layout.euclidean(m, "y")
        self.control_dim, self.dt, self.diagonal_noise = p, config.dt, config.diagonal_noise
        start = torch.zeros(n, n) if config.continuous else torch.eye(n)
        values_and_defaults = {
            "F": (F, start),
            "B": (B, torch.zeros(n, p)),
            "H": (H, torch.eye(m, n)),
            "Q": (Q, torch.eye(n)),
            "R": (R, torch.eye(m)),
        }
        for name, (value, default) in values_and_defaults.items():
            value = default if value is None else torch.as_tensor(value)
            if value.shape != default.shape:
                raise ConfigError(f"{name} has shape {tuple(value.shape)}, wanted {tuple(default.shape)}")
            learn = name in config.learn
            if name in "QR":
                self.add_module(name, Covariance(value, learn))
            elif learn:
                self.register_parameter(name, nn.Parameter(value.clone()))
            else:
                self.register_buffer(name, value.clone())
        if config.diagonal_noise and R is not None and bool((R - R.diagonal().diag()).any()):
            raise ConfigError("diagonal_noise=True, but R has entries off its diagonal; set it to False")

    @classmethod
    def of(cls, F: Tensor, H: Tensor, Q: Tensor, R: Tensor, B: Tensor | None = None, **options: Any) -> LinearSystem:
        """Build from matrices; sizes, and whether ``R`` is diagonal, are inferred."""
        sizes = {
            "state_dim": F.shape[-1],
            "observation_dim": H.shape[-2],
            "control_dim": 0 if B is None else B.shape[-1],
            "diagonal_noise": not bool((R - R.diagonal().diag()).any()) and "R" not in options.get("learn", ()),
        }
        return cls(parse_config(LinearConfig, {**sizes, **options}, "linear system"), F=F, B=B, H=H, Q=Q, R=R)

    @property
    def takes_dt(self) -> bool:
        return bool(self.config.continuous)

    def matrices(self, dt: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """``F, B, Q`` of one step of ``dt`` seconds: ``[n, n]`` without ``dt``, otherwise one per batch item."""
        Q = self.Q()
        if not self.config.continuous:
            if dt is not None:
                raise ConfigError(
                    "this linear system is discrete: F and Q are those of a step of fixed length. "
                    "Leave dt out, or build the system with continuous=True from its drift matrix"
                )
            return self.F, self.B, Q
        step = self.F.new_tensor(self.dt) if dt is None else dt
        return discretize(self.F, self.B, Q, step)

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        return self.linearize_transition(x, u, dt)[0]

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        F, B, _ = self.matrices(dt)
        moved = matvec(F, x)
        return (moved if u is None else moved + matvec(B, u)), F

    def observe(self, x: Tensor) -> Tensor:
        return matvec(self.H, x)

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.observe(x), self.H

    def process_noise(self, dt: Tensor | None) -> Tensor:
        return self.matrices(dt)[2]

    def measurement_covariance(self) -> Tensor:
        R: Tensor = self.R()
        # a learned R stays diagonal where the channels are declared independent
        return R.diagonal().diag() if self.diagonal_noise else R


def discretize(
    drift: Float[Tensor, "n n"],
    B: Float[Tensor, "n p"],
    density: Float[Tensor, "n n"],
    dt: Float[Tensor, "*B"],
) -> tuple[Float[Tensor, "*B n n"], Float[Tensor, "*B n p"], Float[Tensor, "*B n n"]]:
    """Exact ``F = e^{A dt}``, ``∫ e^{As} B ds`` and ``Q = ∫ e^{As} density e^{Aᵀs} ds`` (Van Loan 1978)."""
    n, p = B.shape
    big = drift.new_zeros(2 * n, 2 * n)
    big[:n, :n], big[:n, n:], big[n:, n:] = drift, density, -drift.mT
    controls = drift.new_zeros(n + p, n + p)
    controls[:n, :n], controls[:n, n:] = drift, B
    scale = dt[..., None, None]
    F_B = torch.linalg.matrix_exp(controls * scale)
    pair = torch.linalg.matrix_exp(big * scale)
    F = F_B[..., :n, :n]
    Q = pair[..., :n, n:] @ F.mT
    return F, F_B[..., :n, n:], 0.5 * (Q + Q.mT)


def build_system(name: str, config: dict[str, Any]) -> System:
    """Build a registered system from its name and plain configuration; its tensors are loaded afterwards."""
    cls = SYSTEMS[name]
    return cls(parse_config(cls.Config, config, f"system {name}"))


def as_layout(parts: Sequence[Any], state_dim: int) -> Layout:
    """The layout of a config: its named parts if there are any, otherwise Euclidean."""
    layout = Layout.parse(parts) if parts else Layout.euclidean(state_dim)
    if layout.size != state_dim:
        raise ConfigError(f"the layout has {layout.size} components, but state_dim = {state_dim}; make them equal")
    return layout
