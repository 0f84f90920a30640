"""Linear systems from matrices: discrete, or in continuous time and discretised exactly."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ConfigError
from ..registry import SYSTEMS, parse_config
from ..types import Gaussian
from .covariance import Covariance
from .functions import is_diagonal_matrix
from .gaussian import matvec
from .integrate import discretize
from .layout import Layout, Part
from .linear_run import Continuous
from .motion import Nominal
from .system import System


@dataclasses.dataclass(frozen=True)
class LinearConfig:
    """Sizes and options of a :class:`LinearSystem`; the matrices themselves are tensors of the module.

    ``learn`` lists which of ``F B H Q R`` are parameters. With ``continuous``, ``F`` is the drift matrix of
    ``dx = F x dt + B u dt + noise`` and ``Q`` its spectral density, discretised exactly for every ``dt``. ``channels``
    names the measurements, for tables and plots. Angles of a ``layout`` are plain numbers in the equations; corrected
    states are wrapped, and errors are taken along the shortest arc.
    """

    state_dim: int
    observation_dim: int
    control_dim: int = 0
    learn: tuple[str, ...] = ()
    continuous: bool = False
    diagonal_noise: bool = False
    dt: float = 1.0
    layout: tuple[Any, ...] = ()
    channels: tuple[str, ...] = ()
    observation_origin: tuple[float, ...] = ()
    """``H`` of the origin of the layout, if it has one: what measurements are relative to."""
    initial_std: tuple[float, ...] = ()
    """The belief that filters start from without a prior: standard deviations about zero; by default one."""


@SYSTEMS.register("linear")
class LinearSystem(System):
    """``x⁺ = F x + B u + w``, ``y = H x + v`` with ``w ~ N(0, Q)``, ``v ~ N(0, R)``.

    :meth:`of` infers the config from the matrices.

    Args:
        config: sizes and options.
        F: transition ``[n, n]``, or the drift matrix of a continuous system; by default the identity.
        B: control input ``[n, p]``; by default zero.
        H: observation ``[m, n]``; by default the first ``m`` components.
        Q: covariance of the process noise ``[n, n]``, or its spectral density; by default the identity.
        R: covariance of the measurement noise ``[m, m]``; by default the identity.

    >>> import torch, fwnkf
    >>> eye = torch.eye(2)
    >>> system = fwnkf.LinearSystem.of(F=2 * eye, H=eye[:1], Q=eye, R=torch.eye(1))
    >>> system.transition(torch.ones(1, 2), None, None)
    tensor([[2., 2.]])
    """

    Config = LinearConfig
    transition_linearity = "constant"
    observation_linearity = "constant"
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
        if self.layout.size != n or self.layout.tangent_size != n:
            raise ConfigError(
                "a linear system has a state of numbers and angles; its layout must have state_dim components"
            )
        if config.channels and len(config.channels) != m:
            raise ConfigError(f"channels = {config.channels}: wanted one name for each of the {m} measurements")
        self.observation_layout = _channels(config)
        self.control_dim, self.dt, self.diagonal_noise = p, config.dt, config.diagonal_noise
        if config.initial_std and (len(config.initial_std) != n or not all(std >= 0 for std in config.initial_std)):
            raise ConfigError(f"initial_std = {config.initial_std}: wanted {n} standard deviations, one for each state")
        self.initial_steps = int(bool(config.initial_std))
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
        if self.layout.origins and F is not None:
            _check_at_rest(F, self.layout, config)
        if config.diagonal_noise and R is not None and not is_diagonal_matrix(R):
            raise ConfigError("diagonal_noise=True, but R has entries off its diagonal; set it to False")

    @classmethod
    def of(  # type: ignore[override]  # from matrices instead of functions
        cls, F: Tensor, H: Tensor, Q: Tensor, R: Tensor, B: Tensor | None = None, **options: Any
    ) -> LinearSystem:
        """Build from matrices; sizes, and whether ``R`` is diagonal, are inferred.

        Args:
            F: transition ``[n, n]``, or the drift matrix of a continuous system.
            H: observation ``[m, n]``.
            Q: covariance of the process noise ``[n, n]``, or its spectral density.
            R: covariance of the measurement noise ``[m, m]``.
            B: control input ``[n, p]``; None for a system without control.
            **options: fields of :class:`LinearConfig`, such as ``learn`` or ``continuous``.

        Returns:
            The system.
        """
        sizes = {
            "state_dim": F.shape[-1],
            "observation_dim": H.shape[-2],
            "control_dim": 0 if B is None else B.shape[-1],
            "diagonal_noise": is_diagonal_matrix(R) and "R" not in options.get("learn", ()),
            "observation_origin": observation_origin(options.get("layout", ()), H),
        }
        return cls(parse_config(LinearConfig, {**sizes, **options}, "linear system"), F=F, B=B, H=H, Q=Q, R=R)

    @property
    def discretizes(self) -> bool:  # type: ignore[override]
        """Whether the matrices of a step are computed for its length, as those of a continuous system are."""
        return bool(self.config.continuous)

    @property
    def takes_dt(self) -> bool:
        return bool(self.config.continuous)

    def matrices(self, dt: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """The matrices ``F, B, Q`` of one step.

        Args:
            dt: the length of the step in seconds; None for the nominal one.

        Returns:
            ``F``, ``B`` and ``Q``: ``[n, n]`` without ``dt``, otherwise one per batch item.

        Raises:
            ConfigError: ``dt`` is given to a discrete system.
        """
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

    def continuous(self) -> Continuous | None:
        return Continuous(self.F * self.dt, self.B * self.dt, self.Q() * self.dt) if self.config.continuous else None

    def prior(self) -> Gaussian | None:
        if not self.config.initial_std:
            return None
        std = self.F.new_tensor(self.config.initial_std)
        return Gaussian(self.layout.origin(std), std.square().diag())

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        return self.linearize_transition(x, u, dt)[0]

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        F, B, _ = self.matrices(dt)
        moved = matvec(F, x)
        return (moved if u is None else moved + matvec(B, u)), F

    def nominal(self) -> Nominal:
        F, B, Q = self.matrices(None)
        return Nominal(Q, F, B)

    def linearized_step(
        self, nominal: Nominal, x: Tensor, u: Tensor | None, dt: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        F, B, Q = (nominal.F, nominal.B, nominal.Q) if dt is None else self.matrices(dt)
        assert F is not None
        assert B is not None
        moved = matvec(F, x)
        return (moved if u is None else moved + matvec(B, u)), F, Q

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


def observation_origin(layout: tuple[Any, ...], H: Tensor) -> tuple[float, ...]:
    """What a state at the origin of its layout measures; empty if the layout has none."""
    origins = Layout.parse(layout).origins if layout else ()
    return tuple((H.detach().double() @ torch.tensor(origins, dtype=torch.float64)).tolist()) if origins else ()


def _channels(config: LinearConfig) -> Layout:
    """The layout of the measurements: one part for each named channel, or one for all."""
    names = config.channels or ("y",)
    size = 1 if config.channels else config.observation_dim
    origins = config.observation_origin
    if origins and len(origins) != config.observation_dim:
        raise ConfigError(
            f"observation_origin = {origins}: wanted a number for each of {config.observation_dim} channels"
        )
    return Layout(
        tuple(Part(name, "euclidean", size, origins[k * size : (k + 1) * size]) for k, name in enumerate(names))
    )


def _check_at_rest(F: Tensor, layout: Layout, config: LinearConfig) -> None:
    """Raise ConfigError if the origin of a state is not a point where the system rests."""
    if learned := [name for name in ("F", "H") if name in config.learn]:
        raise ConfigError(f"learn = {config.learn}: a layout with an origin needs {' and '.join(learned)} to be given")
    origin = torch.tensor(layout.origins, dtype=torch.float64)
    moved = F.detach().double() @ origin
    still = torch.zeros_like(origin) if config.continuous else origin
    if bool(((moved - still).abs() > 1e-9 * origin.abs().max()).any()):
        raise ConfigError(
            f"the origin {layout.origins} does not stay where it is. Numbers of the state can be relative only to a "
            "point where the system rests, such as a position with zero velocity"
        )
