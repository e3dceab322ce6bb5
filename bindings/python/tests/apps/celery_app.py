"""A Celery application for a real worker. Its limiter is created before the pool forks."""

import os

from celery import Celery
from polylimit import Limiter

limiter = Limiter(os.environ["STORE"], {"api": "100/day fixed_window"})
# A decision before the fork gives the parent connections, which the children must not use.
limiter.check(os.environ["BROKER"])

app = Celery("celery_app", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.worker_prefetch_multiplier = 1
app.conf.broker_connection_retry_on_startup = True


@app.task
def decide(key):
    """Returns the process and its decision."""
    return os.getpid(), limiter.check(key).allowed
