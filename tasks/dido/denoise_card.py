"""The texts of the card of ``dido``."""

from __future__ import annotations

from tasks.results import Results

BARS = "Error bars by axis, before and after calibration on training flights left out"
"""The name of a table of the card."""
ABOUT = """\
Clean angular rate and specific force of a quadrotor (DIDO data set, indoor flights, IMU at 400 Hz) from an IMU that
rotor vibration shakes by as much as the signal: the filter of every autopilot between IMU and controller.

`fwnkf` with noise states: signal and slope of the six axes as one coupled linear system in continuous time (12 states),
12 vibration modes shared by all axes, each with a gain and a phase for every axis, and one oscillator for each axis
alone; no encoder, no network. It is a linear Kalman filter whose model was fitted by `fwnkf.identify.fit_vibration` to
the cross-spectra of four training flights: likelihood of the innovations plus weighted squared error. Its estimates are
corrected by its innovations (`correction`): a bank of damped oscillators on the innovations of all six channels, with
weights by ridge least squares (`fwnkf.identify.fit_correction`). The first six states are the clean signals:
`fwnkf.load("models/dido").run(y).mean[..., :6]`, where `y` is what the protocol gives every method, the IMU (rad/s,
m/s²) less the constant bias of the flight and less gravity along z.

The number of modes and the weight of the truth were chosen on two of the training flights, left out in turn. Number and
decay of the oscillators of the correction and its ridge, the level of all covariances and the factors of the reported
variances of each axis come from the four training flights, each left out in turn. Baselines are tuned on the same
training flights: low-passes, static notches and the Kalman filter of white noise by gradient descent, `notch_tracked`
(two notches that follow the peaks of a sliding FFT, then a low-pass) over a grid, the FIR filters by ridge least
squares with the ridge, and for six axes 100 or 200 taps, chosen on flights left out. `kf_without_noise_states` is the
same coupled system without modes and oscillators, fitted in the same way with more weight on the truth,
`kf_three_oscillators_per_axis` has noise states for each axis alone and is fitted by likelihood, without truth. The
denominator of the ratio is the best of the first six rows for each axis."""

LIMITS = """\
- About the best that a linear filter with constant gains does here: a causal FIR filter over all six axes, fitted to
  the same flights, has {fir:.4f} with {taps} taps where the filter has {ours:.4f}. What the FIR does not give is an
  uncertainty, and accuracy where samples are missing or stamps irregular (table above; methods that are no Kalman
  filter hold the last value and ignore stamps, also where they are refitted to flights with such gaps).
- Flights of a take-off that is trained on are not scored: {not_scored}.
  On all {others} other flights, that one included, the ratio is {wide:.4f} ± {wide_std:.4f} (FIR {wide_fir:.4f}).
- One drone, one IMU, indoor flights: the vibration modes are those of this airframe and its rotor speeds. Fit your own
  with `fwnkf.identify.fit_vibration`.
- The filter is linear with constant gains. Level and error bars were set on training flights left out, so they hold on
  average over flights, not for each flight. 95 % coverage by axis is {low:.1%} ({lowest}) to {high:.1%} ({highest}).
  No training flight turns about the vertical on purpose, as those with `yaw` in their names do.
- Zero delay means that the estimate of an instant uses nothing after it. It still lags behind the truth, as that of
  every causal filter that smooths (`lag_ms`), most on the force across the rotors' axis, whose vibration at 34 Hz is as
  large as the signal.
- The truth is smoothed motion capture; its own error, which is not known, is part of every figure.
- Biases are not estimated: the protocol takes them off for every method.
- The correction is not smoothed: `fwnkf.smooth` takes the filter without it (`with_parts(correction=None)`)."""


def limits(results: Results) -> str:
    """What limits the figures, with the figures."""
    wide = results.details["all_other_flights"]
    covered = {axis: row["coverage after"] for axis, row in results.details["tables"][BARS].items()}
    lowest, highest = (pick(covered, key=covered.__getitem__) for pick in (min, max))
    return LIMITS.format(
        fir=results.baselines["fir_six_axes"].metrics["ratio"],
        taps=results.details["tuned"]["fir"]["taps"],
        ours=results.mean("ratio"),
        not_scored=", ".join(results.details["not_scored"]) or "none",
        others=wide["flights"],
        wide=wide["ratio"],
        wide_std=wide["std"],
        wide_fir=wide["fir_six_axes"],
        lowest=lowest,
        low=covered[lowest],
        highest=highest,
        high=covered[highest],
    )
