"""The loop over time against a loop written by hand; truncation and recomputation by their gradients."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from fwnkf.core.scan import scan
from fwnkf.core.tree import named_leaves, tree_map, tree_unflatten
from fwnkf.errors import ConfigError

from ..tolerances import assert_close, assert_same_bits


class Memory(NamedTuple):
    level: torch.Tensor
    nested: tuple[torch.Tensor, torch.Tensor]


class Out(NamedTuple):
    y: torch.Tensor
    z: torch.Tensor


def body(state, inputs):
    x, u = inputs
    push = 0.0 if u is None else u
    level = torch.tanh(0.9 * state.level + x + push)
    nested = (state.nested[0] * 0.5 + level, state.nested[1] + 1)
    return Memory(level, nested), Out(level * nested[0], nested[1].sum(-1))


def start(batch=2):
    level = torch.full((batch, 3), 0.3, dtype=torch.float64)
    return Memory(level, (2 * level, torch.zeros_like(level)))


@pytest.fixture
def inputs(generator):
    return torch.randn(2, 2, 11, 3, generator=generator, dtype=torch.float64).unbind(0)


@pytest.mark.parametrize("options", [{}, {"truncate": 4}, {"checkpoint": 3}, {"truncate": 4, "checkpoint": 3}], ids=str)
@pytest.mark.parametrize("with_control", [True, False])
def test_scan_is_the_loop(inputs, with_control, options):
    x, u = inputs
    u = u if with_control else None
    state, collected = start(), []
    for t in range(11):
        state, out = body(state, (x[:, t], None if u is None else u[:, t]))
        collected.append(out)
    last, outputs = scan(body, start(), (x, u), **options)
    assert isinstance(last, Memory)
    assert isinstance(outputs, Out)
    for (name, a), (_, b) in zip(named_leaves(last), named_leaves(state), strict=True):
        assert_same_bits(a, b, name)
    assert_same_bits(outputs.y, torch.stack([out.y for out in collected], 1))
    assert_same_bits(outputs.z, torch.stack([out.z for out in collected], 1))


def gradient(x, at, **options):
    x = x.clone().requires_grad_()
    _, out = scan(body, start(), (x, None), **options)
    out.y[:, at].sum().backward()
    return x.grad


@pytest.mark.parametrize("checkpoint", [None, 3])
@pytest.mark.parametrize("truncate", [1, 4, 5])
def test_truncation_cuts_the_gradient_exactly_between_blocks(inputs, truncate, checkpoint):
    x, _ = inputs
    for at in range(11):
        first = at // truncate * truncate  # of the block that holds the step
        grad = gradient(x, at, truncate=truncate, checkpoint=checkpoint)
        assert not grad[:, :first].any()
        assert not grad[:, at + 1 :].any()
        assert bool((grad[:, first : at + 1] != 0).all())
        whole = gradient(x, at)
        assert bool((whole[:, : at + 1] != 0).all())
        if first == 0:
            assert_close(grad, whole, "rounding")


@pytest.mark.parametrize("checkpoint", [1, 3, 11, 50])
def test_recomputation_does_not_change_the_gradient(inputs, checkpoint):
    x, _ = inputs
    assert_same_bits(gradient(x, 10, checkpoint=checkpoint), gradient(x, 10))


def test_recomputation_saves_fewer_tensors(inputs):
    """The forward pass saves far fewer tensors for the backward pass."""

    def saved_tensors(**options):
        count = 0

        def pack(tensor):
            nonlocal count
            count += 1
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            scan(body, start(), (inputs[0].clone().requires_grad_(), None), **options)
        return count

    assert saved_tensors(checkpoint=4) < saved_tensors() / 3


@pytest.mark.parametrize(
    ("options", "message"), [({"truncate": 0}, "truncate = 0"), ({"checkpoint": -1}, "checkpoint = -1")]
)
def test_invalid_block_lengths_raise_a_config_error(inputs, options, message):
    with pytest.raises(ConfigError, match=message):
        scan(body, start(), (inputs[0], None), **options)


def test_inputs_of_different_length_raise_a_config_error(inputs):
    with pytest.raises(ConfigError, match=r"\[10, 11\]"):
        scan(body, start(), (inputs[0], inputs[1][:, :10]))


def test_tree_functions_round_trip():
    state = start()
    names = [name for name, _ in named_leaves(state)]
    assert names == ["level", "nested.0", "nested.1"]
    rebuilt = tree_unflatten(state, iter([leaf for _, leaf in named_leaves(state)]))
    assert isinstance(rebuilt, Memory)
    assert all(a is b for (_, a), (_, b) in zip(named_leaves(rebuilt), named_leaves(state), strict=True))
    doubled = tree_map(lambda x: 2 * x, state)
    assert torch.equal(doubled.nested[0], 2 * state.nested[0])
