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


def assert_mixture(parts: list, probability: torch.Tensor, mixed: Joint, where: tuple[int, int]) -> None:
    """Moments of what comes from each hypothesis: its probability, mean and covariance."""
    total = sum(share for share, _, _ in parts)
    mean = sum(share * m for share, m, _ in parts) / total
    cov = sum(share * (c + torch.outer(m - mean, m - mean)) for share, m, c in parts) / total
    torch.testing.assert_close(probability, torch.tensor(total).double())
    torch.testing.assert_close(torch.cat((mixed.mean[where], mixed.noise[where])), mean)
    torch.testing.assert_close(mixed.cov[where], cov)


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
            parts = []
            for i in range(count):
                mean = torch.cat((belief.mean[b, i], belief.noise[b, i]))
                cov = belief.cov[b, i]
                if family[i] != family[j]:
                    mean = torch.cat((belief.mean[b, i], torch.zeros(s).double()))
                    cov = torch.block_diag(cov[:n, :n], power[j] * torch.eye(s).double())
                parts.append((float(weight[b, i] * prior[j]) * p, mean, cov))
            own = torch.cat((belief.mean[b, j], belief.noise[b, j]))
            parts.append((float(weight[b, j]) * (1 - p), own, belief.cov[b, j]))
            assert_mixture(parts, after[b, j], mixed, (b, j))


def test_copies_keep_beginnings_apart(generator):
    """An original with two copies and a hypothesis without noise: every flow of probability, pair by pair."""
    n, s = 2, 1
    family, power = torch.tensor([0, 0, 0, 1]), torch.tensor([2.0, 2.0, 2.0, 0.0]).double()
    belief = random_beliefs(generator, 2, 4, n, s)
    weight = torch.tensor([[0.2, 0.3, 0.1, 0.4], [0.2, 0.1, 0.3, 0.4]]).double()  # the least copy differs
    prior, p = torch.tensor([0.6, 0.6, 0.6, 0.4]).double(), 0.1  # 0.6 is that of the first three together
    copies = torch.zeros(4, 4).double()
    copies[0, 1:3] = 1
    switching = torch.full((2,), p).double()
    mixed, after = interact(Layout.euclidean(n), weight, prior, switching, belief, family, power, copies)

    def fresh(b, i, target):
        mean = torch.cat((belief.mean[b, i], torch.zeros(s).double()))
        return mean, torch.block_diag(belief.cov[b, i][:n, :n], power[target] * torch.eye(s).double())

    for b, (least, other) in enumerate(((2, 1), (1, 2))):
        own = [(torch.cat((belief.mean[b, i], belief.noise[b, i])), belief.cov[b, i]) for i in range(4)]
        w = weight[b].tolist()
        into = {
            0: [((1 - p) * w[0], *own[0]), ((1 - p) * w[least], *own[least])]
            + [(p * 0.6 * w[i], *own[i]) for i in range(3)],
            least: [(p * 0.6 * w[3], *fresh(b, 3, least))],
            other: [((1 - p) * w[other], *own[other])],
            3: [((1 - p + p * 0.4) * w[3], *own[3])] + [(p * 0.4 * w[i], *fresh(b, i, 3)) for i in range(3)],
        }
        for j, parts in into.items():
            assert_mixture(parts, after[b, j], mixed, (b, j))
    torch.testing.assert_close(after.sum(-1), torch.ones(2).double())


def test_a_copy_without_probability_keeps_its_belief(generator):
    belief = Joint(*(part.float() for part in random_beliefs(generator, 1, 4, 2, 1)))
    copies = torch.zeros(4, 4)
    copies[0, 1:3] = 1
    weight, prior = torch.tensor([[0.5, 0.0, 0.0, 0.5]]), torch.full((4,), 0.5)
    family, power = torch.tensor([0, 0, 0, 1]), torch.tensor([1.0, 1.0, 1.0, 0.0])
    mixed, after = interact(Layout.euclidean(2), weight, prior, torch.zeros(1), belief, family, power, copies)
    torch.testing.assert_close(mixed.mean[0, 2], belief.mean[0, 2])
    torch.testing.assert_close(mixed.cov[0, 2], belief.cov[0, 2])
    assert after.log().isfinite().all()


def test_angles_are_mixed_on_the_circle():
    layout = Layout.parse([("heading", "angle", 1)])
    belief = Joint(torch.tensor([[[3.1], [-3.1]]]), torch.zeros(1, 2, 0), torch.full((1, 2, 1, 1), 0.01))
    half = torch.tensor([0.5, 0.5])
    mixed, _ = interact(layout, half[None], half, torch.ones(1), belief, torch.zeros(2, dtype=torch.long), half)
    assert (mixed.mean.abs() > 3.1).all()
    assert (mixed.cov < 0.02).all()
