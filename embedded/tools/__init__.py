"""Command-line tools at pinned versions, found or built: `provide("pulumi")` or `python -m embedded.tools pulumi`."""

from .install import ToolError, provide
from .registry import TESTED, TOOLS, Tool

__all__ = ["TESTED", "TOOLS", "Tool", "ToolError", "provide"]
