"""Secrets in settings: the mark that stands for one, and a name that may be the secret itself."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from .problems import unshown

SECRET = "[secret]"  # noqa: S105 a marker
"""Stands in a plan for every value that is a secret; the value itself is never kept."""

_ISSUED = re.compile(
    r"(sk|pk|rk|ak|api|key|token)[-_](live|test|proj|ant|or|svcacct|prod)[-_]|(sk|rk|gsk|hf|r8|nvapi|pplx|xai|dop|npm|pypi|"
    r"gh[opusr]|glpat|github_pat|xox[abeprs])[-_]|AKIA|ASIA|AIza|eyJ|whsec_|ya29|Bearer"
)
"""How keys of well-known issuers begin. Source: GitHub docs, "Supported secret scanning patterns"."""
_CHANGES = re.compile(r"(?<=[a-zA-Z])(?=[0-9])|(?<=[0-9])(?=[a-zA-Z])")


def looks_like_a_key(text: str) -> bool:
    """Whether `text` is more likely a key than the name of one: an issuer's prefix, or a long run that nobody names."""
    if _ISSUED.match(text):
        return True
    return any(
        (len(run) >= 16 and (len(_CHANGES.findall(run)) > 3 or re.fullmatch(r"[0-9a-f]+|[0-9A-F]+|[0-9]+", run)))
        or len(set(re.findall(r"[A-Z]{2,}|[a-z]+|[0-9]+", run))) > 8
        for run in re.findall(r"[A-Za-z0-9]+", text)
    )


def _key_name(value: Any) -> Any:
    if value is None:
        return value
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", value) or looks_like_a_key(value):
        raise unshown(
            "not the name of a config key, such as inferenceApiKey (up to 40 letters, digits, '-' and '_'); "
            "the API key itself is set with: pulumi config set --secret <name>"
        )
    return value


SecretName = Annotated[str, BeforeValidator(_key_name)]
"""Name of a config key that holds a secret. What is none is not repeated: it may be the secret itself."""
