"""``docs/results/encoder.md``, written from the store of the study."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

import numpy as np

from tasks.bootstrap import Interval, paired_ratio
from tasks.cards import table_row
from tasks.encoder.cases import PIECE
from tasks.encoder.study import FITTED, HIDDEN, Row
from tasks.results import mean_by_name, over_seeds

TEXT = f"""# An encoder of the noise on real recordings

Written by `python -m tasks encoder [SET …]` from `docs/results/encoder.json`.

Is noise that a network adapts from step to step better than constant noise? The same filter twice: `Q` and `R`
constant, of the largest likelihood on {FITTED} pieces of the training recordings (`fwnkf.fit`); and on top of it a
GRU of {HIDDEN} units that scales `Q_t` and `R_t`, trained by the same likelihood of the innovations on all pieces
(`fit_encoder`). Pieces are of {PIECE} steps (BROAD, UIP-DB), or the first half of windows of 5 s (EuRoC). No truth is
used. Test recordings are other trials (BROAD), other flights (EuRoC) and other subjects (UIP-DB), read by both
filters alike.

- **gain**: log-likelihood per measured value that the encoder adds, mean over test recordings; above zero is better.
- **error ratio**: error against the truth with the encoder over that without; below one is better.
- A gain of exactly zero: no step of the training was better than the first on the validation records, so that the
  encoder that is kept does nothing.
- EuRoC (one seed) and UIP-DB (three) gained exactly zero at a rate of 0.03; the rate in the table was taken after that.
  EuRoC's filter measures two values in every tenth step, so that there is little to learn from.
- BROAD: the position of the hand is no measurement but an assumption, zero plus a displacement. An encoder gains
  likelihood by trusting it more, and the estimate is worse for it; the NIS says so too. Likelihood is no proxy of error
  there.
- The budget is small: the steps in the table, minutes of one core. A longer training may gain more.
- Intervals: 95 % bootstrap over test recordings, of means over seeds; with so few recordings they are rough. ± is the
  spread over seeds.
"""


NAMES = {"broad": "BROAD", "euroc-strict": "EuRoC", "uipdb": "UIP-DB"}


def verdicts(rows: Mapping[str, Row]) -> list[str]:
    """A line for each case: what the encoder does to likelihood and error on test recordings."""
    lines = []
    for case, mine in by_case(rows).items():
        gain, ratio = gain_of(mine), ratio_of(mine)
        error = "smaller" if ratio.high < 1 else "larger" if ratio.low > 1 else "no different within the interval"
        seeds = f"{len(mine)} seeds" if len(mine) > 1 else "one seed"
        lines.append(
            f"- {NAMES.get(case, case)}: log-likelihood per value {gain.value:+.3g} [{gain.low:.3g}, {gain.high:.3g}], "
            f"error {ratio} times that without it, {error} ({seeds})."
        )
    return lines


def by_case(rows: Mapping[str, Row]) -> dict[str, list[Row]]:
    """The rows of each case."""
    cases = dict.fromkeys(row["case"] for row in rows.values())
    return {case: [row for row in rows.values() if row["case"] == case] for case in cases}


def gain_of(mine: list[Row]) -> Interval:
    """Log-likelihood that the encoder adds, with its interval over recordings: a ratio to one."""
    gain = mean_by_name([row["gain"] for row in mine])
    return paired_ratio(gain, dict.fromkeys(gain, 1.0))


def ratio_of(mine: list[Row]) -> Interval:
    """Error with the encoder over that without."""
    return paired_ratio(mean_by_name([row["error_with_encoder"] for row in mine]), mine[0]["error"])


def page(rows: Mapping[str, Row]) -> str:
    """All cases measured so far."""
    columns = ("set", "test recordings", "seeds", "training steps, rate", "gain", "NIS without", "NIS with",
               "error without", "error with", "error ratio", "CPU s")  # fmt: skip
    lines = [TEXT, *verdicts(rows), "", table_row(columns), table_row(["---"] * len(columns))]
    for case, mine in by_case(rows).items():
        spread = np.std([fmean(row["gain"].values()) for row in mine])
        lines.append(
            table_row(
                (
                    f"{case} ({mine[0]['unit']})",
                    len(mine[0]["gain"]),
                    len(mine),
                    f"{mine[0]['steps']} at {mine[0]['rate']:g}",
                    f"{gain_of(mine)}, ± {spread:.2g}",
                    f"{mine[0]['nis'][0]:.3g}",
                    over_seeds([row["nis"][1] for row in mine]),
                    f"{fmean(mine[0]['error'].values()):.4g}",
                    over_seeds([fmean(row["error_with_encoder"].values()) for row in mine]),
                    ratio_of(mine),
                    f"{fmean(row['cpu_seconds'] for row in mine):.0f}",
                )
            )
        )
    return "\n".join(lines) + "\n"
