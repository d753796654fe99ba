"""Command-line tools at pinned versions, found or built: `provide("pulumi")` or `python -m embedded.tools pulumi`."""

from .install import ToolError, provide
from .registry import OLDEST_KUBERNETES, TOOLS, Tool

__all__ = ["OLDEST_KUBERNETES", "TOOLS", "Tool", "ToolError", "provide"]
