"""Reports: lists of keys, explanations and the keys that are denied most often."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from polylimit import (
    AsyncLimiter,
    ClosedError,
    InvalidArgumentError,
    Limiter,
    ManualClock,
    RequestAttributes,
    StoreUnavailableError,
    reports,
)

DOCUMENT = """
polylimit = 1
[policies.api]
quotas = "5/day fixed_window; 50/week fixed_window"
plans = { gold = "500/day fixed_window" }
overrides = { "user=alice" = "7/day fixed_window" }
penalty = { denials = 3, within = "1h", block = "1h" }
[policies.own]
quotas = "1/day fixed_window"
elastic = { policy = "pool", key = "all" }
[policies.pool]
quotas = "1/day fixed_window"
[[rules]]
match = { path = "/v1/{*rest}" }
apply = [{ policy = "api", key = "{user,client}" }, { policy = "own", key = "{client}" }]
[lists]
deny = ["client 203.0.113.0/24"]
"""


@pytest.fixture
def url(store, key):
    """The URL of each store, with keys of this test only."""
    return f"{store}&prefix={key}" if store.startswith("redis") else store


def all_pages(limiter, **named):
    pages = [limiter.admin().list(**named)]
    while (cursor := pages[-1]["cursor"]) is not None:
        pages.append(limiter.admin().list(**named, cursor=cursor))
    return pages


def listed(limiter, **named):
    """The keys of all pages."""
    return sorted(entry["key"] for page in all_pages(limiter, **named) for entry in page["keys"])


def test_pages_have_every_key(url):
    with Limiter(url, {"api": "9/day token_bucket"}) as limiter:
        keys = sorted(f"user:{number}" for number in range(1_500))
        for first in range(0, len(keys), 500):
            assert all(limiter.check_many(keys[first : first + 500]))
        pages = all_pages(limiter, entries=100, pace_percent=100)
        assert len(pages) > 1
        assert sorted({entry["key"] for page in pages for entry in page["keys"]}) == keys
        assert sum(page["examined"] for page in pages) >= len(keys)


def test_filters_choose_keys(url):
    with Limiter(url, {"api": "10/day", "login": "2/day"}) as limiter:
        for name, policy, cost in [
            ("user:1", "api", 9),
            ("user:2", "api", 1),
            ("guest:1", "api", 10),
            ("user:1", "login", 1),
        ]:
            limiter.charge(name, policy, cost=cost)
        limiter.charge("user:3", "5/hour", cost=5)
        assert listed(limiter) == ["guest:1", "user:1", "user:1", "user:2", "user:3"]
        assert listed(limiter, policy="api") == ["guest:1", "user:1", "user:2"]
        assert listed(limiter, policy="5/hour") == ["user:3"]
        assert listed(limiter, key_prefix=b"guest:") == ["guest:1"]
        assert listed(limiter, policy="api", key_prefix="user:", at_least_used=90) == ["user:1"]
        top = limiter.admin().scan_top(2, policy="api")
        assert [(entry["key"], entry["used_percent"]) for entry in top["keys"]] == [("guest:1", 100), ("user:1", 90)]
        assert top["cursor"] is None
        top = limiter.admin().scan_top(9, key_prefix="user:", at_least_used=50)
        assert [entry["key"] for entry in top["keys"]] == ["user:3", "user:1", "user:1"]


def test_key_has_what_is_used_of_its_quotas(url):
    clock = ManualClock(1_700_000_000)
    with Limiter(url, {"api": "10/minute fixed_window; 3 concurrent"}, clock=clock) as limiter:
        with limiter.reserve("user:1", cost=2) as reservation:
            reservation.commit(4)
        limiter.admin().block("user:1", time=30)
        (page,) = all_pages(limiter)
        (entry,) = page["keys"]
        rate, slots = entry["quotas"]
        assert (entry["policy"], entry["used_percent"], entry["blocked_for_us"]) == ("api", 100, 30_000_000)
        assert (rate["limit"], rate["used"], rate["remaining"]) == (10, 4, 0), "the key is blocked"
        assert (slots["limit"], slots["used"], entry["reservations"], entry["reserved_units"]) == (3, 0, 0, 0)
        assert 0 < rate["reset_after_us"] <= 60_000_000


def test_name_of_a_key_is_told_as_what_it_is(url):
    with Limiter(url, {"api": "9/day"}) as limiter:
        long = "k" * 300
        for name in ("text ä", b"\xff\x00", long):
            limiter.check(name)
        (page,) = all_pages(limiter)
        names = {name: entry[name] for entry in page["keys"] for name in entry if name.startswith("key")}
        digest = names.pop("key_digest")
        assert names == {"key": "text ä", "key_base64": "/wA="}
        assert re.fullmatch("[0-9a-f]{40}" if url.startswith("redis") else "[0-9a-f]{64}", digest)
        assert listed(limiter, key_prefix="text") == ["text ä"]
        assert [entry["key_base64"] for entry in limiter.admin().list(key_prefix=b"\xff")["keys"]] == ["/wA="]
        assert limiter.admin().list(key_prefix="kk")["keys"] == [], "no prefix finds a digest"
        assert limiter.admin().explain(b"\xff\x00")["key_base64"] == "/wA="


def test_listed_keys_are_reset(url):
    with Limiter(url, {"api": "2/day"}) as limiter:
        for name in ("user:1", "user:2", "guest:1", "k" * 300):
            limiter.charge(name, cost=2)
        assert limiter.admin().reset_listed(key_prefix="user:")["reset"] == 2
        assert [limiter.peek(name).remaining for name in ("user:1", "user:2", "guest:1")] == [2, 2, 0]
        page = limiter.admin().reset_listed(
            policy="api", at_least_used=100, entries=10_000, examined=10**6, pace_percent=100
        )
        assert (page["reset"], page["unknown"], page["cursor"]) == (2, 0, None)
        assert listed(limiter) == []


def test_keys_of_unknown_policies_stay(local, redis, key):
    for url in (local, f"{redis}&prefix={key}"):
        with Limiter(url, {"theirs": "2/day"}) as other, Limiter(url, {"api": "2/day"}) as limiter:
            other.charge("user:1", cost=2)
            (entry,) = limiter.admin().list()["keys"]
            assert (entry["policy"], entry["quotas"]) == ("theirs", [])
            page = limiter.admin().reset_listed()
            assert (page["reset"], page["unknown"]) == (0, 1)
            assert other.peek("user:1").remaining == 0


def test_denied_key_is_explained(url):
    clock = ManualClock(1_700_000_000)
    with Limiter(url, {"api": "100/minute token_bucket; 20/hour"}, clock=clock) as limiter:
        limiter.charge("user:42", cost=20)
        explained = limiter.admin().explain("user:42", cost=2)
        assert (explained["key"], explained["policy"], explained["cost"]) == ("user:42", "api", 2)
        assert (explained["allowed"], explained["cause"]) == (False, "quota")
        assert limiter.admin().explain("user:42", cost=2) == explained, "it spends nothing"
        assert explained["retry_after_us"] == limiter.peek("user:42", cost=2).retry_after_us
        bucket, window = explained["quotas"]
        assert (bucket["admits"], bucket["words"]) == (True, "debt 20 of 100, repays 1.67/s")
        assert (window["admits"], window["words"]) == (False, "20 of 20 in the last 1h, counted in 10 parts")
        assert limiter.admin().explain("user:42", headroom=99)["headroom"] == 99
        assert limiter.admin().explain("user:42", cost=21)["retry_after_us"] is None
        assert limiter.admin().explain("user:1", "3/day")["allowed"]
        limiter.admin().block("user:42", time=5)
        blocked = limiter.admin().explain("user:42")
        assert (blocked["cause"], blocked["blocked_for_us"]) == ("blocked", 5_000_000)


def request(peer="192.0.2.1", **attributes):
    return RequestAttributes(method="GET", path="/v1/orders", peer=peer, attributes=attributes)


def test_request_is_explained_by_the_configuration(url):
    with Limiter(url, document=DOCUMENT, clock=ManualClock(1_700_000_000)) as limiter:
        limiter.charge("user=bob", "api", cost=5)
        explained = limiter.admin().explain_request(request(user="bob"))
        assert (explained["allowed"], explained["cause"], explained["list_entry"]) == (False, "quota", None)
        api, own = explained["policies"]
        assert (api["policy"], api["key"], api["rule"], api["quotas_source"], api["mode"]) == (
            "api",
            "user=bob",
            1,
            "quotas",
            "on",
        )
        assert [quota["admits"] for quota in api["quotas"]] == [False, True]
        assert (own["allowed"], own["key"]) == (True, "192.0.2.1")
        assert explained["configuration"]["source"] == "document"
        listed = limiter.admin().explain_request(request("203.0.113.9"))
        assert (listed["allowed"], listed["cause"], listed["policies"]) == (False, "deny_list", [])
        assert listed["list_entry"]["entry"] == "deny client 203.0.113.0/24"
        assert listed["list_entry"]["in_document"]
        assert limiter.admin().explain("user=bob", "api", plan="gold")["plan"] == "gold"
        assert limiter.admin().explain("user=alice", "api")["override_entry"]["entry"] == "override api user=alice"
        with pytest.raises(TypeError, match="RequestAttributes"):
            limiter.admin().explain_request("user:42")
    with Limiter(url) as limiter, pytest.raises(InvalidArgumentError, match="configuration"):
        limiter.admin().explain_request(request())


def test_keys_that_are_denied_most_often_are_told():
    with Limiter(policies={"api": "2/day"}, observe_keys=64) as limiter:
        for _ in range(20_000):
            limiter.check("busy")
        for _ in range(2_000):
            limiter.check("less busy")
        top = limiter.admin().top_keys(1)
        (denied,) = top["denied"]
        assert (denied["key"], denied["policy"], denied["error"]) == ("busy", "api", 0)
        # A sample is counted, and all counts may have been halved in between.
        assert 2_000 < denied["count"] < 40_000
        assert (top["counters"], top["half_life_us"]) == (64, 60_000_000)
        assert limiter.asynchronous.admin().top_keys(5)["denied"][1]["key"] == "less busy"
        assert limiter.admin().explain("busy")["denials"] > 1_000
    with Limiter(policies={"api": "2/day"}) as limiter:
        limiter.check("busy")
        assert limiter.admin().top_keys(5) == {"denied": [], "admitted": [], "half_life_us": 0, "counters": 0}
    with pytest.raises(InvalidArgumentError, match=r"observe_keys.*65536"):
        Limiter(observe_keys=1 << 17)


def test_arguments_out_of_bounds_are_refused(url):
    with Limiter(url, {"api": "9/day token_bucket"}) as limiter:
        for first in range(0, 1_500, 500):
            limiter.check_many(range(first, first + 500))
        for named, told in (
            ({"entries": 0}, "entries of a list is 0: allowed is 1 or more"),
            ({"examined": 0}, "examined of a list is 0"),
            ({"pace_percent": 101}, "pace_percent of a list is 101: allowed is 1 to 100"),
            ({"pace_percent": 256}, "pace_percent is 256"),
            ({"entries": -1}, "entries is -1"),
            ({"at_least_used": -1}, "at_least_used is -1"),
            ({"cursor": "elsewhere"}, "cursor"),
        ):
            for operation in (limiter.admin().list, limiter.admin().reset_listed):
                with pytest.raises(InvalidArgumentError, match=told):
                    operation(**named)
        cursor = limiter.admin().list(entries=1, examined=1)["cursor"]
        assert cursor is not None
        with pytest.raises(InvalidArgumentError, match="cursor"):
            limiter.admin().list(policy="api", cursor=cursor)
        for named in ({"entries": "1"}, {"key_prefix": 1.5}, {"cursor": 1}, {"policy": 1}):
            with pytest.raises(TypeError, match="is of type"):
                limiter.admin().list(**named)
        with pytest.raises(TypeError):
            limiter.admin().list("api")
        with pytest.raises(InvalidArgumentError, match="most is -1"):
            limiter.admin().top_keys(-1)
    with pytest.raises(ClosedError):
        limiter.admin().list()


def test_report_fails_without_its_store():
    with Limiter("redis://127.0.0.1:1", {"api": "9/day"}, first_connect_max=0) as limiter:
        for operation in (
            limiter.admin().list,
            lambda: limiter.admin().scan_top(5),
            limiter.admin().reset_listed,
            lambda: limiter.admin().explain("a"),
        ):
            with pytest.raises(StoreUnavailableError):
                operation()


def test_reports_are_awaited(run, url):
    async def main():
        async with AsyncLimiter(url, document=DOCUMENT) as limiter:
            await limiter.charge("user=bob", "api", cost=5)
            pages, top, explained, request_explained = await asyncio.gather(
                limiter.admin().list(policy="api"),
                limiter.admin().scan_top(5),
                limiter.admin().explain("user=bob", "api"),
                limiter.admin().explain_request(request(user="bob")),
            )
            assert [entry["key"] for entry in pages["keys"]] == [entry["key"] for entry in top["keys"]] == ["user=bob"]
            assert explained["cause"] == request_explained["cause"] == "quota"
            assert (await limiter.admin().list(entries=5))["cursor"] is None
            assert [entry["key"] for entry in (await limiter.admin().scan_top(1))["keys"]] == ["user=bob"]
            assert (await limiter.admin().explain("user=bob", "api"))["allowed"] is False
            assert (await limiter.admin().explain_request(request(user="carol")))["allowed"]
            assert (await limiter.admin().reset_listed(policy="api"))["reset"] == 1
            with pytest.raises(InvalidArgumentError, match="entries"):
                await limiter.admin().list(entries=0)

    run(main())


def calls(server):
    """How often the server was asked to scan, or ran a script."""
    told = server.command("INFO", "commandstats").decode()
    return re.findall(r"cmdstat_(scan|evalsha|fcall):calls=(\d+)", told)


def test_cancelled_list_ends(run, own_redis):
    async def main():
        async with AsyncLimiter(own_redis.url, {"api": "9/day"}, deadline=10) as limiter:
            for first in range(0, 20_000, 1_000):
                await limiter.check_many(range(first, first + 1_000))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(limiter.admin().list(entries=10**6, examined=10**6, pace_percent=1), 0.05)
            before = calls(own_redis)
            await asyncio.sleep(0.3)
            assert calls(own_redis) == before
            assert await limiter.check("user:1")

    run(main())


def shape(value, hint, seen):
    """Compares a value with its type, and notes the typed dicts."""
    if is_typeddict(hint):
        seen.add(hint.__name__)
        assert hint.__required_keys__ <= value.keys() <= hint.__required_keys__ | hint.__optional_keys__, hint
        assert len(value.keys() & hint.__optional_keys__) == bool(hint.__optional_keys__), "a key has one name"
        hints = get_type_hints(hint)
        for name, entry in value.items():
            shape(entry, hints[name], seen)
    elif get_origin(hint) is list:
        for entry in value:
            shape(entry, *get_args(hint), seen)
    elif get_origin(hint) is UnionType or NoneType in get_args(hint):
        (of,) = (one for one in get_args(hint) if one is not NoneType)
        if value is not None:
            shape(value, of, seen)
    elif get_origin(hint) is Literal:
        assert value in get_args(hint)
    else:
        assert type(value) is hint


def test_reports_have_the_types_of_their_module(url):
    seen = set()
    with Limiter(url, document=DOCUMENT, observe_keys=16) as limiter:
        for name in ("user=bob", b"\xff", "k" * 300):
            for _ in range(200):
                limiter.check(name, "api")
        for number in range(2):
            limiter.check("192.0.2.1", "own")
            limiter.check(f"192.0.2.{number}", "own")
        shape(limiter.admin().list(), reports.KeyPage, seen)
        shape(limiter.admin().scan_top(2), reports.KeyPage, seen)
        shape(limiter.admin().top_keys(5), reports.TopKeys, seen)
        for name, policy in (("user=bob", "api"), ("user=alice", "api"), ("192.0.2.1", "own"), (b"\xff", "pool")):
            shape(limiter.admin().explain(name, policy), reports.KeyExplanation, seen)
        assert limiter.admin().explain("192.0.2.1", "own")["pool"] is not None
        for peer in ("192.0.2.1", "203.0.113.1"):
            shape(limiter.admin().explain_request(request(peer)), reports.RequestExplanation, seen)
        shape(limiter.admin().reset_listed(), reports.ResetPage, seen)
    assert seen == set(reports.__all__)


def test_types_of_reports_are_checked_by_mypy(tmp_path):
    program = """
