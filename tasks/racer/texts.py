"""The texts of the card of ``racer``."""

ABOUT = """
The angular rate of a racing quadrotor while its gyro is missing: a dropout, a saturated sensor, a delay to be
bridged. Twenty flights of one craft (Betaflight blackbox, 42 minutes), split by flight. The motor commands go on
during the gap, the gyro does not; the truth is the gyro that was withheld.

`fwnkf` with motor commands as control: nine states, the first three the rate, on a linear model that subspace
identification finds (`fwnkf.identify.subspace`, least squares); a GRU of 32 units conditions a residual of the
transition and the process noise `Q_t`. A step is four frames (4.1 ms): the preprocessing takes the last gyro of each
four and all motor commands. Trained first on the means with a constant gain, then by the likelihood of every
measurement inside and outside of gaps; one filter for every length of gap. The control is the four commands less 0.4
and a flag that is 1, or 0 where commands are not known and the last ones are repeated
(`tasks.racer.protocol.control`), as in the predictions `ahead`. `fwnkf.load("models/racer").run(y, u)` takes gyro and
control at the rate of the log; the first three states are the rate, and `innovation_cov` is the covariance of the
next gyro reading.

`hold` is the last rate, `extrapolate` its slope of 5 ms continued, `ridge` and `network` (two layers of 128 on what
the ridge leaves) are regressions of the protocol with a fit for each length, `linear_kf` the Kalman filter of the
linear model with the same control, `ekf_rigid_body` an EKF with rigid-body and motor-lag equations and fitted
constants. `step` is the one-step prediction, 4.1 ms.
"""

LIMITS = """
- The commands in the logs were computed by a controller that read the gyro all the time, so they carry some of what
  is withheld; in a real dropout the commands are those of a controller without gyro. The figures compare methods on
  the same inputs; they are not those of a flight without gyro.
- The truth is the gyro after the filters of the craft, which delay it by 2 to 3 ms; there is no other truth in the
  logs.
- A few collisions, in which the rate changes by 30 rad/s within a frame, are part of the test flights. No method
  predicts them, and they raise the RMSE of all and the mean NEES.
- One craft, one pilot: another craft needs its own training, which takes minutes.
"""
