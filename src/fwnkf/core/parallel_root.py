"""The elements of :mod:`.parallel` with covariances and information matrices as factors (Yaghoobi et al. 2022).

Every covariance is ``U Uᵀ`` and is combined by orthogonal matrices alone, so that what float32 cannot hold as a
covariance it holds as a factor. A combination takes several times the time of the dense one. There are no gradients:
those of a QR decomposition need full rank, which the information of a few channels has not.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..shapes import Float
from .gaussian import matvec


class RootElement(NamedTuple):
    """As :class:`.parallel.Element`, with ``C = U Uᵀ`` and ``J = Z Zᵀ``."""

    A: Float[Tensor, "*B n n"]
    b: Float[Tensor, "*B n"]
    U: Float[Tensor, "*B n n"]
    eta: Float[Tensor, "*B n"]
    Z: Float[Tensor, "*B n n"]


def lower(X: Float[Tensor, "*B n k"]) -> Float[Tensor, "*B n n"]:
    """The lower triangular ``L`` with ``L Lᵀ = X Xᵀ``."""
    n, k = X.shape[-2:]
    wide = X if k >= n else torch.nn.functional.pad(X, (0, n - k))
    return torch.linalg.qr(wide.mT, mode="r").R.mT


def measured_factors(
    A: Float[Tensor, "*B n n"], H: Float[Tensor, "*B m n"], root_R: Float[Tensor, "*B m m"]
) -> tuple[Tensor, Tensor, Tensor]:
    """A factor of ``S``, the gain, and a factor of the covariance after an update of ``A Aᵀ``.

    Rows of ``H`` that are zero, with 1 in ``root_R``, are channels that are missing.
    """
    m = H.shape[-2]
    seen = H @ A
    top = torch.cat((seen, root_R.expand(*seen.shape[:-1], m)), -1)
    joint = lower(torch.cat((top, torch.nn.functional.pad(A, (0, m))), -2))
    root_S = joint[..., :m, :m]
    K = torch.linalg.solve_triangular(root_S, joint[..., m:, :m], upper=False, left=False)
    return root_S, K, joint[..., m:, m:]


def predicted_factor(
    A: Float[Tensor, "*B n n"], F: Float[Tensor, "*B n n"], root_Q: Float[Tensor, "*B n n"]
) -> Float[Tensor, "*B n n"]:
    """A factor of ``F A Aᵀ Fᵀ + Q``."""
    return lower(torch.cat((F @ A, root_Q), -1))


def step_element(F: Tensor, root_Q: Tensor, shift: Tensor, H: Tensor, root_R: Tensor, r: Tensor) -> RootElement:
    """The element of a step; ``r`` is ``y - H c``, and zero where missing."""
    root_S, K, U = measured_factors(root_Q, H, root_R)
    seen = H @ F
    white = torch.linalg.solve_triangular(root_S, torch.cat((seen, r.unsqueeze(-1)), -1), upper=False)
    Z = white[..., :-1].mT
    n, m = Z.shape[-2:]
    square = torch.nn.functional.pad(Z, (0, n - m)) if m <= n else lower(Z)
    return RootElement(F - K @ seen, shift + matvec(K, r), U, matvec(Z, white[..., -1]), square)


def _remaining(U: Tensor, Z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """With ``P = U Uᵀ`` and ``J = Z Zᵀ``: factors of ``(I + P J)⁻¹ P`` and of ``(I + J P)⁻¹ J``, and
    ``(I + P J)⁻¹``."""
    n = U.shape[-1]
    eye = torch.eye(n, dtype=U.dtype, device=U.device)
    product = U.mT @ Z
    joint = lower(torch.cat((torch.cat((product, eye.expand_as(product)), -1), torch.nn.functional.pad(Z, (0, n))), -2))
    G = torch.linalg.solve_triangular(joint[..., :n, :n].mT, U, upper=True, left=False)
    return G, joint[..., n:, n:], eye - G @ joint[..., n:, :n].mT


def root_combine(first: RootElement, then: RootElement) -> RootElement:
    """The steps of two elements, one after the other."""
    G, information, D = _remaining(first.U, then.Z)
    AD = then.A @ D
    eta = then.eta - matvec(then.Z, matvec(then.Z.mT, first.b))
    return RootElement(
        AD @ first.A,
        matvec(AD, first.b + matvec(first.U, matvec(first.U.mT, then.eta))) + then.b,
        lower(torch.cat((then.A @ G, then.U), -1)),
        matvec(first.A.mT, matvec(D.mT, eta)) + first.eta,
        lower(torch.cat((first.A.mT @ information, first.Z), -1)),
    )


def root_after(element: RootElement, mean: Tensor, U: Tensor) -> tuple[Tensor, Tensor]:
    """The mean, and a factor of the covariance, after the steps of an element."""
    G, _, D = _remaining(U, element.Z)
    moved = matvec(element.A, matvec(D, mean + matvec(U, matvec(U.mT, element.eta))))
    return moved + element.b, lower(torch.cat((element.A @ G, element.U.expand_as(G)), -1))
