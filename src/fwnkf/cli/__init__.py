"""The command line, with one module for each command; heavy packages are imported only when a command runs."""

from .main import main

__all__ = ["main"]
