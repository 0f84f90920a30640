"""The step of a stream as native code: C for one stream, what PyTorch compiles for several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from ..core.tree import Template, flat_function
from ..errors import ConfigError
from ..filters.base import Filter
from ..types import StepOutput
from .compiled import CompiledTree
from .health import Checked, Monitor


class Stepped(NamedTuple):
    """What a step leaves: the memory of the filter and of its health for the next one, and what is said of this one."""

    filter: Any
    monitor: Monitor
    out: StepOutput
    checked: Checked

    def plain(self) -> Stepped:
        """The same in tensors."""
        return self


class PackedStep:
    """A :class:`Stepped` in a block of memory, of which tensors are made when they are asked for."""

    __slots__ = ("block", "made_by")

    def __init__(self, made_by: NativeStep, block: Any) -> None:
        self.made_by, self.block = made_by, block

    def plain(self) -> Stepped:
        """The same in tensors."""
        step = self.made_by
        return Stepped(*step.result.tree([step.native.tensor(self.block, i) for i in range(len(step.native.offsets))]))

    @property
    def out(self) -> Any:
        return PackedFields(self, self.made_by.out)

    @property
    def checked(self) -> Any:
        return PackedFields(self, self.made_by.checked)


class PackedFields:
    """A named tuple in a block of memory: one tensor is made for each name that is asked for."""

    __slots__ = ("_places", "_step")

    def __init__(self, step: PackedStep, places: dict[str, int]) -> None:
        self._step, self._places = step, places

    def __getattr__(self, name: str) -> Tensor:
        return self._step.made_by.native.tensor(self._step.block, self._places[name])


class NativeStep:
    """A step of one stream in C; raises ConfigError if there is none."""

    def __init__(self, function: Callable[..., Stepped], before: Stepped, inputs: tuple[Tensor | None, ...]) -> None:
        from ..native.function import Native

        state = before.filter, before.monitor
        self.given, self.state = Template((*state, *inputs)), Template(state)
        flat, results = flat_function(function, self.given)
        self.native = Native(flat, self.given.leaves((*state, *inputs)))
        self.result = results[0]
        count = self.result.count
        first = count - len(StepOutput._fields) - len(Checked._fields)
        self.out = {name: first + i for i, name in enumerate(StepOutput._fields)}
        self.checked = {name: count - len(Checked._fields) + i for i, name in enumerate(Checked._fields)}
        # the first results are the state and the monitor, in the order of the arguments
        self.offsets = self.native.offsets[: self.state.count]

    def __call__(self, before: Stepped | PackedStep, inputs: tuple[Tensor | None, ...]) -> PackedStep:
        if isinstance(before, PackedStep) and before.made_by is self:
            start, leaves = before.block.address, []
            addresses = [start + offset for offset in self.offsets]
        else:
            known = before.plain()
            leaves = [leaf.contiguous() for leaf in self.state.leaves((known.filter, known.monitor))]
            addresses = [leaf.data_ptr() for leaf in leaves]
        leaves += [item if item.is_contiguous() else item.contiguous() for item in inputs if item is not None]
        addresses += [leaf.data_ptr() for leaf in leaves[len(leaves) - self.given.count + self.state.count :]]
        return PackedStep(self, self.native(addresses))


class FastStep:
    """A step and the check of its health, compiled for each form of its inputs: which are None, and shapes."""

    def __init__(self, function: Callable[..., Stepped], model: Filter) -> None:
        self.function, self.cpu = function, model.device.type == "cpu"
        self.trees = CompiledTree(function, model)
        self._known: dict[Any, NativeStep | None] = {}

    def __call__(self, before: Stepped | PackedStep, *inputs: Tensor | None) -> Stepped | PackedStep:
        """The step from what the one before has left; ``inputs`` are ``y``, ``u``, ``mask`` and ``dt``."""
        key = tuple([None if item is None else item.shape for item in inputs])
        if key not in self._known:
            self._known[key] = self._native(before.plain(), inputs)
        native = self._known[key]
        if native is not None:
            return native(before, inputs)
        known = before.plain()
        return Stepped(*self.trees(known.filter, known.monitor, *inputs))

    def _native(self, before: Stepped, inputs: tuple[Tensor | None, ...]) -> NativeStep | None:
        y = inputs[0]
        assert y is not None
        if not self.cpu or len(y) > 1:
            return None
        try:
            return NativeStep(self.function, before, inputs)
        except ConfigError:  # an operator for which there is no C, or no compiler
            return None
