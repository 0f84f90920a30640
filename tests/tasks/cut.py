"""Records cut to a few steps: the time of a filter is that of its steps."""

from __future__ import annotations

from dataclasses import replace

from fwnkf.data.protocols import Protocol, Split


def cut(whole: Protocol, steps: int) -> Protocol:
    """The first steps of all records."""
    splits = []
    for records in whole.split:
        parts = {name: getattr(records, name) for name in ("y", "truth", "mask", "dt", "u")}
        some = {name: part[:, :steps] for name, part in parts.items() if part is not None}
        splits.append(replace(records, **some))
    return replace(whole, split=Split(*splits))
