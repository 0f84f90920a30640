"""Published figures: cells read from the paper by eye, and relations that every row must satisfy."""

from __future__ import annotations

import pytest

from tasks.paper import published
from tasks.paper.published import Figure


@pytest.mark.parametrize(
    ("table", "recipe", "weight", "column", "figure"),
    [
        ("pendulum", "fwnkf", 0.01, "mse", Figure(1.10, 0.23)),
        ("pendulum", "rkn", 0.1, "r2", Figure(-0.84, 0.24)),
        ("pendulum", "arkf", 0.0, "nrmse", Figure(1.00, 0.00)),
        ("lorenz", "fwnkf", 0.1, "mae", Figure(8.18, 1.04)),
        ("lorenz", "recursive_kalmannet", 0.01, "mse", Figure(33.33, 3.77)),
        ("lorenz", "kf", 0.0, "rmse", Figure(11.43, 0.56)),
        ("uipdb", "fwnkf", 1.0, "distance_mae", Figure(9.16, 0.72)),
        ("uipdb", "kalmannet", 0.01, "rotation", Figure(0.65, 0.04)),
        ("euroc", "fwnkf", 0.0, "mse", Figure(0.03, 0.00)),
        ("euroc", "kf", 0.0, "mse", Figure(2.42)),
        ("euroc", "kf", 0.1, "r2", Figure(-0.86, 1.43)),
        ("runtime", "bayesian_kalmannet", None, "parameters", Figure(106_279.0)),
        ("runtime", "fwnkf", None, "ms", Figure(0.686)),
    ],
)
def test_cells_read_from_the_paper(table, recipe, weight, column, figure):
    assert published.figure(table, recipe, weight, column) == figure


def test_tables_have_all_their_rows():
    counts = {table: len(published.rows(table)) for table in ("pendulum", "lorenz", "uipdb", "runtime", "euroc")}
    # seven filters at three weights; UIP-DB has a fourth for FW-NKF; EuRoC leaves two filters out
    assert counts == {"pendulum": 21, "lorenz": 21, "uipdb": 22, "runtime": 7, "euroc": 15}
    assert published.figure("euroc", "recursive_kalmannet", 0.0, "mse") is None


@pytest.mark.parametrize("table", ["pendulum", "lorenz", "euroc"])
def test_rmse_is_the_root_of_mse(table):
    """Seeds are averaged after the root, so that it holds roughly where the spread is large."""
    for row in published.rows(table):
        spread = row["mse"].spread or 0.0
        assert row["rmse"].value ** 2 == pytest.approx(row["mse"].value, rel=0.03, abs=0.02 + 0.4 * spread)
