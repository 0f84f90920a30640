"""A system without equations of motion: a random walk, or a network that moves the state.

The observation is a matrix, a matrix plus a network, or that of another system.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from ..core.covariance import Covariance
from ..core.functions import is_diagonal_matrix
from ..core.layout import Layout
from ..core.motion import Linearity
from ..core.networks import JacobianNetwork, add_residual
from ..core.observation import MatrixObservation, NetworkObservation, ObservationKind, make_observation
from ..core.system import System, as_layout, build_system
from ..errors import ConfigError
from ..registry import SYSTEMS, at_least, parse_config
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
    width: int = at_least(0, 64)
    """Width of the network ``g``; 0 for no network: a random walk."""
    order: Literal[1, 2] = 1
    """2 lets the network read products of its inputs, as ``residual=MLP(order=2)`` of an ``fwnkf`` does."""
    observation: Literal["given_matrix", "given_function", "learned_matrix", "learned_network"] = "given_matrix"
    """A given or learned matrix, a matrix plus a network, or the function of another system."""
    observation_width: int = at_least(1, 64)
    """Width of the observation network."""
    observed_by: dict[str, Any] = field(default_factory=dict)
    """The system whose observation is given: ``{"name": "pendulum", "config": {}}``."""
    learn: tuple[str, ...] = ()
    """Which of ``"Q"`` and ``"R"`` are parameters."""
    diagonal_noise: bool = True
    """Whether ``R`` is diagonal; a learned one stays so."""
    diagonal_process: bool = False
    """Whether ``Q`` is diagonal; a learned one stays so."""

    def __post_init__(self) -> None:
        if not self.width and self.order != 1:
            raise ConfigError(f"system learned: order = {self.order} has no effect without a network (width = 0)")


@SYSTEMS.register("learned")
class LearnedSystem(System):
    """``x⁺ = x ⊞ (dt/dt₀) g(x, u) + w``, ``y = h(x) + v``, with a network ``g`` that is zero before training.

    With it every filter on a system can be trained without equations of motion: untrained, or with ``width=0``, it is
    a random walk, and ``g`` is trained together with the filter, or before it by regression on true states.
    :meth:`of` infers the config from the matrices.

    Args:
        config: sizes and options.
        H: where the matrix of the observation starts or stays; for ``observation="learned_network"`` it multiplies
            :meth:`Layout.features`.
        Q: covariance of the process noise of a nominal step; by default the identity.
        R: covariance of the measurement noise; by default the identity.
        observed_by: the system whose observation is given, instead of its name in the config.

    >>> import torch, fwnkf
    >>> system = LearnedSystem(LearnedConfig(state_dim=3, observation_dim=2), Q=0.1 * torch.eye(3))
    >>> fwnkf.build("kalmannet", system=system).run(torch.zeros(1, 5, 2)).mean.shape
    torch.Size([1, 5, 3])
    """

    Config = LearnedConfig
    Q: Covariance
    R: Covariance
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
        self.diagonal_noise, self.diagonal_process = config.diagonal_noise, config.diagonal_process
        self.observed_by = self._observed_by(observed_by)
        m = config.observation_dim
        self.observation_layout = (
            Layout.euclidean(m, "y") if self.observed_by is None else self.observed_by.observation_layout
        )
        d, inputs = self.layout.tangent_size, self.layout.feature_size + self.control_dim
        self.network = JacobianNetwork(inputs, 0, config.width, d, config.order) if config.width else None
        self.observation = make_observation(
            config.observation, self.layout, m, H, self.observed_by, config.observation_width
        )
        for name, value, size, option in (("Q", Q, d, "diagonal_process"), ("R", R, m, "diagonal_noise")):
            start = torch.eye(size) if value is None else value
            if start.shape != (size, size):
                raise ConfigError(f"{name} has shape {tuple(start.shape)}, wanted {(size, size)}")
            diagonal = getattr(config, option)
            if diagonal and value is not None and not is_diagonal_matrix(value):
                raise ConfigError(f"{option}=True, but {name} has entries off its diagonal; set it to False")
            self.add_module(name, Covariance(start, name in config.learn, diagonal))
        self.register_buffer("eye", torch.eye(d), persistent=False)

    @classmethod
    def of(  # type: ignore[override]  # from matrices instead of functions
        cls,
        H: Tensor | None = None,
        Q: Tensor | None = None,
        R: Tensor | None = None,
        *,
        state_dim: int | None = None,
        observation_dim: int | None = None,
        control_dim: int = 0,
        layout: Sequence[Any] = (),
        dt: float = 1.0,
        width: int = 0,
        order: Literal[1, 2] = 1,
        observation: ObservationKind = "given_matrix",
        observation_width: int = 64,
        observed_by: System | None = None,
        learn: Sequence[str] = (),
    ) -> LearnedSystem:
        """Build from matrices; sizes that are not given, and whether ``Q`` and ``R`` are diagonal, are inferred.

        Args:
            H: matrix of the observation ``[m, n]``; by default the first ``m`` components.
            Q: covariance of the process noise of a nominal step ``[d, d]``; by default the identity.
            R: covariance of the measurement noise ``[m, m]``; by default the identity.
            state_dim: number of components of the state; that of the layout, of ``observed_by``, of ``Q`` or ``H``.
            observation_dim: number of channels; that of ``observed_by``, of ``H`` or ``R``.
            control_dim, layout, dt, width, order, observation, observation_width, learn: see :class:`LearnedConfig`.
            observed_by: a registered system whose observation is given, for ``observation="given_function"``.

        Returns:
            The system.

        Raises:
            ConfigError: a size cannot be inferred, or does not fit a matrix.

        >>> walk = LearnedSystem.of(H=torch.eye(1, 2), Q=0.01 * torch.eye(2), R=torch.eye(1))
        >>> walk.layout.size, walk.observation_layout.size, walk.linearity
        (2, 1, 'constant')
        """
        options: dict[str, Any] = {}
        if observed_by is not None:
            name = SYSTEMS.name_of(type(observed_by))
            if name is None:
                raise ConfigError(f"observed_by: {type(observed_by).__name__} is not registered; give it a name")
            options["observed_by"] = {"name": name, "config": asdict(observed_by.config)}
            layout, observation_dim = observed_by.layout.describe(), observed_by.observation_layout.size
        if layout and state_dim is None:
            state_dim = Layout.parse(layout).size
        matrices = {name: value for name, value in (("H", H), ("Q", Q), ("R", R)) if value is not None}
        for field_name, given, sources in (
            ("state_dim", state_dim, (("Q", -1), ("H", -1))),
            ("observation_dim", observation_dim, (("H", -2), ("R", -1))),
        ):
            found = [matrices[key].shape[axis] for key, axis in sources if key in matrices]
            if given is None and not found:
                keys = " or ".join(key for key, _ in sources)
                raise ConfigError(f"{field_name} is missing: give it, or {keys}, which it follows from")
            options[field_name] = given if given is not None else found[0]
        config = parse_config(
            LearnedConfig,
            {
                **options,
                "control_dim": control_dim,
                "layout": tuple(layout),
                "dt": dt,
                "width": width,
                "order": order,
                "observation": observation,
                "observation_width": observation_width,
                "learn": tuple(learn),
                "diagonal_noise": R is None or is_diagonal_matrix(R),
                "diagonal_process": Q is None or is_diagonal_matrix(Q),
            },
            "learned system",
        )
        system = cls(config, H, Q, R, observed_by)
        return system.to(next(iter(matrices.values())).dtype) if matrices else system

    @property
    def transition_linearity(self) -> Linearity:
        return "constant" if self.network is None else "state_dependent"

    @property
    def observation_linearity(self) -> Linearity:
        if self.observed_by is not None:
            return self.observed_by.observation_linearity
        matrix = isinstance(self.observation, MatrixObservation) and self.observation.inputs.flat
        return "constant" if matrix else "state_dependent"

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
        if self.network is not None:
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
        if self.network is None:
            return x
        change = self.network(self._inputs(x, u))
        ratio = self._ratio(dt)
        return self.layout.boxplus(x, change if ratio is None else change * ratio.unsqueeze(-1))

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.network is None:
            return x, self.eye
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
