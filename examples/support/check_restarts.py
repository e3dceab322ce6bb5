"""Restarts services under their real servers while clients call them: all workers together admit exactly the quota."""

from __future__ import annotations

import http.client
import os
import signal
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from own_redis import Redis, free_port
from services import EXAMPLES, TARGET, Service
from stores import patient

WORKERS = 4
CLIENTS = 8
LIMIT = 200
REQUESTS = 2 * LIMIT
#: The server is restarted after this number of answers.
RESTART_AT = LIMIT // 3
QUOTA = f"{LIMIT}/hour fixed_window"
#: How long one request may need, with all attempts while a server that has one process is starting.
PATIENCE = 60
UWSGI = ("--master", "--die-on-term", "--need-app", "--processes", str(WORKERS), "--module", "main:app")


class Clients:
    """Clients that call one service, each request on a connection of its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = Lock()
        self.answered = 0
        #: Requests that were sent and not answered, which may or may not have been charged.
        self.unknown = 0

    def ask(self, _number: int) -> int | None:
        """Send one request, again while there is no connection; return its status."""
        end = time.monotonic() + PATIENCE
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
            try:
                connection.connect()
            except (ConnectionRefusedError, ConnectionResetError):
                # A listener that closes resets connections that it has not accepted yet.
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
                continue
            try:
                connection.request("GET", "/?user=all")
                status = connection.getresponse().status
            except (http.client.HTTPException, OSError):
                with self._lock:
                    self.unknown += 1
                return None
            finally:
                connection.close()
            with self._lock:
                self.answered += 1
            return status


def check(service: Service, restart: object) -> None:
    """Restart the service in the middle of the requests, and count what was admitted."""
    clients = Clients(service.port())
    with ThreadPoolExecutor(CLIENTS) as pool:
        results = [pool.submit(clients.ask, number) for number in range(REQUESTS)]
        while clients.answered < RESTART_AT:
            time.sleep(0.005)
        restart()  # type: ignore[operator]
        statuses = Counter(result.result() for result in results)
    unknown = statuses.pop(None, 0)
    # A restart may cut requests that are under way, and until the process has ended also those that follow them.
    if unknown > 4 * CLIENTS or set(statuses) - {200, 429}:
        raise AssertionError(f"answers: {statuses}, and {unknown} requests were cut")
    if not LIMIT - unknown <= statuses[200] <= LIMIT:
        raise AssertionError(f"{statuses[200]} requests were admitted, {unknown} were cut: the quota is {LIMIT}")


def check_reload(name: str, url: str, number: signal.Signals, command: list[str] | None, **more: str) -> None:
    """Have the server replace its workers, by a signal."""
    if command and "uwsgi" in command[0]:
        # It does not report the port that the kernel would give it.
        more["PORT"] = str(free_port())
    with Service(name, url, QUOTA, command=command, WORKERS=str(WORKERS), **more) as service:
        check(service, lambda: os.kill(service.process.pid, number))


def check_restart(name: str, url: str) -> None:
    """End the only process of the service, and start another one on its port."""
    with Service(name, url, QUOTA) as service:
        check(service, service.restart)


def main() -> int:
    """Run all services, and count the results."""
    passed = failed = 0
    bin_folder = TARGET / "python-venv" / "bin"
    node = ["node", str(EXAMPLES / "support" / "cluster.cjs")]
    uwsgi = [
        str(bin_folder / "uwsgi"),
        "--http-socket",
        "127.0.0.1:$(PORT)",
        "--chdir",
        str(EXAMPLES / "flask"),
        *UWSGI,
    ]
    reloads = {
        "Flask under gunicorn": ("flask", signal.SIGHUP, None, {}),
        "Flask under gunicorn --preload": ("flask", signal.SIGHUP, None, {"GUNICORN_CMD_ARGS": "--preload"}),
        "Flask under uWSGI": ("flask", signal.SIGHUP, uwsgi, {}),
        "Django under gunicorn --preload": ("django", signal.SIGHUP, None, {"GUNICORN_CMD_ARGS": "--preload"}),
        "FastAPI under uvicorn": ("fastapi", signal.SIGHUP, None, {}),
        "Express in a cluster": ("express", signal.SIGHUP, [*node, str(EXAMPLES / "express" / "main.js")], {}),
        "Fastify in a cluster": ("fastify", signal.SIGHUP, [*node, str(EXAMPLES / "fastify" / "main.js")], {}),
        "Rack under Puma": ("rack", signal.SIGUSR1, None, {}),
    }
    tests = {
        title: (lambda url, test=test: check_reload(test[0], url, test[1], test[2], **test[3]))
        for title, test in reloads.items()
    }
    for name in ("axum", "go-nethttp", "kotlin-servlet", "c-threaded"):
        tests[f"{name}, restarted"] = lambda url, name=name: check_restart(name, url)
    for title, test in tests.items():
        try:
            with Redis() as redis:
                test(patient(redis.url))
        except (AssertionError, OSError, RuntimeError, ValueError, http.client.HTTPException):
            failed += 1
            traceback.print_exc()
            print(f"test {title} ... FAILED", flush=True)
        else:
            passed += 1
            print(f"test {title} ... ok", flush=True)
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed;")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
