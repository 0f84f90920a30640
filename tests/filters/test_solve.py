"""The form of the covariance of a filter that is there already."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.errors import ConfigError
from fwnkf.filters import with_solve
from fwnkf.filters.base import Prediction

from .. import systems
from ..conformance.cases import CASES
from ..tolerances import assert_close


@pytest.mark.parametrize("name", ["kf", "ekf-attitude", "lines", "hypotheses"])
def test_another_form_gives_the_same_estimates(name: str):
    model = CASES[name].build(torch.float64)
    y = torch.randn(2, 12, model.observation_dim, dtype=torch.float64)
    mask = torch.rand(y.shape) < 0.8
    u = torch.randn(2, 12, model.control_dim, dtype=torch.float64) if model.control_dim else None
    changed = with_solve(model, "square_root")
    assert model.config.solve != changed.config.solve == "square_root"
    wanted, found = model.run(y, u=u, mask=mask), changed.run(y, u=u, mask=mask)
    torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.cov, wanted.cov, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("adaptive", "option solve = 'square_root' does not fit"),
        ("kalmannet", "no option 'solve'"),
        ("phi-augmented", "phi with its exact covariance has no form for solve='square_root'"),
    ],
)
def test_a_filter_without_that_form_says_so(name: str, reason: str):
    with pytest.raises(ConfigError, match=reason):
        with_solve(CASES[name].build(torch.float32), "square_root")


class Plain(fwnkf.EKF):
    """A recursion of one's own that carries a dense covariance and knows nothing of ``solve`` and ``moments``."""

    def predict_state(self, prepared, state, u, dt, measured=None):
        mean, F, Q = self.system.linearized_step(prepared.nominal, state.mean, u, dt)
        return Prediction(fwnkf.Gaussian(mean, F @ state.cov @ F.mT + Q), F, Q)


@pytest.mark.parametrize("option", [{"solve": "square_root"}, {"moments": "second_order"}], ids=str)
def test_options_that_a_filter_of_ones_own_does_not_implement_are_refused(option):
    system = systems.wave()
    ((name, value),) = option.items()
    with pytest.raises(ConfigError, match=f"'Plain': .* do not implement {name}='{value}'; .*Plain.implements"):
        Plain(system, **option)
    if name == "solve":
        with pytest.raises(ConfigError, match="do not implement solve='square_root'"):
            with_solve(Plain(system), value)
    y = torch.ones(1, 5, 2, dtype=torch.float64)
    assert_close(Plain(system, solve="cholesky").run(y).cov, fwnkf.EKF(system).run(y).cov)

    class Renamed(fwnkf.EKF):
        """Leaves the recursion as it is, and so has all of its forms."""

    class Stated(Plain):
        implements = ("square_root", "second_order")

    assert getattr(Renamed(system, **option).config, name) == value
    assert getattr(Stated(system, **option).config, name) == value


@pytest.mark.parametrize("cls", [fwnkf.EKF, fwnkf.FWNKF])
def test_channels_one_by_one_need_independent_noise(cls):
    with pytest.raises(ConfigError, match="solve='sequential' uses one channel after the other"):
        cls(systems.wave(correlation=0.3), solve="sequential")
