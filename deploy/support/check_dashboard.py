"""Runs every expression of the dashboard, and every alert, in a Prometheus that scrapes what is in trouble.

One service has its limits and its document in Redis, another one has a local store with little room. A server has a
certificate for a week, and clients that speak no TLS. Clients hammer, Redis is suspended again and again, and in the
end it is killed.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from typing import TYPE_CHECKING, Any

from load import Load, ask
from own_prometheus import ROOT, SPAN, Prometheus
from own_redis import Redis
from own_server import certify, running
from services import Service
from stores import local

if TYPE_CHECKING:
    from collections.abc import Callable

DASHBOARD = ROOT / "deploy" / "grafana" / "polylimit.json"
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
CLI = ROOT / "target" / "debug" / "polylimit"
#: How long everything may take to be seen on a machine that is busy with other tests, in seconds.
PATIENCE = 120

#: Every kind of traffic that a panel shows.
DOCUMENT = """
polylimit = 1
[policies.api]
quotas = "1000000/s token_bucket"
lease = "1000/10s"
[policies.login]
quotas = "5/s token_bucket; 100000/day"
[policies.search]
quotas = "1000/s token_bucket"
candidate = { quotas = "1/minute", compare = 1000 }
[policies.export]
quotas = "2 concurrent; 100000/day"
[policies.tried]
quotas = "1/minute"
mode = "shadow"
[policies.customer]
quotas = "1/minute"
elastic = { policy = "machines", key = "all" }
[policies.machines]
quotas = "100000/s token_bucket"
[[rules]]
match = { path = "/" }
continue = true
apply = [{ policy = "api", key = "all" }]
[[rules]]
match = { plan = "login" }
apply = [{ policy = "login", key = "{user}" }]
[[rules]]
match = { plan = "search" }
apply = [{ policy = "search", key = "{user}" }]
[[rules]]
match = { plan = "export" }
apply = [{ policy = "export", key = "{user}" }]
[[rules]]
match = { plan = "tried" }
apply = [{ policy = "tried", key = "{user}" }, { policy = "customer", key = "{user}" }]
[lists]
deny = ["user mallory"]
"""
PLANS = ("", "login", "login", "search", "export", "tried")

#: A store in which every user takes the place of eight keys for a day.
PAGES = [f"page-{number}" for number in range(8)]
FULL = "\n".join(
    [
        "polylimit = 1",
        "[policies]",
        *(f'{page} = {{ quotas = "5/day" }}' for page in PAGES),
        "[[rules]]",
        "apply = [",
        *(f'  {{ policy = "{page}", key = "{{user}}" }},' for page in PAGES),
        "]",
    ]
)


def panels() -> list[dict[str, Any]]:
    """Give the panels of the dashboard."""
    dashboard = json.loads(DASHBOARD.read_text())
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions() -> dict[str, str]:
    """Give every expression as Grafana sends it when all is chosen, with its panel."""
    found = {}
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", SPAN)
            found[re.sub(r"\$\w+", ".*", expression)] = panel["title"]
    return found


def alert_names() -> set[str]:
    """Give the names of all alerts."""
    return set(re.findall(r"^ +- alert: (\w+)$", RULES.read_text(), flags=re.MULTILINE))


def layout() -> None:
    """No panel lies on another one, none has an identifier of another, and all have the dashboard's data source."""
    taken: dict[tuple[int, int], str] = {}
    dashboard = json.loads(DASHBOARD.read_text())
    identifiers = [panel["id"] for panel in dashboard["panels"]]
    if len(set(identifiers)) != len(identifiers):
        raise AssertionError(f"identifiers of panels: {identifiers}")
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = taken.setdefault((x, y), panel["title"])
                if other != panel["title"] or x >= 24:
                    raise AssertionError(f"the panel {panel['title']} lies on {other}, or off the screen")
    for panel in panels():
        for source in (panel["datasource"], *(target["datasource"] for target in panel["targets"])):
            if source != {"type": "prometheus", "uid": "${datasource}"}:
                raise AssertionError(f"the panel {panel['title']} has the data source {source}")


def publish(url: str, document: str, expected: int) -> None:
    """Publish a document with the command line."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(document)
        file.flush()
        command = [str(CLI), "--store", url, "policies", "put", file.name, "--expect", str(expected), "--why", "test"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"policies put: {done.returncode}\n{done.stdout}{done.stderr}")


def lint(text: str) -> None:
    """Have promtool read the metrics of a service."""
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    if done.returncode != 0 or done.stdout or done.stderr:
        raise AssertionError(f"promtool check metrics: {done.stdout}{done.stderr}")


def request(number: int) -> str:
    """Give the path of a request: of each kind of traffic in turn."""
    if number % 50 == 0:
        return "/?user=mallory"
    return f"/?user=user-{number % 3}&plan={PLANS[number % len(PLANS)]}"


class Watch:
    """What Prometheus has not shown yet."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        self.expressions = expressions()
        self.alerts = alert_names()
        self.start = time.monotonic()

    def look(self) -> None:
        """Ask for all that is missing."""
        for expression in [*self.expressions]:
            if self._prometheus.query(expression):
                del self.expressions[expression]
        self.alerts -= self._prometheus.alerts().keys()

    def until(self, what: str, expected: set[str], meanwhile: Callable[[], None] = lambda: None) -> None:
        """Look until only the expected panels and alerts are missing, and do something before each look."""
        while True:
            meanwhile()
            self.look()
            missing = ({*self.expressions.values()} | self.alerts) - expected
            if not missing:
                print(f"{what}: after {time.monotonic() - self.start:.1f} s", flush=True)
                return
            if time.monotonic() - self.start > PATIENCE:
                lines = [f"{title}: {expression}" for expression, title in self.expressions.items()]
                raise AssertionError("\n".join([f"{what}: not seen:", *sorted(missing), *lines]))
            time.sleep(0.3)


