import asyncio
import gc
import importlib.util
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import uvloop
from redis_server import RedisServer

# Its assertions are shown as those of tests are.
pytest.register_assert_rewrite("guard_cases", "guard_cases_socket")

# A forked child leaves alone what other tests of its parent have left: to destroy objects of gRPC waits for threads
# that it lacks.
os.register_at_fork(after_in_child=gc.freeze)


def pytest_sessionfinish(session, exitstatus):
    session.config.status_of_tests = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    # At its end gRPC 1.60 now and then waits for ever for a thread of one of its servers.
    if "grpc" in sys.modules and not hasattr(config, "workerinput"):
        config.get_terminal_writer().flush()
        os._exit(getattr(config, "status_of_tests", 3))


#: LiteLLM and Sanic need packages in versions of their own, so target/python-venv is without them: `versions.py` runs
#: their tests.
OF_VERSIONS = {"litellm": ["test_litellm.py"], "sanic": ["test_guard_cases_sanic.py", "test_sanic.py"]}
collect_ignore = [
    file for package, files in OF_VERSIONS.items() if not importlib.util.find_spec(package) for file in files
]


@pytest.fixture(scope="module")
def broken_file():
    """The file of a local store, which other users may read."""
    from guard_cases import BROKEN

    path = Path(f"/dev/shm/polylimit-{os.getuid()}-{BROKEN}")
    path.touch()
    path.chmod(0o640)
    yield
    path.unlink()


@pytest.fixture
def record(request):
    """Records what the test measured for a row of docs/faults.md: record(row, case, measured="...", decisions=...)."""
    root = Path(__file__).parents[3]

    def record(row, case, **measured):
        pairs = (f"{name}={value}" for name, value in measured.items())
        subprocess.run([root / "tests/faults/record", request.path.relative_to(root), row, case, *pairs], check=True)

    return record


@pytest.fixture(scope="session")
def session_redis():
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
def redis(session_redis):
    """A server that is shared by tests, so their keys have to differ."""
    return session_redis.url + "?deadline=10s"


@pytest.fixture
def own_redis():
    """A server of one test, which may stop it."""
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
def local():
    name = f"test-{uuid.uuid4().hex}"
    yield f"local:{name}?size=1MiB"
    Path(f"/dev/shm/polylimit-{os.getuid()}-{name}").unlink(missing_ok=True)


@pytest.fixture(params=["memory", "local", "redis"])
def store(request):
    """The URL of each store."""
    return "memory:" if request.param == "memory" else request.getfixturevalue(request.param)


@pytest.fixture
def key():
    return f"user:{uuid.uuid4().hex}"


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Runs a coroutine in a new event loop of asyncio or uvloop."""

    def run(main):
        loop = asyncio.new_event_loop() if request.param == "asyncio" else uvloop.new_event_loop()
        try:
            return loop.run_until_complete(main)
        finally:
            loop.close()

    return run
