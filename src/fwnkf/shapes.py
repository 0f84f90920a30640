"""Shape annotations, free of charge at run time.

``Float[Tensor, "*B n"]`` is read by people and by the type checker. Only when the environment variable
``FWNKF_CHECK_SHAPES`` is set (the test suite has a pass that does) are the shapes checked, by jaxtyping and
beartype: a checker costs about 100 µs a call and breaks export, and the core depends on neither package.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or os.environ.get("FWNKF_CHECK_SHAPES"):
    from jaxtyping import Bool, Complex, Float, Int
else:

    class _Unchecked:
        """Stands in for a jaxtyping array type: ``Float[Tensor, "n"]`` is just ``Tensor``."""

        def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
            return item[0]

    Bool = Complex = Float = Int = _Unchecked

__all__ = ["Bool", "Complex", "Float", "Int"]
