"""``python -m tasks run navigation``: measure what is not there yet, and write the page."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fwnkf.cli.output import print_status
from fwnkf.errors import ConfigError

NAME = "navigation"
"""Of the study, for ``python -m tasks run``."""
ROWS, PAGE = Path("docs/results/navigation.jsonl"), Path("docs/results/navigation.md")


def run(parts: Sequence[str] = (), rows: Path = ROWS, page: Path = PAGE) -> int:
    """Measure the parts, by default all; rows that are there are kept, so that a run that is stopped goes on.

    Args:
        parts: names of :data:`tasks.ins_gnss.study.PARTS`.
        rows: the file of rows, one JSON object a line.
        page: the page to write.

    Returns:
        The exit code.
    """
    from tasks.ins_gnss import study
    from tasks.ins_gnss.page import write

    unknown = sorted(set(parts) - set(study.PARTS))
    if unknown:
        raise ConfigError(f"navigation has no part {', '.join(unknown)}; there are: {', '.join(study.PARTS)}")
    done = {(row["part"], row["case"]) for row in stored(rows)}
    for part in parts or study.PARTS:
        for case, measure in study.PARTS[part]():
            if (part, case) in done:
                continue
            began = time.process_time()
            found: dict[str, Any] = {"part": part, "case": case, **measure()}
            found["CPU s"] = round(time.process_time() - began, 1)
            with rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            print_status(f"navigation, {part}, {case}: {found['CPU s']} CPU s")
    write(stored(rows), page)
    return 0


def stored(path: Path) -> list[dict[str, Any]]:
    """The rows that are there."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
