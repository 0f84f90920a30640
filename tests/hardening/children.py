"""Processes that a harness starts, disturbs and waits for."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable

from fwnkf.errors import FwnkfError

DONE, WITH_FAULTS, NAMED, SYSTEM, BROKEN = 0, 10, 11, 12, 13
"""Exit codes: finished; finished and said what is missing; a named error; an error of the system; any other error."""


def start(function: Callable[[], bool]) -> int:
    """A forked process that calls a function, whose value says whether all is well; returns its number."""
    child = os.fork()
    if child:
        return child
    code = BROKEN
    try:
        code = DONE if function() else WITH_FAULTS
    except FwnkfError:
        code = NAMED
    except OSError:
        code = SYSTEM
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def wait(child: int) -> int:
    """The exit code; negative is the signal that ended it."""
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code != BROKEN, "an error without a name, printed above"
    return code


def stop(child: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that has not been waited for."""
    os.kill(child, number)
