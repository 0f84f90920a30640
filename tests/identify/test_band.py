"""The zero-phase low-pass beside scipy's."""

from __future__ import annotations

import pytest
import torch
from scipy.signal import butter, sosfiltfilt

from fwnkf.errors import ConfigError
from fwnkf.identify import below


@pytest.mark.parametrize(("rate", "hz"), [(400.0, 10.0), (100.0, 30.0)])
def test_it_is_a_butterworth_filter_run_forwards_and_backwards(generator, rate, hz):
    y = torch.randn(2, 3000, 3, generator=generator, dtype=torch.float64).cumsum(1)
    expected = sosfiltfilt(butter(4, hz, fs=rate, output="sos"), y.numpy(), axis=1, padlen=round(3 * rate / hz))
    away = slice(round(3 * rate / hz), -round(3 * rate / hz))  # what filters remember at the ends differs
    assert (below(y, rate, hz)[:, away] - torch.from_numpy(expected.copy())[:, away]).abs().max() < 1e-3 * y.std()


def test_a_band_beyond_half_the_rate_is_refused():
    with pytest.raises(ConfigError, match="half the rate"):
        below(torch.zeros(1, 10, 1), 100.0, 50.0)
