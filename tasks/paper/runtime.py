"""Parameters and time of a step of the paper's seven filters, each beside a bare GRU cell of the same width.

    python -m tasks paper --runtime

As in the paper: Lorenz, three states and two measurements, batch 1, records of 100 steps, no gradients. The paper
measured on a graphics card; here it is one thread of a processor, where other work makes everything slower. So all
filters and the bare cells are measured in turn in one process, a time is the median over rounds, and the figure to
compare is the ratio to bare ``nn.GRUCell`` of the same width and number of layers in the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

import fwnkf
from fwnkf.evaluation.timing import interleave
from fwnkf.native.compilers import compiler_available
from fwnkf.systems import LearnedSystem, Lorenz, LorenzConfig

STATES, CHANNELS, STEPS = 3, 2, 100
DEFAULT_WIDTH = 64
"""Width of the bare cell beside a filter that has no recurrent network."""
ROUNDS = 21


class Runtime(NamedTuple):
    """One row: what a filter takes here. Times are milliseconds of one step."""

    filter: str
    parameters: int
    ms: float
    compiled_ms: float | None
    gru_ms: float
    ratio: float
    compiled_ratio: float | None
    width: int
    layers: int


def build_filters() -> dict[str, fwnkf.Filter]:
    """The seven filters with their default sizes, the FW-NKF with the paper's (GRU of 2 x 256, Φ of third order).

    The filters that the paper trains as matrices have their matrices learned; the KalmanNet family is on the equations,
    so that the parameters are those of the filter alone.
    """
    eye = torch.eye(STATES)
    matrices = {"H": torch.eye(CHANNELS, STATES), "Q": eye, "R": torch.eye(CHANNELS)}
    learn = ("F", "H", "Q", "R")
    system = Lorenz(LorenzConfig())
    on_equations = ("bayesian_kalmannet", "recursive_kalmannet", "kalmannet")
    return {
        "fwnkf": fwnkf.FWNKF(
            LearnedSystem.of(matrices["H"], matrices["Q"], matrices["R"]),
            encoder=fwnkf.GRU(256, layers=2),
            transition=fwnkf.LocallyLinear(STATES),
            phi=fwnkf.Phi(),
        ),
        **{name: fwnkf.build(name, system=system) for name in on_equations},
        "rkn": fwnkf.build("rkn", state_dim=STATES, observation_dim=CHANNELS),
        "kf": fwnkf.build("kf", F=eye, **matrices, learn=learn),
        "arkf": fwnkf.build("arkf", **matrices, state_dim=STATES, order=3, learn=learn),
    }


def recurrent_size(model: fwnkf.Filter) -> tuple[int, int]:
    """Width of the widest GRU of a filter, and how many GRUs of that width it has in sequence or side by side."""
    widths = [weight.shape[-1] for name, weight in model.named_parameters() if "weight_hh" in name]
    return (max(widths), widths.count(max(widths))) if widths else (DEFAULT_WIDTH, 1)


def measure_runtime(*, rounds: int = ROUNDS, compiled: bool = True) -> list[Runtime]:
    """A row for each filter of the paper's table; ``compiled`` also measures compiled steps, if there is a compiler."""
    models = {name: model.eval() for name, model in build_filters().items()}
    y = torch.randn(1, STEPS, CHANNELS, generator=torch.Generator().manual_seed(0))
    sizes = {name: recurrent_size(model) for name, model in models.items()}
    candidates: dict[str, Callable[[], object]] = {}
    for name, model in models.items():
        candidates[f"{name} gru"] = bare_run(*sizes[name])
        candidates[name] = lambda model=model: model.run(y)  # type: ignore[misc]
        if compiled and compiler_available():
            candidates[f"{name} compiled"] = compiled_run(model, y)
    with torch.no_grad(), one_thread():
        taken = interleave(candidates, rounds)
    return [_row(name, model, sizes[name], taken) for name, model in models.items()]


def bare_run(width: int, layers: int) -> Callable[[], object]:
    """Bare GRU cells, one after the other, over all steps of a record."""
    cells = [nn.GRUCell(STATES + CHANNELS if i == 0 else width, width) for i in range(layers)]
    inputs = torch.randn(STEPS, 1, STATES + CHANNELS)

    def run() -> None:
        hidden = [torch.zeros(1, width) for _ in cells]
        for x in inputs:
            for i, cell in enumerate(cells):
                hidden[i] = x = cell(x, hidden[i])

    return run


def compiled_run(model: fwnkf.Filter, y: Tensor) -> Callable[[], object]:
    """The compiled step of a filter over all steps of a record."""
    step = fwnkf.compile_step(model)

    def run() -> None:
        state = model.init(1)
        for measurement in y.unbind(1):
            state, _ = step(state, measurement)

    return run


@contextmanager
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _row(name: str, model: fwnkf.Filter, size: tuple[int, int], taken: Mapping[str, float]) -> Runtime:
    ms = {key: 1e3 * seconds / STEPS for key, seconds in taken.items()}
    gru, fast = ms[f"{name} gru"], ms.get(f"{name} compiled")
    return Runtime(
        filter=name,
        parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        ms=ms[name],
        compiled_ms=fast,
        gru_ms=gru,
        ratio=ms[name] / gru,
        compiled_ratio=None if fast is None else fast / gru,
        width=size[0],
        layers=size[1],
    )
