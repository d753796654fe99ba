"""Requests that nobody should send, by a seed: sampling parameters, structures and documents, right and wrong.

What comes of them is not known here. Known is what may: an answer, or a refusal with the right code, once, in time.
"""

import json
import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Value = Callable[[random.Random], Any]


def _words(count: int, length: int) -> Value:
    return lambda dice: ["".join(dice.choices(string.ascii_lowercase, k=length)) for _ in range(count)]


def _one(*values: Any) -> Value:
    return lambda dice: dice.choice(values)


def _nested(depth: int, key: str = "items") -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {key: schema}
    return schema


ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    2**31,
    2**63,
    1e300,
    "",
    "x",
    [],
    {},
    [None],
    "\u0000",
    "🙂",
    "9" * 5000,
)
PARAMETERS: dict[str, tuple[Value, ...]] = {
    "temperature": (_one(0, 0.7, 1, 2), _one(-1, 2.1, 1e-30)),
    "top_p": (_one(0.1, 1), _one(0, 1.1, -0.5)),
    "top_k": (_one(-1, 0, 1, 50, 2**31 - 1), _one(-2, 2**31)),
    "min_p": (_one(0, 0.5, 1), _one(-1, 2)),
    "seed": (_one(0, 1, -(2**63), 2**63 - 1), _one(2**64)),
    "repetition_penalty": (_one(0.5, 1, 2, 0.01, 100), _one(0, 1e-40, 1e300, -1)),
    "presence_penalty": (_one(-2, 0, 2), _one(3, -1e9)),
    "frequency_penalty": (_one(-2, 0, 2), _one(3, -1e9)),
    "stop": (_one("fox", ["a", "b"], ["x" * 256]), _one([""], ["x"] * 1000, ["y" * 5000])),
    "stop_token_ids": (_one([], [1, 2, 420]), _one([10**9], [-1], [421], list(range(5000)), ["1"])),
    "allowed_token_ids": (_one([5, 6, 7]), _one([], [421], [-1], list(range(100_000)))),
    "logit_bias": (_one({}, {"5": 1}, {"420": -100}), _one({"421": 1}, {"-1": 1}, {"x": 1}, {"5": 1e308})),
    "bad_words": (_one(["fox"], []), _one([" "], [""], ["w"] * 5000, ["x" * 100_000])),
    "ignore_eos": (_one(True, False), _one(1, "yes")),
    "min_tokens": (_one(0, 1, 4), _one(-1, 10**6)),
    "max_tokens": (_one(1, 8, 32), _one(0, -5, 10**6, 2**40)),
    "skip_special_tokens": (_one(True, False), _one("no")),
    "include_stop_str_in_output": (_one(True, False), _one(0)),
}
STRUCTURES: tuple[Value, ...] = (
    _one({"choice": ["yes", "no"]}, {"regex": "[a-z]{1,8}"}, {"json": {"type": "boolean"}}, {"json_object": True}),
    _one({"grammar": 'root ::= "a" | "b"'}, {"json": '{"enum": ["a", "b"]}'}, {"regex": r"(a+)+b"}),
    _one({"grammar": "root ::= root"}, {"grammar": ""}, {"grammar": 'root ::= "a"\nroot ::= "b"'}, {"grammar": "x"}),
    _one(
        {"json": {"$ref": "#"}}, {"json": {"$ref": "http://127.0.0.1:1/x"}}, {"json": {"type": "nothing"}}, {"json": 5}
    ),
    _one({"regex": "(["}, {"regex": r"\p{L}+"}, {"regex": "\u0000"}, {"regex": "(" * 3000}, {"regex": "a{99999999}"}),
    _one({"regex": "((a{100}){100}){100}"}, {"regex": "[a-z]{1,9999}"}, {"regex": "a" * 20_000}),
    _one({"choice": []}, {"choice": ["a\nb", "c"]}, {"choice": [""]}, {"choice": [1]}, {}, [], "x", {"choise": ["a"]}),
    _one({"json": {}, "regex": "a"}, {"json_object": False}, {"structural_tag": "{}"}, {"structural_tag": "x"}),
    lambda dice: {"json": {"enum": _words(dice.choice((10, 400, 2000)), 20)(dice)}},
    lambda dice: {"choice": _words(dice.choice((10, 400, 20_000)), 15)(dice)},
    lambda dice: {"json": _nested(dice.choice((5, 25, 100, 900)))},
    lambda dice: {"json": json.dumps(_nested(dice.choice((5, 25, 100, 900)), "not"))},
    lambda dice: {"json": {"properties": {word: {"type": "string"} for word in _words(200, 8)(dice)}}},
    lambda dice: {"grammar": "root ::= " + " | ".join(f'"{word}"' for word in _words(dice.choice((9, 900)), 9)(dice))},
)
TEXTS = (
    "{",
    "[]",
    "null",
    "[" * 3000,
    '{"a":' * 3000,
    '{"temperature": NaN}',
    '{"temperature": 1e999}',
    '{"\\ud83d": 1}',
    '{"stop": "\\udc00"}',
    '{"x": "' + "y" * 300_000 + '"}',
    '{"seed": ' + "9" * 6000 + "}",
    "\ufeff{}",
    '{"temperature": 0, "temperature": 5}',
    '"' + '\\"' * 50_000,
)
PROMPTS = ("The quick brown fox", "fox", "<s>fox", "🙂🙂", "a\u0000b", "é" * 50, "fox jumps " * 50)


@dataclass(frozen=True)
class Case:
    """A request in the words of both runtimes."""

    number: int
    prompt: str
    stream: bool
    parameters: dict[str, Any]
    text: str | None
    """Instead of the parameters: what stands where their JSON should."""
    leave_after: float | None
    """The client leaves after as many seconds."""


def cases(seed: int) -> Callable[[int], Case]:
    """The cases of a seed by number, each the same whatever came before it."""

    def case(number: int) -> Case:
        dice = random.Random(f"{seed}-{number}")
        parameters: dict[str, Any] = {"max_tokens": dice.choice((1, 8, 32))}
        for name in dice.sample(sorted(PARAMETERS), dice.choice((0, 1, 1, 2, 3))):
            right, wrong = PARAMETERS[name]
            value = dice.choice((right, right, wrong, _one(*ODD)))
            parameters[name] = value(dice)
        if dice.random() < 0.3:
            parameters["structured_outputs"] = dice.choice(STRUCTURES)(dice)
        if dice.random() < 0.05:
            parameters[dice.choice(("top_q", "lora_name", "n", "", "x" * 10_000, "🙂"))] = dice.choice(ODD)
        return Case(
            number=number,
            prompt=dice.choice(PROMPTS),
            stream=dice.random() < 0.5,
            parameters=parameters,
            text=dice.choice(TEXTS) if dice.random() < 0.1 else None,
            leave_after=dice.random() * 0.2 if dice.random() < 0.05 else None,
        )

    return case
