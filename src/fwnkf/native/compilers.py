"""The compilers of this machine."""

from __future__ import annotations

import os
import shutil


def c_compiler() -> str | None:
    """The first C compiler of this machine, if there is one."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def compiler_available() -> bool:
    """Whether there is a C++ compiler, which ``torch.compile`` needs on the CPU."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "c++", "clang++", "cl"))
