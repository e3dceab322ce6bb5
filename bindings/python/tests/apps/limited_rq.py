"""The jobs of RQ, for a real worker."""

import os

import queue_tasks
import redis
from polylimit.rq import limited
from queue_tasks import OPTIONS, limiter, tenant_of
from rq import Queue, Retry

queue = Queue(connection=redis.Redis.from_url(os.environ["BROKER"]))


@limited(limiter, "slots", key=tenant_of, **OPTIONS)
def export(tenant, seconds):
    queue_tasks.export(tenant, seconds)


@limited(limiter, "slots", key=tenant_of, **OPTIONS)
def flaky(tenant):
    queue_tasks.flaky(tenant)


@limited(limiter, "slots", key=tenant_of, **OPTIONS)
def returning(tenant):
    """Asks for its only retry itself."""
    return Retry(max=1) if queue_tasks.notes.incr(f"returns {tenant}") == 1 else None


@limited(limiter, "none")
def impossible():
    queue_tasks.impossible()


@limited(limiter, "counted", key="all")
@limited(limiter, "mails", key="all", **OPTIONS)
def mail():
    queue_tasks.mail()


def send(name, *args):
    retry = Retry(max=1) if name == "flaky" else None
    return queue.enqueue(f"limited_rq.{name}", *args, retry=retry).id
