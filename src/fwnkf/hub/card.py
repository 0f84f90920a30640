"""The metadata that a hub reads from the head of a card: YAML between two lines of dashes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

TAGS = ("kalman-filter", "state-estimation", "sensor-fusion", "pytorch")
"""Tags of every filter. No task of the hub (``pipeline_tag``) is state estimation, so none is stated."""


def metadata(
    tags: Sequence[str] = (),
    licence: str | None = None,
    datasets: Sequence[str] = (),
    index: Mapping[str, Any] | None = None,
) -> str:
    """The head of a card.

    Args:
        tags: further tags.
        licence: as the hub spells it, such as ``"mit"``.
        datasets: names of data sets.
        index: an entry of ``model-index``, the figures that the hub shows.

    Returns:
        The lines, from dashes to dashes.

    >>> print(metadata(["drone"], licence="mit"))
    ---
    library_name: fwnkf
    license: mit
    tags:
    - kalman-filter
    - state-estimation
    - sensor-fusion
    - pytorch
    - drone
    ---
    """
    lines = ["---", "library_name: fwnkf"]
    lines += [f"license: {licence}"] if licence else []
    lines += ["tags:", *(f"- {_scalar(tag)}" for tag in dict.fromkeys((*TAGS, *tags)))]
    lines += ["datasets:", *(f"- {_scalar(name)}" for name in datasets)] if datasets else []
    # JSON is YAML, so nested values need no writer of YAML, which the core does not have
    lines += ["model-index:", f"- {json.dumps(index, ensure_ascii=False)}"] if index else []
    return "\n".join([*lines, "---"])


def _scalar(text: str) -> str:
    plain = text.replace("-", "").replace("_", "")
    return text if plain.isascii() and plain.isalnum() and not plain[0].isdigit() else json.dumps(text)
