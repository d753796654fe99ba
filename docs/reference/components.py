"""Writes docs/reference/components.md: the children of every component, and what `customize` may not change of them.

Run it after a change of a component's children: `.venv/bin/python docs/reference/components.py`. A unit test compares.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path

import eks_llm
from eks_llm.core.component import Component

PAGE = Path(__file__).with_name("components.md")
HEAD = """# Children of the components

Written by `docs/reference/components.py` from the code; do not edit. How to use it:
[components](../../components/README.md#change-what-a-component-makes).

A child is an attribute of its component: one resource, a mapping of several, or None where the arguments ask for none.
`customize` takes properties by these names; where an attribute is a mapping, they reach every member.
"""


COLUMNS = "| child | resource | what it is | not for `customize` |\n|---|---|---|---|"


def components() -> Iterator[type[Component]]:
    """All components, by name."""
    for name in eks_llm.__all__:
        value = getattr(eks_llm, name)
        if inspect.isclass(value) and issubclass(value, Component):
            yield value


def page() -> str:
    """The page as Markdown."""
    parts = [HEAD]
    for component in components():
        parts += [
            f"## {component.__name__}\n",
            "| child | resource | what it is | not for `customize` |",
            "|---|---|---|---|",
        ]
        for key, child in component.CHILDREN.items():
            owned = "; ".join(f"`{path}`: {reason}" for path, reason in child.owned.items())
            kind = f"{child.type.__module__.split('.')[0].removeprefix('pulumi_')} {child.type.__name__}"
            parts.append(f"| `{key}` | {kind} | {child.what} | {owned} |")
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
