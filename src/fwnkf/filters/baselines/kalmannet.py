"""KalmanNet: a Kalman filter whose gain is the output of a recurrent network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ...core.gaussian import dense, joseph, matvec, propagate, symmetrize
from ...core.system import System
from ...registry import FILTERS, at_least
from ...shapes import Float
from ...types import Gaussian, StepOutput
from ..base import Prediction, adopt, arguments
from ..extended import Noises, SystemFilter
from ..networks import GRUCell, scale_weights
from ..outputs import step_output
from .gain_features import applied_correction, last_seen, observation_change, unit


@dataclass(frozen=True)
class KalmanNetConfig:
    """The options of :class:`KalmanNet`, which describes them."""

    in_mult: int = at_least(1, 5)
    out_mult: int = at_least(1, 40)
    wiring: Literal["paper", "first_release"] = "paper"
    gain_factor: float = at_least(0.0, 0.01)


class GainFeatures(NamedTuple):
    """The paper's F1 to F4, each normalised to length one (zero if there was no change)."""

    observation_change: Float[Tensor, "B m"]
    innovation: Float[Tensor, "B m"]
    motion: Float[Tensor, "B d"]
    correction: Float[Tensor, "B d"]


class GainMemory(NamedTuple):
    """Hidden states of the GRUs, which represent ``Q``, the error covariance ``Σ`` and ``S``, flattened."""

    process: Float[Tensor, "B q"]
    error: Float[Tensor, "B q"]
    innovation: Float[Tensor, "B s"]


class KalmanNetState(NamedTuple):
    belief: Gaussian
    seen: Float[Tensor, "B m"]
    """The last measurement of each channel."""
    motion: Float[Tensor, "B d"]
    """``x̂_{t-1} ⊟ x̂_{t-2}``."""
    correction: Float[Tensor, "B d"]
    """``x̂_{t-1} ⊟ x̂⁻_{t-1}``."""
    memory: GainMemory
    previous: Float[Tensor, "B n"]
    """The estimate of the last step, which a prediction leaves as it is."""


class GainNetwork(nn.Module):
    """Architecture #2 with GRUs that track ``Q``, ``Σ`` and ``S``; layers are named as in the paper."""

    def __init__(self, d: int, m: int, config: KalmanNetConfig) -> None:
        super().__init__()
        self.d, self.m = d, m
        in_mult, out_mult = config.in_mult, config.out_mult
        self.exchanged = config.wiring == "first_release"

        def dense_relu(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU())

        wide = (d * d + m * m) * out_mult
        self.fc5 = dense_relu(d, d * in_mult)
        self.gru_q = GRUCell(d * in_mult, d * d)
        self.fc6 = dense_relu(d, d * in_mult)
        self.gru_sigma = GRUCell(d * d + d * in_mult, d * d)
        self.fc1 = dense_relu(d * d, m * m)
        self.fc7 = dense_relu(2 * m, 2 * m * in_mult)
        self.gru_s = GRUCell(m * m + 2 * m * in_mult, m * m)
        self.fc2 = nn.Sequential(nn.Linear(d * d + m * m, wide), nn.ReLU(), nn.Linear(wide, d * m))
        self.fc3 = dense_relu(m * m + d * m, d * d)
        self.fc4 = dense_relu(2 * d * d, d * d)
        scale_weights(self.fc2[-1], config.gain_factor)

    def forward(self, memory: GainMemory, features: GainFeatures) -> tuple[Float[Tensor, "B d m"], GainMemory]:
        to_process, to_error = features.correction, features.motion
        if self.exchanged:
            to_process, to_error = to_error, to_process
        process = self.gru_q(self.fc5(to_process), memory.process)
        error = self.gru_sigma(torch.cat((process, self.fc6(to_error)), -1), memory.error)
        seen = self.fc7(torch.cat((features.observation_change, features.innovation), -1))
        innovation = self.gru_s(torch.cat((self.fc1(error), seen), -1), memory.innovation)
        gain = self.fc2(torch.cat((error, innovation), -1))
        # backward flow: the hidden state of GRU_Σ is the error covariance *after* the update with this gain
        updated = self.fc4(torch.cat((error, self.fc3(torch.cat((innovation, gain), -1))), -1))
        return gain.unflatten(-1, (self.d, self.m)), GainMemory(process, updated, innovation)


