"""Model cards of the DIDO filters, written from their figures."""

from __future__ import annotations

from typing import Any

DENOISE_LIMITS = """\
- One drone, one IMU, indoor flights: the vibration modes are those of this airframe and its rotor speeds.
- The filter is linear and settled. NIS differs from flight to flight (see `nis_by_flight`): its level was set on
  training flights left out in turn, so it holds on average, not for each flight.
- Zero delay means that the estimate of an instant uses nothing after it. It still comes after the truth, as that of
  every causal filter that smooths: by the figures above, most on the force across the rotors' axis, whose vibration at
  34 Hz is as large as the signal. `measure` gives the lag of every rung beside it.
- The truth is smoothed motion capture; its own error, which is not known, is part of every figure.
- Biases are not estimated: the protocol takes them off for every method."""
ATTITUDE_LIMITS = """\
- It needs the drag of the airframe and still air: wind moves the estimate of the vertical.
- In the first seconds of the flight looked at, integrating the gyroscope was better: drag needs time to tell a tilt.
- Vertical velocity is not observed. Heading is arbitrary: there is no magnetometer.
- Motion capture and accelerometer disagree about the vertical by a constant of each flight (up to 0.9 degrees in one
  test flight), which no method here can tell from the truth's own frame: most of what is left is that."""


def denoise_card(figures: dict[str, Any]) -> str:
    """``README.md`` of ``models/dido``."""
    mean, std, rungs = figures["mean"], figures["std"], figures["references"]
    axes = list(next(iter(rungs.values())))
    lines = [f"| {name} | " + " | ".join(f"{one[axis]:.4g}" for axis in axes) + " |" for name, one in rungs.items()]
    own = " | ".join(f"{mean[f'rmse_{axis}']:.4g} ± {std[f'rmse_{axis}']:.1g}" for axis in axes)
    return f"""# dido: clean force and rate from a vibrating IMU

`fwnkf` with `shaping="noise"`, {len(figures["seeds"])} seeds, seed {figures["seeds"][0]["seed"]} shipped.
{figures["options"]["modes"]} vibration modes shared by all axes, one cycle for each axis, coupled signals; no encoder.

Data: DIDO quadrotor flights. Protocol: {figures["protocol"]}.

| RMSE | {" | ".join(axes)} |
|---|{"---|" * len(axes)}
{chr(10).join(lines)}
| **fwnkf** | {own} |

Error over the best rung of each axis, mean over axes: {mean["ratio"]:.3f} ± {std["ratio"]:.3f} (wanted: at most 0.85).
NIS per channel: {mean["nis"]:.3f} ± {std["nis"]:.3f} (wanted: 0.9 to 1.1). Lag: {mean["lag_ms"]:.2f} ms;
group delay at 0.5 Hz: {mean["group_delay_ms"]:.2f} ms. Training and tuning: {figures["cpu_seconds"]:.0f} CPU-seconds.

Choices (number of modes, weight of the truth) were made on two of the training flights, left out in turn. The level of
the covariances, {figures["inflate"]:.3f}, is the mean NIS of a training flight left out, over all four. The rungs are
tuned on the training flights. Figures of all seeds are those of the settled gains; `measure` runs the shipped filter.

## Limits

{DENOISE_LIMITS}

## Again

`fwnkf bench accuracy --task dido`
"""


def attitude_card(figures: dict[str, Any]) -> str:
    """``README.md`` of ``models/dido-attitude``."""
    mean, std = figures["mean"], figures["std"]
    lines = [f"| {name} | {one['inclination_deg']:.3f} |" for name, one in figures["references"].items()]
    lines.append(f"| fwnkf, calibrated, untrained | {figures['untrained']['inclination_deg']:.3f} |")
    return f"""# dido-attitude: the vertical of a drone from gyroscope and accelerometer

`fwnkf` with `shaping="noise"` on the `multirotor` system (rotor drag), {len(figures["seeds"])} seeds, seed
{figures["seeds"][0]["seed"]} shipped; no encoder.

Data: DIDO quadrotor flights. Protocol: {figures["protocol"]}.

| method | inclination RMSE, degrees |
|---|---|
{chr(10).join(lines)}
| **fwnkf** | {mean["inclination_deg"]:.3f} ± {std["inclination_deg"]:.3f} |

Over the best rung: {mean["ratio"]:.3f} ± {std["ratio"]:.3f} (wanted: at most 0.80); `strapdown_given_start` is
given the true attitude at the start, which no other method is. NIS per channel: {mean["nis"]:.3f} ± {std["nis"]:.3f},
untrained {figures["untrained"]["nis"]:.3f}: the mechanics give the accuracy, the learned spectrum the error bars.
Training and tuning: {figures["cpu_seconds"]:.0f} CPU-seconds.

## Limits

{ATTITUDE_LIMITS}

## Again

`fwnkf bench accuracy --task dido`
"""
