"""A baseline where the equations are not given: motion and observation by least squares on the training records."""

from __future__ import annotations

from fwnkf.core.composed import ComposedSystem
from fwnkf.data.protocols import Records
from fwnkf.identify import fit_observation, fit_regression


def fit_polynomial(records: Records, degree: int = 2) -> ComposedSystem:
    """The system with the least squared error of one step, in float64, with the covariance of its residuals as ``Q``.

    The next state is regressed on all products of at most ``degree`` features of the state, the measurement on the
    features themselves.
    """
    fitted = fit_regression(
        records.truth, records.u, records.dt, layout=records.layout, degree=degree, held_out=0, noise="residuals"
    )
    sensor = fit_observation(records.truth, records.y, records.mask, layout=records.layout)
    return ComposedSystem(fitted.motion, {"measured": sensor}).double()