from polylimit import Admin, AsyncAdmin, AsyncLimiter, Limiter, RequestAttributes
from polylimit.reports import KeyExplanation, KeyPage, ListedKey
admin: Admin = Limiter(observe_keys=16).admin()
page: KeyPage = admin.list(policy="api", key_prefix=b"a", at_least_used=80, cursor=None)
keys: list[ListedKey] = page["keys"]
used: int = keys[0]["quotas"][0]["used"]
cursor: str | None = admin.scan_top(5)["cursor"]
count: int = admin.reset_listed()["reset"] + admin.top_keys(5)["denied"][0]["count"]
cause: str | None = admin.explain_request(RequestAttributes())["policies"][0]["cause"]
policies: list[str] = [policy.name for policy in Limiter().policies()]
async def main() -> KeyExplanation:
    awaited: AsyncAdmin = AsyncLimiter().admin()
    return await awaited.explain("user:42", "1/s", cost=2)
"""
    wrong = [
        "admin.list('api')",
        "page['key']",
        "text: str = page['cursor']",
        "admin.list(entries='5')",
        "Limiter().list()",
        "AsyncLimiter().admin().list()['keys']",
    ]
    for number, line in enumerate(["", *wrong]):
        (tmp_path / f"program{number}.py").write_text(program + line)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *sorted(tmp_path.glob("*.py"))]
    package = Path(__file__).parent.parent / "python"
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "MYPYPATH": str(package)}, capture_output=True, text=True
    )
    found = {line.split(":")[0] for line in done.stdout.splitlines() if ": error: " in line}
    assert found == {f"program{number}.py" for number in range(1, len(wrong) + 1)}, done.stdout
