"""Command-line tools at pinned versions, found or built: `provide("pulumi")` or `python -m embedded.tools pulumi`."""

from .install import TOOLS_DIR, ToolError, find, provide
from .registry import OLDEST_KUBERNETES, TOOLS, Tool

__all__ = ["OLDEST_KUBERNETES", "TOOLS", "TOOLS_DIR", "Tool", "ToolError", "find", "provide"]
