"""Records what the API server and Prometheus of a running platform answer to the page, for test_page.py.

./dev up; ./dev load; python tests/cluster/record_page.py     # while the load runs, or soon after
"""

import json
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
FILE = ROOT / "tests" / "data" / "page.json"


def key(path: str) -> str:
    """A query of Prometheus by its PromQL alone, as its times differ with each question."""
    return parse_qs(urlsplit(path).query)["query"][0]


def main() -> None:
    from embedded.page.snapshot import snapshot
    from embedded.platform import Platform
    from embedded.telemetry import Telemetry, connect

    now, live = time.time(), connect(Platform())
    kubernetes: dict[str, Any] = {}
    prometheus: dict[str, Any] = {}

    def ask_kubernetes(path: str) -> Any:
        answer = live.kubernetes(path)
        for item in [answer, *answer.get("items", [])]:
            item["metadata"].pop("managedFields", None)  # half of the text, and nobody reads it
        kubernetes[path] = answer
        return answer

    def ask_prometheus(path: str) -> Any:
        prometheus[key(path)] = answer = live.prometheus(path)
        return answer

    snapshot(Telemetry(ask_kubernetes, ask_prometheus), {}, None, 15, now)
    document = {"now": now, "kubernetes": kubernetes, "prometheus": prometheus}
    FILE.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
