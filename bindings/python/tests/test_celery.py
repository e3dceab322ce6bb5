"""A real worker of Celery, whose pool is forked from the process that made the limiter."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile

import pytest
from web_server import APPS


@contextlib.contextmanager
def worker(environment):
    """A worker with four processes that runs until the end of the block."""
    command = [
        sys.executable,
        "-m",
        "celery",
        "--app",
        "celery_app",
        "worker",
        "--pool",
        "prefork",
        "--concurrency",
        "4",
    ]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, "--without-gossip", "--without-mingle"],
            cwd=APPS,
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process
            process.terminate()
            status = process.wait(60)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            log.seek(0)
            sys.stderr.write(log.read().decode())
            raise
        log.seek(0)
        printed = log.read().decode()
        assert status == 0, printed
        assert "Traceback" not in printed, printed


#: Sends tasks to the worker, and prints how many requests were admitted and by how many processes.
ASK = """
import sys
from celery import group
from celery_app import decide
results = group(decide.s(sys.argv[1]) for _ in range(400)).apply_async().get(timeout=60)
print(sum(allowed for _, allowed in results), len({process for process, _ in results}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local", "redis"])
def test_prefork_pool_shares_one_budget(kind, request, own_redis, key, record):
    environment = {"STORE": request.getfixturevalue(kind), "BROKER": own_redis.url}
    with worker(environment) as process:
        command = [sys.executable, "-c", ASK, key]
        asked = subprocess.run(
            command, cwd=APPS, env={**os.environ, **environment}, capture_output=True, text=True, timeout=100
        )
        assert process.poll() is None, "the worker has ended"
        assert asked.returncode == 0, asked.stderr
        admitted, processes = map(int, asked.stdout.split())
        assert admitted == 100
        assert processes > 1
        record("F60", f"Python, celery's prefork pool on {kind}", admitted=100, admitted_of_key=100, bound=100)
