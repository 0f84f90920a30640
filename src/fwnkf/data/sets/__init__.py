"""Public data sets: their catalogue, downloads that are checked, and one reader for each.

Nothing else of the library imports this folder but the commands that are asked for a data set by name.
"""

from __future__ import annotations
