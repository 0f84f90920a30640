"""How a state moves: the part of a system without its sensors."""

from __future__ import annotations

import sys
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from ..errors import ConfigError, shown
from ..shapes import Float
from ..types import Gaussian, Statistics
from . import linearize
from .layout import Layout
from .linear_run import Continuous

LARGEST = sys.float_info.max
Linearity = Literal["constant", "time_varying", "state_dependent"]
"""What the Jacobians of a function depend on, from the simplest to the most general:

- ``"constant"``: on ``dt`` alone. The transition is ``F(dt) x + B(dt) u``, the measurement ``H x``.
- ``"time_varying"``: on ``dt`` and the control ``u``, which are known before the filter runs, but not on the state. The
  transition is ``F(u, dt) x + c(u, dt)``, the measurement ``H x + c``.
- ``"state_dependent"``: on the state too, as far as anyone has said.
"""


def least_linear(*parts: Linearity) -> Linearity:
    """The most general of these; ``"constant"`` of none.

    >>> least_linear("constant", "time_varying")
    'time_varying'
    """
    kinds: tuple[Linearity, ...] = get_args(Linearity)
    return kinds[max((kinds.index(part) for part in parts), default=0)]


class Nominal(NamedTuple):
    """What the steps of the nominal length share."""

    Q: Float[Tensor, "d d"]
    F: Float[Tensor, "d d"] | None = None
    B: Float[Tensor, "d p"] | None = None


