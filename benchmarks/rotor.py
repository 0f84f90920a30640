"""Lines that follow rotors: what speeds are worth, given, tracked or wrong, in simulation and on flight logs.

    python benchmarks/rotor.py sweep --store results
    python benchmarks/rotor.py logs --store results [--log 0 1 2 3]
    python benchmarks/rotor.py page --store results -o docs/results/rotor.md
    python benchmarks/rotor.py draw --store results -o docs/images/rotor.png

Logs are those below ``$FWNKF_DATA/logs``. Figures and spectra only: no part of a log.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from rotor_logs import LOGS, one_log
from rotor_page import draw, page
from rotor_sweep import sweep


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("sweep", "logs", "page", "draw"))
    parser.add_argument("--store", type=Path, required=True, help="folder with the results so far")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("FWNKF_DATA", ".data")))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--log", type=int, nargs="+", default=list(range(len(LOGS))), help="numbers of the logs")
    parser.add_argument("-o", "--output", type=Path, help="file of the page; by default it is printed")
    options = parser.parse_args()
    options.store.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    if options.part == "sweep":
        stored = {"seeds": options.seeds, "errors": sweep(options.seeds)}
        (options.store / "sweep.json").write_text(json.dumps(stored))
    elif options.part == "logs":
        for number in options.log:
            result = one_log(options.data / "logs", LOGS[number])
            (options.store / f"rotor_{number}.json").write_text(json.dumps(result))
    elif options.part == "draw":
        draw(options.store, options.output)
    elif options.output is None:
        print(page(options.store))
    else:
        options.output.write_text(page(options.store))
    print(f"{options.part}: {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
