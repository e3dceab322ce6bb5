"""An application of Celery that the tests run under a real worker: its limiter is made before the pool forks."""

import os

from celery import Celery
from polylimit import Limiter

limiter = Limiter(os.environ["STORE"], {"api": "100/day fixed_window"})
# It has decided in the parent, too.
limiter.check(os.environ["BROKER"])

app = Celery("celery_app", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.worker_prefetch_multiplier = 1
app.conf.broker_connection_retry_on_startup = True


@app.task
def decide(key):
    """Says which process decided what."""
    return os.getpid(), limiter.check(key).allowed
