"""Constructor calls for type checkers: every line marked ``# wrong`` must be flagged, and no other.

Nothing here is executed.
"""

from __future__ import annotations

import polars
import xarray
from torch import Tensor

import fwnkf


def correct(system: fwnkf.System, eye: Tensor) -> list[fwnkf.Filter]:
    kf: fwnkf.KF = fwnkf.KF(F=eye, H=eye, Q=eye, R=eye, learn=("Q", "R"), solve="cholesky")
    fw: fwnkf.FWNKF = fwnkf.FWNKF(system, noise=fwnkf.Lines(hz=23.0), level=fwnkf.Level(seconds=1.0))
    return [
        kf,
        fw,
        fwnkf.EKF(system),
        fwnkf.EKF(system, moments="second_order"),
        fwnkf.UKF(system, alpha=0.5, solve="unrolled"),
        fwnkf.ARKF(F=eye, H=eye, order=2),
        fwnkf.AdaptiveKF(F=eye, H=eye, S=eye, R=eye, half_life=20.0),
        fwnkf.KalmanNet(system, in_mult=2),
        fwnkf.RecursiveKalmanNet(system, previous_gain=False),
        fwnkf.BayesianKalmanNet(system, dropout="fixed"),
        fwnkf.RKN(3, 2, hidden=(64, 64)),
        fwnkf.FWNKF(system),
        fwnkf.FWNKF(system, noise=[fwnkf.Lines(2), fwnkf.Modes(3), fwnkf.Drift(seconds=60.0)]),
        fwnkf.FWNKF(system, noise={"gyro": fwnkf.Orders(rotors=4, orders=2)}, solve="sequential"),
        fwnkf.FWNKF(system, encoder=fwnkf.GRU(64, reads="current"), residual=fwnkf.MLP(32, order=2)),
        fwnkf.FWNKF(system, transition=fwnkf.LocallyLinear(rank=3), phi=fwnkf.Phi(covariance="augmented")),
        fwnkf.FWNKF(system, noise=fwnkf.Lines(), hypotheses=fwnkf.Hypotheses(4, fallback=True)),
        fwnkf.FWNKF.paper(system, units=64, rank=3),
        fwnkf.FWNKF.paper(system, variant="public_code", units=64),
        fw.with_parts(level=None),
        fwnkf.build("kf", F=eye, H=eye),
    ]


def results(kf: fwnkf.KF, y: Tensor, prior: fwnkf.Gaussian) -> Tensor:
    track: fwnkf.Trajectory = kf.run(y, prior=prior, prior_at="before_first_step")
    state = kf.init(1, prior)
    state, out = kf.update(state, y[:, 0])
    state, out = kf.step(state, y[:, 1])
    state, out = kf.update(kf.predict(state), y[:, 2], sensor="y")
    return track.log_likelihood + out.mean.sum()


def frames(kf: fwnkf.KF, table: polars.DataFrame, data: xarray.Dataset) -> tuple[polars.DataFrame, xarray.Dataset]:
    fitted: fwnkf.Filter = fwnkf.fit(kf, [table, table], columns={"y": "height"}).filter
    track: fwnkf.Trajectory = fitted.run(*kf.samples(table))
    assert track.engine
    return kf.run(table, columns={"y": "height"}), fwnkf.smooth(kf, data, lag=3)


def wrong(system: fwnkf.System, eye: Tensor, kf: fwnkf.KF) -> None:
    fwnkf.EKF()  # wrong: no system
    kf.run([1.0, 2.0])  # wrong: neither a tensor nor a frame
    fwnkf.EKF(eye)  # wrong: a matrix is no system
    fwnkf.EKF(system, "second_order")  # wrong: options have names
    fwnkf.EKF(system, moments="quadratic")  # wrong: no such choice
    fwnkf.EKF(system, moment="linear")  # wrong: misspelt
    fwnkf.KF(F=eye, H=eye, solve="qr")  # wrong: no such choice
    fwnkf.KF(F=[[1.0]], H=eye)  # wrong: a list is no tensor
    fwnkf.KF(system)  # wrong: the Kalman filter takes matrices
    fwnkf.UKF(system, solve="sequential")  # wrong: not with sigma points
    fwnkf.KalmanNet(system, in_mult="wide")  # wrong: a number
    fwnkf.RKN(3)  # wrong: two sizes
    fwnkf.RKN(3, 2, hidden=64)  # wrong: a tuple
    fwnkf.FWNKF()  # wrong: no system
    fwnkf.FWNKF.paper(system, variant="code")  # wrong: no such choice
    fwnkf.FWNKF(system, noise="lines")  # wrong: a part
    fwnkf.FWNKF(system, noise=fwnkf.Level())  # wrong: a level is no noise
    fwnkf.FWNKF(system, level=5.0)  # wrong: a part
    fwnkf.FWNKF(system, encoder=fwnkf.GRU("64"))  # wrong: a number
    fwnkf.FWNKF(system, encodr=fwnkf.GRU(64))  # wrong: misspelt
    fwnkf.FWNKF(system, residual=fwnkf.MLP(order=3))  # wrong: 1 or 2
    fwnkf.FWNKF(system, hypotheses=3)  # wrong: a part
    fwnkf.Level(of="everything")  # wrong: no such choice
    fwnkf.AdaptiveKF(F=eye, half_life="20 s")  # wrong: a number
    fwnkf.BayesianKalmanNet(system, dropout="none")  # wrong: no such choice
    kf.run(eye, prior_at="first")  # wrong: no such choice
    kf.run(eye, prior=eye)  # wrong: a mean is no belief