class Motion(nn.Module):
    """How a state moves: its parts, the transition, the process noise and, if it is known, the first belief.

    Subclass it, implement ``transition`` and ``process_noise``, and ``linearize_transition`` where it should be fast.
    With sensors it is a system: ``fwnkf.System(motion, sensors={"gps": …})``. Every system is a motion too, so that
    other sensors can be put on it.

    Args:
        config: options of the motion, a frozen dataclass of plain values; saved with every filter on it.

    >>> import fwnkf
    >>> from fwnkf.systems.sensors import Position, PositionConfig
    >>> motion = fwnkf.systems.ConstantVelocityMotion(fwnkf.systems.ConstantVelocityMotionConfig(dims=3))
    >>> fwnkf.System(motion, sensors={"gps": Position(PositionConfig(std=2.0))}).sensor_channels
    {'gps': slice(0, 3, None)}
    """

    Config: ClassVar[type]
    layout: Layout
    """Parts of the state."""
    control_dim: int = 0
    """Number of control inputs."""
    diagonal_process: bool = False
    """Whether the process noise is known to be diagonal, for steps of every length."""
    discretizes: bool = False
    """Whether a step with ``dt`` takes a discretisation that a step of nominal length does not."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    @property
    def dt(self) -> float:
        """The nominal step in seconds, used where a call has no ``dt``; 1 if a system states none."""
        return self._nominal

    @dt.setter
    def dt(self, seconds: float) -> None:
        # here, where every system states it: a filter would go back in time, with covariances that are none
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= LARGEST:
            raise ConfigError(f"dt = {shown(seconds)}: the nominal step must be a positive number of seconds")
        self._nominal = float(seconds)

    _nominal: float = 1.0

    @property
    def control_layout(self) -> Layout:
        """Names of the controls, for tables; by default ``u``. A motion without any has no such layout."""
        return Layout.euclidean(self.control_dim, "u")

    @property
    def takes_dt(self) -> bool:
        """Whether ``dt`` can be given for each step; a discrete system has a fixed step length."""
        return True

    @property
    def transition_linearity(self) -> Linearity:
        """What the Jacobian of the transition depends on, see :data:`Linearity`."""
        return "state_dependent"

    initial_steps: int = 0
    """Number of steps that :meth:`initial_belief` reads; 0 for a system that needs a prior."""

    def initial_belief(
        self, y: Float[Tensor, "B k m"], weight: Float[Tensor, "B k m"], u: Float[Tensor, "B k p"] | None
    ) -> Gaussian:
        """The belief before the first step, from the first ``k ≤ initial_steps`` steps of a recording.

        By default that of :meth:`prior`, whatever the steps are.

        Args:
            y: measurements of these steps, zero where masked.
            weight: 1 where a channel was measured, else 0.
            u: controls of these steps.

        Returns:
            The belief, ``[B, n]`` and ``[B, d, d]``.
        """
        belief = self.prior()
        if belief is None:
            raise NotImplementedError
        return Gaussian(belief.mean.expand(len(y), -1), belief.cov.expand(len(y), -1, -1))

    def prior(self) -> Gaussian | None:
        """The belief before any measurement, if the system states one.

        Returns:
            ``[n]`` and ``[d, d]``, or None.
        """
        return None

    def complete_prior(self, prior: Gaussian) -> Gaussian:
        """Complete a prior on the first parts of the state with the system's own prior on the other parts.

        Args:
            prior: a belief about all parts of the state, or about the first ones only.

        Returns:
            A belief about all parts.
        """
        return prior

    def normalize(self, statistics: Statistics) -> None:
        """Store the scales of training data in a system with networks; does nothing by default.

        Args:
            statistics: means and standard deviations of the training data.
        """

    def transition(
        self, x: Float[Tensor, "B n"], u: Float[Tensor, "B p"] | None, dt: Float[Tensor, "B"] | None
    ) -> Float[Tensor, "B n"]:
        """The next state without noise.

        Args:
            x: the state.
            u: the control since the last step; None for none.
            dt: the length of the step in seconds; None for the nominal one.

        Returns:
            The state after the step.
        """
        raise NotImplementedError

    def process_noise(self, dt: Float[Tensor, "B"] | None) -> Float[Tensor, "*B d d"]:
        """The covariance ``Q`` of the process noise of one step.

        Args:
            dt: the length of the step in seconds; None for the nominal one.

        Returns:
            ``Q`` in the tangent space, ``[d, d]`` or one for each batch item.
        """
        raise NotImplementedError

    def process_noise_at(
        self, Q: Float[Tensor, "*C d d"], x: Float[Tensor, "B n"], u: Float[Tensor, "B p"] | None
    ) -> Float[Tensor, "*C d d"]:
        """``Q`` of a step from ``x``, for a motion that is less certain in some states than in others.

        Args:
            Q: what :meth:`process_noise` returned for the step.
            x: the state before the step.
            u: the control since the last step; None for none.

        Returns:
            ``Q`` itself by default.
        """
        return Q

    def residual_step(self, statistics: Statistics) -> Float[Tensor, " d"]:
        """The size of what this motion leaves unexplained in one step, which a learned residual is scaled with.

        Args:
            statistics: means and standard deviations of the training data.

        Returns:
            A number for each tangent coordinate; by default the size of a step.
        """
        return statistics.step

    def linearize_transition(
        self, x: Float[Tensor, "B n"], u: Float[Tensor, "B p"] | None, dt: Float[Tensor, "B"] | None
    ) -> tuple[Float[Tensor, "B n"], Float[Tensor, "*B d d"]]:
        """The next state and its Jacobian ``F`` in the tangent space.

        Args:
            x: the state.
            u: the control since the last step; None for none.
            dt: the length of the step in seconds; None for the nominal one.

        Returns:
            The state after the step and ``F``, which may lack the batch axis.
        """
        return linearize.jacobian(lambda z: self.transition(z, u, dt), x, self.layout, self.layout)

    def matrices(
        self, dt: Float[Tensor, "*T"] | None
    ) -> tuple[Float[Tensor, "*T d d"], Float[Tensor, "*T d p"], Float[Tensor, "*T d d"]]:
        """The matrices ``F, B, Q`` of a step of a system whose transition is ``"constant"``.

        Args:
            dt: the length of the step in seconds; None for the nominal one.

        Returns:
            ``F``, ``B`` and ``Q``, without a batch axis if there is no ``dt``.

        Raises:
            ConfigError: the transition depends on the state or the control.
        """
        if self.transition_linearity != "constant":
            raise ConfigError(
                f"system {type(self).__name__} has no constant matrices: its transition depends on x or u"
            )
        Q = self.process_noise(dt)
        lengths = None if dt is None else dt.reshape(-1)
        rows = 1 if lengths is None else len(lengths)
        zero = self.layout.origin(Q).expand(rows, -1)
        _, F = self.linearize_transition(zero, None, lengths)
        F = F.expand(rows, *F.shape[-2:])
        columns = [
            self.transition(zero, Q.new_zeros(rows, self.control_dim).index_fill(1, place, 1.0), lengths) - zero
            for place in torch.arange(self.control_dim, device=Q.device)
        ]
        B = torch.stack(columns, -1) if columns else F.new_zeros(*F.shape[:-1], 0)
        lead = () if dt is None else tuple(dt.shape)
        return F.reshape(*lead, *F.shape[-2:]), B.reshape(*lead, *B.shape[-2:]), Q

    def continuous(self) -> Continuous | None:
        """The linear model in continuous time, with the nominal step as its unit.

        Returns:
            The model, or None for a system without one.
        """
        return None

    def nominal(self) -> Nominal:
        """What steps of the nominal length share, computed once for all of them.

        Returns:
            ``Q``, and for a system of constant matrices also ``F`` and ``B``.
        """
        return Nominal(self.process_noise(None))

    def linearized_step(
        self,
        nominal: Nominal,
        x: Float[Tensor, "B n"],
        u: Float[Tensor, "B p"] | None,
        dt: Float[Tensor, "B"] | None,
    ) -> tuple[Float[Tensor, "B n"], Float[Tensor, "*F d d"], Float[Tensor, "*Q d d"]]:
        """The next state, its Jacobian and the process noise of one step.

        Args:
            nominal: what :meth:`nominal` returned.
            x: the state.
            u: the control since the last step; None for none.
            dt: the length of the step in seconds; None for the nominal one.

        Returns:
            The state after the step, ``F`` and ``Q``; matrices may lack the batch axis.
        """
        mean, F = self.linearize_transition(x, u, dt)
        return mean, F, self.process_noise_at(nominal.Q if dt is None else self.process_noise(dt), x, u)
