"""The Earth for a vehicle near its surface: ellipsoid, gravity and magnetic field.

Ellipsoid and gravity are those of WGS 84. The magnetic field is the main field of IGRF-13 for 2020 to degree four: off
by a few degrees in declination, which a filter that estimates the field takes up.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SEMI_MAJOR, FLATTENING = 6378137.0, 1 / 298.257223563
RATE = 7.292115e-5
"""Of rotation (rad/s)."""
ECCENTRICITY = FLATTENING * (2 - FLATTENING)
"""Squared."""
EQUATOR, POLE_FACTOR = 9.7803253359, 0.00193185265241
"""Somigliana's formula for normal gravity (m/s²)."""
MAGNETIC_RADIUS = 6371200.0
FIELD = {
    (1, 0): (-29404.8, 0.0),
    (1, 1): (-1450.9, 4652.5),
    (2, 0): (-2499.6, 0.0),
    (2, 1): (2982.0, -2991.6),
    (2, 2): (1677.0, -734.6),
    (3, 0): (1363.2, 0.0),
    (3, 1): (-2381.2, -82.1),
    (3, 2): (1236.2, 241.9),
    (3, 3): (525.7, -543.4),
    (4, 0): (903.0, 0.0),
    (4, 1): (809.5, 281.9),
    (4, 2): (86.3, -158.4),
    (4, 3): (-309.4, 199.7),
    (4, 4): (48.0, -349.7),
}
"""Coefficients g and h of IGRF-13 at 2020 (nT), by degree and order (Alken et al. 2021)."""


def radii(latitude: float) -> tuple[float, float]:
    """Radii of curvature of the ellipsoid along the meridian and across it (m), at a latitude in radians.

    >>> [round(radius) for radius in radii(0.0)]
    [6335439, 6378137]
    """
    square = 1 - ECCENTRICITY * math.sin(latitude) ** 2
    return SEMI_MAJOR * (1 - ECCENTRICITY) / square**1.5, SEMI_MAJOR / math.sqrt(square)


def gravity(latitude: float, height: float = 0.0) -> float:
    """Normal gravity (m/s²) at a latitude in radians and a height in metres.

    >>> round(gravity(math.radians(45.0)), 4)
    9.8062
    """
    sine = math.sin(latitude) ** 2
    surface = EQUATOR * (1 + POLE_FACTOR * sine) / math.sqrt(1 - ECCENTRICITY * sine)
    return surface * (1 - 2 * height / SEMI_MAJOR)


def north_east_down(places: Array, origin: tuple[float, float, float]) -> Array:
    """Metres north, east and down of an origin along the surface, from degrees and metres ``[…, 3]``.

    >>> north_east_down(np.array([[45.001, 7.0, 10.0]]), (45.0, 7.0, 0.0)).round(2).tolist()
    [[111.13, 0.0, -10.0]]
    """
    lat, lon, up = origin
    north, east = radii(math.radians(lat))
    # the shorter way around, for a track across the date line
    turn = np.deg2rad((places[..., 1] - lon + 180.0) % 360.0 - 180.0)
    return np.stack(
        (
            np.deg2rad(places[..., 0] - lat) * (north + up),
            turn * (east + up) * math.cos(math.radians(lat)),
            up - places[..., 2],
        ),
        -1,
    )


def geodetic(position: Array, origin: tuple[float, float, float]) -> Array:
    """Degrees of latitude and longitude, and height in metres: the inverse of :func:`north_east_down`.

    >>> geodetic(np.array([[111.13, 0.0, -10.0]]), (45.0, 7.0, 0.0)).round(3).tolist()
    [[45.001, 7.0, 10.0]]
    """
    lat, lon, up = origin
    north, east = radii(math.radians(lat))
    return np.stack(
        (
            lat + np.rad2deg(position[..., 0] / (north + up)),
            lon + np.rad2deg(position[..., 1] / ((east + up) * math.cos(math.radians(lat)))),
            up - position[..., 2],
        ),
        -1,
    )


def magnetic_field(latitude: float, longitude: float, height: float = 0.0) -> tuple[float, float, float]:
    """The main field north, east and down (µT), at degrees and metres.

    >>> [round(part) for part in magnetic_field(47.0, 8.0)]
    [24, 2, 43]
    """
    # geodetic to geocentric latitude
    phi = math.radians(latitude)
    _, east = radii(phi)
    x, z = (east + height) * math.cos(phi), (east * (1 - ECCENTRICITY) + height) * math.sin(phi)
    radius, geocentric = math.hypot(x, z), math.atan2(z, x)
    theta, lam = math.pi / 2 - geocentric, math.radians(longitude)
    cosine, sine = math.cos(theta), max(math.sin(theta), 1e-9)
    # Schmidt's functions and their derivatives by the colatitude
    P, D = {(0, 0): 1.0}, {(0, 0): 0.0}
    for n in range(1, 5):
        for m in range(n + 1):
            if n == m:
                factor = math.sqrt((2 * n - 1) / (2 * n)) if n > 1 else 1.0
                P[n, m] = factor * sine * P[n - 1, m - 1]
                D[n, m] = factor * (cosine * P[n - 1, m - 1] + sine * D[n - 1, m - 1])
            else:
                root, below = math.sqrt(n * n - m * m), math.sqrt(max((n - 1) ** 2 - m * m, 0))
                older, slope = P.get((n - 2, m), 0.0), D.get((n - 2, m), 0.0)
                P[n, m] = ((2 * n - 1) * cosine * P[n - 1, m] - below * older) / root
                D[n, m] = ((2 * n - 1) * (cosine * D[n - 1, m] - sine * P[n - 1, m]) - below * slope) / root
    radial = south = eastward = 0.0
    for (n, m), (g, h) in FIELD.items():
        scale = (MAGNETIC_RADIUS / radius) ** (n + 2)
        wave, turn = g * math.cos(m * lam) + h * math.sin(m * lam), -g * math.sin(m * lam) + h * math.cos(m * lam)
        radial += scale * (n + 1) * wave * P[n, m]
        south -= scale * wave * D[n, m]
        eastward -= scale * m * turn * P[n, m] / sine
    north, down = -south, -radial
    tilt = phi - geocentric
    return (
        1e-3 * (north * math.cos(tilt) + down * math.sin(tilt)),
        1e-3 * eastward,
        1e-3 * (down * math.cos(tilt) - north * math.sin(tilt)),
    )
