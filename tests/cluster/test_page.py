"""The page of `./dev status --web` in headless Chromium: on recorded answers of a real platform, and on a real one.

tests/data/page.json holds what the API server and Prometheus answered while `./dev load` ran (record_page.py).
"""

import copy
import json
import os
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import yaml
from playwright.sync_api import Browser, Page, sync_playwright

from eks_llm.plan.manifests import manifests
from eks_llm.plan.recorder import record
from eks_llm.serving.service import Runtime
from embedded.api import Api
from embedded.browser import chromium
from embedded.controlplane import ControlPlane
from embedded.keda import Keda
from embedded.page.server import MINUTES, Answer, Live, Server, serve
from embedded.page.snapshot import asked, plain, replicas, snapshot
from embedded.platform import Platform
from embedded.process import PlatformError
from embedded.prometheus import Prometheus
from embedded.telemetry import Scaling, Service, Telemetry, scaling
from tests.cluster.record_page import FILE, key
from tests.cluster.service import inference_service

LOADED = Service(
    "inference", "tiny", triton=True, desired=2, ready=1, scaling=Scaling(1, 3, ["demand"], {"demand": 4.0}, 60.0)
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = chromium()
    with sync_playwright() as playwright:
        sandbox = [] if os.geteuid() else ["--no-sandbox"]  # which root cannot have
        browser = playwright.chromium.launch(executable_path=found, args=sandbox, timeout=120_000)
        yield browser
        browser.close()


@pytest.fixture
def recorded() -> dict[str, Any]:
    return json.loads(FILE.read_text())


def telemetry(recorded: dict[str, Any]) -> Telemetry:
    return Telemetry(
        lambda path: copy.deepcopy(recorded["kubernetes"][path]), lambda path: recorded["prometheus"][key(path)]
    )


def document(recorded: dict[str, Any], minutes: int = 15) -> dict[str, Any]:
    return snapshot(telemetry(recorded), {}, None, minutes, recorded["now"])


@contextmanager
def served(answer: Answer) -> Iterator[Server]:
    server = Server(0, answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def opened(browser: Browser, answer: Answer, width: int = 1180, scheme: Any = "light") -> Iterator[Page]:
    """The page with these answers. It must have no error, and ask nobody but its server."""
    with served(answer) as server:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(server.url)
        page.wait_for_selector("body:not([data-state=loading])", timeout=60_000)
        yield page
        page.close()
        assert said == []
        assert [url for url in asked if not url.startswith((server.url, "data:"))] == []


def legend(page: Page, title: str) -> dict[str, str]:
    """The current values beside a panel's title, by name."""
    panel = page.locator(".panel", has=page.get_by_role("heading", name=title, exact=True))
    texts = panel.locator(".legend span").all_inner_texts()
    return {match[1]: match[2] for text in texts if (match := re.fullmatch(r"(.+?) ([\d–].*)", text.strip()))}


# Recorded answers ----------------------------------------------------------------------------------------------------


def test_it_shows_what_was_recorded(browser: Browser, recorded: dict[str, Any]) -> None:
    """Counted from the recorded answers themselves, not by our own code."""
    (deployment,) = next(answer for path, answer in recorded["kubernetes"].items() if "deployments" in path)["items"]
    scaled = next(answer for path, answer in recorded["kubernetes"].items() if "scaledobjects" in path)
    last = {
        name: float(answer["data"]["result"][0]["values"][-1][1])
        for name in ("num_requests_running", "num_requests_waiting")
        for query, answer in recorded["prometheus"].items()
        if name in query
    }
    with opened(browser, lambda _, minutes: document(recorded, minutes)) as page:
        assert page.get_by_role("heading", level=1).inner_text() == deployment["metadata"]["name"]
        shown = legend(page, "Replicas")
        assert shown["desired"] == str(deployment["spec"]["replicas"])
        shown = legend(page, "Requests")
        assert shown["running"] == f"{last['num_requests_running']:.0f}"
        assert shown["running and waiting"] == f"{sum(last.values()):.0f}"
        assert all(page.locator(".panel").nth(index).locator("path.curve").count() for index in range(5))
        summary = page.locator("#summary").inner_text()
        assert f"{last['num_requests_running']:.0f} requests run" in summary
        assert f"{scaled['spec']['maxReplicaCount']} are allowed" in summary


def test_thresholds_are_those_of_the_scaled_object(browser: Browser, recorded: dict[str, Any]) -> None:
    path = next(path for path in recorded["kubernetes"] if "scaledobjects" in path)
    spec = recorded["kubernetes"][path]["spec"]
    spec["minReplicaCount"], spec["maxReplicaCount"] = 2, 9
    metadata = {trigger["name"]: trigger["metadata"] for trigger in spec["triggers"]}
    metadata["demand"]["threshold"], metadata["kv-cache"]["threshold"] = "7", "55"
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    behavior["scaleDown"]["stabilizationWindowSeconds"] = 420
    desired = document(recorded)["series"]["desired"][-1][1]
    with opened(browser, lambda _, minutes: document(recorded, minutes)) as page:
        text = page.locator("#panels").inner_text()
        assert "Between 2 and 9" in text
        assert "low for 7 min" in text
        assert "Above the line, 7 a desired replica" in text
        assert "Above 55 % another replica" in text
        assert legend(page, "Requests")["threshold"] == f"{7 * desired:.0f}"
        assert legend(page, "KV cache in use")["threshold"] == "55 %"
        assert page.locator("path.curve.limit").count() == 2


def test_decisions_of_the_autoscaler_are_marked(browser: Browser, recorded: dict[str, Any]) -> None:
    events = next(answer for path, answer in recorded["kubernetes"].items() if path.endswith("/events"))["items"]
    begin = datetime.fromtimestamp(recorded["now"] - 900, UTC).isoformat()
    decisions = [event for event in events if event["reason"] == "SuccessfulRescale" and event["lastTimestamp"] > begin]
    assert decisions
    with opened(browser, lambda _, minutes: document(recorded, minutes)) as page:
        assert page.locator("line.mark").count() == len(decisions)
        assert page.locator("#events li.scaling").count() >= len(decisions)
        assert "reason: external metric demand above target" in page.locator("#events").inner_text()
        times = page.locator("#events time").all_inner_texts()
        assert times == sorted(times, reverse=True)


def test_values_at_the_pointer(browser: Browser, recorded: dict[str, Any]) -> None:
    """At a moment with another number of desired replicas than now."""
    points, now = document(recorded)["series"]["desired"], recorded["now"]
    neighbours = zip(points, points[1:], points[2:], strict=False)
    time, value = next(
        point for before, point, after in neighbours if before[1] == point[1] == after[1] != points[-1][1]
    )
    with opened(browser, lambda _, minutes: document(recorded, minutes)) as page:
        current = legend(page, "Replicas")
        assert current["desired"] == f"{points[-1][1]:.0f}"
        box = page.locator("svg").first.bounding_box()
        assert box
        left, right = box["x"] + 46, box["x"] + box["width"] - 6  # of the axis, chart.js
        page.mouse.move(right - (now - time) / 900 * (right - left), box["y"] + 60)
        page.wait_for_selector("line.cursor", state="attached")
        assert legend(page, "Replicas")["desired"] == f"{value:.0f}"
        assert page.locator("line.cursor").count() == 5  # in all panels
        page.mouse.move(2, 2)
        page.wait_for_selector("line.cursor", state="detached")
        assert legend(page, "Replicas") == current


@pytest.mark.parametrize("width", [320, 390, 768, 1400])
def test_it_fits_its_width(browser: Browser, recorded: dict[str, Any], width: int) -> None:
    with opened(browser, lambda _, minutes: document(recorded, minutes), width) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = [box for panel in page.locator(".panel").all() if (box := panel.bounding_box())]
        assert len(boxes) == 5
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
        columns = len({round(box["x"]) for box in boxes})
        assert columns == (1 if width < 760 else 2)


CONTRAST = """() => {
  const linear = part => (part /= 255) <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = text => {
    const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(linear);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = node => {
    const colour = getComputedStyle(node).backgroundColor;
    return colour === 'rgba(0, 0, 0, 0)' ? behind(node.parentElement) : colour;
  };
  return [...document.querySelectorAll('h1, h2, p, b, small, time, .legend span, svg text')].map(node => {
    const style = getComputedStyle(node);
    const both = [light(node.ownerSVGElement ? style.fill : style.color), light(behind(node))].sort((a, b) => b - a);
    return [(both[0] + 0.05) / (both[1] + 0.05), node.textContent.slice(0, 40)];
  }).sort((a, b) => a[0] - b[0])[0];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(browser: Browser, recorded: dict[str, Any], scheme: str) -> None:
    """WCAG 2.2, success criterion 1.4.3: a contrast of 4.5 at least."""
    with opened(browser, lambda _, minutes: document(recorded, minutes), scheme=scheme) as page:
        ratio, text = page.evaluate(CONTRAST)
        assert ratio >= 4.5, text
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") == (scheme == "light")


def test_text_of_the_cluster_is_no_markup(browser: Browser, recorded: dict[str, Any]) -> None:
    evil = "<img src=x onerror=\"document.body.dataset.evil='1'\">"
    events = next(answer for path, answer in recorded["kubernetes"].items() if path.endswith("/events"))
    events["items"][0] |= {"message": evil, "reason": evil, "lastTimestamp": "2099-01-01T00:00:00Z"}
    with opened(browser, lambda _, minutes: document(recorded, minutes)) as page:
        assert evil in page.locator("#events li").first.inner_text()
        assert page.evaluate("document.body.dataset.evil") is None


def test_other_spans(browser: Browser, recorded: dict[str, Any]) -> None:
    spans: list[int] = []

    def answer(_: str | None, minutes: int) -> dict[str, Any]:
        spans.append(minutes)
        return document(recorded, minutes)

    with opened(browser, answer) as page, page.expect_response(lambda response: "minutes=5" in response.url):
        page.get_by_text("5 min", exact=True).click()
    assert (spans[0], spans[-1]) == (15, 5)


def test_several_services(browser: Browser, recorded: dict[str, Any]) -> None:
    wanted: list[str | None] = []

    def answer(service: str | None, minutes: int) -> dict[str, Any]:
        wanted.append(service)
        found = document(recorded, minutes)
        return found | {"services": [*found["services"], "inference/other"]}

    with opened(browser, answer) as page, page.expect_response(lambda response: "other" in response.url):
        page.get_by_label("Service").select_option("inference/other")
    assert (wanted[0], wanted[-1]) == (None, "inference/other")


# Without data --------------------------------------------------------------------------------------------------------


def test_a_platform_that_is_down(browser: Browser, tmp_path: Path, recorded: dict[str, Any]) -> None:
    """And one that comes up while the page is open."""
    down = Live(Platform(tmp_path)).answer(None, 15)
    assert down["down"] == "the platform is not up; `./dev up` starts it"
    answers = [down]
    with opened(browser, lambda _, minutes: answers[0] if answers else document(recorded, minutes)) as page:
        text = page.locator("#notice").inner_text()
        assert "There is nothing to show" in text
        assert "The platform is not up; ./dev up starts it" in text
        assert not page.locator("#content").is_visible()
        answers.clear()
        page.wait_for_selector("#content", timeout=60_000)
        assert not page.locator("#notice").is_visible()


def test_a_platform_without_services(browser: Browser, recorded: dict[str, Any]) -> None:
    next(answer for path, answer in recorded["kubernetes"].items() if "deployments" in path)["items"].clear()
    with opened(browser, lambda _, minutes: document(recorded, minutes)) as page:
        assert "No service is deployed" in page.locator("#notice").inner_text()
        assert not page.locator("#content").is_visible()


def test_a_service_without_metrics(browser: Browser, recorded: dict[str, Any]) -> None:
    """Its first pod has just started."""
    for answer in recorded["prometheus"].values():
        answer["data"]["result"].clear()
    events = next(answer for path, answer in recorded["kubernetes"].items() if path.endswith("/events"))
    events["items"].clear()
    with opened(browser, lambda _, minutes: document(recorded, minutes)) as page:
        assert page.locator("text.empty").count() == 5
        assert "There are no figures of the engine yet" in page.locator("#summary").inner_text()
        assert "None yet" in page.locator("#events").inner_text()
        assert legend(page, "Requests")["running"] == "–"


def test_without_prometheus(browser: Browser, recorded: dict[str, Any]) -> None:
    def refuse(_: str) -> Any:
        raise URLError("Connection refused")

    blind = Telemetry(telemetry(recorded).kubernetes, refuse)
    now, (service,) = recorded["now"], blind.services()
    samples = {service.id: [(now - 4, 1, 1), (now - 2, 2, 1)]}
    with opened(browser, lambda _, minutes: snapshot(blind, samples, None, minutes, now)) as page:
        assert "Prometheus does not answer" in page.locator("#notice").inner_text()
        assert legend(page, "Replicas") == {"ready": "1", "desired": "2"}
        assert page.locator("#events li").count() > 1


def test_a_server_that_has_ended(browser: Browser, recorded: dict[str, Any]) -> None:
    with served(lambda _, minutes: document(recorded, minutes)) as server:
        page = browser.new_page()
        page.goto(server.url)
        page.wait_for_selector("body[data-state=live]", timeout=60_000)
    page.wait_for_selector("body[data-state=stale]", timeout=60_000)
    assert "This page is not live any more" in page.locator("#notice").inner_text()
    page.close()


# The server ----------------------------------------------------------------------------------------------------------


def ask(server: Server, path: str, method: str = "GET", host: str = "") -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    found = answer.status, dict(answer.headers), answer.read()
    connection.close()
    return found


def test_only_this_machine_is_answered(recorded: dict[str, Any]) -> None:
    with served(lambda _, minutes: document(recorded, minutes)) as server:
        assert server.server_address[0] == "127.0.0.1"
        port = server.server_address[1]
        assert ask(server, "/", host=f"localhost:{port}")[0] == 200
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example:80"):
            assert ask(server, "/data.json?minutes=15", host=host)[0] == 403
        status, headers, _ = ask(server, "/page.js")
        assert status == 200
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    ("path", "method", "status", "text"),
    [
        ("/../server.py", "GET", 404, "not found"),
        ("/server.py", "GET", 404, "not found"),
        ("/data.json", "GET", 400, f"minutes: one of {MINUTES}"),
        ("/data.json?minutes=100000", "GET", 400, f"minutes: one of {MINUTES}"),
        ("/data.json?minutes=15", "POST", 501, "Unsupported method"),
    ],
)
def test_bad_requests(path: str, method: str, status: int, text: str) -> None:
    with served(lambda _, __: {}) as server:
        found, _, body = ask(server, path, method)
        assert found == status
        assert text in body.decode()


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with served(lambda _, __: {}) as server:
        port = server.server_address[1]
        with pytest.raises(PlatformError, match=f"port {port}: Address already in use; choose another with --port"):
            serve(Platform(tmp_path), port, print)


# What is shown -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("demand", "desired", "expected"),
    [(0, 1, 0), (4, 1, 1), (43, 10, 10), (45, 10, 12), (37, 10, 10), (35, 10, 9), (24, 3, 6), (13, 3, 3), (5, 2, 2)],
)
def test_replicas_asked_for(demand: float, desired: int, expected: int) -> None:
    """ceil(sum / target) for AverageValue, unless within 10 % of the target (Kubernetes' HPA). The target is 4 here."""
    service = Service("inference", "tiny", triton=True, desired=desired, ready=1, scaling=LOADED.scaling)
    series = {"running": [(0.0, demand - 1)], "waiting": [(0.0, 1.0)]}
    assert asked(service, series) == expected


def test_nothing_is_asked_for_without_figures() -> None:
    assert asked(LOADED, {}) is None
    unscaled = Service("inference", "tiny", triton=True, desired=1, ready=1, scaling=None)
    assert asked(unscaled, {"running": [(0.0, 1.0)], "waiting": [(0.0, 1.0)]}) is None


def test_messages_name_triggers() -> None:
    """A message of the HPA of Kubernetes 1.36 for a ScaledObject of KEDA 2.20."""
    labels = "map[string]string{scaledobject.keda.sh/name: tiny,}"
    selector = f"&LabelSelector{{MatchLabels:{labels},MatchExpressions:[]LabelSelectorRequirement{{}},}}"
    message = f"New size: 3; reason: external metric s1-prometheus({selector}) above target"
    assert plain(message, ["demand", "kv-cache"]) == "New size: 3; reason: external metric kv-cache above target"
    assert plain(message, ["demand"]) == message
    assert plain("Created pod: tiny-1", ["demand"]) == "Created pod: tiny-1"


def test_samples_follow_what_prometheus_knows() -> None:
    earlier = {"desired": [(10.0, 1.0), (20.0, 2.0), (30.0, 1.0)], "ready": [(10.0, 1.0)]}
    found = replicas(earlier, [(0.0, 9, 9), (25.0, 3, 2), (27.0, 3, 3)], start=5.0)
    assert found["desired"] == [(10.0, 1.0), (20.0, 2.0), (25.0, 3.0), (27.0, 3.0)]
    assert found["ready"] == [(10.0, 1.0), (25.0, 2.0), (27.0, 3.0)]


def test_policies_without_optional_parts() -> None:
    """KEDA's and the HPA's own defaults. Sources: KEDA's ScaledObject specification, Kubernetes' HPA."""
    found = scaling({"spec": {"triggers": [{"type": "cron", "metadata": {"desiredReplicas": "2"}}]}})
    assert found == Scaling(least=0, most=100, triggers=["cron"], thresholds={}, window=300)


# A real platform -----------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_a_real_platform(
    browser: Browser, plane: ControlPlane, api: Api, keda: Keda, prometheus: Prometheus, namespace: str
) -> None:
    """A service whose pods find no node: real objects, real events, a real ScaledObject, no metrics yet."""
    with ThreadPoolExecutor() as thread:  # Playwright's event loop occupies this one
        make = partial(inference_service, Runtime.TRITON, prometheus.url, namespace=namespace, pool="none")
        recording = thread.submit(record, make).result()
    objects = [yaml.safe_load(text) for text in manifests(recording).values()]
    objects.sort(key=lambda item: item["kind"] == "ScaledObject")
    for manifest in objects:
        api.apply(manifest)
    live = Live(Platform(plane.home))
    tiny = f"{namespace}/tiny"

    def reasons() -> set[str]:
        return {event["reason"] for event in live.answer(tiny, 15).get("events", [])}

    wanted = {"FailedScheduling", "KEDAScalersStarted"}
    api.wait("the events", lambda: wanted <= reasons(), timeout=120)
    with opened(browser, lambda _, minutes: live.answer(tiny, minutes)) as page:
        assert page.get_by_role("heading", level=1).inner_text() == "tiny"
        assert "0 of 1 desired replicas are ready" in page.locator("#summary").inner_text()
        text = page.locator("#panels").inner_text()
        assert "Between 1 and 2" in text
        assert "Above the line, 6 a desired replica" in text  # three quarters of max_num_seqs
        assert wanted <= set(page.locator("#events b").all_inner_texts())
        missing = [name for name, pid in Platform(plane.home).status().items() if not pid]  # other tests start some
        assert ("not running: " in page.locator("#notice").inner_text()) == bool(missing)
    for manifest in reversed(objects):
        api.delete(manifest)
