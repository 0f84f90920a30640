"""The layout of a state: which of its components are Euclidean, angles or unit quaternions.

Means are points of the manifold, covariances are in its tangent space; ``boxplus`` applies a correction, ``boxminus``
takes a difference. For a Euclidean layout these are plain addition and subtraction, at no additional cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..errors import ConfigError
from ..shapes import Float
from . import rotation
from .gaussian import block_diagonal

Kind = Literal["euclidean", "angle", "quaternion"]


@dataclass(frozen=True)
class Part:
    """A named block of components of one kind.

    >>> from fwnkf import Part
    >>> Part("attitude", "quaternion", 4).tangent_size
    3
    >>> utm = Part("position", "euclidean", 2, origin=(5_400_000.0, 320_000.0))  # numbers are metres from there
    """

    name: str
    """What the components are called in tables and plots."""
    kind: Kind
    """``"euclidean"``, ``"angle"`` (radians, wrapped) or ``"quaternion"`` (unit norm; w, x, y, z)."""
    size: int
    """How many numbers are stored: 4 for a quaternion."""
    origin: tuple[float, ...] = ()
    """Of a Euclidean part: the point that its numbers are relative to; zero by default.

    Single precision has seven digits, too few for centimetres in UTM or ECEF coordinates. Relative to a point nearby
    they are enough. Equations and tensors have relative numbers; streams, ``fwnkf run`` and ``fwnkf batch`` take and
    return absolute ones, which are converted in double precision. See :meth:`Layout.relative`.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "origin", tuple(float(number) for number in self.origin))
        if self.origin and (
            self.kind != "euclidean" or len(self.origin) != self.size or not all(map(math.isfinite, self.origin))
        ):
            raise ConfigError(
                f"part {self.name!r}: origin {self.origin} must have {self.size} finite numbers, and the part must be "
                "euclidean"
            )
        if self.kind not in get_args(Kind):
            raise ConfigError(f"state part {self.name!r}: kind {self.kind!r} is none of {get_args(Kind)}")
        if self.size < 1 or (self.kind == "quaternion" and self.size != 4):
            raise ConfigError(
                f"state part {self.name!r}: size {self.size} does not fit kind {self.kind!r} "
                "(a quaternion takes 4 numbers, the others at least 1)"
            )

    @property
    def tangent_size(self) -> int:
        """Dimension of the tangent space: 3 for a quaternion, otherwise :attr:`size`."""
        return 3 if self.kind == "quaternion" else self.size


