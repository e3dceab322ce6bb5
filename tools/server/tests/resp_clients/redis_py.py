"""redis-py: redis_py.py PORT"""

import sys

import redis

client = redis.Redis(port=int(sys.argv[1]))
THROTTLE = ("CL.THROTTLE", "pipeline", 15, 30, 60)


def left() -> int:
    return client.execute_command(*THROTTLE, 0)[2]


assert client.ping()
assert client.echo("a") == b"a"
assert len(client.time()) == 2

# The default is a transaction.
for transaction, remaining in ((True, [15, 14, 13]), (False, [12, 11, 10])):
    pipeline = client.pipeline(transaction=transaction)
    for _ in range(3):
        pipeline.execute_command(*THROTTLE)
    answers = pipeline.execute()
    assert [answer[:3] for answer in answers] == [[0, 16, left] for left in remaining], answers

# What cannot be read spends nothing.
pipeline = client.pipeline()
pipeline.execute_command(*THROTTLE).execute_command("SET", "a", "b").execute_command(*THROTTLE)
try:
    raise AssertionError(pipeline.execute())
except redis.ResponseError as error:
    assert "unknown command 'SET'" in str(error), error
assert left() == 10
assert client.execute_command(*THROTTLE)[2] == 9
