"""Defaults of options from the environment, ``FWNKF_*``; what is typed on the command line wins.

The variables of the whole package are described in docs/howto/commands.md.
"""

from __future__ import annotations

import os
from pathlib import Path

from .output import UsageError

_FLAGS = {"": False, "0": False, "no": False, "false": False, "1": True, "yes": True, "true": True}


def quiet() -> bool:
    """``FWNKF_QUIET``: the default of ``--quiet``."""
    text = os.environ.get("FWNKF_QUIET", "")
    if text.lower() not in _FLAGS:
        raise UsageError(f"FWNKF_QUIET={text!r}: wanted 1 or 0")
    return _FLAGS[text.lower()]


def runs() -> Path:
    """``FWNKF_RUNS``: the folder of training runs; by default ``runs`` in the current one."""
    return Path(os.environ.get("FWNKF_RUNS") or "runs")
