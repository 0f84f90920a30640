"""The command line: parses, calls, prints. One module for each command; nothing heavy is imported before one runs."""

from .main import main

__all__ = ["main"]
