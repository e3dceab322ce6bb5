"""What the tasks of each queue do, and how they are limited. The limiter is created before workers fork."""

import os
import time

import redis
from polylimit import Limiter

POLICIES = {"slots": "1 concurrent", "mails": "2/2s token_bucket", "counted": "1000/day fixed_window", "none": "0/day"}
limiter = Limiter(os.environ["STORE"], POLICIES)
#: Tasks note here what they do.
notes = redis.Redis.from_url(os.environ["BROKER"], decode_responses=True)

#: The slot of a killed worker is free after 5 s, and a denied task asks again every second.
OPTIONS = {"ttl": 5, "max_delay": 1}


def tenant_of(tenant, *_):
    return tenant


def export(tenant, seconds):
    """Holds the slot of its tenant for some time."""
    notes.rpush(f"running {tenant}", notes.incr(f"now {tenant}"))
    time.sleep(seconds)
    notes.decr(f"now {tenant}")
    notes.incr(f"done {tenant}")


def mail():
    """Counts under two limits."""
    notes.incr("mails")


def flaky(tenant):
    """Fails the first time."""
    if notes.incr(f"attempts {tenant}") == 1:
        raise ValueError("the first attempt fails")


def impossible():
    """Is never admitted."""
    notes.incr("impossible")
