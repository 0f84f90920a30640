"""Methods of an object that is not thread-safe: use by two threads at once is an error, not a wrong result."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ..errors import ConcurrencyError

Method = TypeVar("Method", bound=Callable[..., Any])


class OneThread:
    """A lock of which a copy is another, open one: a copy of a stream is another stream."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[OneThread], tuple[()]]:
        return OneThread, ()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ConcurrencyError(
                "a second thread called this object while a call was under way, and it is not thread-safe: put a lock "
                "around its calls, or use one object for each thread"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def one_thread(method: Method) -> Method:
    """A method that raises ConcurrencyError while another such method of the object is under way."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._busy:
            return method(self, *args, **kwargs)

    return cast(Method, guarded)
