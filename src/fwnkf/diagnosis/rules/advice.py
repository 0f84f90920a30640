"""What to set, in the words of the vehicle whose log it is."""

from __future__ import annotations


def notch(kind: str, frequency: float, width: float, follows: bool, harmonic: int = 1) -> str:
    """The settings of a notch: by name for PX4, ArduPilot and Betaflight, else as figures.

    >>> notch("ULog", 85.3, 15.0, follows=False)
    'Set IMU_GYRO_NF0_FRQ = 85 and IMU_GYRO_NF0_BW = 15'
    """
    if kind == "ULog":
        if follows:
            return (
                f"Set IMU_GYRO_DNF_EN = 1 (ESC telemetry; 2 without it), IMU_GYRO_DNF_BW = {width:.0f} and "
                f"IMU_GYRO_DNF_HMC = {max(harmonic, 1)}"
            )
        return f"Set IMU_GYRO_NF0_FRQ = {frequency:.0f} and IMU_GYRO_NF0_BW = {width:.0f}"
    if kind == "DataFlash":
        mode = "INS_HNTCH_MODE = 3 (ESC telemetry; 1 for throttle)" if follows else "INS_HNTCH_MODE = 0"
        return f"Set INS_HNTCH_ENABLE = 1, {mode}, INS_HNTCH_FREQ = {frequency:.0f} and INS_HNTCH_BW = {width:.0f}"
    if kind == "Betaflight blackbox":
        if follows:
            return (
                "Set dshot_bidir = ON and rpm_filter_harmonics = 3 (without bidirectional DShot: dyn_notch_count = 3)"
            )
        return f"Set gyro_notch1_hz = {frequency:.0f} and gyro_notch1_cutoff = {frequency - width / 2:.0f}"
    moving = "that follows the rotor speed, " if follows else ""
    return f"A notch filter {moving}at {frequency:.4g} Hz with a bandwidth of {width:.3g} Hz removes it"