@dataclass(frozen=True)
class Layout:
    """Parts in the order in which they are stored.

    >>> layout = Layout.parse([("theta", "angle", 1), ("omega", "euclidean", 1)])
    >>> layout.boxminus(torch.tensor([3.1, 0.0]), torch.tensor([-3.1, 0.0])).round(decimals=3)
    tensor([-0.0830,  0.0000])
    """

    parts: tuple[Part, ...]
    """The parts in the order in which they are stored."""
    size: int = field(init=False, repr=False, compare=False)
    """Numbers stored."""
    tangent_size: int = field(init=False, repr=False, compare=False)
    """Dimension of the tangent space, the size of covariances."""
    feature_size: int = field(init=False, repr=False, compare=False)
    """Number of network inputs that :meth:`features` returns."""
    flat: bool = field(init=False, repr=False, compare=False)
    """Whether every part is Euclidean, so that the manifold is a plain vector space."""
    origins: tuple[float, ...] = field(init=False, repr=False, compare=False)
    """The origin of every number, zero where a part has none; empty if no part has one."""
    _sizes: list[int] = field(init=False, repr=False, compare=False)
    _tangent_sizes: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # plain attributes rather than cached properties, which torch.compile cannot trace
        widths = {"euclidean": 1, "angle": 2, "quaternion": 9 / 4}
        derived = {
            "size": sum(part.size for part in self.parts),
            "tangent_size": sum(part.tangent_size for part in self.parts),
            "feature_size": round(sum(widths[part.kind] * part.size for part in self.parts)),
            "flat": all(part.kind == "euclidean" for part in self.parts),
            "origins": tuple(number for part in self.parts for number in part.origin or (0.0,) * part.size)
            if any(part.origin for part in self.parts)
            else (),
            "_sizes": [part.size for part in self.parts],
            "_tangent_sizes": [part.tangent_size for part in self.parts],
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @classmethod
    def euclidean(cls, size: int, name: str = "x") -> Layout:
        """A layout of one Euclidean part.

        Args:
            size: number of components.
            name: name of the part.

        Returns:
            The layout.
        """
        return cls((Part(name, "euclidean", size),))

    @classmethod
    def parse(cls, parts: Sequence[Sequence[Any]]) -> Layout:
        """From ``[(name, kind, size), …]``, the form stored in ``config.json``.

        Args:
            parts: name, kind and size of each part, and its origin if it has one.

        Returns:
            The layout.
        """
        return cls(tuple(Part(*part) for part in parts))

    def describe(self) -> tuple[tuple[Any, ...], ...]:
        """The inverse of :meth:`parse`.

        Returns:
            Name, kind and size of each part, and its origin if it has one.
        """
        return tuple(
            (part.name, part.kind, part.size, part.origin) if part.origin else (part.name, part.kind, part.size)
            for part in self.parts
        )

    def words(self) -> str:
        """The parts in words, with what is not one plain number.

        Returns:
            Names, sizes and kinds.

        >>> Layout.parse([("position", "euclidean", 3), ("heading", "angle", 1), ("bias", "euclidean", 1)]).words()
        'position 3, heading (angle), bias'
        """
        return ", ".join(
            part.name
            + (f" {part.size}" if part.size > 1 and part.kind != "quaternion" else "")
            + (f" ({part.kind})" if part.kind != "euclidean" else "")
            for part in self.parts
        )

    def relative(self, values: Float[Tensor, "*B n"], like: Tensor) -> Float[Tensor, "*B n"]:
        """Absolute numbers as those of a filter: relative to the origins, with the dtype and device of ``like``.

        Args:
            values: absolute numbers.
            like: a tensor with the dtype and device wanted.

        Returns:
            Relative numbers.

        >>> layout = Layout((Part("north", "euclidean", 1, origin=(5_400_000.0,)),))
        >>> layout.relative(torch.tensor([5_400_012.34], dtype=torch.float64), torch.zeros(()))
        tensor([12.3400])
        """
        return (values if not self.origins else values - values.new_tensor(self.origins)).to(like)

    def absolute(self, x: Float[Tensor, "*B n"]) -> Float[Tensor, "*B n"]:
        """The inverse of :meth:`relative`, in double precision.

        Args:
            x: relative numbers.

        Returns:
            Absolute numbers; ``x`` itself if no part has an origin.
        """
        return x if not self.origins else x.double() + torch.tensor(self.origins, dtype=torch.float64, device=x.device)

    def linear(self) -> Layout:
        """The same parts with angles as plain numbers, so that its features are what a matrix is multiplied with.

        Returns:
            A new layout.

        >>> Layout.parse([("theta", "angle", 1), ("q", "quaternion", 4)]).linear().feature_size
        10
        """
        return Layout(tuple(replace(part, kind="euclidean") if part.kind == "angle" else part for part in self.parts))

    def boxplus(self, x: Float[Tensor, "*B n"], delta: Float[Tensor, "*B d"]) -> Float[Tensor, "*B n"]:
        """``x ⊞ δ``: the point reached from ``x`` along the tangent vector ``δ``.

        Args:
            x: the point.
            delta: the tangent vector at ``x``.

        Returns:
            The point reached, angles wrapped and quaternions of unit norm.
        """
        if self.flat:
            return x + delta
        moved = []
        for part, a, b in zip(self.parts, x.split(self._sizes, -1), delta.split(self._tangent_sizes, -1), strict=True):
            if part.kind == "quaternion":
                # normalised because the norm of repeated products of unit quaternions drifts from 1 in float32
                moved.append(rotation.normalize(rotation.multiply(a, rotation.exp(b))))
            else:
                moved.append(rotation.wrap(a + b) if part.kind == "angle" else a + b)
        return torch.cat(moved, -1)

    def boxminus(self, x: Float[Tensor, "*B n"], y: Float[Tensor, "*B n"]) -> Float[Tensor, "*B d"]:
        """``x ⊟ y``: the tangent vector at ``y`` that leads to ``x`` along the shortest path.

        Args:
            x: where the vector leads.
            y: where it starts.

        Returns:
            The vector, the inverse of :meth:`boxplus`.
        """
        if self.flat:
            return x - y
        differences = []
        for part, a, b in zip(self.parts, x.split(self._sizes, -1), y.split(self._sizes, -1), strict=True):
            if part.kind == "quaternion":
                differences.append(rotation.log(rotation.multiply(rotation.conjugate(b), a)))
            else:
                differences.append(rotation.wrap(a - b) if part.kind == "angle" else a - b)
        return torch.cat(differences, -1)

    def project(self, x: Float[Tensor, "*B n"]) -> Float[Tensor, "*B n"]:
        """The same point with angles wrapped and quaternions of unit norm.

        Args:
            x: the point.

        Returns:
            The point in the range of its parts.
        """
        if self.flat:
            return x
        maps = {"quaternion": rotation.normalize, "angle": rotation.wrap}
        pieces = zip(self.parts, self.split(x), strict=True)
        return torch.cat([maps[part.kind](piece) if part.kind in maps else piece for part, piece in pieces], -1)

    def split(self, x: Float[Tensor, "*B n"]) -> tuple[Tensor, ...]:
        """Split a point into its parts.

        Args:
            x: the point.

        Returns:
            One tensor for each part.
        """
        return x.split(self._sizes, -1)

    def split_tangent(self, delta: Float[Tensor, "*B d"]) -> tuple[Tensor, ...]:
        """Split a tangent vector into its parts.

        Args:
            delta: the vector.

        Returns:
            One tensor for each part.
        """
        return delta.split(self._tangent_sizes, -1)

    def boxplus_jacobians(
        self, delta: Float[Tensor, "*B d"]
    ) -> tuple[Float[Tensor, "*C d d"], Float[Tensor, "*C d d"]]:
        """Jacobians of ``x ⊞ δ`` in its tangent space, with respect to ``x`` and to ``δ``; identities where flat.

        Args:
            delta: the tangent vector ``δ``.

        Returns:
            The Jacobians with respect to ``x`` and to ``δ``.
        """
        on_state, on_delta = [], []
        for part, piece in zip(self.parts, delta.split(self._tangent_sizes, -1), strict=True):
            eye = torch.eye(part.tangent_size, dtype=delta.dtype, device=delta.device)
            is_rotation = part.kind == "quaternion"
            on_state.append(rotation.to_matrix(rotation.exp(piece)).mT if is_rotation else eye)
            on_delta.append(rotation.right_jacobian(piece) if is_rotation else eye)
        return self._block_diagonal(on_state), self._block_diagonal(on_delta)

    @staticmethod
    def _block_diagonal(blocks: list[Tensor]) -> Tensor:
        whole = blocks[0]
        for block in blocks[1:]:
            whole = block_diagonal(whole, block)
        return whole

    def magnitude(self, x: Float[Tensor, "*B n"]) -> Float[Tensor, "*B d"]:
        """The size of the numbers in which each tangent coordinate of a point is stored: one for a quaternion.

        Args:
            x: the point.

        Returns:
            A number that is not negative, for each tangent coordinate.
        """
        if self.flat:
            return x.abs()
        pieces = zip(self.parts, self.split(x), strict=True)
        return torch.cat(
            [torch.ones_like(piece[..., :3]) if part.kind == "quaternion" else piece.abs() for part, piece in pieces],
            -1,
        )

    def origin(self, like: Tensor) -> Float[Tensor, " n"]:
        """Zero, with the identity rotation for quaternions; dtype and device of ``like``.

        Args:
            like: a tensor with the dtype and device wanted.

        Returns:
            The point.
        """
        values: list[float] = []
        for part in self.parts:
            values += [1.0, 0.0, 0.0, 0.0] if part.kind == "quaternion" else [0.0] * part.size
        return like.new_tensor(values)

    def features(self, x: Float[Tensor, "*B n"]) -> Float[Tensor, "*B f"]:
        """The state as a continuous network input: cosine and sine for angles, rotation matrices for quaternions.

        Args:
            x: the state.

        Returns:
            :attr:`feature_size` numbers for each state.
        """
        if self.flat:
            return x
        features = []
        for part, a in zip(self.parts, x.split(self._sizes, -1), strict=True):
            if part.kind == "quaternion":
                features.append(rotation.to_matrix(a).flatten(-2))
            elif part.kind == "angle":
                features += [a.cos(), a.sin()]
            else:
                features.append(a)
        return torch.cat(features, -1)

    def tangent_scales(
        self, mean: Float[Tensor, " f"], std: Float[Tensor, " f"]
    ) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"]]:
        """Mean and deviation of each tangent coordinate from those of the features; 0 and 1 rad where it turns.

        Args:
            mean: means of the features.
            std: standard deviations of the features.

        Returns:
            Mean and standard deviation of each tangent coordinate.
        """
        means, stds = mean.new_zeros(self.tangent_size), std.new_ones(self.tangent_size)
        start = at = 0
        for part in self.parts:
            if part.kind == "euclidean":
                means[at : at + part.size] = mean[start : start + part.size]
                stds[at : at + part.size] = std[start : start + part.size]
            start += 9 if part.kind == "quaternion" else part.size * (2 if part.kind == "angle" else 1)
            at += part.tangent_size
        return means, stds

    def features_jacobian(self, x: Float[Tensor, "*B n"]) -> Float[Tensor, "*B f d"]:
        """Jacobian of :meth:`features` with respect to the tangent vector at ``x``.

        Args:
            x: the state.

        Returns:
            The Jacobian.
        """
        rows = []
        start = 0
        for part, a in zip(self.parts, x.split(self._sizes, -1), strict=True):
            if part.kind == "quaternion":  # R(q ⊗ exp δ) = R (I + [δ]×)
                generators = rotation.skew(torch.eye(3, dtype=x.dtype, device=x.device))
                block = (rotation.to_matrix(a).unsqueeze(-3) @ generators).flatten(-2).mT
            elif part.kind == "angle":
                block = torch.cat((torch.diag_embed(-a.sin()), torch.diag_embed(a.cos())), -2)
            else:
                block = torch.eye(part.size, dtype=x.dtype, device=x.device).expand(*x.shape[:-1], -1, -1)
            stop = start + part.tangent_size
            rows.append(torch.nn.functional.pad(block, (start, self.tangent_size - stop)))
            start = stop
        return torch.cat(rows, -2)
