"""YAML as Pulumi's CLI hands it to a program: `read`.

The CLI reads stack files with Go's yaml.v3 and hands objects over as JSON; what YAML of other versions reads otherwise
follows it here. Source: gopkg.in/yaml.v3 3.0.1, `resolve.go` and `decode.go`; Pulumi 3.274.1,
`sdk/go/common/resource/config`. `tests/engine/test_yaml.py` holds both readers against each other.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import yaml

from .go_time import go_time

_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times faster, where it was built

_PLAIN = "plain"
"""Tag of a scalar that has neither quotes nor a tag: what it is depends on its text."""
_CORE = "tag:yaml.org,2002:"
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_SIGN_INSIDE = re.compile(r"0(?:b([-+][01]+)|o([-+][0-7]+))")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_VERSION = re.compile(r"^%YAML[ \t]+(?!1\.1[ \t]*(#.*)?$).*", re.MULTILINE)
_ALIASED = 0.99
"""Largest share of nodes that may come from aliases, above `_MANY` nodes: Go's guard against files that explode."""
_MANY = 1000


class YamlError(ValueError):
    """What cannot be read: each problem as a text of its own, with its line and key path."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class _Loader(_SafeLoader):
    """Composes nodes and leaves it to `_Reader` what plain scalars are."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode and implicit[0]:
            return _PLAIN
        return super().resolve(kind, value, implicit)


_Loader.yaml_implicit_resolvers = {}


def read(text: str, *, times: bool = True) -> Any:
    """The content of one document, with values that JSON knows. Raises `YamlError` with every problem.

    `times`: a date without quotes becomes the text that the CLI makes of it, `2026-10-01 00:00:00 +0000 UTC`.
    Otherwise it stays as it is written.
    """
    if directive := _VERSION.search(text.partition("\n---")[0]):
        raise YamlError(f"{directive[0]}: the CLI takes no such line; remove it")
    loader = _Loader(text.removeprefix("\ufeff"))
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        reader = _Reader(times)
        content = reader.value(node, "")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(f"{_line(mark)}: {error.problem or error.context}" if mark else str(error.problem)) from None
    except yaml.YAMLError as error:
        raise YamlError(f"not a YAML file ({str(error).splitlines()[0]})") from None
    except RecursionError:
        raise YamlError(TOO_DEEP) from None
    finally:
        loader.dispose()
    if reader.problems:
        raise YamlError(*reader.problems)
    return content


TOO_DEEP = "lists or mappings are nested hundreds of levels deep, which no configuration needs"


def _line(mark: Any) -> str:
    return f"line {mark.line + 1}"


