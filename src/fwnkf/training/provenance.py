"""What a result was computed with: versions of packages, and the commit of the source."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = ("fwnkf", "torch", "numpy", "safetensors", "lightning")


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that figures depend on; None for one that is not installed.

    >>> sorted(versions())[-2:]
    ['safetensors', 'torch']
    """
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}


def commit() -> str | None:
    """The commit of the package's git checkout, marked as dirty if files differ; None outside a checkout."""
    try:
        result = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
