"""The texts of the card of ``racer``."""

from __future__ import annotations

import statistics

from tasks.racer.page import flights as by_flight
from tasks.results import Results

COLLIDED = "LOG00036"
"""The test flight with a collision."""
ABOUT = """
The angular rate of a racing quadrotor while its gyro is missing: a dropout, a saturated sensor, a delay to be
bridged. Twenty flights of one craft (Betaflight blackbox, 42 minutes), split by flight. The motor commands go on
during the gap, the gyro does not; the truth is the gyro that was withheld.

`fwnkf` with motor commands as control: nine states, the first three the rate, on a linear model that subspace
identification finds (`fwnkf.identify.subspace`, least squares); a GRU of 64 units conditions a residual of the
transition. The process noise is constant: one that follows the GRU (`with_q_t` in the
[results](../../docs/results/racer.md)) was no better on the validation flight. A step is four frames (4.1 ms): the
preprocessing takes the last gyro of each four and all motor commands. Trained first on the means with a constant gain,
then by the likelihood of every measurement inside and outside of gaps, the networks with a small learning rate; one
filter for every length of gap.
An innovation beyond six standard deviations is a collision (`jump`): the rate follows it, the other states do not.
The control is the four commands less 0.4 and a flag that is 1, or 0 where commands are not known and the last ones are
repeated (`tasks.racer.protocol.control`), as in the predictions `ahead`. `fwnkf.load("models/racer").run(y, u)` takes
gyro and control at the rate of the log; the first three states are the rate, and `innovation_cov` is the covariance of
the next gyro reading.

`hold` is the last rate, `extrapolate` its slope of 5 ms continued, `ridge` and `network` (two layers of 128 on what
the ridge leaves; mean of as many seeds as the filter has) are regressions of the protocol with a fit for each length,
`linear_kf` the Kalman filter of the linear model with the same control, `ekf_rigid_body` an EKF with rigid-body and
motor-lag equations and fitted constants. `step` is the one-step prediction, 4.1 ms.
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


def limits(results: Results) -> str:
    """The limits, with what the filter misses in figures."""
    network, ridge = (results.baselines[name].metrics for name in ("network", "ridge"))
    gaps = ", ".join(
        f"{results.mean(f'gap_{time}'):.3f} against {network[f'gap_{time}']:.3f} and {ridge[f'gap_{time}']:.3f}"
        for time in (20, 50, 100)
    )
    ahead = results.mean("ahead_20") / ridge["ahead_20"]
    beside = results.baselines["network"].by_recording
    flights = {name: value / beside[name] for name, value in results.by_recording().items()}
    worst = max(flights, key=lambda name: flights[name])
    one_step = by_flight(results.details["by_flight"]["ours"], "nees_step")
    collided = one_step.pop(COLLIDED)
    quiet = statistics.fmean(one_step.values())
    minutes = results.details["cpu_seconds"] / 60
    others = [value for name, value in flights.items() if name != worst]
    return f"""
- Network and ridge have a fit of their own for each length and no error bars. RMSE after 20, 50, 100 ms against
  network and ridge: {gaps} rad/s.
  On {worst} its error at 50 ms is {flights[worst]:.2f} times that of the network, on the other test flights
  {min(others):.2f} to {max(others):.2f} times.
- 20 ms ahead without knowledge of later commands its error is {ahead:.2f} times that of the ridge.
- Coverage is near 95 % at every length, the mean NEES above one, most of all after few steps: errors have heavier tails
  than a normal distribution. The collision in LOG00036 does most: the NEES of one step is {collided:.1f} in
  that flight and {quiet:.1f} in the mean of the others, because a constant process noise does not grow in a collision.
- The process noise does not know how violent the flight is. In manoeuvres beyond 6.7 rad/s (`saturated` in the results)
  the band of 95 % holds about 40 % of the errors; the variant `with_q_t` has wider ones there.
- The collision also costs what is short: with `jump` the filter takes up less of a sudden acceleration, and 20 ms after
  the beginning of a collision it is further off than without.
- Training was kept short: `python -m tasks train racer` took {minutes:.1f} CPU minutes from logs to the shipped filter,
  with {len(results.seeds)} seeds and all baselines. The loss still fell at its end; more steps and a larger GRU
  (`tasks.racer.training.Plan`, `tasks.racer.filter.Options`) are the first thing to try.
{LIMITS.strip()}
"""
