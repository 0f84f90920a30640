"""The result of a run: the outputs of all steps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import NoObservationModelError, NumericalFailureError
from ..registry import FIGURES
from ..shapes import Bool, Float, Int
from ..summary import counted, html_card, one_line
from ..types import Status
from .gaussian import log_prob
from .layout import Layout
from .tree import tree_map
from .values import readable

FIGURES.declare("fwnkf.report", trajectory="trajectory_figure")
SHOWN = 12
"""Components of a state that a notebook shows."""


class Trajectory(NamedTuple):
    """:class:`StepOutput` stacked over time (axis 1), and the final state, from which ``run`` can continue.

    >>> import torch, fwnkf
    >>> one = torch.eye(1)
    >>> track = fwnkf.KF(F=one, H=one, Q=one, R=one).run(torch.zeros(2, 5, 1))
    >>> track.mean.shape, track.innovation_cov.shape
    (torch.Size([2, 5, 1]), torch.Size([2, 5, 1, 1]))
    """

    mean: Float[Tensor, "B T n"]
    """Posterior means."""
    cov: Float[Tensor, "B T d d"]
    """Posterior covariances, in the tangent space at :attr:`mean`."""
    prior_mean: Float[Tensor, "B T n"]
    """Predicted means, before the measurement of each step."""
    prior_cov: Float[Tensor, "B T d d"]
    """Predicted covariances."""
    innovation: Float[Tensor, "B T m"]
    """``y ⊟ ŷ``, zero in masked channels."""
    shaped_innovation: Float[Tensor, "B T m"]
    """The innovations after the filter's shaping; without any the innovations themselves."""
    innovation_cov: Float[Tensor, "B T m m"]
    """Predicted covariances of the innovations, whatever the mask."""
    status: Int[Tensor, "B T"]
    """Bits of :class:`fwnkf.Status`."""
    state: Any
    """The filter's state after the last step."""
    linear: Any = None
    """The linear models of all steps (:class:`fwnkf.core.smoothing.LinearSteps`), with ``run(…, smoothing=True)``."""

    weight: Float[Tensor, "B T m"] | None = None
    """1 where a channel was measured, after preprocessing, and 0 elsewhere."""
    log_density: Float[Tensor, "B T"] | None = None
    """:attr:`step_log_likelihood`, where the engine has computed it."""
    engine: Any = "loop"
    """The engine that ran, see :meth:`fwnkf.Filter.run`."""
    layout: Layout | None = None
    """The parts of the state, where a filter says so."""
    measured: Layout | None = None
    """The parts of the measurement, after preprocessing."""

    def __repr__(self) -> str:
        return one_line("Trajectory", self._facts())

    def _repr_html_(self) -> str:
        title = "Trajectory"
        if self.mean is None or self.cov is None or self.layout is None or self.mean.ndim != 3 or 0 in self.mean.shape:
            return html_card(title, self._facts())
        mean, cov = (np.asarray(_as_array(item[0, -1]), np.float64) for item in (self.mean, self.cov))
        std = np.sqrt(np.maximum(np.diagonal(cov), 0))
        rows, start, at = [], 0, 0
        for part in self.layout.parts:
            deviations = std[at : at + part.tangent_size]
            rows.append((part.name, _numbers(mean[start : start + part.size]), _numbers(deviations)))
            start, at = start + part.size, at + part.tangent_size
        head = ("at the last step of the first record", "mean", "standard deviation")
        more = f"and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
        return html_card(title, self._facts(), head, rows[:SHOWN], more)

    def _facts(self) -> dict[str, str]:
        facts: dict[str, str] = {}
        found = next((item for item in (self.mean, self.innovation, self.status) if item is not None), None)
        if found is not None:
            records, steps = (found.shape[0], found.shape[1]) if found.ndim > 1 else (1, found.shape[0])
            facts[""] = f"{counted(records, 'record')} of {counted(steps, 'step')}"
        if self.layout is not None:
            facts["state"] = self.layout.words()
        if self.measured is not None:
            facts["channels"] = self.measured.words()
        if self.mean is not None:
            facts["numbers"] = str(self.mean.dtype).removeprefix("torch.")
        facts["engine"] = str(self.engine)
        status = None if self.status is None else torch.as_tensor(self.status)  # an array after numpy()
        if status is not None and readable(status.sum()):
            wrong = int(faulty(status).sum())
            facts["status"] = f"{counted(wrong, 'step')} flagged" if wrong else "ok"
        return facts

    def plot(
        self,
        y: Float[Tensor, "B T m"] | None = None,
        *,
        time: Any = None,
        record: int = 0,
    ) -> Any:
        """Draw the means of a record with their 95 % bands, a panel for each component of the state.

        A channel with the name of a component is drawn as dots in its panel. Any other has a panel of its own, with
        what the filter predicted it to be.

        Args:
            y: measurements, as they were given to the run; NaN where they are missing.
            time: of each step, as numbers or dates; by default steps are counted.
            record: which one.

        Returns:
            A matplotlib ``Figure``; in a notebook it is shown, and ``savefig`` writes it.

        Raises:
            ConfigError: matplotlib is not installed (extra ``plot``), or the trajectory has no means and covariances.
            ShapeError: ``y`` or ``time`` is not of this run.

        >>> import torch, fwnkf
        >>> one, y = torch.eye(1), torch.randn(1, 50, 1)
        >>> len(fwnkf.KF(F=one, H=one, Q=one, R=one).run(y).plot(y).axes)
        2
        """
        return FIGURES["trajectory"](self, y, time, record)

    @property
    def step_log_likelihood(self) -> Float[Tensor, "B T"]:
        """The logarithm of each step's likelihood given the steps before, over the channels that were measured."""
        if self.log_density is not None:
            return self.log_density
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

        Returns:
            A trajectory of arrays.

        >>> import torch, fwnkf
        >>> one = torch.eye(1)
        >>> type(fwnkf.KF(F=one, H=one, Q=one, R=one).run(torch.zeros(1, 5, 1)).numpy().mean).__name__
        'ndarray'
        """
        arrays: Trajectory = tree_map(_as_array, self)
        return arrays

    def raise_for_status(self, streams: Sequence[str] | None = None) -> Trajectory:
        """Raise an error that names the first failing stream and step, if there is one.

        Steps that lost precision and made their update are a :class:`RuntimeWarning`.

        Args:
            streams: names of the batch items, for the message.

        Returns:
            The trajectory itself, so that the call can follow ``run``.

        Raises:
            NumericalFailureError: a measurement was not used.
        """
        failed = faulty(self.status).nonzero()
        if len(failed) == 0:
            imprecise = self.status.nonzero()
            if len(imprecise):
                warnings.warn(
                    f"{self._place(imprecise, streams)}. Rounding may have changed the estimate: a covariance is too "
                    "ill-conditioned for the dtype, or numbers are too large beside their uncertainty. Use "
                    "solve='square_root', float64, or coordinates relative to an origin nearby.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return self
        raise NumericalFailureError(
            f"{self._place(failed, streams)}. Mask observations that are not finite (mask=False there). A failed "
            "factorisation means that the innovation covariance was not positive definite: increase R or Q, or run in "
            "float64. A step is rejected where its result is not finite: look at its control, its dt and the model."
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


def _numbers(values: Any) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _as_array(leaf: Any) -> Any:
    return leaf.detach().cpu().numpy() if isinstance(leaf, Tensor) else leaf
