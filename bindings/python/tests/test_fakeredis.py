"""What is said of fakeredis, which tests of Python services use in place of Redis: no limiter can decide on it."""

import threading

import pytest
from fakeredis import TcpFakeServer
from polylimit import Limiter, StoreUnavailableError

CAUSE = "ends each connection on which it refuses a command"


@pytest.fixture
def url():
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"redis://127.0.0.1:{server.server_address[1]}?deadline=2s"
    server.shutdown()
    server.server_close()


def test_fakeredis_decides_nothing_and_the_cause_is_named(url):
    with Limiter(url, {"api": "3/day"}, outage="deny", doctor_after=0) as limiter:
        decision = limiter.check("k")
        assert (decision.source, decision.degraded) == ("deny", "connection_lost")
        with pytest.raises(StoreUnavailableError, match=f"{CAUSE}.*Redis 6.2 or newer or Valkey is needed"):
            limiter.ready(2)
        problems = [finding.message for finding in limiter.admin().doctor() if finding.severity == "problem"]
        assert any(CAUSE in problem for problem in problems), problems
