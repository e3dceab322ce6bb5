"""Callers of limits with its Redis storage: see drive.py."""

import sys
import threading
import time

from limits import parse
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter

LIMIT = parse("1000000000/day")
KEYS = [f"k{number}" for number in range(4)]
limiter = FixedWindowRateLimiter(storage_from_string(f"redis://127.0.0.1:{sys.argv[1]}"))
stop = threading.Event()
output = threading.Lock()


def call(key: str) -> None:
    """Make decisions about one key."""
    while not stop.is_set():
        at = time.time_ns() // 1000
        try:
            outcome = "A" if limiter.hit(LIMIT, key) else "D"
        except Exception:  # noqa: BLE001, whatever it is, its caller has no decision
            outcome = "E"
        took = time.time_ns() // 1000 - at
        with output:
            print(at, took, outcome, flush=True)
        time.sleep(0.001)


limiter.get_window_stats(LIMIT, KEYS[0])
threads = [threading.Thread(target=call, args=(key,)) for key in KEYS]
for thread in threads:
    thread.start()
with output:
    print("ready", flush=True)
sys.stdin.read()
stop.set()
for thread in threads:
    thread.join()
print("used", sum(LIMIT.amount - limiter.get_window_stats(LIMIT, key).remaining for key in KEYS), flush=True)
