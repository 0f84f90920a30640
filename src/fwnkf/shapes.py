"""Shape annotations without cost at run time.

``Float[Tensor, "*B n"]`` is for readers and for the type checker. Shapes are checked only if the environment variable
``FWNKF_CHECK_SHAPES`` is set, as in one pass of the test suite, by jaxtyping and beartype: a check costs about 100 µs a
call and prevents export, and the core depends on neither package.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or os.environ.get("FWNKF_CHECK_SHAPES"):
    from jaxtyping import Bool, Complex, Float, Int
else:

    class _Unchecked:
        """Replacement of a jaxtyping array type: ``Float[Tensor, "n"]`` is ``Tensor``.

        >>> Float[list, "n"]  # doctest: +SKIP
        <class 'list'>
        """

        def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
            return item[0]

    Bool = Complex = Float = Int = _Unchecked

__all__ = ["Bool", "Complex", "Float", "Int"]
