"""Trained filters beside the hypotheses that the disturbance is absent, and that all noise is white."""

from __future__ import annotations

from typing import Any

from fwnkf import FWNKF, Hypotheses


def with_fallback(model: FWNKF, **options: Any) -> FWNKF:
    """The filter with ``Hypotheses(fallback=True, **options)``; the frequencies that it has are kept."""
    own = model.config.hypotheses
    return model.with_parts(hypotheses=Hypotheses(1 if own is None else own.frequencies, fallback=True, **options))
