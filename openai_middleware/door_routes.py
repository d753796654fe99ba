"""Who may call what: every route that is not listed here does not exist for clients.

vLLM's own check of a key covers prefixes (`/v1` and three more), and its server has many other routes, among them
`/invocations`, which generates, and some that stop or scale the engine.
"""

import hashlib
import hmac
import os
from enum import Enum

KEYS_VARIABLE = "EKS_LLM_API_KEYS"


class Access(Enum):
    """Who may call a route."""

    OPEN = "open"
    """Probes and Prometheus: no key."""
    KEYED = "keyed"
    """Clients: with a key, where the service has one."""


ROUTES: dict[tuple[str, str], Access] = {
    ("GET", "/health"): Access.OPEN,
    ("GET", "/metrics"): Access.OPEN,
    ("GET", "/v1/models"): Access.KEYED,
    ("GET", "/version"): Access.KEYED,
    ("POST", "/v1/chat/completions"): Access.KEYED,
    ("POST", "/v1/completions"): Access.KEYED,
    ("POST", "/v1/responses"): Access.KEYED,
    ("POST", "/tokenize"): Access.KEYED,
    ("POST", "/detokenize"): Access.KEYED,
}
"""By method and path. A browser may ask before it calls (OPTIONS) for each path."""


def access(method: str, path: str) -> Access | None:
    """None where nobody may."""
    if method == "OPTIONS":
        return Access.OPEN if any(path == listed for _, listed in ROUTES) else None
    return ROUTES.get((method, path))


class Keys:
    """The API keys of the service, of which each is as good as the other: two at a time let clients change over."""

    def __init__(self, variable: str | None) -> None:
        """`variable`: keys separated by white space; None where the service has none.

        Raises:
            ValueError: there should be a key, and it is empty. Nobody is let in by mistake.
        """
        self._digests = [] if variable is None else [_digest(key.encode()) for key in variable.split()]
        if variable is not None and not self._digests:
            raise ValueError(f"{KEYS_VARIABLE} is set and holds no key")

    @classmethod
    def of_environment(cls) -> "Keys":
        return cls(os.environ.get(KEYS_VARIABLE))

    def admit(self, authorization: bytes) -> bool:
        """Whether an Authorization header holds one of the keys. Takes as long for a wrong one as for a right one."""
        if not self._digests:
            return True
        scheme, _, key = authorization.partition(b" ")
        presented = _digest(key.strip())
        found = False
        for digest in self._digests:
            found |= hmac.compare_digest(digest, presented)
        return found and scheme.lower() == b"bearer"


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
