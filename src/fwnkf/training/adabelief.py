"""AdaBelief, an optimizer that scales steps by how far gradients are from what was predicted of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch


class AdaBelief(torch.optim.Optimizer):
    """AdaBelief (Zhuang et al. 2020, arXiv 2010.07468): Adam with ``(g - m)²`` in the place of ``g²``.

    With gradient ``g``, its running mean ``m`` and the running mean ``s`` of its squared deviation,

        ``m ← β₁ m + (1 - β₁) g``, ``s ← β₂ s + (1 - β₂) (g - m)² + ε``,
        ``θ ← θ - α m̂ / (√ŝ + ε)``, ``m̂ = m / (1 - β₁ᵗ)``, ``ŝ = s / (1 - β₂ᵗ)``.

    ``weight_decay`` is added to the gradient, as in Adam. ``ε`` is inside the root: 1e-16 here is 1e-8 in Adam.

    >>> value = torch.nn.Parameter(torch.ones(1))
    >>> optimizer = AdaBelief([value], lr=0.1)
    >>> for _ in range(50):
    ...     optimizer.zero_grad()
    ...     (value**2).sum().backward()
    ...     optimizer.step()
    >>> bool(value.abs() < 0.1)
    True
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-16,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            (first, second), eps = group["betas"], group["eps"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                gradient = parameter.grad
                if group["weight_decay"]:
                    gradient = gradient.add(parameter, alpha=group["weight_decay"])
                state = self.state[parameter]
                if not state:
                    state |= {"step": 0, "mean": torch.zeros_like(parameter), "spread": torch.zeros_like(parameter)}
                state["step"] += 1
                mean, spread = state["mean"], state["spread"]
                mean.lerp_(gradient, 1 - first)
                deviation = gradient - mean
                spread.mul_(second).addcmul_(deviation, deviation, value=1 - second).add_(eps)
                root = (spread / (1 - second ** state["step"])).sqrt_().add_(eps)
                parameter.addcdiv_(mean, root, value=-group["lr"] / (1 - first ** state["step"]))
        return loss
