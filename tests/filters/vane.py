"""A wind vane as a system, its equations and small networks in numpy, and records for filters of it."""

import dataclasses

import numpy as np
import torch

import fwnkf

STEP, STIFFNESS = 0.1, 4.0


@dataclasses.dataclass(frozen=True)
class VaneConfig:
    pass


class Vane(fwnkf.System):
    """A driven pendulum observed by its angle (which wraps) and its sine; the numpy version is below."""

    Config = VaneConfig
    layout = fwnkf.Layout.parse([("theta", "angle", 1), ("omega", "euclidean", 1)])
    observation_layout = fwnkf.Layout.parse([("bearing", "angle", 1), ("sine", "euclidean", 1)])
    control_dim = 1
    dt = STEP

    def __init__(self):
        super().__init__(VaneConfig())
        self.register_buffer("Q", torch.tensor([[0.02, 0.01], [0.01, 0.05]], dtype=torch.float64))
        self.register_buffer("R", torch.tensor([[0.3, 0.1], [0.1, 0.2]], dtype=torch.float64))

    def transition(self, x, u, dt):
        step = STEP if dt is None else dt
        theta, omega = x.unbind(-1)
        push = 0.0 if u is None else u[..., 0]
        moved = torch.stack((step * omega, step * (push - STIFFNESS * theta.sin())), -1)
        return self.layout.boxplus(x, moved)

    def observe(self, x):
        return torch.stack((x[..., 0], x[..., 0].sin()), -1)

    def process_noise(self, dt):
        return self.Q if dt is None else self.Q * (dt / STEP)[:, None, None]

    def measurement_covariance(self):
        return self.R


# ---- numpy references ----------------------------------------------------------------------------------------------


def wrapped(v):
    """First number an angle, second plain: a difference on the state or the observation of a vane."""
    return np.array([(v[0] + np.pi) % (2 * np.pi) - np.pi, v[1]])


def vane_step(x, u, dt):
    moved = wrapped(x + dt * np.array([x[1], u - STIFFNESS * np.sin(x[0])]))
    return moved, np.array([[1, dt], [-dt * STIFFNESS * np.cos(x[0]), 1]])


def vane_seen(x):
    return np.array([x[0], np.sin(x[0])]), np.array([[1, 0], [np.cos(x[0]), 0]])


def array(tensor):
    return tensor.detach().double().numpy()


def linear(layer, x):
    return array(layer.weight) @ x + array(layer.bias)


def relu(x):
    return np.maximum(x, 0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(cell, x, h):
    from_x = array(cell.weight_ih) @ x + array(cell.bias_ih)
    from_h = array(cell.weight_hh) @ h + array(cell.bias_hh)
    (xr, xz, xn), (hr, hz, hn) = np.split(from_x, 3), np.split(from_h, 3)
    reset, keep = sigmoid(xr + hr), sigmoid(xz + hz)
    return (1 - keep) * np.tanh(xn + reset * hn) + keep * h


def normed(v):
    length = np.linalg.norm(v)
    return v / length if length > 1e-12 else 0 * v


def read(y, mask, seen, prior):
    """Innovation and change of the measurement, zero where masked, and the last measurement."""
    innovation = wrapped(y - vane_seen(prior)[0]) * mask
    return innovation, wrapped(y - seen) * mask, np.where(mask > 0, y, seen)


# ---- inputs --------------------------------------------------------------------------------------------------------

STEPS = 4
MASKS = np.array(
    [[[1, 1], [1, 1], [0, 1], [1, 1]], [[1, 0], [0, 0], [1, 1], [0, 1]], [[1, 1], [1, 1], [1, 1], [1, 1]]],
    float,
)
"""Full, partial and empty measurements."""


def run(net, records, steps=STEPS, **options):
    mean, P, y, u, dt, masks = (torch.as_tensor(part) for part in records)
    cut = y[:, :steps], u[:, :steps, None], masks[:, :steps].bool(), dt[:, :steps]
    return net.run(*cut, fwnkf.Gaussian(mean, P), prior_at="before_first_step", **options)


def reference_inputs(records, item, steps=STEPS):
    mean, P, *series = records
    return mean[item], P[item], *(part[item, :steps] for part in series)


def build(name, seed=3, **options):
    """A filter of a vane in float64 with weights drawn from ``seed``."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if name == "rkn":
            sizes = {
                "state_dim": 2,
                "observation_dim": 2,
                "latent_dim": 3,
                "basis": 2,
                "hidden": (5,),
                "decoder_hidden": (4,),
                "coefficient_hidden": (6,),
                "bandwidth": 1,
            }
            net = fwnkf.build(name, **{**sizes, **options}).double()
            with torch.no_grad():  # not multiples of the identity as initially
                net.blocks += 0.1 * torch.randn_like(net.blocks)
                net.raw_initial_variance += torch.randn_like(net.raw_initial_variance)
            return net
        small = {
            "kalmannet": {"gain_factor": 1.0},  # of order one, where an error shows
            "recursive_kalmannet": {"weight_factor": 1.0},
            "bayesian_kalmannet": {
                "members": 4, "in_mult": 3, "hidden_mult": 1, "out_mult": 2, "gain_factor": 1.0, "probability": (0.3,),
            },
        }  # fmt: skip
        return fwnkf.build(name, system=Vane(), **{**small.get(name, {}), **options})
