"""Groups of runs on the processes of this machine, or as Ray tasks on many; the rows are the same bits either way."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fwnkf.scale.engine import start_ray
from tasks.paper.matrix import Group, Matrix
from tasks.paper.measure import failed, measure
from tasks.paper.store import Row

Say = Callable[[str], None]
Done = tuple[Group, list[Row]]


def run_here(matrix: Matrix, groups: Sequence[Group], runs: Path, say: Say) -> Iterator[Done]:
    """One group after the other in this process."""
    for group in groups:
        yield group, measure(matrix, group, runs, say)


def run_local(matrix: Matrix, groups: Sequence[Group], runs: Path, workers: int, say: Say) -> Iterator[Done]:
    """``workers`` groups at a time, each in a process of its own, which ends when this process does."""
    context = multiprocessing.get_context("spawn")  # torch must not be forked
    waiting = list(groups)
    busy: dict[Any, tuple[Group, Any]] = {}
    while waiting or busy:
        while waiting and len(busy) < workers:
            group = waiting.pop(0)
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(sender, matrix, group, runs), daemon=True)
            process.start()
            sender.close()  # the worker's end alone stays open, so that its death is noticed
            busy[receiver] = group, process
        ready: Any
        for ready in wait(list(busy)):
            group, process = busy[ready]
            try:
                kind, content = ready.recv()
            except EOFError:
                process.join()
                kind, content = "rows", failed(matrix, group, f"its process ended with {process.exitcode}")
            if kind == "text":
                say(content)
                continue
            del busy[ready]
            ready.close()
            process.join()
            yield group, content


def run_ray(matrix: Matrix, groups: Sequence[Group], runs: Path, address: str | None, say: Say) -> Iterator[Done]:
    """Each group as a Ray task on one core; ``address`` is that of a cluster, None starts Ray on this machine."""
    ray = start_ray(os.cpu_count() or 1, address, object_store=None)
    try:
        task = ray.remote(num_cpus=1, max_retries=0)(measure)
        # a folder with a path from the root, because a worker has a working folder of its own
        open_tasks = {task.remote(matrix, group, runs.absolute()): group for group in groups}
        while open_tasks:
            (ready,), _ = ray.wait(list(open_tasks), num_returns=1)
            group = open_tasks.pop(ready)
            try:
                yield group, ray.get(ready)
            except ray.exceptions.RayError as error:
                yield group, failed(matrix, group, f"{type(error).__name__}: {error}")
    finally:
        ray.shutdown()


def _work(sender: Connection, matrix: Matrix, group: Group, runs: Path) -> None:
    """The main function of a worker process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    rows = measure(matrix, group, runs, lambda text: sender.send(("text", text)))
    sender.send(("rows", rows))
    sender.close()


def _end_with_parent() -> None:
    """End this process when the one that started it has ended, however it ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
