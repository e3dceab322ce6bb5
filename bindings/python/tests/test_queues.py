"""Limits of the tasks of Celery, RQ and Dramatiq, each with real workers on a real Redis."""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis
from polylimit import InvalidArgumentError, Limiter
from redis_server import until
from web_server import APPS

PYTHON = [sys.executable, "-m"]
#: The command of a worker that runs two tasks at a time, and how many processes of it.
WORKERS = {
    "celery": ([*PYTHON, "celery", "--app", "limited_celery", "worker", "--concurrency", "2", "--without-mingle"], 1),
    "rq": ([*PYTHON, "rq.cli", "worker", "--with-scheduler", "--url"], 2),
    "dramatiq": ([*PYTHON, "dramatiq", "limited_dramatiq", "--processes", "1", "--threads", "2"], 1),
}
QUEUES = [*WORKERS]


def session(leader):
    """The processes that a worker has started, and the worker: RQ gives each job a group of its own."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            _, _, _, member_of, *_ = entry.joinpath("stat").read_text().rpartition(")")[2].split()
            found += [int(entry.name)] if int(member_of) == leader else []
    return found


@pytest.fixture(params=QUEUES)
def queue(request, own_redis):
    """The broker, the limiter of the tasks, and workers that run until the end of the test."""
    name = request.param
    environment = {**os.environ, "BROKER": own_redis.url, "STORE": f"{own_redis.url}?deadline=10s"}
    environment["PYTHONPATH"] = os.pathsep.join([str(APPS), os.environ.get("PYTHONPATH", "")])
    command, processes = WORKERS[name]
    command = [*command, own_redis.url] if name == "rq" else command
    running = []
    with tempfile.TemporaryFile() as log, contextlib.ExitStack() as ended:

        def start():
            options = {"cwd": APPS, "env": environment, "stdout": log, "stderr": log, "start_new_session": True}
            running.extend(subprocess.Popen(command, **options) for _ in range(processes))

        def kill():
            """Kill the workers and all of their processes, which clean up nothing."""
            for process in running:
                for member in session(process.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(member, signal.SIGKILL)
                process.wait()
            running.clear()

        def send(*tasks):
            """Send tasks, each with its arguments, from another process."""
            program = f"import limited_{name} as app\nfor task in {tasks!r}: print(app.send(*task))"
            command = [sys.executable, "-c", program]
            sent = subprocess.run(command, cwd=APPS, env=environment, check=True, timeout=120, stdout=subprocess.PIPE)
            return sent.stdout.decode().split()

        notes = ended.enter_context(redis.Redis.from_url(own_redis.url, decode_responses=True))
        limiter = Limiter(
            environment["STORE"],
            {"slots": "1 concurrent", "mails": "2/2s token_bucket", "counted": "1000/day fixed_window"},
        )

        def state(sent):
            """The state of a task, as the queue has it."""
            if name == "celery":
                return json.loads(notes.get(f"celery-task-meta-{sent}") or "{}").get("status")
            return notes.hget(f"rq:job:{sent}", "status") if name == "rq" else None

        states = {"celery": ["SUCCESS", "SUCCESS", "FAILURE"], "rq": ["finished", "finished", "failed"]}
        ended.callback(kill)
        start()
        try:
            yield SimpleNamespace(
                name=name,
                send=send,
                kill=kill,
                start=start,
                notes=notes,
                limiter=limiter,
                state=state,
                states=states.get(name, [None] * 3),
            )
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read().decode())
            raise


@pytest.mark.slow
def test_denied_tasks_come_back_without_using_their_retries(queue):
    notes, limiter = queue.notes, queue.limiter
    # The slot of this tenant is taken, so its tasks go back to the queue some times before they run.
    held = limiter.reserve("held", "slots")
    sent = queue.send(
        ("flaky", "held"),
        ("export", "held", 0),
        ("impossible",),
        *[("mail",)] * 5,
        *[("export", "tenant", 0.2)] * 3,
        ("export", "other", 0),
        *([("returning", "held")] if queue.name == "rq" else []),
    )
    # More tasks wait than there are workers, which are free for others.
    until(lambda: notes.get("done other") == "1", "the task of another tenant has run", 120)
    until(lambda: notes.get("done tenant") == "3" and notes.get("mails") == "5", "the tasks have run", 120)
    assert notes.get("done held") is None
    assert notes.get("attempts held") is None
    held.cancel()
    until(lambda: notes.get("done held") == "1" and notes.get("attempts held") == "2", "the others have run", 120)
    # One at a time of each tenant, though two workers are free.
    assert set(notes.lrange("running tenant", 0, -1)) == {"1"}
    # A task that the inner limit denies has spent nothing under the outer one.
    assert limiter.peek("all", "counted").remaining == 1000 - 5
    assert notes.get("impossible") is None
    # The results are those of tasks that ran once.
    flaky, export, impossible, *_, last = sent
    if queue.name == "rq":
        until(lambda: queue.state(last) == "finished" and notes.get("returns held") == "2", "it has its own retry", 60)
    until(
        lambda: [queue.state(one) for one in (flaky, export, impossible)] == queue.states, "the results are there", 60
    )
    # Every task has freed its slot.
    until(
        lambda: all(limiter.peek(tenant, "slots").allowed for tenant in ("held", "tenant", "other")),
        "slots are free",
        60,
    )


@pytest.mark.slow
def test_slot_of_a_killed_worker_is_freed(queue):
    notes, limiter = queue.notes, queue.limiter
    queue.send(("export", "tenant", 300))
    until(lambda: notes.get("now tenant") == "1", "the task runs", 120)
    assert not limiter.peek("tenant", "slots").allowed
    queue.kill()
    until(lambda: limiter.peek("tenant", "slots").allowed, "the slot is free", 60)
    queue.send(("export", "tenant", 0))
    queue.start()
    until(lambda: notes.get("done tenant") == "1", "the next task has run", 120)


@pytest.mark.parametrize("name", QUEUES)
def test_options_are_validated_where_they_stand(name):
    module = importlib.import_module(f"polylimit.{name}")
    limit = module.Limit if name == "dramatiq" else module.limited
    limiter = Limiter(policies={"api": "3/minute", "slots": "1 concurrent"})
    for wrong in (
        {"max_delay": 0},
        {"ttl": -1},
        {"max_age": -1},
        {"cost": -1},
        {"policy": "apis"},
    ):
        with pytest.raises(InvalidArgumentError):
            limit(limiter, **{"policy": "api", **wrong})
    with pytest.raises(TypeError, match='unknown option "timeout": allowed are key, cost'):
        limit(limiter, "api", timeout=1)
    with pytest.raises(TypeError, match=r"allowed is a Limiter of polylimit, such as its \.blocking|\.blocking"):
        limit(limiter.asynchronous, "api")


@pytest.mark.parametrize("name", [name for name in QUEUES if name != "dramatiq"])
def test_call_that_no_worker_makes_is_denied(name):
    module = importlib.import_module(f"polylimit.{name}")
    limiter = Limiter(policies={"api": "1/minute", "slots": "1 concurrent"})

    @module.limited(limiter, "api", key=lambda number: number % 2)
    def task(number):
        return number

    assert [task(0), task(1)] == [0, 1]
    with pytest.raises(module.DeniedError) as denied:
        task(2)
    assert denied.value.retry_after > 0
    with pytest.raises(TypeError, match="is no coroutine function"):

        @module.limited(limiter, "api")
        async def coroutine(): ...


@pytest.fixture
def dramatiq_broker():
    import dramatiq
    from dramatiq.brokers.stub import StubBroker
    from polylimit.dramatiq import RateLimitMiddleware

    broker = StubBroker()
    broker.add_middleware(RateLimitMiddleware())
    worker = dramatiq.Worker(broker, worker_timeout=10, worker_threads=1)
    worker.start()
    yield broker
    worker.stop()


def test_dramatiq_runs_no_actor_for_which_a_limiter_cannot_decide(dramatiq_broker):
    import dramatiq
    from polylimit.dramatiq import Limit

    closed = Limiter(policies={"api": "1/day"})
    before = Limiter(policies={"api": "5/day"})
    limits = [Limit(before, "api", key="all"), Limit(closed, "api", key="all")]
    ran = []

    @dramatiq.actor(broker=dramatiq_broker, limits=limits, max_retries=1, min_backoff=10, max_backoff=20)
    def work():
        ran.append(1)

    closed.close()
    work.send()
    # It has used its retry, and failed.
    until(lambda: len(dramatiq_broker.dead_letters) == 1, "the message fails")
    assert ran == []
    assert before.peek("all").remaining == 5


def test_dramatiq_refuses_limits_of_another_type(dramatiq_broker):
    import dramatiq

    with pytest.raises(dramatiq.middleware.MiddlewareError, match="limits is 'api': allowed is a list of Limit"):
        dramatiq.actor(broker=dramatiq_broker, limits="api")(print)
