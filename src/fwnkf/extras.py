"""Optional packages: imported where they are used, with an error that says how to install them."""

from __future__ import annotations

import importlib
from types import ModuleType

from .errors import ConfigError


def need(module: str, extra: str) -> ModuleType:
    """Import ``module``. Raises ConfigError naming the extra of this package that installs it.

    >>> need("math", extra="plot").sqrt(4.0)
    2.0
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"{module} cannot be imported ({missing}); it comes with an extra: pip install 'fwnkf[{extra}]'"
        ) from missing