#: What only an outage shows.
OUTAGE_PANELS = {"Decisions without the store, by reason"}
OUTAGE_ALERTS = {"PolylimitOutageAnswers", "PolylimitStoreDown", "PolylimitBreakerOpen", "PolylimitLostUnits"}
#: What only a document with a mistake shows.
DOCUMENT_ALERTS = {"PolylimitDocumentRefused"}
#: What only clients without TLS show.
REJECTION_ALERTS = {"PolylimitServerRejects"}
#: `polylimit serve` with two listeners for callers, one of them with TLS.
SERVE = [
    *("--policies", "/etc/polylimit/limits.toml", "serve"),
    *("--listen", "http://127.0.0.1:0", "--listen", "https://127.0.0.1:0", "--admin", "http://127.0.0.1:0"),
    *("--certificate", "/etc/polylimit/certificate.pem", "--key", "/etc/polylimit/key.pem"),
]


def knock(port: int) -> None:
    """Make connections on which the client speaks no TLS."""
    for _ in range(10):
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            # The server answers with an alert, and ends the connection.
            while connection.recv(4096):
                pass


def dashboard_and_alerts() -> None:
    """See every expression give series, and every alert fire."""
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(Redis())
        url = f"{redis.url}?deadline=1s"
        publish(url, "polylimit = 1", 0)
        publish(url, DOCUMENT, 1)
        shop = stack.enter_context(Service("configuration/rust", url, "", POLYLIMIT_CONFIGURATION="store"))
        document = stack.enter_context(tempfile.NamedTemporaryFile("w", suffix=".toml"))
        document.write(FULL)
        document.flush()
        place = stack.enter_context(local()).replace("4MiB", "1MiB")
        visited = stack.enter_context(
            Service("configuration/rust", place, "", POLYLIMIT_CONFIGURATION=f"file:{document.name}")
        )
        server, _ = stack.enter_context(running(SERVE, prepare=lambda folder: certify(folder, 7)))
        data, tls, admin = (int(listener.rsplit(":", 1)[1]) for listener in server.listeners)
        ports = [shop.port(), visited.port(), admin]
        stack.enter_context(Load(ports[0], request, clients=8, rest=0.01))
        stack.enter_context(Load(ports[1], lambda number: f"/?user=visitor-{number}", clients=2, rest=0.004))
        stack.enter_context(Load(data, lambda _: "/v1/forward/api?key=ip", rest=0.004))
        prometheus = stack.enter_context(Prometheus(ports))
        watch = Watch(prometheus)
        later = OUTAGE_PANELS | OUTAGE_ALERTS | DOCUMENT_ALERTS | REJECTION_ALERTS | {"PolylimitStoreFull"}
        watch.until("traffic", later | {"PolylimitStoreSlow"})
        for port in ports:
            lint(ask(port, "/metrics")[1])
        watch.until("a slow Redis", later, lambda: redis.suspend(0.7))
        document.write("broken [")
        document.flush()
        redis.kill()
        watch.until("an outage, a refused document and clients without TLS", set(), lambda: knock(tls))
        denied = prometheus.query("polylimit_server_denied_keys")
        if [count for _, count in denied] != [1.0]:
            raise AssertionError(f"one client of the server is denied, and the metric has {denied}")
        sources = {labels["source"] for labels, _ in prometheus.query("polylimit_decisions_total")}
        if "fallback" not in sources:
            raise AssertionError(f"no decision of the outage policy: {sources}")
        beyond = prometheus.query('sum by (policy) (polylimit_units_total{result="denied"}) > 0')
        if "login" not in {labels["policy"] for labels, _ in beyond}:
            raise AssertionError(f"no units of the policy login are denied: {beyond}")
        dashboard = json.loads(DASHBOARD.read_text())
        for variable in dashboard["templating"]["list"]:
            query = re.fullmatch(r"label_values\((.+), (\w+)\)", variable.get("definition", ""))
            if query and not prometheus.label_values(query[1].replace("$job", ".*"), query[2]):
                raise AssertionError(f"the variable {variable['name']} has no values")


def main() -> int:
    """Run the tests, and count the results."""
    passed = failed = 0
    for test in (layout, dashboard_and_alerts):
        try:
            test()
        except Exception:  # noqa: BLE001 any error is a failed test
            failed += 1
            traceback.print_exc()
            print(f"test {test.__name__} ... FAILED", flush=True)
        else:
            passed += 1
            print(f"test {test.__name__} ... ok", flush=True)
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed;")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
