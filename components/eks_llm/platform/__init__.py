"""One platform in one stack file: `load` reads it, `check` sizes it. For programs of your own, see README.md."""

from .schema import EksPlatform, ExistingPlatform
from .stack_file import Settings, load
from .sum import check

__all__ = ["EksPlatform", "ExistingPlatform", "Settings", "check", "load"]