class _Reader:
    """Makes values of nodes, and collects what is wrong with them."""

    def __init__(self, times: bool) -> None:
        self.problems: list[str] = []
        self._times = times
        self._open: set[int] = set()
        self._seen: set[int] = set()
        self._nodes = self._aliased = self._below = 0

    def value(self, node: Any, path: str) -> Any:
        """A node's value; None where it has none, which is then a problem."""
        alias = id(node) in self._seen
        self._seen.add(id(node))
        self._below += alias
        self._nodes += 1
        self._aliased += self._below > 0
        if self._nodes > _MANY and self._aliased / self._nodes > _ALIASED:
            raise YamlError("aliases (*name) make the file a hundred times larger than it is written; write it out")
        try:
            if isinstance(node, yaml.ScalarNode):
                return self._scalar(node, path)
            if id(node) in self._open:
                return self._problem(node, path, "an alias (*name) contains itself; write the value out")
            self._open.add(id(node))
            try:
                if isinstance(node, yaml.SequenceNode):
                    return [self.value(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
                return self._mapping(node, path)
            finally:
                self._open.discard(id(node))
        finally:
            self._below -= alias

    def _problem(self, node: Any, path: str, message: str) -> None:
        problem = f"{_line(node.start_mark)}: {path}: {message}" if path else f"{_line(node.start_mark)}: {message}"
        if problem not in self.problems:
            self.problems.append(problem)

    def _scalar(self, node: Any, path: str) -> Any:
        text: str = node.value
        if node.tag == f"{_CORE}str":
            return text
        if node.tag != _PLAIN:
            short = f"!!{node.tag.removeprefix(_CORE)}" if node.tag.startswith(_CORE) else node.tag
            return self._problem(node, path, f"{short}: a tag, which is read differently by each reader; remove it")
        if _INFINITE.fullmatch(text):
            return self._problem(node, path, f"{text}: no finite number, and JSON has no other; write a number")
        found = plain(text)
        time = go_time(text) if self._times and found is text else None
        return time or found

    # Mappings -------------------------------------------------------------------------------------------------------

    def _mapping(self, node: Any, path: str) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: list[Any] = []
        written: set[str] = set()
        for key, item in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in written:
                    self._problem(key, path, f"key {key.value!r} stands here twice; remove one")
                    continue
                written.add(key.value)
            if isinstance(key, yaml.ScalarNode) and key.tag == _PLAIN and key.value == "<<":
                merged += self._merged(key, item, path)
                continue
            name = self._key(key, path)
            if name is None:
                continue
            own[name] = self.value(item, f"{path}.{name}" if path else name)
        for other in merged:
            content = self.value(other, path)
            own.update({name: value for name, value in (content or {}).items() if name not in own})
        return own

    def _merged(self, key: Any, item: Any, path: str) -> Iterator[Any]:
        """The mappings of a merge key, the one that wins first."""
        # An alias stands for a node that begins before its key. Go takes no alias of a list here.
        listed = isinstance(item, yaml.SequenceNode) and item.start_mark.index > key.start_mark.index
        for one in item.value if listed else [item]:
            if isinstance(one, yaml.MappingNode):
                yield one
            else:
                self._problem(key, path, "<<: takes a mapping or a list of mappings; write one, such as <<: *name")

    def _key(self, key: Any, path: str) -> str | None:
        """A key's text, as Go prints it."""
        if not isinstance(key, yaml.ScalarNode):
            return self._problem(key, path, "a list or mapping stands where a key is expected; write text")
        if key.value == "<<":  # quoted: the CLI writes the file anew without the quotes, and then takes it as a merge
            return self._problem(key, path, '"<<" is the merge key to Pulumi also in quotes; write another key')
        value = self._scalar(key, path) if key.tag != _PLAIN else plain(key.value)
        if isinstance(value, bool) and path:
            return str(value).lower()
        if (
            (path or isinstance(value, str))
            and str(value) == key.value
            and not (key.tag == _PLAIN and (go_time(key.value) or _INFINITE.fullmatch(key.value)))
        ):
            return key.value
        if key.tag == _PLAIN:
            self._problem(key, path, f'{key.value}: a key that is no text; write it in quotes: "{key.value}"')
        return None


# Plain scalars ------------------------------------------------------------------------------------------------------


def plain(text: str) -> Any:
    """What a scalar without quotes is, dates aside: null, a boolean, a number, or its text."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text[0] in "+-0123456789":
        return _number(text)
    if text[0] == "." and _FLOAT.fullmatch(text):
        return _json_number(float(text), text)
    return text


def _number(text: str) -> Any:
    digits = text.replace("_", "")
    if match := _INT.fullmatch(digits):
        sign, *bases = match.groups()
        number = next(int(found, base) for found, base in zip(bases, (16, 2, 8, 10), strict=True) if found)
        number = -number if sign == "-" else number
        if -(2**63) <= number < 2**63:
            return number
        if number < 2**64 and not sign:
            return _json_number(float(number), text)
    if _FLOAT.fullmatch(digits):
        return _json_number(float(digits), text)
    if match := _SIGN_INSIDE.fullmatch(digits):
        return int(match[1], 2) if match[1] else int(match[2], 8)
    return text


def _json_number(number: float, text: str) -> Any:
    """A number after its way through Go's JSON, where 1.0 is written 1; its text, where it is beyond all numbers."""
    if number in (float("inf"), float("-inf")):
        return text
    return int(Decimal(repr(number))) if number.is_integer() and abs(number) < 1e21 else number