@FILTERS.register("kalmannet")
class KalmanNet(SystemFilter):
    """KalmanNet (Revach et al. 2022, arXiv 2107.10043), architecture #2, on a given system.

    From the paper: ``x̂ = x̂⁻ ⊞ K (y ⊟ h(x̂⁻))`` with ``x̂⁻ = f(x̂)`` and ``K`` from a network with inputs F1
    ``y_t ⊟ y_{t-1}``, F2 ``y_t ⊟ h(x̂⁻_t)``, F3 ``x̂_{t-1} ⊟ x̂_{t-2}`` and F4 ``x̂_{t-1} ⊟ x̂⁻_{t-1}``, each
    normalised to length one. Neither ``Q`` nor ``R`` enters the estimate. From the authors' code: the memories of ``Q``
    and ``S`` start from the identity, that of ``Σ`` from zero; before the first step the previous measurement is
    ``h(prior mean)``, and F3 and F4 are zero.

    Choices of this implementation: differences and gain are in the tangent space. A masked channel has no innovation,
    no change and no gain. The gain is small before training (``gain_factor``): random gains of order one make a
    nonlinear system diverge.

    The paper has no covariance. The one reported here is the Joseph recursion with the system's linearised ``F`` and
    ``H``, its ``Q`` and ``R``, and the gain of the network. On a linear system with the true ``Q`` and ``R`` it is the
    error covariance of any gain fixed in advance; since this gain depends on the data, it is an approximation. It does
    not affect the mean, so training on the mean alone is the paper's training.

    Args:
        system: the equations of motion.
        in_mult: width of the layers before the GRUs, as a multiple of their inputs.
        out_mult: width of the layers after the GRUs.
        wiring: ``"paper"`` sends F4 to the GRU of ``Q`` and F3 to that of ``Σ``, as the paper's figure 4;
            ``"first_release"`` has them exchanged, as the authors' code at least until February 2024.
        gain_factor: multiplies the initial weights of the layer that returns the gain; 1 is the authors'
            initialisation.

    >>> import torch, fwnkf
    >>> eye = torch.eye(2)
    >>> net = fwnkf.build("kalmannet", system=fwnkf.LinearSystem.of(F=eye, H=eye, Q=eye, R=eye))
    >>> net.run(torch.zeros(1, 5, 2)).mean.shape
    torch.Size([1, 5, 2])
    """

    Config = KalmanNetConfig
    smooths = False

    def __init__(
        self,
        system: System,
        *,
        in_mult: int = 5,
        out_mult: int = 40,
        wiring: Literal["paper", "first_release"] = "paper",
        gain_factor: float = 0.01,
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: KalmanNetConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        self.system = adopt(self, system)
        self.network = GainNetwork(self.layout.tangent_size, self.observation_dim, config)

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Any:
        batch, d, m = len(belief.mean), self.layout.tangent_size, self.observation_dim
        no_change = torch.zeros_like(belief.cov[..., 0])
        memory = GainMemory(
            torch.eye(d).to(belief.cov).flatten().repeat(batch, 1),
            torch.zeros_like(belief.cov).flatten(1),
            torch.eye(m).to(belief.cov).flatten().repeat(batch, 1),
        )
        return KalmanNetState(
            belief, self.system.observe(belief.mean), no_change, no_change.clone(), memory, belief.mean
        )

    def gain(self, memory: GainMemory, features: GainFeatures) -> tuple[Float[Tensor, "B d m"], GainMemory]:
        """One step of the network.

        Args:
            memory: the hidden states of its GRUs.
            features: its inputs.

        Returns:
            The gain before masking, and the next memory.
        """
        K, memory = self.network(memory, features)
        return K, memory

    def predict_state(
        self,
        prepared: Noises,
        state: KalmanNetState,
        u: Tensor | None,
        dt: Tensor | None,
        measured: tuple[Tensor, Tensor] | None = None,
    ) -> Prediction:
        mean, F, Q = self.system.linearized_step(prepared.nominal, state.belief.mean, u, dt)
        return Prediction(state._replace(belief=Gaussian(mean, propagate(state.belief.cov, F, Q))))

    def update_state(
        self, prepared: Noises, ahead: Prediction, y: Tensor, weight: Tensor
    ) -> tuple[KalmanNetState, StepOutput, None]:
        state: KalmanNetState = ahead.state
        prior = state.belief
        predicted, H = self.system.linearize_observation(prior.mean)
        innovation = self.innovation(y, predicted, weight)

        change = observation_change(self.observation_layout, y, state.seen, weight)
        features = GainFeatures(*(unit(part) for part in (change, innovation, state.motion, state.correction)))
        K, memory = self.gain(state.memory, features)
        K = K * weight.unsqueeze(-2)

        mean = self.layout.boxplus(prior.mean, matvec(K, innovation))
        posterior = Gaussian(mean, joseph(prior.cov, K, H, prepared.R))
        innovation_cov = symmetrize(H @ prior.cov @ H.mT + dense(prepared.R))
        next_state = KalmanNetState(
            posterior,
            last_seen(state.seen, y, weight),
            self.layout.boxminus(posterior.mean, state.previous),
            applied_correction(self.layout, posterior.mean, prior.mean, weight),
            memory,
            posterior.mean,
        )
        ok = torch.ones_like(weight[:, 0], dtype=torch.bool)  # no factorisation that could fail, nor digits to lose
        return next_state, step_output(prior, posterior, innovation, innovation_cov, ok, ok), None
