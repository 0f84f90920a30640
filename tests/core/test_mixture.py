"""Interacting hypotheses against the mixture of all transitions, written out pair by pair."""

from __future__ import annotations

import torch

from fwnkf.core.layout import Layout
from fwnkf.core.mixture import Joint, interact


def random_beliefs(generator: torch.Generator, batch: int, count: int, n: int, s: int) -> Joint:
    roots = torch.randn(batch, count, n + s, n + s, generator=generator, dtype=torch.float64)
    mean = torch.randn(batch, count, n, generator=generator, dtype=torch.float64)
    noise = torch.randn(batch, count, s, generator=generator, dtype=torch.float64)
    return Joint(mean, noise, roots @ roots.mT)


def test_beliefs_are_those_of_the_mixture_of_all_transitions(generator):
    count, n, s = 5, 2, 2
    family, power = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0.5, 2.0, 0.5, 2.0, 0.0]).double()
    belief = random_beliefs(generator, 3, count, n, s)
    weight = torch.rand(3, count, generator=generator, dtype=torch.float64)
    weight = weight / weight.sum(-1, keepdim=True)
    prior = torch.tensor([0.3, 0.2, 0.2, 0.2, 0.1]).double()
    switching = torch.tensor([0.0, 0.1, 1.0]).double()
    mixed, after = interact(Layout.euclidean(n), weight, prior, switching, belief, family, power)

    for b in range(3):
        p = float(switching[b])
        for j in range(count):
            parts = []  # probability, mean and covariance of what comes from each hypothesis
            for i in range(count):
                mean = torch.cat((belief.mean[b, i], belief.noise[b, i]))
                cov = belief.cov[b, i]
                if family[i] != family[j]:
                    mean = torch.cat((belief.mean[b, i], torch.zeros(s).double()))
                    cov = torch.block_diag(cov[:n, :n], power[j] * torch.eye(s).double())
                parts.append((float(weight[b, i] * prior[j]) * p, mean, cov))
            own = torch.cat((belief.mean[b, j], belief.noise[b, j]))
            parts.append((float(weight[b, j]) * (1 - p), own, belief.cov[b, j]))
            total = sum(share for share, _, _ in parts)
            mean = sum(share * m for share, m, _ in parts) / total
            cov = sum(share * (c + torch.outer(m - mean, m - mean)) for share, m, c in parts) / total
            torch.testing.assert_close(after[b, j], torch.tensor(total).double())
            torch.testing.assert_close(torch.cat((mixed.mean[b, j], mixed.noise[b, j])), mean)
            torch.testing.assert_close(mixed.cov[b, j], cov)


def test_angles_are_mixed_on_the_circle():
    layout = Layout.parse([("heading", "angle", 1)])
    belief = Joint(torch.tensor([[[3.1], [-3.1]]]), torch.zeros(1, 2, 0), torch.full((1, 2, 1, 1), 0.01))
    half = torch.tensor([0.5, 0.5])
    mixed, _ = interact(layout, half[None], half, torch.ones(1), belief, torch.zeros(2, dtype=torch.long), half)
    assert (mixed.mean.abs() > 3.1).all()
    assert (mixed.cov < 0.02).all()
