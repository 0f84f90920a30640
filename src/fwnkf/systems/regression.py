"""A motion that is fitted to states by linear regression: polynomials, sines and cosines, and functions of the user."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import torch
from torch import Tensor, nn

from ..core import linearize
from ..core.covariance import Covariance
from ..core.layout import Layout
from ..core.motion import Motion
from ..core.networks import add_change
from ..core.system import as_layout
from ..errors import ConfigError
from ..registry import FEATURES, MOTIONS, at_least, limited
from ..shapes import Float
from ..types import Gaussian, Statistics

MOST_TERMS = 2000
"""Terms of a motion: a small config must not enumerate billions of them."""
LEAST_FLOOR = 0.01
"""Share of ``Q`` that does not depend on the state, at least, so that it is definite everywhere."""
MOST_DERIVATIVES = 200_000
"""Of products by features, which are found one by one when a motion is made."""


@dataclass(frozen=True)
class RegressedMotionConfig:
    """State and terms of a :class:`RegressedMotion`.

    >>> RegressedMotion(RegressedMotionConfig(state_dim=3, degree=2)).terms.names[:5]
    ('1', 'x0', 'x1', 'x2', 'x0 x0')
    """

    state_dim: int = at_least(1, 1)
    """Number of components of the state."""
    control_dim: int = at_least(0, 0)
    """Number of control inputs."""
    layout: tuple[Any, ...] = ()
    """Name, kind and size of the parts of the state; by default Euclidean."""
    dt: float = 1.0
    """Nominal step ``dt₀`` (s)."""
    degree: int = at_least(1, 2)
    """Products of at most this many features of the state are terms; an angle has two features, cosine and sine."""
    harmonics: int = at_least(0, 0)
    """``sin k x`` and ``cos k x`` of every Euclidean component are terms, ``k`` up to this number."""
    functions: tuple[str, ...] = ()
    """Names of functions registered with ``fwnkf.register_feature`` that give further terms."""
    control_products: bool = False
    """Whether controls are factors of the products; otherwise they are terms of their own, linear."""
    floor: float = limited(1.0, min=LEAST_FLOOR, max=1.0)
    """Share of the mean ``Q`` that does not depend on the state."""
    learn: tuple[str, ...] = ()
    """Which of ``"W"`` and ``"Q"`` are parameters, for a fit by likelihood or training."""
    diagonal_process: bool = False
    """Whether ``Q`` is diagonal; a learned one stays so."""
    known: tuple[str, ...] = ()
    """Parts of the state whose coefficients are no parameters, because their equation is known."""

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.learn) - {"W", "Q"}):
            raise ConfigError(f"learn = {list(self.learn)}: wanted a selection of W and Q, not {', '.join(unknown)}")


class Terms(nn.Module):
    """The terms ``φ(x, u)`` of a regression and their Jacobian in the tangent space of ``x``.

    Products are of the features divided by :attr:`scale`, so that high powers stay within the digits of float32. The
    derivative of a product is a product with one factor less, which is a term too: none is computed twice.

    Args:
        config: which terms.
    """

    scale: Tensor
    factors: Tensor
    lowered: Tensor
    powers: Tensor
    eye: Tensor

    def __init__(self, config: RegressedMotionConfig) -> None:
        super().__init__()
        layout = as_layout(config.layout, config.state_dim)
        self.layout, self.control_dim, self.harmonics = layout, config.control_dim, config.harmonics
        self.control_products = config.control_products
        self.functions: tuple[Callable[[Tensor], Tensor], ...] = tuple(FEATURES[name] for name in config.functions)
        if max(config.control_dim, config.harmonics) > MOST_TERMS:
            raise ConfigError(
                f"control_dim = {config.control_dim:,}, harmonics = {config.harmonics:,}: at most {MOST_TERMS:,}"
            )
        controls = [f"u{i}" for i in range(config.control_dim)]
        base = [*_feature_names(layout), *(controls if config.control_products else ())]
        count = math.comb(len(base) + config.degree, config.degree)
        if count > MOST_TERMS or count * len(base) > MOST_DERIVATIVES:
            raise ConfigError(
                f"degree = {config.degree}: {count:,} products of {len(base)} features; at most "
                f"{MOST_TERMS:,}, with {MOST_DERIVATIVES:,} derivatives, are possible: choose a lower degree"
            )
        chosen = list(combinations_with_replacement(range(len(base) + 1), config.degree))
        place = {term: index for index, term in enumerate(chosen)}
        lowered = [[place[_without(term, j)] if j in term else 0 for j in range(1, len(base) + 1)] for term in chosen]
        powers = [[float(term.count(j)) for j in range(1, len(base) + 1)] for term in chosen]
        self.products = count
        self.register_buffer("factors", torch.tensor(chosen), persistent=False)
        self.register_buffer("lowered", torch.tensor(lowered), persistent=False)
        self.register_buffer("powers", torch.tensor(powers), persistent=False)
        self.register_buffer("scale", torch.ones(layout.feature_size + config.control_dim))
        self.register_buffer("eye", torch.eye(layout.tangent_size), persistent=False)
        names = [" ".join(base[j - 1] for j in term if j) or "1" for term in chosen]
        flat = _euclidean(layout)
        names += [f"{what}({k} {name})" for what in ("sin", "cos") for k in self._orders() for name, _, _ in flat]
        near = layout.origin(self.eye)
        for name, function in zip(config.functions, self.functions, strict=True):
            value = function(near)
            if value.ndim != 1 or function(near.expand(2, 3, -1)).shape != (2, 3, len(value)):
                raise ConfigError(
                    f"feature {name!r}: returns {list(value.shape)} for a state [{layout.size}]; wanted [k], and "
                    "[..., k] for states with leading axes"
                )
            names += [name] if len(value) == 1 else [f"{name}[{i}]" for i in range(len(value))]
        self.names = (*names, *(() if config.control_products else controls))
        self._numbers, self._tangents = [i for _, i, _ in flat], [i for _, _, i in flat]

    def _orders(self) -> range:
        return range(1, self.harmonics + 1)

    def forward(self, x: Float[Tensor, "*B n"], u: Float[Tensor, "*B p"] | None) -> Float[Tensor, "*B q"]:
        parts = [self._products(x, u)]
        if self.harmonics:
            angles = self._angles(x)
            parts += [angles.sin(), angles.cos()]
        parts += [function(x) for function in self.functions]
        if self.control_dim and not self.control_products:
            parts.append(self._control(x, u) / self.scale[self.layout.feature_size :])
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def with_jacobian(
        self, x: Float[Tensor, "B n"], u: Float[Tensor, "B p"] | None
    ) -> tuple[Float[Tensor, "B q"], Float[Tensor, "B q d"]]:
        """The terms, and their derivatives by the tangent coordinates of ``x``."""
        value, d = self(x, u), self.layout.tangent_size
        features = self.layout.feature_size
        slope = value[..., self.lowered[:, :features]] * (self.powers[:, :features] / self.scale[:features])
        slopes = [slope if self.layout.flat else slope @ self.layout.features_jacobian(x)]
        if self.harmonics:
            angles = self._angles(x)
            orders = [float(k) for k in self._orders() for _ in self._numbers]
            places = self.eye[self._tangents].repeat(self.harmonics, 1) * self.eye.new_tensor(orders).unsqueeze(-1)
            slopes += [angles.cos().unsqueeze(-1) * places, -angles.sin().unsqueeze(-1) * places]
        for function in self.functions:
            image = Layout.euclidean(function(x).shape[-1])
            slopes.append(linearize.jacobian(function, x, self.layout, image)[1])
        if self.control_dim and not self.control_products:
            slopes.append(x.new_zeros(*x.shape[:-1], self.control_dim, d))
        return value, slopes[0] if len(slopes) == 1 else torch.cat(slopes, -2)

    def _products(self, x: Tensor, u: Tensor | None) -> Tensor:
        factors = [self.layout.features(x)]
        if self.control_products and self.control_dim:
            factors.append(self._control(x, u))
        inputs = factors[0] if len(factors) == 1 else torch.cat(factors, -1)
        scaled = inputs / self.scale[: inputs.shape[-1]]
        padded = torch.cat((torch.ones_like(scaled[..., :1]), scaled), -1)
        first, *others = self.factors.unbind(-1)
        product = padded[..., first]
        for other in others:
            product = product * padded[..., other]
        return product

    def _angles(self, x: Tensor) -> Tensor:
        numbers = x[..., self._numbers]
        return torch.cat([k * numbers for k in self._orders()], -1)

    def _control(self, x: Tensor, u: Tensor | None) -> Tensor:
        return x.new_zeros(*x.shape[:-1], self.control_dim) if u is None else u


@MOTIONS.register("polynomial")
class RegressedMotion(Motion):
    """``x⁺ = x ⊞ (dt/dt₀) W φ(x, u) + w``: linear in terms ``φ`` that are fixed functions of state and control.

    ``Q`` says where the regression can be trusted: with the mean ``Q̄``, ``Q(x, u) = Q̄ (c + |Lᵀ φ(x, u)|²)``, in which
    ``L Lᵀ`` is in proportion to the covariance of the coefficients. Far from the states that it was fitted to, the
    motion is uncertain. Before a fit it is a random walk. :func:`fwnkf.identify.fit_regression` fits it to states,
    :func:`fwnkf.identify.fit_regression_em` to measurements.

    Args:
        config: state and terms.

    >>> import torch, fwnkf
    >>> t = torch.arange(200.0, dtype=torch.float64) / 10
    >>> states = torch.stack((t.sin(), t.cos()), -1).expand(2, -1, -1)
    >>> motion = fwnkf.identify.fit_regression(states, dt=0.1, degree=1).motion
    >>> bool(torch.allclose(motion.transition(states[:, 5], None, None), states[:, 6]))
    True
    """

    Config = RegressedMotionConfig
    W: Tensor
    place: Tensor
    L: Tensor
    Q: Covariance
    initial_mean: Tensor
    initial_cov: Tensor
    initial_steps = 1

    def __init__(self, config: RegressedMotionConfig) -> None:
        super().__init__(config)
        self.terms = Terms(config)
        self.layout, self.dt, self.control_dim = self.terms.layout, config.dt, config.control_dim
        d, q = self.layout.tangent_size, len(self.terms.names)
        self.register_buffer("W", torch.zeros(d, q))
        if "W" in config.learn:
            rows = self.unknown_rows()
            self.free = nn.Parameter(torch.zeros(len(rows), q))
            self.register_buffer("place", torch.eye(d)[:, rows], persistent=False)
        if config.floor < 1:
            self.register_buffer("L", torch.zeros(q, q))
        self.diagonal_process = config.diagonal_process
        self.Q = Covariance(torch.eye(d), "Q" in config.learn, config.diagonal_process)
        self.register_buffer("initial_mean", self.layout.origin(self.terms.eye))
        self.register_buffer("initial_cov", torch.eye(d))

    def unknown_rows(self) -> list[int]:
        """The tangent coordinates whose coefficients are not known.

        Returns:
            Their places.
        """
        if unknown := sorted(set(self.config.known) - {part.name for part in self.layout.parts}):
            raise ConfigError(f"known = {list(self.config.known)}: the state has no part {', '.join(unknown)}")
        parts = [part.name for part in self.layout.parts for _ in range(part.tangent_size)]
        return [row for row, name in enumerate(parts) if name not in self.config.known]

    def coefficients(self) -> Float[Tensor, "d q"]:
        """The coefficients of all coordinates.

        Returns:
            ``W``, in the scaled terms.
        """
        return self.W + self.place @ self.free if "W" in self.config.learn else self.W

    @torch.no_grad()
    def assign(self, W: Float[Tensor, "d q"]) -> None:
        """Set the coefficients.

        Args:
            W: those of all coordinates, in the scaled terms.
        """
        self.W.copy_(W)
        if "W" in self.config.learn:
            rows = self.unknown_rows()
            self.W[rows] = 0.0
            self.free.copy_(W[rows])

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        change = self.terms(x, u) @ self.coefficients().mT
        ratio = self._ratio(dt)
        return self.layout.boxplus(x, change if ratio is None else change * ratio.unsqueeze(-1))

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        value, slope = self.terms.with_jacobian(x, u)
        W = self.coefficients()
        return add_change(self.layout, (x, self.terms.eye), (value @ W.mT, W @ slope), self._ratio(dt))

    def process_noise(self, dt: Tensor | None) -> Tensor:
        """The mean over the states of the fit; :meth:`process_noise_at` has that of a state."""
        Q: Tensor = self.Q()
        ratio = self._ratio(dt)
        return Q if ratio is None else Q * ratio[..., None, None]

    def process_noise_at(self, Q: Tensor, x: Tensor, u: Tensor | None) -> Tensor:
        if self.config.floor == 1:
            return Q
        spread = (self.terms(x, u) @ self.L).square().sum(-1)
        return Q * (self.config.floor + spread)[..., None, None]

    def residual_step(self, statistics: Statistics) -> Tensor:
        """What the regression leaves unexplained of a step."""
        return self.process_noise(None).diagonal().sqrt().to(statistics.step)

    def prior(self) -> Gaussian:
        """Mean and covariance of the states of the fit."""
        return Gaussian(self.initial_mean, self.initial_cov)

    def initial_belief(self, y: Tensor, weight: Tensor, u: Tensor | None) -> Gaussian:
        mean, cov = self.prior()
        return Gaussian(mean.expand(len(y), -1), cov.expand(len(y), -1, -1))

    def equations(self, digits: int = 4) -> list[str]:
        """The change of each tangent coordinate in one second, terms in the units of the state.

        Args:
            digits: significant digits of the coefficients.

        Returns:
            A line for each coordinate.

        >>> motion = RegressedMotion(RegressedMotionConfig(degree=1, dt=0.5))
        >>> motion.W.copy_(torch.tensor([[0.0, -0.25]]))
        tensor([[ 0.0000, -0.2500]])
        >>> motion.equations()
        ["x0' = -0.5 x0"]
        """
        scale = torch.cat((self.terms.scale.new_ones(1), self.terms.scale))[self.terms.factors].prod(-1)
        rest = len(self.terms.names) - len(scale)
        own = self.terms.scale[self.layout.feature_size :] if not self.terms.control_products else scale.new_ones(0)
        scale = torch.cat((scale, scale.new_ones(rest - len(own)), own))
        lines = []
        for name, row in zip(
            _tangent_names(self.layout), (self.coefficients() / scale / self.dt).tolist(), strict=True
        ):
            parts = [f"{value:.{digits}g} {term}" for value, term in zip(row, self.terms.names, strict=True) if value]
            lines.append(f"{name}' = {' + '.join(parts) or '0'}".replace("+ -", "- "))
        return lines

    def _ratio(self, dt: Tensor | None) -> Tensor | None:
        return None if dt is None else dt / self.dt


def _without(term: tuple[int, ...], factor: int) -> tuple[int, ...]:
    """The product with one factor less: the constant, which comes first, takes its place."""
    left = list(term)
    left.remove(factor)
    return (0, *left)


def _numbered(name: str, size: int) -> list[str]:
    return [name] if size == 1 and name != "x" else [f"{name}{i}" for i in range(size)]


def _feature_names(layout: Layout) -> list[str]:
    """A name for each of :meth:`Layout.features`."""
    names = []
    for part in layout.parts:
        if part.kind == "quaternion":
            names += [f"R({part.name}){i}{j}" for i in range(3) for j in range(3)]
        elif part.kind == "angle":
            names += [f"{what}({name})" for what in ("cos", "sin") for name in _numbered(part.name, part.size)]
        else:
            names += _numbered(part.name, part.size)
    return names


def _tangent_names(layout: Layout) -> list[str]:
    return [name for part in layout.parts for name in _numbered(part.name, part.tangent_size)]


def _euclidean(layout: Layout) -> list[tuple[str, int, int]]:
    """Name, place in the state and place in the tangent space of every Euclidean component."""
    found, number, tangent = [], 0, 0
    for part in layout.parts:
        if part.kind == "euclidean":
            names = _numbered(part.name, part.size)
            found += [(name, number + i, tangent + i) for i, name in enumerate(names)]
        number, tangent = number + part.size, tangent + part.tangent_size
    return found
