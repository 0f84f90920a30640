"""A fit in parts of the records is the fit of all of them at once, to 1e-6."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.cli import main
from fwnkf.core.system import build_system
from fwnkf.identify import fit
from fwnkf.identify.parts import Parts


def records(count: int = 5, steps: int = 80) -> torch.Tensor:
    """Positions of moving things with white noise and a drift."""
    generator = torch.Generator().manual_seed(3)

    def noise() -> torch.Tensor:
        return torch.randn(count, steps, 1, generator=generator, dtype=torch.float64)

    drift, total = torch.zeros(count, 1, dtype=torch.float64), []
    for step in noise().unbind(1):
        drift = 0.97 * drift + 0.2 * step
        total.append(drift)
    return 0.01 * noise().cumsum(1).cumsum(1) + 0.3 * noise() + torch.stack(total, 1)


@pytest.mark.parametrize("gaps", [False, True], ids=["time-invariant", "with gaps"])
def test_parts_give_the_fit_of_all_at_once(gaps):
    y = records()
    if gaps:
        y[1, 40:43] = torch.nan
    assert fwnkf.systems  # declares its names
    system = build_system("constant_velocity", {"dims": 1, "dt": 0.1}).double()
    options = {"held_out": 0.2, "oscillators": 0 if gaps else 1, "iterations": 4}
    whole, parts = fit(system, y, **options), fit(system, y, **options, parts=Parts(2))
    assert [item.name for item in parts.report.parameters] == [item.name for item in whole.report.parameters]
    for mine, wanted in zip(parts.report.parameters, whole.report.parameters, strict=True):
        assert mine.value == pytest.approx(wanted.value, rel=1e-6)
        assert mine.standard_error == pytest.approx(wanted.standard_error, rel=1e-5)
    for mine, wanted in ((parts.report.fitted, whole.report.fitted), (parts.report.held_out, whole.report.held_out)):
        assert mine.records == wanted.records
        assert mine.log_likelihood == pytest.approx(wanted.log_likelihood, rel=1e-6)
        assert mine.nis == pytest.approx(wanted.nis, rel=1e-6)
        assert mine.white == pytest.approx(wanted.white)
    assert [order.bic for order in parts.report.orders] == pytest.approx([o.bic for o in whole.report.orders], rel=1e-6)


def test_the_command_refuses_workers_without_a_fleet(tmp_path, capsys):
    for number, record in enumerate(records(2, 60)[..., 0].numpy()):
        lines = "".join(f"{0.1 * k:.1f},{value:.17g}\n" for k, value in enumerate(np.asarray(record)))
        (tmp_path / f"{number}.csv").write_text("t [s],x\n" + lines)
    words = ["fit", str(tmp_path), "--system", "constant_velocity", "--set", "dims=1", "--observe", "x", "--time", "t"]
    words += ["--oscillators", "0", "-o", str(tmp_path / "out")]
    assert main([*words, "--workers", "2"]) == 2
    assert main([*words, "--fleet", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
    assert main([*words, "--fleet", "1"]) == 0
