"""What a rule says about a setting that cannot work: a key path and a message, apart from each other.

A rule is written once and read by two kinds of callers: a stack file spells a key `maxNumSeqs`, an argument of a
component `max_num_seqs`. So a rule names keys by their fields, and everything else, such as the caller's own words, as
values:

    raise Fault("max_num_batched_tokens", "{tokens} is less than {key.max_num_seqs}, one token each", tokens=512)
"""

from typing import Any

from pydantic.alias_generators import to_camel


class _Key:
    """`key.engine.max_num_seqs` in a template: the path of a setting, as the caller writes it."""

    def __init__(self, python: bool, path: str = "") -> None:
        self._python, self._path = python, path

    def __getattr__(self, field: str) -> "_Key":
        return _Key(self._python, f"{self._path}.{field}" if self._path else field)

    def __format__(self, spec: str) -> str:
        return format(spelled(self._path, self._python), spec)


def spelled(path: str, python: bool) -> str:
    """A dotted path of fields as a Python caller writes it, or as a stack file does."""
    return path if python else ".".join(to_camel(field) for field in path.split("."))


class Fault(ValueError):  # noqa: N818
    """One thing that a rule found wrong. Validators raise it; several at once are `Faults`."""

    def __init__(self, path: str, template: str, /, *, at: str = "", **values: Any) -> None:
        """`path`: fields below the model of the rule, dotted; empty: the model itself. `at`: a key of the caller's own
        below it, such as the name of an add-on. `template`: for `str.format`, with `key.…` and `values`.
        """
        self.path, self.template, self.at, self.values = path, template, at, values
        super().__init__(str(self))

    @property
    def faults(self) -> tuple["Fault", ...]:
        return (self,)

    def where(self, python: bool = False) -> str:
        """The key path, below the model of the rule."""
        return ".".join(filter(None, (spelled(self.path, python), self.at)))

    def text(self, python: bool = False) -> str:
        """The message, without the path."""
        return self.template.format(key=_Key(python), **self.values)

    def __str__(self) -> str:
        where = self.where()
        return f"{where}: {self.text()}" if where else self.text()


class Faults(ValueError):  # noqa: N818
    """Several things that one rule found, each a message of its own."""

    def __init__(self, *faults: Fault) -> None:
        self.faults = faults
        super().__init__("; ".join(map(str, faults)))
