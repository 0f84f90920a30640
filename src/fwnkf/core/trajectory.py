"""The result of a run: the outputs of all steps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from ..errors import NoObservationModelError, NumericalFailureError
from ..shapes import Bool, Float, Int
from ..types import Status
from .gaussian import log_prob
from .tree import tree_map


class Trajectory(NamedTuple):
    """:class:`StepOutput` stacked over time (axis 1), and the final state, from which ``run`` can continue."""

    mean: Float[Tensor, "B T n"]
    cov: Float[Tensor, "B T d d"]
    prior_mean: Float[Tensor, "B T n"]
    prior_cov: Float[Tensor, "B T d d"]
    innovation: Float[Tensor, "B T m"]
    shaped_innovation: Float[Tensor, "B T m"]
    innovation_cov: Float[Tensor, "B T m m"]
    status: Int[Tensor, "B T"]
    state: Any
    linear: Any = None
    """The linear models of all steps (:class:`fwnkf.core.smoothing.LinearSteps`), with ``run(…, smoothing=True)``."""

    weight: Float[Tensor, "B T m"] | None = None
    """1 where a channel was measured, after preprocessing, and 0 elsewhere."""

    @property
    def step_log_likelihood(self) -> Float[Tensor, "B T"]:
        """The logarithm of each step's likelihood given the steps before, over the channels that were measured."""
        if self.weight is None or self.weight.shape != self.innovation.shape:
            raise NoObservationModelError(
                "this trajectory has no likelihood: its innovations are not those of the measured channels, or it was "
                "not returned by run"
            )
        return log_prob(self.innovation, self.innovation_cov, self.weight)[0]

    @property
    def log_likelihood(self) -> Float[Tensor, " B"]:
        """The logarithm of the likelihood of each record: the sum over its steps, differentiable.

        >>> import torch, fwnkf
        >>> one = torch.eye(1)
        >>> kf = fwnkf.KF(F=one, H=one, Q=one, R=one)
        >>> track = kf.run(torch.zeros(1, 1, 1), prior=fwnkf.Gaussian(torch.zeros(1), one))
        >>> track.log_likelihood  # of N(0, 2) at zero
        tensor([-1.2655])
        """
        return self.step_log_likelihood.sum(-1)

    def numpy(self) -> Trajectory:
        """The trajectory with NumPy arrays instead of tensors, on the CPU and without gradients; the state as well.

        >>> import torch, fwnkf
        >>> one = torch.eye(1)
        >>> type(fwnkf.KF(F=one, H=one, Q=one, R=one).run(torch.zeros(1, 5, 1)).numpy().mean).__name__
        'ndarray'
        """
        arrays: Trajectory = tree_map(_as_array, self)
        return arrays

    def raise_for_status(self, streams: Sequence[str] | None = None) -> Trajectory:
        """Raise :class:`NumericalFailureError` naming the first failing stream and step, or return ``self``.

        Steps that lost precision and made their update are a :class:`RuntimeWarning`.
        """
        failed = faulty(self.status).nonzero()
        if len(failed) == 0:
            imprecise = self.status.nonzero()
            if len(imprecise):
                warnings.warn(
                    f"{self._place(imprecise, streams)}. A covariance is too ill-conditioned for the dtype, and "
                    "rounding may have changed the estimate: use solve='square_root', or float64.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return self
        raise NumericalFailureError(
            f"{self._place(failed, streams)}. Mask observations that are not finite (mask=False there). A failed "
            "factorisation means that the innovation covariance was not positive definite: increase R or Q, or run in "
            "float64."
        )

    def _place(self, found: Int[Tensor, "k 2"], streams: Sequence[str] | None) -> str:
        """The first of the steps that were found, with its status, and their number."""
        stream, step = (int(i) for i in found[0])
        name = streams[stream] if streams is not None else f"number {stream}"
        return f"stream {name}, step {step}: {Status(int(self.status[stream, step]))!r}; {len(found)} step(s) in all"


def faulty(status: Int[Tensor, "*B"]) -> Bool[Tensor, "*B"]:
    """Whether a measurement was not used; a loss of precision alone is no fault.

    >>> import torch
    >>> faulty(torch.tensor([0, 1, 2, 4, 6]))
    tensor([False,  True,  True, False,  True])
    """
    return (status & ~int(Status.PRECISION_LOST)) != 0


def _as_array(leaf: Tensor | None) -> Any:
    return None if leaf is None else leaf.detach().cpu().numpy()
