"""Causal dilated convolutions: whole sequences against single steps, causality, memory, and the untrained network."""

from __future__ import annotations

import pytest
import torch

from fwnkf.core.convolutions import DilatedConvolutions

from ..tolerances import assert_close


@pytest.fixture
def network(generator) -> DilatedConvolutions:
    network = DilatedConvolutions(4, 5, 3, taps=3, dilations=(1, 2, 4)).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    network.normalize(torch.full((4,), 0.25), torch.full((4,), 2.0), torch.tensor([1.0, 2.0, 3.0]))
    return network


def test_single_steps_and_pieces_are_the_whole_sequence(network, generator) -> None:
    x = torch.randn(2, 40, 4, generator=generator, dtype=torch.float64)
    whole = network(x)
    for sizes in ([1] * 40, [7, 1, 20, 12]):
        past, pieces = network.start(2, x), []
        for piece in x.split(sizes, 1):
            past, output = network.run(past, piece)
            pieces.append(output)
        assert_close(torch.cat(pieces, 1), whole)


def test_an_input_changes_what_follows_within_the_memory_and_nothing_else(network, generator) -> None:
    x = torch.randn(1, 40, 4, generator=generator, dtype=torch.float64)
    other = x.clone()
    other[:, 10] += 1.0
    changed = (network(other) != network(x)).any(-1)[0].nonzero()[:, 0]
    assert network.memory == 14
    assert changed.min() == 10
    assert changed.max() == 10 + network.memory


def test_the_output_is_that_of_the_equations_written_out(network, generator) -> None:
    x = torch.randn(1, 20, 4, generator=generator, dtype=torch.float64)
    gelu = torch.nn.functional.gelu
    h = gelu((x[0] - 0.25) / 2 @ network.embed.weight.mT + network.embed.bias)
    for layer, dilation in zip(network.layers, (1, 2, 4), strict=True):
        added = layer.bias.expand(20, -1).clone()
        for t in range(20):
            for tap in range(3):
                if t - tap * dilation >= 0:
                    added[t] += layer.weight[..., 2 - tap] @ h[t - tap * dilation]
        h = h + gelu(added)
    expected = (h @ network.out.weight.mT + network.out.bias) * torch.tensor([1.0, 2.0, 3.0])
    assert_close(network(x)[0], expected)


def test_an_untrained_network_adds_nothing(generator) -> None:
    network = DilatedConvolutions(4, 5, 3, taps=3, dilations=(1, 2), dropout=0.5)
    assert not network(torch.randn(2, 10, 4, generator=generator)).any()
