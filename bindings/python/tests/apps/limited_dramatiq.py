"""The actors of Dramatiq, for a real worker."""

import os

import dramatiq
import queue_tasks
from dramatiq.brokers.redis import RedisBroker
from polylimit.dramatiq import Limit, RateLimitMiddleware
from queue_tasks import OPTIONS, limiter, tenant_of

broker = RedisBroker(url=os.environ["BROKER"])
broker.add_middleware(RateLimitMiddleware())
dramatiq.set_broker(broker)
slots = [Limit(limiter, "slots", key=tenant_of, **OPTIONS)]

export = dramatiq.actor(limits=slots, max_retries=0)(queue_tasks.export)
flaky = dramatiq.actor(limits=slots, max_retries=1, min_backoff=100, max_backoff=1000)(queue_tasks.flaky)
impossible = dramatiq.actor(limits=[Limit(limiter, "none")])(queue_tasks.impossible)


@dramatiq.actor(
    limits=[Limit(limiter, "counted", key="all"), Limit(limiter, "mails", key="all", **OPTIONS)], max_retries=0
)
def mail():
    queue_tasks.mail()


def send(name, *args):
    return globals()[name].send(*args).message_id
