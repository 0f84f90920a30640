"""The parts of a likelihood as Ray tasks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..identify.likelihood import Likelihood, Measurements
from ..identify.parts import of_part
from .engine import start_ray


class RayParts:
    """Evaluates parts on Ray: samples go to its object store once, parameters with every call.

    Args:
        workers: cores of this machine that Ray uses.
        address: of a cluster instead.
    """

    def __init__(self, workers: int, address: str | None = None) -> None:
        self._ray = start_ray(workers, address, object_store=None)
        self._task = self._ray.remote(num_cpus=1, max_retries=-1)(_evaluate)
        self._stored: dict[int, tuple[Measurements, Any]] = {}

    def __call__(
        self,
        function: Callable[..., Any],
        likelihood: Likelihood,
        parts: Sequence[Measurements],
        raw: Tensor,
        arguments: tuple[Any, ...],
    ) -> list[Any]:
        """The results of all parts, in their order."""
        for data in parts:
            if id(data) not in self._stored:
                self._stored[id(data)] = data, self._ray.put(data)  # held, so that no other object gets its id
        shell = copy.copy(likelihood)
        del shell.data
        reference = self._ray.put(shell)
        tasks = [self._task.remote(function, reference, self._stored[id(data)][1], raw, arguments) for data in parts]
        results: list[Any] = self._ray.get(tasks)
        return results

    def close(self) -> None:
        """End Ray's processes on this machine, or leave the cluster."""
        self._ray.shutdown()


def _evaluate(
    function: Callable[..., Any], likelihood: Likelihood, data: Measurements, raw: Tensor, arguments: tuple[Any, ...]
) -> Any:
    torch.set_num_threads(1)
    return function(of_part(likelihood, data), raw, *arguments)
