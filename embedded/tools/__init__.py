"""Command-line tools at pinned versions, found, downloaded or built: `python -m embedded.tools pulumi`."""

from .build import ToolError
from .install import TOOLS_DIR, find, provide, provide_all
from .registry import OLDEST_KUBERNETES, TOOLS, Tool

__all__ = ["OLDEST_KUBERNETES", "TOOLS", "TOOLS_DIR", "Tool", "ToolError", "find", "provide", "provide_all"]
