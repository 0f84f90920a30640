"""The updates of the FW-NKF with a measurement: as in the paper, with noise states, and with the exact covariance."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..core import iir
from ..core.forms import CovarianceForm, covariance_form, measured_precisely
from ..core.gaussian import (
    DiagonalNoise,
    FullNoise,
    Noise,
    block_diagonal,
    dense,
    matvec,
    prediction_keeps_digits,
    propagate,
)
from ..core.jumps import jump_noise
from ..core.levels import Levels, Sources, follow, predict
from ..core.shaped import Shaper, condition_shaped
from ..core.smoothing import LinearStep, Measurement, StatedCovariance
from ..shapes import Float
from ..types import Gaussian, StepOutput
from .base import Filter
from .fwnkf_state import FWState, Prediction, Prepared
from .outputs import step_output
from .shaping import NoiseStates, OscillatorMatrices


class ShapedUpdates(Filter):
    """Base class of the FW-NKF: what follows the prediction in each of its forms."""

    noise_states: NoiseStates | None

    @property
    def form(self) -> CovarianceForm:
        """How the covariance is carried from step to step."""
        return covariance_form(self.config.solve)

    def _plainly(
        self, prepared: Prepared, state: FWState, ahead: Prediction, y: Tensor, weight: Tensor
    ) -> tuple[FWState, StepOutput, LinearStep]:
        """The paper's update: the gain of white noise on the shaped innovation."""
        innovation = self.observation_layout.boxminus(y, ahead.observed) * weight
        form = self.form
        carried = form.propagate(state.cov, ahead.F, ahead.Q)
        prior = Gaussian(ahead.mean, form.covariance(carried))
        stated = None
        if self.config.jump:
            added, stated = jump_noise(prior.cov, innovation, ahead.H, ahead.noise, self.config.jump)
            ahead = ahead._replace(Q=ahead.Q + added)
            carried = form.propagate(state.cov, ahead.F, ahead.Q)
        shaped, memory = innovation, state.memory
        if prepared.shaper is not None:
            shaped, memory = iir.step(prepared.shaper, innovation, state.memory)
        update = form.condition(carried, shaped, ahead.H, ahead.noise, weight)
        posterior = Gaussian(self.layout.boxplus(ahead.mean, update.correction), form.covariance(update.cov))
        precise = measured_precisely(update.precise, y, ahead.noise, weight)
        precise = precise & form.predicts_precisely(state.cov, ahead.F, carried)
        stated = update.innovation_cov if stated is None else stated
        out = step_output(prior, posterior, innovation, stated, update.ok, precise, shaped * weight)
        seen = torch.lerp(ahead.observed, y, weight)
        following = FWState(posterior.mean, update.cov, state.noise, memory, seen, ahead.hidden)
        measurement = Measurement(shaped, ahead.H, ahead.noise, weight, update.ok)
        return following, out, LinearStep(ahead.F, ahead.Q, measurement, update.correction, posterior.mean)

    def _with_noise_states(
        self,
        oscillators: OscillatorMatrices,
        state: FWState,
        ahead: Prediction,
        y: Tensor,
        weight: Tensor,
        ratio: Tensor | None,
    ) -> tuple[FWState, StepOutput, LinearStep]:
        """The Kalman filter on ``[x; ν]``: exact gain and covariance for coloured noise."""
        A, noise_Q, C = oscillators
        if ratio is not None and self.noise_states is not None:
            A, noise_Q = self.noise_states.transition(ratio)
        d, noise, levels = self.layout.tangent_size, ahead.noise, state.levels
        if levels:
            sources = self._sources(levels, noise_Q, noise)
            noise_Q, noise = sources.Q.sum(1)[..., d:, d:], _total(noise, sources)
        noise_mean = matvec(A, state.noise)
        joint_F, joint_Q = block_diagonal(ahead.F, A), block_diagonal(ahead.Q, noise_Q)
        form = self.form
        carried = form.propagate(state.cov, joint_F, joint_Q)
        innovation = self.observation_layout.boxminus(y, ahead.observed + matvec(C, noise_mean)) * weight
        joint_H = torch.cat((ahead.H, C.expand(*ahead.H.shape[:-2], *C.shape)), -1)
        update = form.condition(carried, innovation, joint_H, noise, weight)
        measurement: Measurement | StatedCovariance = Measurement(innovation, joint_H, noise, weight, update.ok)
        if levels:
            kept = torch.exp(-torch.full_like(y[:, 0], self.config.dt) / self.config.level_memory)
            levels, change = follow(
                predict(levels, joint_F, sources),
                sources,
                carried,
                innovation,
                joint_H,
                weight,
                kept if ratio is None else kept**ratio,
                self._free_levels(y),
            )
            update = update._replace(correction=update.correction + change.mean, cov=update.cov + change.cov)
            # a posterior whose levels moved is not that of a Kalman gain: it is stated instead
            measurement = StatedCovariance(update.cov)
        prior = Gaussian(ahead.mean, form.covariance(carried)[..., :d, :d])
        cov = form.covariance(update.cov)[..., :d, :d]
        posterior = Gaussian(self.layout.boxplus(ahead.mean, update.correction[..., :d]), cov)
        precise = measured_precisely(update.precise, y, noise, weight)
        precise = precise & form.predicts_precisely(state.cov, joint_F, carried)
        out = step_output(prior, posterior, innovation, update.innovation_cov, update.ok, precise)
        seen = torch.lerp(ahead.observed, y, weight)
        noise_mean = noise_mean + update.correction[..., d:]
        following = FWState(posterior.mean, update.cov, noise_mean, state.memory, seen, ahead.hidden, levels)
        return following, out, LinearStep(joint_F, joint_Q, measurement, update.correction, posterior.mean, noise_mean)

    def _level_shares(self, cov: Float[Tensor, "B j j"]) -> Float[Tensor, "B L j j"]:
        """Parts of an initial covariance that are due to the noise of each level."""
        assert self.noise_states is not None
        _, owned = self.noise_states.level_owners(self.config.track_level, cov)
        own = nn.functional.pad(owned, (self.layout.tangent_size, 0))
        return cov.unsqueeze(-3) * (own.unsqueeze(-1) * own.unsqueeze(-2))

    def _sources(self, levels: Levels, noise_Q: Tensor, noise: Noise) -> Sources:
        """What the noise of each level adds in a step."""
        assert self.noise_states is not None
        white, owned = self.noise_states.level_owners(self.config.track_level, noise_Q)
        d, factor = self.layout.tangent_size, levels.log.exp()
        Q = noise_Q.unsqueeze(-3) * (factor.unsqueeze(-1) * owned).unsqueeze(-1)
        R = dense(noise).unsqueeze(-3) * (factor * white)[..., None, None]
        return Sources(nn.functional.pad(Q, (d, 0, d, 0)), R)

    def _free_levels(self, rows: Tensor) -> Float[Tensor, " B"]:
        """One where levels may move."""
        return torch.ones_like(rows[:, 0])

    def _with_joint_covariance(
        self, blocks: Shaper, state: FWState, ahead: Prediction, y: Tensor, weight: Tensor
    ) -> tuple[FWState, StepOutput, LinearStep]:
        """The paper's update with the exact covariance of error and shaper memory together."""
        d = self.layout.tangent_size
        still = torch.eye(state.cov.shape[-1] - d).to(ahead.F)  # the shaper's memory waits for the innovation
        joint = propagate(state.cov, block_diagonal(ahead.F, still), block_diagonal(ahead.Q, torch.zeros_like(still)))
        innovation = self.observation_layout.boxminus(y, ahead.observed) * weight
        update = condition_shaped(
            joint, innovation, state.memory.flatten(1), ahead.H, ahead.noise, blocks, weight, self.config.gain
        )
        prior = Gaussian(ahead.mean, joint[..., :d, :d])
        posterior = Gaussian(self.layout.boxplus(ahead.mean, update.correction), update.joint_cov[..., :d, :d])
        precise = measured_precisely(update.precise, y, ahead.noise, weight)
        precise = precise & prediction_keeps_digits(state.cov[..., :d, :d], ahead.F, prior.cov)
        out = step_output(
            prior, posterior, innovation, update.innovation_cov, update.ok, precise, update.shaped * weight
        )
        memory = update.memory.unflatten(1, state.memory.shape[1:])
        seen = torch.lerp(ahead.observed, y, weight)
        following = FWState(posterior.mean, update.joint_cov, state.noise, memory, seen, ahead.hidden)
        # the memory is known, so the belief is about the state alone; its covariance is not that of a Kalman gain
        stated = StatedCovariance(posterior.cov)
        return following, out, LinearStep(ahead.F, ahead.Q, stated, update.correction, posterior.mean)


def _total(noise: Noise, sources: Sources) -> Noise:
    """Measurement noise of all sources, in the form that it had."""
    R = sources.R.sum(-3)
    return DiagonalNoise(R.diagonal(dim1=-2, dim2=-1)) if isinstance(noise, DiagonalNoise) else FullNoise(R)
