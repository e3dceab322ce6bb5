"""The tasks of Celery, for a real worker."""

import os

import queue_tasks
from celery import Celery
from polylimit.celery import limited
from queue_tasks import OPTIONS, limiter, tenant_of

app = Celery("limited_celery", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.worker_prefetch_multiplier = 1
app.conf.broker_connection_retry_on_startup = True
slots = limited(limiter, "slots", key=tenant_of, **OPTIONS)

export = app.task(max_retries=0)(slots(queue_tasks.export))
flaky = app.task(autoretry_for=(ValueError,), max_retries=1, default_retry_delay=1)(slots(queue_tasks.flaky))
impossible = app.task(limited(limiter, "none")(queue_tasks.impossible))


@app.task(max_retries=0)
@limited(limiter, "counted", key="all")
@limited(limiter, "mails", key="all", **OPTIONS)
def mail():
    queue_tasks.mail()


def send(name, *args):
    return globals()[name].delay(*args).id
