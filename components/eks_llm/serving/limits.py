"""What a service takes on: how many requests may wait, how long one may take, and how much one may ask for.

The limits of one request keep it from harming the others, who share its engine. request_limits.py of the model
repository has the same numbers, for a pod whose engine.json leaves them out.
"""

import re
from typing import Any, NotRequired, TypedDict

from pydantic import Field, field_validator

from ..core.model import Model
from ..core.quantities import Duration

LONGEST_REQUEST = 24 * 3600
"""A pod waits as long before it ends, and with it a rollout for each pod: more is a slip of the pen."""


class LimitsArgs(TypedDict):
    max_queued_requests: NotRequired[int]
    """Requests that may wait in a pod that runs `max_num_seqs` before new ones are refused (Triton). Default: what it
    answers within `ttft_p99` of the `slo`, by estimate or by a measured `capacity`; without that twice
    `max_num_seqs`."""
    max_queued_tokens: NotRequired[int]
    """Prompt tokens that may wait in a pod (Triton). Default: prompts of `max_model_len`, as many as `max_num_seqs` or
    as half of `max_queued_requests`, whichever is more."""
    request_timeout: NotRequired[str]
    """Longest time of a request from arrival to last token, 1s to 24h, e.g. `300s`. A pod that ends waits this long for
    requests in flight. Default 300s."""
    max_body_bytes: NotRequired[int]
    """Size of a request as JSON: the body (`openai`), or SAMPLING_PARAMETERS (`triton`). Images in data URLs count.
    Default 4 MiB."""
    max_sequences: NotRequired[int]
    """Answers of one request: prompts times `n` (`openai`; Triton gives one). Default 16."""
    max_answer_tokens: NotRequired[int]
    """Tokens of an answer, asked for or by default. Default: what the context leaves."""
    max_logprobs: NotRequired[int]
    """Log probabilities per token. Default 20, which the OpenAI API allows."""
    max_stops: NotRequired[int]
    """Stop strings. Default 16; the OpenAI API allows four."""
    max_token_ids: NotRequired[int]
    """Entries of `logit_bias` and of lists of tokens. Default 1,024."""
    max_bad_words: NotRequired[int]
    """Entries of `bad_words`, which are tokenised between two tokens of everybody. Default 64."""
    max_grammar_bytes: NotRequired[int]
    """Size of a schema, regex, grammar or list of choices. Default 32 KiB, up to 2.5 CPU seconds to compile."""
    max_grammar_depth: NotRequired[int]
    """Objects and lists within each other in a schema. Default 32."""
    max_enum_values: NotRequired[int]
    """Values of all enums, or choices. Default 500; the OpenAI API allows 1,000."""
    max_references: NotRequired[int]
    """`$ref` in a schema, or rules in a grammar. Default 256."""
    media_domains: NotRequired[list[str]]
    """Hosts from which images, audio and video may be fetched (`openai`), e.g. `images.example.com`. Default: none;
    data URLs always work."""


class Limits(Model):
    max_queued_requests: int | None = Field(default=None, ge=0)
    max_queued_tokens: int | None = Field(default=None, ge=0)
    request_timeout: Duration = Duration(300)
    max_body_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    max_sequences: int = Field(default=16, ge=1)
    max_answer_tokens: int | None = Field(default=None, ge=1)
    max_logprobs: int = Field(default=20, ge=0)
    max_stops: int = Field(default=16, ge=0)
    max_token_ids: int = Field(default=1024, ge=0)
    max_bad_words: int = Field(default=64, ge=0)
    max_grammar_bytes: int = Field(default=32 * 1024, ge=0)
    max_grammar_depth: int = Field(default=32, ge=1)
    max_enum_values: int = Field(default=500, ge=0)
    max_references: int = Field(default=256, ge=0)
    media_domains: list[str] = []

    @field_validator("media_domains")
    @classmethod
    def _hosts(cls, value: list[str]) -> list[str]:
        for host in value:
            if not re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", host):
                raise ValueError(f"{host!r} is not a host name in small letters, such as images.example.com")
        return value

    @property
    def per_request(self) -> dict[str, Any]:
        """How much one request may ask for, as engine.json says it."""
        return {
            "maxBodyBytes": self.max_body_bytes,
            "maxSequences": self.max_sequences,
            "maxAnswerTokens": self.max_answer_tokens or 0,
            "maxLogprobs": self.max_logprobs,
            "maxStops": self.max_stops,
            "maxTokenIds": self.max_token_ids,
            "maxBadWords": self.max_bad_words,
            "maxGrammarBytes": self.max_grammar_bytes,
            "maxGrammarDepth": self.max_grammar_depth,
            "maxEnumValues": self.max_enum_values,
            "maxReferences": self.max_references,
            "mediaDomains": self.media_domains,
        }

    @field_validator("request_timeout")
    @classmethod
    def _some_time(cls, value: Duration) -> Duration:
        if not 1 <= value <= LONGEST_REQUEST:
            raise ValueError("a request takes 1s to 24h")
        return value
