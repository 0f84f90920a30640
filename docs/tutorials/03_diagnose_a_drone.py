"""
Diagnosing a vibrating drone from its log
=========================================

Vibration degrades an estimate. ``fwnkf diagnose`` finds its source, its effect and what to do from
the log, without ground truth. This tutorial does the same in Python, on a simulated flight with a
known fault.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from fwnkf.data.flight_table import write_flight_csv
from fwnkf.data.flights import flight
from fwnkf.diagnosis import diagnose
from fwnkf.logs import open_log
from fwnkf.report.diagnosis_page import diagnosis_page

folder = Path(tempfile.mkdtemp())
simulated = flight("rotor_vibration", seed=2, seconds=8.0)
path = write_flight_csv(simulated, folder / "flight.csv")
print(simulated.causes[0])

# %%
# A log of any format is opened in the same way: PX4, ArduPilot, Betaflight, ROS, MCAP, CSV, Parquet.

log = open_log(path)
for source in log.sources():
    print(f"{source.name}: {', '.join(source.columns)}")

# %%
# The findings
# ------------
# A filter without a model of vibration runs on the IMU data. What it cannot predict remains in its
# innovations.

result = diagnose(log)
for finding in result.findings:
    print(f"{finding.severity} ({finding.cause}, {finding.confidence} confidence)")
    print(f"  what: {finding.what}")
    print(f"  evidence: {finding.evidence}")
    print(f"  to do: {finding.action}")

# %%
# The spectrum behind it
# ----------------------
# A line of the innovations is noise that the filter cannot predict. A filter with the right model
# would be flat at the dashed line at all frequencies.

channel = result.peaks[0].channel
figure, axis = plt.subplots()
for spectrum in result.spectra:
    if spectrum.channel == channel:
        axis.loglog(spectrum.frequency[1:], spectrum.density[1:], label=spectrum.kind)
        if spectrum.white is not None:
            label = "innovations of a consistent filter"
            axis.axhline(spectrum.white, color="#8c8c8c", linestyle="--", label=label)
axis.set(xlabel="frequency (Hz)", ylabel=f"density of {channel} ({spectrum.unit})²/Hz")
axis.legend()

# %%
# The report is one HTML file with all figures, for example to send to a colleague.

page = diagnosis_page(result)
(folder / "report.html").write_text(page, encoding="utf-8")
print(f"{len(page) / 1000:.0f} kB")

# %%
# From the shell: ``fwnkf diagnose flight.csv -o report.html``, and ``--fix --save my-filter`` for a
# filter with noise states.
