"""Prometheus's query API: one value as KEDA would get it, and its history."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import ProxyHandler, build_opener

TIMEOUT_SECONDS = 10
STEP_SECONDS = 15
"""Between two points of a history: how often the HPA asks."""

Get = Callable[[str, dict[str, str]], dict[str, Any]]
"""Reads a path such as `/api/v1/query` with parameters. Raises `PrometheusError`."""


class PrometheusError(Exception):
    """Prometheus cannot be asked; one line."""


@dataclass(frozen=True)
class Reading:
    """The answer to a trigger's query."""

    value: float | None
    problem: str = ""


def direct(url: str) -> Get:
    """Reads from an address that this machine reaches."""
    # Never through a proxy to this machine itself.
    near = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    opener = build_opener(ProxyHandler({})) if near else build_opener()

    def get(path: str, parameters: dict[str, str]) -> dict[str, Any]:
        try:
            with opener.open(f"{url.rstrip('/')}{path}?{urlencode(parameters)}", timeout=TIMEOUT_SECONDS) as answer:
                return json.load(answer)
        except HTTPError as error:
            return refusal(url, error.code, error.read())
        except (URLError, OSError) as error:
            raise PrometheusError(f"no Prometheus at {url}: {getattr(error, 'reason', error)}") from None
        except ValueError:
            raise PrometheusError(f"no Prometheus at {url}: it answers no JSON") from None

    return get


def refusal(where: str, status: int, body: bytes) -> dict[str, Any]:
    """What Prometheus says of a query that it refuses. Raises `PrometheusError` if that is not Prometheus's answer."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = {}
    if answer.get("status") == "error":
        return answer
    raise PrometheusError(f"no Prometheus at {where}: HTTP status {status}")


def now(get: Get, query: str, ignore_nulls: bool) -> Reading:
    """The value of a query, read as KEDA reads it: one element, and nothing is an error unless `ignore_nulls`."""
    answer = get("/api/v1/query", {"query": query})
    if answer.get("status") != "success":
        return Reading(None, f"Prometheus refuses the query ({answer.get('error', 'no reason given')})")
    data = answer["data"]
    if data["resultType"] == "scalar":
        return _number(data["result"][1], ignore_nulls)
    result = data["result"]
    if len(result) > 1:
        return Reading(None, f"{len(result)} elements, and KEDA takes one")
    if not result:
        return Reading(0.0, "empty, which counts as 0") if ignore_nulls else Reading(None, "empty answer")
    return _number(result[0]["value"][1], ignore_nulls)


def _number(text: str, ignore_nulls: bool) -> Reading:
    value = float(text)
    if math.isfinite(value):
        return Reading(value)
    # KEDA refuses an infinity, and NaN too unless nulls are ignored.
    return Reading(0.0, f"{text}, which counts as 0") if ignore_nulls else Reading(None, text)


def history(get: Get, query: str, end: float, seconds: float) -> dict[int, float]:
    """Values by time in whole steps before `end`, where there was one element."""
    last = int(end // STEP_SECONDS * STEP_SECONDS)
    first = last - int(seconds // STEP_SECONDS * STEP_SECONDS)
    parameters = {"query": query, "start": str(first), "end": str(last), "step": str(STEP_SECONDS)}
    answer = get("/api/v1/query_range", parameters)
    if answer.get("status") != "success" or len(answer["data"]["result"]) != 1:
        return {}
    points = ((int(float(time)), float(value)) for time, value in answer["data"]["result"][0]["values"])
    return {time: value for time, value in points if math.isfinite(value)}
