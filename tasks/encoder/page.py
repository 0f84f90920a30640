"""``docs/results/encoder.md``, written from the store of the study."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

import numpy as np

from fwnkf.evaluation.bootstrap import Interval, paired_ratio
from tasks.cards import table_row
from tasks.encoder.cases import PIECE
from tasks.encoder.study import FITTED, HIDDEN, Row
from tasks.results import plus_minus

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
- Intervals: 95 % bootstrap over test recordings, of means over seeds; with so few recordings they are rough. ± is the
  spread over seeds.
"""


def page(rows: Mapping[str, Row]) -> str:
    """All cases measured so far."""
    columns = ("set", "test recordings", "seeds", "training steps", "gain", "NIS without", "NIS with",
               "error without", "error with", "error ratio", "CPU s")  # fmt: skip
    lines = [TEXT, table_row(columns), table_row(["---"] * len(columns))]
    for case in dict.fromkeys(row["case"] for row in rows.values()):
        mine = [row for row in rows.values() if row["case"] == case]
        gain = _mean([row["gain"] for row in mine])
        without, with_encoder = mine[0]["error"], _mean([row["error_with_encoder"] for row in mine])
        lines.append(
            table_row(
                (
                    f"{case} ({mine[0]['unit']})",
                    len(gain),
                    len(mine),
                    mine[0]["steps"],
                    f"{_interval(gain)}, ± {np.std([fmean(row['gain'].values()) for row in mine]):.2g}",
                    f"{mine[0]['nis'][0]:.3g}",
                    _spread([row["nis"][1] for row in mine]),
                    f"{fmean(without.values()):.4g}",
                    _spread([fmean(row["error_with_encoder"].values()) for row in mine]),
                    paired_ratio(with_encoder, without),
                    f"{fmean(row['cpu_seconds'] for row in mine):.0f}",
                )
            )
        )
    return "\n".join(lines) + "\n"


def _mean(items: list[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(item[name] for item in items) for name in items[0]}


def _spread(values: list[float]) -> str:
    return plus_minus(fmean(values), float(np.std(values)))


def _interval(values: Mapping[str, float]) -> Interval:
    """The mean over recordings with its interval: a ratio to one."""
    return paired_ratio(values, dict.fromkeys(values, 1.0))
