"""Drag from the specific force alone, on a simulated flight whose drag is known."""

from __future__ import annotations

import torch

from fwnkf import Gaussian
from fwnkf.core import rotation
from fwnkf.core.gaussian import matvec
from fwnkf.systems import DragStrapdown, DragStrapdownConfig
from tasks.euroc import unsupervised
from tasks.euroc.unsupervised import DELAY_WITHIN_BLOCK, Known, Windows
from tasks.innovations import ConstantsLikelihood

DOUBLE = torch.float64
DRAG = 0.3


def simulated(count: int = 8, steps: int = 120) -> tuple[Windows, Known]:
    """Windows of a vehicle that tilts to and fro: thrust along the first axis, drag and white noise across it."""
    generator = torch.Generator().manual_seed(0)
    system = DragStrapdown(DragStrapdownConfig(dt=0.05)).double()
    with torch.no_grad():
        system.calibration[0, 9] = DELAY_WITHIN_BLOCK
    level = rotation.tilt(torch.tensor([[1.0, 0.0, 0.0]], dtype=DOUBLE)).expand(count, 4)
    x = torch.cat((torch.zeros(count, 6, dtype=DOUBLE), level, torch.zeros(count, 10, dtype=DOUBLE)), -1)
    phase = 6.3 * torch.rand(count, 2, generator=generator, dtype=DOUBLE)
    samples = []
    for step in range(steps):
        rate = torch.nn.functional.pad(0.3 * torch.sin(1.5 * 0.05 * step + phase), (1, 0))
        velocity = matvec(rotation.to_matrix(x[:, 6:10]).mT, x[:, 3:6])
        noise = 0.05 * torch.randn(count, 2, generator=generator, dtype=DOUBLE)
        force = torch.cat((torch.full((count, 1), 9.81, dtype=DOUBLE), noise - DRAG * velocity[:, 1:]), -1)
        samples.append(torch.cat((rate, force), -1))
        x = system.transition(x, torch.cat((samples[-1], samples[-1]), -1), None).detach()
    imu = torch.stack(samples, 1)
    features = torch.nn.functional.pad(imu[..., 4:], (0, 4))
    weight = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0], dtype=DOUBLE).expand(count, steps, 5)
    stds = torch.tensor([1e-3] * 3 + [0.1] * 3 + [0.02] * 3, dtype=DOUBLE)
    prior = Gaussian(torch.cat((torch.zeros(count, 6, dtype=DOUBLE), level), -1), stds.square().diag())
    known = Known(torch.eye(3, dtype=DOUBLE), torch.zeros(3, dtype=DOUBLE))
    return Windows(features, torch.cat((imu, imu), -1), weight, prior), known


def test_the_likelihood_of_the_force_is_largest_at_the_true_drag():
    """Innovations of velocity would be likeliest at the largest drag, which makes every velocity small."""
    data, known = simulated()
    noise = {"white_2": 0.05, "white_3": 0.05, "correlated": 0.01}
    start = unsupervised.START | noise
    likelihood = ConstantsLikelihood(start, lambda some: unsupervised.innovations(data, known, some))
    values = []
    for factor in (0.7, 1.0, 1.4):
        constants = start | {"drag": factor * DRAG}
        values.append(likelihood.value(torch.tensor(list(constants.values()), dtype=DOUBLE).log()))
    assert values[1] > values[0] + 10
    assert values[1] > values[2] + 10
