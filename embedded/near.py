"""HTTP to this machine itself: never through the caller's proxy, which does not lead to the loopback interface here."""

from urllib.request import OpenerDirector, ProxyHandler, build_opener


def opener() -> OpenerDirector:
    """What opens an address as `urlopen` does, without proxies."""
    return build_opener(ProxyHandler({}))
