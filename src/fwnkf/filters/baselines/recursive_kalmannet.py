"""Recursive KalmanNet: a network for the gain and a network for the noise term of the Joseph recursion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...core.constrain import lower_triangular
from ...core.gaussian import dense, matvec, propagate, symmetrize
from ...core.smoothing import LinearStep, StatedCovariance
from ...core.system import System
from ...registry import FILTERS, at_least
from ...shapes import Float
from ...types import Gaussian, StepOutput
from ..base import Prediction, adopt, arguments
from ..extended import Noises, SystemFilter
from ..networks import GRUCell, scale_weights
from ..outputs import step_output
from .gain_features import applied_correction, last_seen, observation_change


@dataclass(frozen=True)
class RecursiveKalmanNetConfig:
    """The options of :class:`RecursiveKalmanNet`, which describes them."""

    fc1_mult: int = at_least(1, 10)
    hidden_mult: int = at_least(1, 10)
    fc2_mult: int = at_least(1, 20)
    squared_features: bool = True
    previous_gain: bool = False
    weight_factor: float = at_least(0.0, 0.1)


class RecursiveKalmanNetState(NamedTuple):
    belief: Gaussian
    seen: Float[Tensor, "B m"]
    """The last measurement of each channel."""
    correction: Float[Tensor, "B d"]
    """``x̂_{t-1} ⊟ x̂⁻_{t-1}``."""
    gain: Float[Tensor, "B d m"]
    """The gain of the previous step."""
    gain_memory: Float[Tensor, "B g"]
    noise_memory: Float[Tensor, "B c"]
    carried: Float[Tensor, "B d d"]
    """The covariance of the last estimate, moved by predictions without their noise: the network adds its own."""


class RecurrentNetwork(nn.Module):
    """Linear, ReLU, GRU, linear, ReLU, linear.

    Widths: ``inputs · fc1_mult``, then ``hidden = outputs · hidden_mult``, then ``hidden · fc2_mult``.
    """

    def __init__(self, inputs: int, outputs: int, config: RecursiveKalmanNetConfig) -> None:
        super().__init__()
        read, hidden = inputs * config.fc1_mult, outputs * config.hidden_mult
        self.read = nn.Sequential(nn.Linear(inputs, read), nn.ReLU())
        self.gru = GRUCell(read, hidden)
        wide = hidden * config.fc2_mult
        self.out = nn.Sequential(nn.Linear(hidden, wide), nn.ReLU(), nn.Linear(wide, outputs))
        scale_weights(self, config.weight_factor)

    def forward(
        self, memory: Float[Tensor, "B h"], features: Float[Tensor, "B i"]
    ) -> tuple[Float[Tensor, "B o"], Float[Tensor, "B h"]]:
        memory = self.gru(self.read(features), memory)
        return self.out(memory), memory


@FILTERS.register("recursive_kalmannet")
class RecursiveKalmanNet(SystemFilter):
    """Recursive KalmanNet (Mortada et al. 2025, arXiv 2506.11639) on a given system.

    From the paper: two separate recurrent networks. One returns the gain ``K``, the other a lower triangular ``C``, and
    the covariance is the Joseph recursion split in two, ``P = A + B`` with ``A = (I-KH) F P Fᵀ (I-KH)ᵀ`` and
    ``B = C Cᵀ``, which replaces ``(I-KH) Q (I-KH)ᵀ + K R Kᵀ``: the posterior needs neither ``Q`` nor ``R``. From the
    authors' code: the widths, the features (innovation, ``y_t ⊟ y_{t-1}``, ``H_t``, ``x̂_{t-1} ⊟ x̂⁻_{t-1}``) and their
    squares. It is trained on the Gaussian negative log-likelihood of the true state under the posterior; the mean
    square error has no gradient in the covariance network.

    Choices of this implementation: the tangent space; ``previous_gain`` (not squared, zero at the start); and the
    prior. The paper has no ``Q`` besides ``B``, so the reported prior covariance is ``F P Fᵀ + Q`` with the system's
    nominal ``Q``, and the innovation covariance ``H P⁻ Hᵀ + R``. Where all channels are masked the posterior equals
    that prior; where some are masked the gain has zero columns and ``P = A + B``. ``C`` is unconstrained, so ``P`` is
    positive semidefinite, and definite except for special weights.

    The default widths are large: 0.4 million parameters for three states and three channels, 8 million for nine states
    and three channels.

    Args:
        system: the equations of motion.
        fc1_mult, hidden_mult, fc2_mult: widths as multiples: ``inputs · fc1_mult`` before the GRU,
            ``hidden = outputs · hidden_mult`` in it, ``hidden · fc2_mult`` after it.
        squared_features: square every feature, as in the authors' released code.
        previous_gain: append ``K_{t-1}`` to the inputs of the gain network, as the FW-NKF paper describes this
            baseline; False is the authors' released code.
        weight_factor: multiplies the initial weights and biases of the linear layers, as in the authors' released code.

    >>> import torch, fwnkf
    >>> eye = torch.eye(1)
    >>> net = fwnkf.RecursiveKalmanNet(fwnkf.LinearSystem.of(F=eye, H=eye, Q=eye, R=eye), fc2_mult=2)
    >>> net.run(torch.zeros(1, 5, 1)).cov.shape
    torch.Size([1, 5, 1, 1])
    """

    Config = RecursiveKalmanNetConfig

    def __init__(
        self,
        system: System,
        *,
        fc1_mult: int = 10,
        hidden_mult: int = 10,
        fc2_mult: int = 20,
        squared_features: bool = True,
        previous_gain: bool = False,
        weight_factor: float = 0.1,
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: RecursiveKalmanNetConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        self.system = adopt(self, system)
        d, m = self.layout.tangent_size, self.observation_dim
        features = 2 * m + m * d + d
        self.gain_network = RecurrentNetwork(features + (d * m if config.previous_gain else 0), d * m, config)
        self.noise_network = RecurrentNetwork(features, d * (d + 1) // 2, config)

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Any:
        batch, d, m = len(belief.mean), self.layout.tangent_size, self.observation_dim
        zeros = belief.mean.new_zeros
        return RecursiveKalmanNetState(
            belief,
            self.system.observe(belief.mean),
            zeros(batch, d),
            zeros(batch, d, m),
            zeros(batch, self.gain_network.gru.hidden_size),
            zeros(batch, self.noise_network.gru.hidden_size),
            belief.cov,
        )

    def joint_covariance(self, state: RecursiveKalmanNetState) -> Tensor:
        return state.belief.cov

    def features(self, innovation: Tensor, change: Tensor, H: Tensor, correction: Tensor) -> Float[Tensor, "B i"]:
        """The inputs of both networks.

        Args:
            innovation: ``y ⊟ h(x̂⁻)``.
            change: ``y_t ⊟ y_{t-1}``.
            H: Jacobian of the observation, with a batch axis or without.
            correction: ``x̂_{t-1} ⊟ x̂⁻_{t-1}``.

        Returns:
            All of them in a row, squared if so configured.
        """
        rows = H.expand(len(innovation), *H.shape[-2:]).flatten(1)  # H of a linear system has no batch axis
        features = torch.cat((innovation, change, rows, correction), -1)
        return features.square() if self.config.squared_features else features

    def predict_state(
        self,
        prepared: Noises,
        state: RecursiveKalmanNetState,
        u: Tensor | None,
        dt: Tensor | None,
        measured: tuple[Tensor, Tensor] | None = None,
    ) -> Prediction:
        mean, F, Q = self.system.linearized_step(prepared.nominal, state.belief.mean, u, dt)
        carried = symmetrize(F @ state.carried @ F.mT)
        prior = Gaussian(mean, symmetrize(symmetrize(F @ state.belief.cov @ F.mT) + Q))
        return Prediction(state._replace(belief=prior, carried=carried), F, Q)

    def update_state(
        self, prepared: Noises, ahead: Prediction, y: Tensor, weight: Tensor
    ) -> tuple[RecursiveKalmanNetState, StepOutput, LinearStep]:
        state: RecursiveKalmanNetState = ahead.state
        prior = state.belief
        predicted, H = self.system.linearize_observation(prior.mean)
        innovation = self.innovation(y, predicted, weight)

        change = observation_change(self.observation_layout, y, state.seen, weight)
        features = self.features(innovation, change, H, state.correction)
        gain_inputs = torch.cat((features, state.gain.flatten(1)), -1) if self.config.previous_gain else features
        flat_gain, gain_memory = self.gain_network(state.gain_memory, gain_inputs)
        entries, noise_memory = self.noise_network(state.noise_memory, features)
        K = flat_gain.unflatten(-1, state.gain.shape[1:]) * weight.unsqueeze(-2)
        C = lower_triangular(entries, self.layout.tangent_size)

        eye = torch.eye(self.layout.tangent_size, dtype=y.dtype, device=y.device)
        updated = propagate(state.carried, eye - K @ H, C @ C.mT)
        cov = torch.where(weight.any(-1)[:, None, None], updated, prior.cov)
        correction = matvec(K, innovation)
        posterior = Gaussian(self.layout.boxplus(prior.mean, correction), cov)
        next_state = RecursiveKalmanNetState(
            posterior,
            last_seen(state.seen, y, weight),
            applied_correction(self.layout, posterior.mean, prior.mean, weight),
            K,
            gain_memory,
            noise_memory,
            cov,
        )
        innovation_cov = symmetrize(H @ prior.cov @ H.mT + dense(prepared.R))
        ok = torch.ones_like(weight[:, 0], dtype=torch.bool)  # no factorisation that could fail, nor digits to lose
        out = step_output(prior, posterior, innovation, innovation_cov, ok, ok)
        return next_state, out, LinearStep(ahead.F, ahead.Q, StatedCovariance(cov), correction, posterior.mean)
