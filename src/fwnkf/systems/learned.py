"""A system whose motion is learned: a network moves the state, and the observation is given or learned too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from ..core.covariance import Covariance
from ..core.layout import Layout
from ..core.networks import JacobianNetwork, add_residual
from ..core.observation import NetworkObservation, make_observation
from ..core.system import System, as_layout, build_system
from ..errors import ConfigError
from ..registry import SYSTEMS, at_least
from ..shapes import Float
from ..types import Statistics


@dataclass(frozen=True)
class LearnedConfig:
    """Sizes, the network of the motion, and the observation of a :class:`LearnedSystem`.

    >>> LearnedSystem(LearnedConfig(state_dim=3, observation_dim=2, learn=("Q",))).layout.size
    3
    """

    state_dim: int
    """Number of components of the state."""
    observation_dim: int
    """Number of channels."""
    control_dim: int = 0
    """Number of control inputs."""
    layout: tuple[Any, ...] = ()
    """Name, kind and size of the parts of the state; by default Euclidean."""
    dt: float = 1.0
    """Nominal step ``dt₀`` (s)."""
    width: int = at_least(1, 64)
    """Width of the network ``g``."""
    order: Literal[1, 2] = 1
    """2 lets the network read products of its inputs, as an ``fwnkf`` with ``residual_order=2`` does."""
    observation: Literal["given_matrix", "given_function", "learned_matrix", "learned_network"] = "given_matrix"
    """A given or learned matrix, a matrix plus a network, or the function of another system."""
    observation_width: int = at_least(1, 64)
    """Width of the observation network."""
    observed_by: dict[str, Any] = field(default_factory=dict)
    """The system whose observation is given: ``{"name": "pendulum", "config": {}}``."""
    learn: tuple[str, ...] = ()
    """Which of ``"Q"`` and ``"R"`` are parameters."""


@SYSTEMS.register("learned")
class LearnedSystem(System):
    """``x⁺ = x ⊞ (dt/dt₀) g(x, u) + w``, ``y = h(x) + v``, with a network ``g`` that is zero before training.

    With it every filter on a system can be trained without equations of motion: untrained it is a random walk, and
    ``g`` is trained together with the filter, or before it by regression on true states.

    Args:
        config: sizes and options.
        H: where the matrix of the observation starts or stays; for ``observation="learned_network"`` it multiplies
            :meth:`Layout.features`.
        Q: covariance of the process noise of a nominal step; by default the identity.
        R: covariance of the measurement noise, diagonal; by default the identity.
        observed_by: the system whose observation is given, instead of its name in the config.

    >>> import torch, fwnkf
    >>> system = LearnedSystem(LearnedConfig(state_dim=3, observation_dim=2), Q=0.1 * torch.eye(3))
    >>> fwnkf.build("kalmannet", system=system).run(torch.zeros(1, 5, 2)).mean.shape
    torch.Size([1, 5, 3])
    """

    Config = LearnedConfig
    diagonal_noise = True
    eye: Tensor

    def __init__(
        self,
        config: LearnedConfig,
        H: Tensor | None = None,
        Q: Tensor | None = None,
        R: Tensor | None = None,
        observed_by: System | None = None,
    ) -> None:
        super().__init__(config)
        unknown = sorted(set(config.learn) - set("QR"))
        if unknown:
            raise ConfigError(f"learn = {list(config.learn)}: wanted a selection of Q and R, not {', '.join(unknown)}")
        self.layout = as_layout(config.layout, config.state_dim)
        self.control_dim, self.dt = config.control_dim, config.dt
        self.observed_by = self._observed_by(observed_by)
        m = config.observation_dim
        self.observation_layout = (
            Layout.euclidean(m, "y") if self.observed_by is None else self.observed_by.observation_layout
        )
        self.network = JacobianNetwork(
            self.layout.feature_size + self.control_dim, 0, config.width, self.layout.tangent_size, config.order
        )
        self.observation = make_observation(
            config.observation, self.layout, m, H, self.observed_by, config.observation_width
        )
        d = self.layout.tangent_size
        self.Q = Covariance(torch.eye(d) if Q is None else Q, "Q" in config.learn)
        start = torch.eye(m) if R is None else R
        if bool((start - start.diagonal().diag()).any()):
            raise ConfigError("a learned system has independent channels, but R has entries off its diagonal")
        self.R = Covariance(start, "R" in config.learn, diagonal=True)
        self.register_buffer("eye", torch.eye(d), persistent=False)

    def _observed_by(self, system: System | None) -> System | None:
        """The system whose observation is given, with parameters that are not trained; its sizes are checked."""
        config = self.config
        if config.observation != "given_function":
            if system is not None or config.observed_by:
                raise ConfigError(
                    f"observed_by has no effect with observation={config.observation!r}; set 'given_function'"
                )
            return None
        if system is None:
            if set(config.observed_by) != {"name", "config"}:
                raise ConfigError("observation='given_function' needs observed_by={'name': …, 'config': {…}}")
            system = build_system(config.observed_by["name"], dict(config.observed_by["config"]))
        if (system.layout, system.observation_layout.size) != (self.layout, config.observation_dim):
            raise ConfigError(
                f"observed_by: system {config.observed_by.get('name')!r} has another state or number of channels"
            )
        return system.requires_grad_(False)

    @torch.no_grad()
    def normalize(self, statistics: Statistics) -> None:
        """Set the scales of training data; the untrained system does not change."""
        self.network.normalize(
            torch.cat((statistics.feature_mean, statistics.control_mean)),
            torch.cat((statistics.feature_std, statistics.control_std)),
            statistics.step,
        )
        if isinstance(self.observation, NetworkObservation):
            self.observation.normalize(statistics)

    def set_noise(self, Q: Float[Tensor, "d d"], R: Float[Tensor, "m m"] | None = None) -> None:
        """Set the values of ``Q`` and ``R``.

        Args:
            Q: covariance of the process noise of a nominal step.
            R: covariance of the measurement noise; None keeps it.
        """
        self.Q.assign(Q)
        if R is not None:
            self.R.assign(R)

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        change = self.network(self._inputs(x, u))
        ratio = self._ratio(dt)
        return self.layout.boxplus(x, change if ratio is None else change * ratio.unsqueeze(-1))

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        change, slope = self.network.with_jacobian(self._inputs(x, u))
        residual = change, slope[..., : self.layout.feature_size]
        return add_residual(self.layout, x, (x, self.eye), residual, self._ratio(dt))

    def observe(self, x: Tensor) -> Tensor:
        return self.observation.observe(x)

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.observation.linearize(x)

    def process_noise(self, dt: Tensor | None) -> Tensor:
        Q: Tensor = self.Q()
        ratio = self._ratio(dt)
        return Q if ratio is None else Q * ratio[..., None, None]

    def measurement_covariance(self) -> Tensor:
        R: Tensor = self.R()
        return R

    def _ratio(self, dt: Tensor | None) -> Tensor | None:
        return None if dt is None else dt / self.dt

    def _inputs(self, x: Tensor, u: Tensor | None) -> Tensor:
        """What the network reads: the features of the state, and the control, zero where there is none."""
        features = self.layout.features(x)
        if not self.control_dim:
            return features
        control = x.new_zeros(*x.shape[:-1], self.control_dim) if u is None else u
        return torch.cat((features, control), -1)
