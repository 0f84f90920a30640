"""A covariance as a part of a module: fixed, or learned."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..shapes import Float
from . import constrain


class Covariance(nn.Module):
    """A covariance that is either fixed (zeros allowed) or learned (positive definite by construction).

    A learned one that is ``diagonal`` stays so.
    """

    value: Tensor

    def __init__(self, value: Tensor, learn: bool, diagonal: bool = False) -> None:
        super().__init__()
        self.learn, self.diagonal = learn, diagonal
        if learn:
            log_std, slopes = constrain.inverse_covariance(value)
            self.log_std = nn.Parameter(log_std.clone())
            if not diagonal:
                self.slopes = nn.Parameter(slopes.clone())
        else:
            self.register_buffer("value", value.clone())

    @torch.no_grad()
    def assign(self, value: Float[Tensor, "n n"]) -> None:
        """Set the covariance; of a diagonal one the diagonal."""
        if not self.learn:
            self.value.copy_(value)
            return
        log_std, slopes = constrain.inverse_covariance(value)
        self.log_std.copy_(log_std)
        if not self.diagonal:
            self.slopes.copy_(slopes)

    def forward(self) -> Float[Tensor, "n n"]:
        if not self.learn:
            return self.value
        if self.diagonal:
            return torch.diag_embed(constrain.positive(self.log_std).square())
        return constrain.covariance(self.log_std, self.slopes)
