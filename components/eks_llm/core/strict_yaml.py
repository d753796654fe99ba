"""`StrictLoader`: YAML as Pulumi's CLI reads it, and no key twice."""

import re
from typing import Any

import yaml

_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times faster, where it was built


class StrictLoader(_SafeLoader):
    """Reads YAML as the CLI does (version 1.2: `on`, `22:30` and `2026-10-01` are text) and refuses duplicate keys."""

    yaml_implicit_resolvers = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if key.value in seen and key.value != "<<":
                raise yaml.MarkedYAMLError(problem=f"key {key.value!r} stands here twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
):
    StrictLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)
