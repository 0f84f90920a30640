"""Many workers, some slow and some dying, in simulated time: from task times that were measured."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

WORKERS = 1000
TASKS_PER_WORKER = 20
SLOW_SHARE, SLOW_FACTOR = 0.02, 4.0
"""Machines that are slow all the time."""
FAILURES_PER_HOUR = 0.05
"""Of a worker: spot machines that are taken away, and the like."""
RESTART = 60.0
"""Seconds until a worker that died is replaced and has loaded its filter."""
SPECULATE = 2.0
"""A task that takes so many times the median is given to a free worker too."""


def makespan(
    times: np.ndarray, workers: int, generator: np.random.Generator, *, slow: bool, fail: bool, speculate: bool
) -> tuple[float, float, int]:
    """Seconds until all tasks are done, the share of worker time that was useful, and the attempts that were lost."""
    speed = np.where(generator.random(workers) < SLOW_SHARE, SLOW_FACTOR, 1.0) if slow else np.ones(workers)
    median = float(np.median(times))
    waiting = list(range(len(times)))[::-1]
    done = np.zeros(len(times), bool)
    lost = 0
    useful = 0.0
    running: dict[int, float] = {}
    """Start of the first attempt of tasks that are running."""
    events: list[tuple[float, int, int, bool]] = []
    """When an attempt of a worker at a task ends, and whether it fails."""
    idle: list[int] = []

    def begin(worker: int, task: int, now: float) -> None:
        seconds = times[task] * speed[worker]
        died = generator.exponential(3600 / FAILURES_PER_HOUR) if fail else np.inf
        running.setdefault(task, now)
        heapq.heappush(events, (now + min(seconds, died), worker, task, died < seconds))

    for worker in range(workers):
        if waiting:
            begin(worker, waiting.pop(), 0.0)
    now = 0.0
    while not done.all():
        now, worker, task, failed = heapq.heappop(events)
        if task < 0:  # a worker that is ready again, or the time to look for stragglers
            pass
        elif failed:
            lost += 1
            if not done[task]:
                waiting.append(task)
            heapq.heappush(events, (now + RESTART, worker, -1, False))
            continue
        elif not done[task]:
            done[task] = True
            useful += times[task]
            running.pop(task, None)
        idle.append(worker)
        while idle and waiting:
            begin(idle.pop(), waiting.pop(), now)
        if speculate and idle and not waiting:
            late = sorted((start, item) for item, start in running.items() if not done[item])
            for start, item in late:
                if idle and now - start > SPECULATE * median:
                    begin(idle.pop(), item, now)
                    running[item] = now  # not again before as long
    return now, useful / (now * workers), lost


def simulate(task_seconds: Sequence[float], rows_per_task: float) -> dict[str, Any]:
    """Medians over ten draws of all tasks of a day, with and without slow and dying workers."""
    measured = np.asarray(task_seconds)
    cases = {
        "all workers alike": {"slow": False, "fail": False, "speculate": False},
        "2 % of workers slow by 4": {"slow": True, "fail": False, "speculate": False},
        "and 5 % of workers die in an hour": {"slow": True, "fail": True, "speculate": False},
        "and late tasks are started twice": {"slow": True, "fail": True, "speculate": True},
    }
    rows = {}
    for name, options in cases.items():
        results = []
        for seed in range(10):
            generator = np.random.default_rng(seed)
            times = generator.choice(measured, WORKERS * TASKS_PER_WORKER)
            results.append(makespan(times, WORKERS, generator, **options))
        seconds, share, lost = (np.median([item[k] for item in results]) for k in range(3))
        spread = [min(item[0] for item in results), max(item[0] for item in results)]
        rows[name] = {"seconds": float(seconds), "range": spread, "useful": float(share), "lost": float(lost)}
        print(name, rows[name])
    return {
        "workers": WORKERS, "tasks": WORKERS * TASKS_PER_WORKER, "rows_per_task": rows_per_task,
        "task_median": float(np.median(measured)), "task_most": float(measured.max()), "cases": rows,
    }  # fmt: skip
