"""All thresholds of the diagnosis, with unit, meaning and source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, NamedTuple

from ..errors import ConfigError


def _threshold(value: float, unit: str, meaning: str, source: str = "this project") -> Any:
    return field(default=value, metadata={"unit": unit, "meaning": meaning, "source": source})


@dataclass(frozen=True)
class Thresholds:
    """Change one with ``replace`` or :meth:`parsed`; :meth:`table` lists them for reports.

    >>> THRESHOLDS.line_ratio
    4.0
    >>> THRESHOLDS.parsed(["line_ratio=10"]).line_ratio
    10.0
    """

    # ---- lines of spectra
    line_false_alarm: float = _threshold(0.001, "1", "probability of a line by chance anywhere in a spectrum")
    line_ratio: float = _threshold(4.0, "1", "density of a line over the floor, at least", "6 dB")
    line_lowest: float = _threshold(8.0, "Hz", "lowest frequency of a vibration; motion is below it")
    line_power_share: float = _threshold(
        1.0, "1", "power of a line over the power of the other noise of its channel that gives a warning"
    )
    line_least: float = _threshold(
        2.2, "1", "power of a fixed line or resonance over the floor in short windows, at least"
    )
    line_gain: float = _threshold(
        25.0, "nats", "log-likelihood that a line gains over the floor alone, on windows held out, at least"
    )
    resonance_width: float = _threshold(0.018, "1", "width of a resonance at half power over its frequency, at least")
    line_gyro: float = _threshold(0.02, "rad/s", "amplitude of a gyro line that gives a warning")
    shake_accel: float = _threshold(2.0, "m/s²", "RMS of shaking without a line that gives a warning")
    shake_highest: float = _threshold(200.0, "Hz", "up to which shaking without a line is counted")
    line_accel: float = _threshold(0.5, "m/s²", "amplitude of an accelerometer line that gives a warning")
    sweep_lowest: float = _threshold(
        30.0, "Hz", "lowest frequency of a line that moves by itself and gives a warning; fast motion is below it"
    )
    nyquist_share: float = _threshold(
        0.9, "1", "a line above this share of the Nyquist frequency may be folded", "anti-alias filters have a slope"
    )
    # ---- rotors
    command_correlation: float = _threshold(
        0.35, "1", "rank correlation of the frequency of a line with a motor command, from which it follows the command"
    )
    # ---- vibration level
    vibe_warning: float = _threshold(30.0, "m/s²", "VIBE that is no longer acceptable", "ArduPilot documentation")
    vibe_failure: float = _threshold(60.0, "m/s²", "VIBE at which position hold fails", "ArduPilot documentation")
    vibe_grey: float = _threshold(10.0, "m/s²", "VIBE that is no longer good", "ArduPilot configurator")
    vibe_poor: float = _threshold(20.0, "m/s²", "VIBE that is poor", "ArduPilot configurator")
    accel_grey: float = _threshold(2.45, "m/s²", "vibration metric that gives a note", "half of PX4's amber")
    accel_warning: float = _threshold(4.905, "m/s²", "vibration metric that is amber", "PX4 Flight Review")
    accel_failure: float = _threshold(9.81, "m/s²", "vibration metric that is red", "PX4 Flight Review")
    # ---- amplitude
    clip_share: float = _threshold(1e-4, "1", "share of samples at a limit that gives a warning")
    clip_share_failure: float = _threshold(1e-3, "1", "share of samples at a limit that gives a failure")
    clip_count: float = _threshold(
        100.0, "1", "count of a clipping counter that gives a warning", "ArduPilot documentation"
    )
    shock_ratio: float = _threshold(10.0, "1", "change of acceleration in a shock over the usual one, at least")
    shock_accel: float = _threshold(70.0, "m/s²", "smallest change of acceleration that is a shock")
    # ---- bias
    drift_gyro: float = _threshold(0.03, "rad/s", "change of the bias of a gyro during a log, against the attitude")
    drift_scatter: float = _threshold(3.0, "1", "that change over the scatter of neighbouring windows, at least")
    scale_error: float = _threshold(0.12, "1", "relative error of a scale, against attitude or gravity")
    delay: float = _threshold(0.1, "s", "delay of the attitude against the gyro that gives a warning")
    gnss_delay: float = _threshold(0.27, "s", "delay of a receiver against the pose that gives a warning")
    gnss_jump: float = _threshold(5.0, "m", "step of a position that its velocity does not have")
    magnetic: float = _threshold(5.0, "µT", "magnetic field of the supply current that gives a warning")
    drift_t: float = _threshold(8.0, "1", "drift of a sensor at rest over its standard error, at least")
    # ---- resolution
    resolution_share: float = _threshold(
        0.3, "1", "variance of the steps of a column over that of its white noise that gives a warning"
    )
    # ---- consistency
    nis_high: float = _threshold(2.0, "1", "mean NIS per channel above which a filter is overconfident")
    nis_low: float = _threshold(0.5, "1", "mean NIS per channel below which a filter is underconfident")
    nees_high: float = _threshold(2.0, "1", "mean NEES per component above which an estimate is overconfident")
    nees_low: float = _threshold(0.5, "1", "mean NEES per component below which an estimate is underconfident")
    ratio_share_warning: float = _threshold(
        0.05, "1", "share of time above amber that gives a warning", "PX4 ecl_ekf scripts"
    )
    whiteness_p: float = _threshold(0.001, "1", "p-value of the whiteness test below which innovations are coloured")
    whiteness_correlation: float = _threshold(
        0.2, "1", "autocorrelation of innovations that is reported, if the whiteness test fails as well"
    )
    # ---- what can be determined from a log
    slow_rate: float = _threshold(100.0, "Hz", "sampling rate below which vibration of rotors cannot be seen")
    drift_span: float = _threshold(50.0, "m", "range of an unaided position estimate that gives a failure")
    # ---- time stamps
    gap_seconds: float = _threshold(0.1, "s", "length of a gap that gives a warning")
    missing_share: float = _threshold(0.01, "1", "share of missing samples that gives a warning")
    jitter_share: float = _threshold(
        0.2, "1", "standard deviation of the sampling interval over its mean that gives a warning"
    )
    rate_error: float = _threshold(
        0.005,
        "1",
        "relative difference of two clocks, or from the stated rate, that gives a warning",
        "lines move by it",
    )

    def parsed(self, settings: Iterable[str]) -> Thresholds:
        """With settings such as ``line_ratio=10``. Raises ConfigError for an unknown name or no number."""
        changes = {}
        for setting in settings:
            name, _, value = setting.partition("=")
            name = name.strip()
            if name not in {entry.name for entry in fields(self)}:
                known = ", ".join(entry.name for entry in fields(self))
                raise ConfigError(f"no threshold named {name!r}; there are: {known}")
            try:
                changes[name] = float(value)
            except ValueError as error:
                raise ConfigError(f"threshold {name} must be a number, as in {name}=0.5, not {value!r}") from error
        return replace(self, **changes)

    def table(self) -> tuple[Row, ...]:
        """Name, value, unit, meaning and source of every threshold."""
        return tuple(_rows(self))


class Row(NamedTuple):
    """A threshold for people."""

    name: str
    value: float
    unit: str
    meaning: str
    source: str


def _rows(thresholds: Thresholds) -> Iterator[Row]:
    entry: Field[float]
    for entry in fields(thresholds):
        data = entry.metadata
        yield Row(entry.name, getattr(thresholds, entry.name), data["unit"], data["meaning"], data["source"])


THRESHOLDS = Thresholds()
"""The defaults."""
