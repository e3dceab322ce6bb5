"""gevent and eventlet: what waits lets the other greenlets of its thread run."""

import os
import subprocess
import sys

import pytest

PATCH = {
    "gevent": """
from gevent import monkey
monkey.patch_all()
import gevent
from gevent import sleep, spawn
from gevent.pool import Group
Timeout = gevent.Timeout
def kill(task): task.kill()
def join(*tasks): gevent.joinall(tasks, raise_error=True)
""",
    "eventlet": """
import warnings
warnings.simplefilter("ignore")
import eventlet
eventlet.monkey_patch()
from eventlet import Timeout, sleep, spawn
def kill(task): task.kill()
def join(*tasks):
    for task in tasks: task.wait()
""",
}
PROGRAM = """
import sys, threading, time
from polylimit import Limiter
ticks, log = [], []
def tick():
    while len(ticks) < 3:
        sleep(0.005)
        ticks.append(1)
"""


@pytest.fixture(params=PATCH)
def greenlets(request):
    """Runs a program in a process of its own, of which the standard library is patched."""

    def run(program, *arguments):
        command = [sys.executable, "-c", PATCH[request.param] + PROGRAM + program, *arguments]
        # Its resolver imports dnspython, which imports trio where httpx2 is installed, and trio cannot be patched.
        environment = os.environ | {"EVENTLET_NO_GREENDNS": "yes"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr
        return done.stdout

    return run


def test_wait_lets_the_holder_of_a_slot_run(greenlets):
    printed = greenlets("""
limiter = Limiter(policies={"a": "1 concurrent"})
def job(number):
    with limiter.reserve("k", timeout=20) as held:
        log.append(bool(held))
        sleep(0.02)
start = time.monotonic()
join(*[spawn(job, number) for number in range(3)], spawn(tick))
print(log, len(ticks), time.monotonic() - start < 10)
""")
    assert printed == "[True, True, True] 3 True\n"


def test_check_on_a_server_lets_others_run(greenlets, own_redis):
    printed = greenlets(
        """
limiter = Limiter(sys.argv[1] + "?deadline=20s&first_connect_max=20s&doctor_after=0", {"a": "5/minute fixed_window"})
limiter.ready(20)
import os, signal
server = int(sys.argv[2])
os.kill(server, signal.SIGSTOP)
def check(): log.append(limiter.check("k").remaining)
waiting = [spawn(check) for _ in range(4)]
join(spawn(tick))
assert not log, "the server is suspended"
os.kill(server, signal.SIGCONT)
join(*waiting)
print(sorted(log))
""",
        own_redis.url,
        str(own_redis._process.pid),
    )
    assert printed == "[1, 2, 3, 4]\n"


def test_killed_greenlet_and_timeout_leave_the_queue(greenlets):
    printed = greenlets("""
limiter = Limiter(policies={"a": "1 concurrent"})
held = limiter.reserve("k")
first = spawn(lambda: limiter.reserve("k", timeout=20))
sleep(0.01)
kill(first)
try:
    with Timeout(0.01): limiter.reserve("k", timeout=20)
except Timeout: log.append("timeout")
last = spawn(lambda: log.append(bool(limiter.reserve("k", timeout=20))))
sleep(0.01)
held.cancel()
join(last)
print(log)
""")
    assert printed == "['timeout', True]\n"


def test_thread_of_a_program_that_is_not_patched_waits_by_itself():
    program = """
import gevent, threading, time
from polylimit import Limiter
limiter = Limiter(policies={"a": "1 concurrent"})
held = limiter.reserve("k")
threading.Timer(0.02, held.cancel).start()
print(bool(limiter.reserve("k", timeout=20)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr
