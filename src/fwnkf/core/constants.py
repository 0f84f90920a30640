"""Numbers of a module by name: parameters if they are learned, otherwise constants that stay exact in every dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ConfigError
from . import constrain
from .covariance import Covariance
from .functions import covariance, is_diagonal


class NamedConstants(nn.Module):
    """Constants and covariances of functions. What is not learned is not saved: the config has its exact value."""

    _exact: dict[str, Tensor]
    _kind = "system"

    def _add(self, name: str, value: Any, learn: bool = False, positive: bool = False) -> None:
        """A constant as a parameter, or as a buffer that is not saved."""
        if hasattr(self, name):
            raise ConfigError(
                f"a constant cannot be called {name!r}, which is an attribute of every {self._kind}; rename it"
            )
        if learn:
            start = torch.as_tensor(value, dtype=torch.get_default_dtype(), device="cpu")
            raw = constrain.inverse_positive(start) if positive else start
            self.register_parameter(f"raw_{name}" if positive else name, nn.Parameter(raw))
            return
        self._exact[name] = torch.as_tensor(value, dtype=torch.float64, device="cpu")
        self.register_buffer(name, self._exact[name].to(torch.get_default_dtype(), copy=True), persistent=False)

    def _add_covariance(self, name: str, value: Any, size: int, learn: bool) -> None:
        """A covariance from a variance, variances or a matrix."""
        exact = covariance(value, size, torch.zeros((), dtype=torch.float64, device="cpu"), name)
        if learn:
            self.add_module(name, Covariance(exact.to(torch.get_default_dtype()), True, is_diagonal(value)))
        else:
            self._add(name, exact)

    def _covariance(self, name: str) -> Tensor:
        value = getattr(self, name)
        return value() if isinstance(value, Covariance) else value

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # filled in again, so that constants converted to float32 and then to float64 are exact
        super()._apply(fn, recurse)
        for name, exact in self._exact.items():
            self.get_buffer(name).copy_(exact)
        return self

    def _values(self, names: Sequence[str]) -> Mapping[str, Tensor]:
        """The values of constants by name, learned ones included."""
        raw = dict(self.named_parameters(recurse=False))
        return {
            name: constrain.positive(raw[f"raw_{name}"]) if f"raw_{name}" in raw else getattr(self, name)
            for name in names
        }
