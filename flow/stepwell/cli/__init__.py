"""The `stepwell` command."""

from stepwell.cli._root import main

__all__ = ["main"]
