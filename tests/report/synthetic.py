"""A diagnosis made up for tests of the report: every field is filled, and every name can be chosen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fwnkf.diagnosis.finding import Finding
from fwnkf.diagnosis.result import (
    AllanDeviation,
    ChannelSpectrum,
    Consistency,
    Diagnosis,
    Fix,
    Peak,
    Trade,
    Waterfall,
)
from fwnkf.logs.log import Stream
from fwnkf.logs.stamps import examine

LINE = 96.9
"""Hz, of the strongest line."""


def diagnosis(name: Callable[[str], str] = lambda text: text, *, seed: int = 0, samples: int = 1025) -> Diagnosis:
    """A flight with a vibration that follows rotor 2; ``name`` changes every text in it."""
    rng = np.random.default_rng(seed)
    axes = [name(f"gyro_{axis}") for axis in "xyz"] + [name(f"accel_{axis}") for axis in "xyz"]
    units = [name("rad/s")] * 3 + [name("m/s²")] * 3
    frequency = np.linspace(0.0, 125.0, samples)

    def spectrum(channel: int, kind: str, line: float) -> ChannelSpectrum:
        floor = 1e-5 * (1 + (6 / (frequency + 0.5)) ** 2) * (1 if channel < 3 else 30)
        shape = floor * (
            1 + line * np.exp(-((frequency - LINE) ** 2)) + 0.2 * line * np.exp(-((frequency - 48.4) ** 2))
        )
        density = shape * rng.gamma(12.0, 1 / 12.0, samples)
        white = float(np.median(density)) if kind != "signal" else None
        return ChannelSpectrum(axes[channel], units[channel], name(kind), frequency, density, floor, white)

    time = np.arange(0.0, 60.0, 0.25)
    time = time[(time < 20) | (time > 26)]
    rotor = 48 + 6 * np.sin(time / 8)
    grid = np.linspace(0.0, 125.0, 129)
    tone = np.exp(-(((grid - 2 * rotor[:, None]) / 2) ** 2)) + 0.3 * np.exp(-(((grid - rotor[:, None]) / 2) ** 2))
    density = 1e-5 * (1 + 300 * tone) * rng.gamma(2.0, 0.5, tone.shape)
    tracks = {name(f"rotor {k}, harmonic {h}"): (time, h * (rotor + k)) for k in (1, 2) for h in (1, 2)}

    def consistent(label: str, kind: str, mean: float, level: float, p: float | None) -> Consistency:
        values = mean * rng.chisquare(3, 4000) / 3
        return Consistency(
            name(label), name(kind), mean, 0.95 * level, 1.05 * level, 4000, p, 0.002, np.linspace(0, 60, 4000), values
        )

    tau = np.logspace(-2, 1, 40)
    peaks = tuple(
        Peak(axes[k], f, 0.02 * (k + 1), 2e-3, 200.0 / (k + 1), 1.8, 2, h, None, 0.91, name(f"rotor 2, harmonic {h}"))
        for k in range(6)
        for h, f in ((2, LINE), (1, 48.4))
    )
    findings = (
        Finding(
            "rotor_vibration", "failure", 0.96, name("Rotor 2 shakes the gyro at 96.9 Hz, its second harmonic."),
            name("Line 200 times above the floor (threshold: 10); correlation with rotor 2 over time 0.91."),
            name("Balance propeller 2, or model the line: `fwnkf diagnose --fix`. A notch at 96.9 Hz costs 1.3 ms."),
            (axes[0], axes[1]), {name("frequency_hz"): LINE},
        ),
        Finding("overconfident", "warning", 0.8, name("The filter states too small errors."), name("NIS 2.4."),
                name("Raise R of the gyro by a factor of 2.4.")),
        Finding("not_observable", "info", 1.0, name("Lines above 125 Hz cannot be shown."), name("250 Hz."),
                name("Set IMU_GYRO_RATEMAX to 1000 and fly again.")),
    )  # fmt: skip
    clock = np.arange(0.0, 61.7, 0.004)
    clock = clock[(clock < 20) | (clock > 26)]
    stamps = examine(Stream(name("imu"), clock, {}), dropouts=())
    delay = np.array([0.2, 0.5, 1.0, 2.0, 5.0, 10.0])
    return Diagnosis(
        name=name("flight.ulg"),
        format=name("ulog"),
        seconds=61.7,
        filter=name("constant velocity for each channel"),
        stamps=(stamps,),
        findings=findings,
        peaks=peaks,
        spectra=tuple(
            spectrum(k, kind, line) for kind, line in (("signal", 200.0), ("innovation", 80.0)) for k in range(6)
        ),
        waterfalls=(Waterfall(axes[0], units[0], time, grid, density, tracks),),
        consistency=(
            consistent("all channels", "NIS", 2.4, 1.0, 1e-9),
            *(consistent(axes[k], "NIS", 0.4 + 0.5 * k, 1.0, 0.2 * k) for k in range(6)),
            consistent("vel_pos_innov[0]", "test ratio", 0.02, 0.04, None),
        ),
        allan=tuple(
            AllanDeviation(axes[k], units[k], tau, 1e-3 * (k + 1) * (tau**-0.5 + 0.05 * tau**0.5), 1e-3, 2e-4, 1e-5)
            for k in range(6)
        ),
        trades=(
            Trade(axes[0], units[0], {
                name("low-pass"): (delay, 0.03 / np.sqrt(delay) + 0.004 * delay),
                name("Kalman filter with noise states"): (delay, 0.012 / delay**0.2),
            }, {name("notch at 96.9 Hz"): (1.3, 0.018)}),
        ),
        fix=Fix(
            rows=(
                {"method": name("before"), "log_likelihood": 1.2, "nis": 2.4, "white_p": 1e-9},
                {"method": name("noise states"), "log_likelihood": 2.6, "nis": 1.02, "white_p": 0.3},
                {"method": name("notch"), "log_likelihood": 1.9, "nis": 1.4, "white_p": 1e-4},
            ),
            spectra=tuple(spectrum(k, "innovation", 0.0) for k in range(6)),
            parameters={name("R_gyro_x"): 0.001, name("frequency_1"): LINE},
            folder=name("fixed"),
            notes=(name("Fitted to the first 60 % of the flight."),),
            kept=name("noise states"), outcome="better", gain=1.4, gain_error=0.1,
        ),
        notes=(name("The file is damaged at byte 1,000."),),
        facts={name("vehicle"): name("hexacopter"), name("sampling_rate_hz"): 250.0},
        thresholds={name("line_ratio"): name("10: density over the floor")},
        command=name("fwnkf diagnose flight.ulg --fix"),
    )  # fmt: skip
