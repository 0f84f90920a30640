"""The Kalman filter, with fixed or learned matrices (``Q`` and ``R`` are positive definite by construction)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from torch import Tensor

from ..core.gaussian import Noise, matvec
from ..core.linear import LinearConfig, LinearSystem, observation_origin
from ..core.smoothing import LinearStep
from ..core.system import System
from ..registry import FILTERS
from ..types import StepOutput
from .base import LinearModel, Prediction, adopt, arguments
from .extended import Belief, KalmanRecursion


@dataclass(frozen=True)
class KalmanConfig(LinearConfig):
    """The options of :class:`KalmanFilter`, which describes them."""

    solve: Literal["auto", "cholesky", "unrolled", "sequential", "square_root"] = "auto"


class Matrices(NamedTuple):
    """The matrices of the nominal step."""

    F: Tensor
    B: Tensor
    Q: Tensor
    H: Tensor
    R: Noise


@FILTERS.register("kf")
class KalmanFilter(KalmanRecursion):
    """Kalman filter for ``x⁺ = F x + B u + w``, ``y = H x + v``, with ``w ~ N(0, Q)`` and ``v ~ N(0, R)``.

    Sizes, and whether ``R`` is diagonal, follow from the matrices and need not be given.

    Args:
        F: transition ``[n, n]``; by default the identity.
        B: control input ``[n, p]``.
        H: observation ``[m, n]``; by default the first ``m`` components.
        Q: covariance of the process noise ``[n, n]``; by default the identity.
        R: covariance of the measurement noise ``[m, m]``; by default the identity.
        state_dim, observation_dim, control_dim: ``n``, ``m`` and ``p``.
        learn: which of ``"F"``, ``"B"``, ``"H"``, ``"Q"``, ``"R"`` are parameters.
        continuous: whether ``F`` and ``B`` are those of ``dx = F x dt + B u dt + noise`` and ``Q`` its spectral
            density, discretised exactly for every ``dt``.
        diagonal_noise: whether the channels are independent, which allows the fastest updates.
        dt: the nominal step in seconds.
        layout: name, kind and size of the parts of the state. Angles are plain numbers in the equations; corrected
            states are wrapped, and errors are taken along the shortest arc.
        channels: names of the measurements, for tables and plots.
        observation_origin: what measurements are relative to; by default ``H`` of the origin of the layout, if it has
            one.
        initial_std: the belief that the filter starts from without a prior, standard deviations about zero; by default
            one.
        solve: implementation of the small linear solve, as in :class:`ExtendedKalmanFilter`.

    >>> import torch, fwnkf
    >>> F, H = torch.tensor([[1.0, 0.1], [0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    >>> kf = fwnkf.KF(F=F, H=H, Q=0.01 * torch.eye(2), R=torch.eye(1), learn=("Q", "R"))
    >>> kf.run(torch.zeros(1, 5, 1)).mean.shape
    torch.Size([1, 5, 2])
    """

    Config = KalmanConfig
    implements = ("square_root",)
    arrays = ("F", "B", "H", "Q", "R")
    owns_system = True
    takes_system = False
    instead_of_system = "matrices F, H, Q, R (for a system there is 'ekf', which equals it if the system is linear)"
    system: LinearSystem

    def __init__(
        self,
        *,
        F: Tensor | None = None,
        B: Tensor | None = None,
        H: Tensor | None = None,
        Q: Tensor | None = None,
        R: Tensor | None = None,
        state_dim: int | None = None,
        observation_dim: int | None = None,
        control_dim: int | None = None,
        learn: tuple[str, ...] = (),
        continuous: bool = False,
        diagonal_noise: bool | None = None,
        dt: float = 1.0,
        layout: tuple[Any, ...] = (),
        channels: tuple[str, ...] = (),
        observation_origin: tuple[float, ...] | None = None,
        initial_std: tuple[float, ...] = (),
        solve: Literal["auto", "cholesky", "unrolled", "sequential", "square_root"] = "auto",
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: KalmanConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        # options of the system alone, so that another filter on this system can be saved and loaded
        own = LinearConfig(**{field.name: getattr(config, field.name) for field in fields(LinearConfig)})
        linear = LinearSystem(own, **arrays)
        self.system = linear
        adopt(self, linear)

    @classmethod
    def infer_options(cls, options: dict[str, Any], arrays: dict[str, Tensor], system: System | None) -> dict[str, Any]:
        origin = observation_origin(options.get("layout", ()), arrays["H"]) if "H" in arrays else ()
        return {**infer_sizes(options, arrays), "observation_origin": origin, **options}

    def prepare(self) -> Matrices:
        return Matrices(*self.system.matrices(None), self.system.H, self.system.measurement_noise())

    def predict_state(
        self,
        prepared: Matrices,
        state: Belief,
        u: Tensor | None,
        dt: Tensor | None,
        measured: tuple[Tensor, Tensor] | None = None,
    ) -> Prediction:
        F, B, Q = prepared[:3] if dt is None else self.system.matrices(dt)
        mean, carried = state
        mean = matvec(F, mean) if u is None else matvec(F, mean) + matvec(B, u)
        moved = self.form.propagate(carried, F, Q)
        return Prediction(self.form.belief(mean, moved), F, Q, self.form.predicts_precisely(carried, F, moved))

    def update_state(
        self, prepared: Matrices, ahead: Prediction, y: Tensor, weight: Tensor
    ) -> tuple[Belief, StepOutput, LinearStep]:
        innovation = (y - matvec(prepared.H, ahead.state.mean)) * weight
        return self.conditioned(ahead, y, innovation, prepared.H, prepared.R, weight)

    def linear_model(self, prepared: Any = None, dt: Tensor | None = None) -> LinearModel:
        return self.stated_model(prepared, dt)


def infer_sizes(options: dict[str, Any], arrays: dict[str, Tensor]) -> dict[str, Any]:
    """The sizes of a linear model, and whether ``R`` is diagonal, from its matrices."""
    sizes: dict[str, Any] = {}
    for name, axis, field in (
        ("F", -1, "state_dim"),
        ("Q", -1, "state_dim"),
        ("H", -1, "state_dim"),
        ("H", -2, "observation_dim"),
        ("R", -1, "observation_dim"),
        ("B", -1, "control_dim"),
    ):
        if name in arrays:
            sizes[field] = arrays[name].shape[axis]
    if "R" in arrays and "R" not in options.get("learn", ()):
        R = arrays["R"]
        sizes["diagonal_noise"] = not bool((R - R.diagonal().diag()).any())
    return sizes
