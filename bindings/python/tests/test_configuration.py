"""Limits from a configuration: documents, entries, rules, and what limiters report about them."""

import json
import os
from datetime import datetime, timedelta, timezone

import pytest
from polylimit import (
    AsyncLimiter,
    ClosedError,
    InvalidArgumentError,
    Limiter,
    ManualClock,
    RequestAttributes,
    StoreUnavailableError,
)
from redis_server import until

#: Monday 2026-09-21.
START = 1_789_948_800

DOCUMENT = """
polylimit = 1
[policies.api]
quotas = "5/day fixed_window"
plans = { gold = "50/day fixed_window" }
overrides = { "user=alice" = "gold" }
[policies.login]
quotas = "2/day fixed_window"
penalty = { denials = 1, within = "1h", block = "1h" }
[policies.model]
quotas = "1 concurrent; 100/day fixed_window"
[[rules]]
match = { method = "POST", path = "/login" }
apply = [{ policy = "login", key = "{client}" }]
[[rules]]
match = { path = "/model/{*rest}" }
apply = [{ policy = "model", key = "{user}", cost = "{tokens}", missing = "deny" }]
[[rules]]
match = { path = "/v1/{*rest}" }
apply = [{ policy = "api", key = "{user,client}", headroom = 20 }]
[lists]
deny = ["client 203.0.113.0/24"]
allow = ["user monitoring"]
"""


def request(path="/v1/orders", method="GET", peer="192.0.2.1", headers=(), **attributes):
    return RequestAttributes(method=method, path=path, peer=peer, headers=headers, attributes=attributes)


def test_rules_apply_policies(store):
    with Limiter(store, document=DOCUMENT, clock=ManualClock(START)) as limiter:
        found = limiter.admin().matching(request(user="bob"))
        assert [(one.policy, one.key, one.cost, one.headroom) for one in found] == [("api", b"user=bob", 1, 20)]
        assert limiter.admin().matching(request("/other")) == []
        found = limiter.admin().matching(request("/model/x", user="bob", tokens=40))
        assert [(one.policy, one.key, one.cost) for one in found] == [("model", b"bob", 40)]
        with pytest.raises(InvalidArgumentError, match="cost"):
            limiter.admin().matching(request("/model/x", user="bob", tokens="many"))


def test_request_is_decided(store, key):
    with Limiter(store, document=DOCUMENT, clock=ManualClock(START)) as limiter:
        decided = limiter.decide(request(user=key))
        assert decided
        assert (decided.allowed, decided.cause, decided.status, decided.retry_after) == (True, None, None, 0.0)
        (made,) = decided.decisions
        assert (made.policy, made.key, made.cost, made.headroom) == ("api", f"user={key}".encode(), 1, 20)
        assert (made.decision.remaining, made.reservation) == (3, None)
        for _ in range(3):
            assert limiter.decide(request(user=key))
        denied = limiter.decide(request(user=key))
        assert not denied
        assert (denied.cause, denied.status, denied.retry_after_us) == ("quota", 429, 86_400_000_000)
        assert limiter.peek(f"user={key}", "api").remaining == 1, "the headroom is for others"
        assert limiter.decide(request(user="monitoring")).cause == "allow_list"
        listed = limiter.decide(request(peer="203.0.113.9"))
        assert (listed.allowed, listed.cause, listed.status, listed.retry_after) == (False, "deny_list", 403, None)
        assert listed.decisions == ()
        missing = limiter.decide(request("/model/x", tokens=1))
        assert (missing.cause, missing.status) == ("missing_key", 400)


def test_concurrency_is_reserved(store, key):
    with Limiter(store, document=DOCUMENT, clock=ManualClock(START)) as limiter:
        decided = limiter.decide(request("/model/x", user=key, tokens=40), id="first", ttl=60)
        assert [made.reservation for made in decided.decisions] == ["first"]
        assert limiter.decide(request("/model/x", user=key, tokens=1)).cause == "concurrency"
        usage = limiter.commit(key, "first", spent=10, policy="model")
        assert (usage.found, usage.remaining) == (True, 90)
        again = limiter.decide(request("/model/x", user=key, tokens=1))
        assert len(again.decisions[0].reservation) == 32


def test_decision_remembers_the_commit(store, key):
    with Limiter(store, document=DOCUMENT, clock=ManualClock(START)) as limiter:
        for run in range(2):
            asked = request("/model/x", user=key, tokens=40)
            assert limiter.decide(asked, id="job", remember=timedelta(hours=1))
            usage = limiter.commit(key, "job", spent=10, policy="model")
            assert (usage.found, usage.repeated, usage.remaining) == (True, run == 1, 90)
        with pytest.raises(InvalidArgumentError, match="remembered for"):
            limiter.decide(asked, remember=49 * 3600)


def test_penalty_blocks(store):
    with Limiter(store, document=DOCUMENT, clock=ManualClock(START)) as limiter:
        causes = [limiter.decide(request("/login?next=/", "POST")).cause for _ in range(4)]
        assert causes == [None, None, "blocked", "blocked"]
        assert limiter.admin().unblock("192.0.2.1", "login").remaining == 0


def test_plans_and_overrides_choose_the_numbers(store, key):
    with Limiter(store, document=DOCUMENT, clock=ManualClock(START)) as limiter:
        assert limiter.check(key, "api", plan="gold").remaining == 49
        assert limiter.check(key, "api").remaining == 3
        assert limiter.check("user=alice", "api").remaining == 49
        assert limiter.decide(request(user=key, plan="gold")).decisions[0].decision.quotas[0].limit == 50


def test_document_is_replaced(store, key):
    with Limiter(store, document=DOCUMENT, clock=ManualClock(START)) as limiter:
        first = limiter.admin().configuration()
        assert (first.source, first.error, first.age, len(first.digest)) == ("document", None, 0.0, 64)
        assert first.applied_at == first.applied_at_us / 1e6 > START - 10 * 366 * 86_400
        assert limiter.check(key, "api").remaining == 4
        second = limiter.admin().set_document({"polylimit": 1, "policies": {"api": {"quotas": "8/day fixed_window"}}})
        assert second == limiter.admin().configuration() != first
        assert second.version > first.version
        assert limiter.check(key, "api").remaining == 6
        bad = 'polylimit = 1\n[policies.api]\nquotas = "5/fortnight"\n'
        with pytest.raises(InvalidArgumentError, match=r"^line 3, column 10: .*fortnight"):
            limiter.admin().set_document(bad)
        assert limiter.admin().configuration() == second
        with pytest.raises(InvalidArgumentError, match=r"^line 3"):
            Limiter(store, document=bad)


def test_entries_are_set_and_deleted(store, key):
    with Limiter(store, document=DOCUMENT, clock=ManualClock(START)) as limiter:
        version = limiter.admin().configuration().version
        status = limiter.admin().set_entry(
            f"override api {key}", {"numbers": "7/day fixed_window", "by": "ann", "why": "launch"}
        )
        assert status.version > version
        assert limiter.check(key, "api").remaining == 6
        limiter.admin().delete_entry(f"override api {key}")
        assert limiter.check(key, "api").remaining == 3
        limiter.admin().set_entry("deny user mallory", json.dumps({"until": "2026-09-21T00:01:00Z"}))
        assert limiter.decide(request(user="mallory")).retry_after == 60.0
        ends = datetime.fromtimestamp(START, timezone.utc) + timedelta(minutes=2, microseconds=1)
        limiter.admin().set_entry("deny user mallory", {"until": ends})
        assert limiter.decide(request(user="mallory")).retry_after_us == 120_000_001
        limiter.admin().set_entry("allow user mallory")
        limiter.admin().delete_entry("deny user mallory")
        assert limiter.decide(request(user="mallory")).cause == "allow_list"
        assert limiter.admin().delete_entry("deny user missing")
        with pytest.raises(InvalidArgumentError, match="unknown"):
            limiter.admin().set_entry("override unknown k", {"numbers": "1/s"})


def test_candidate_is_counted(store, key):
    document = {
        "polylimit": 1,
        "policies": {
            "api": {"quotas": "3/day fixed_window", "candidate": {"quotas": "2/day fixed_window", "compare": 1000}},
            "other": {"quotas": "1/day"},
        },
    }
    with Limiter(store, document=document, clock=ManualClock(START)) as limiter:
        for _ in range(4):
            limiter.check(key, "api")

        def counts():
            counted = limiter.admin().candidate_counts("api")
            return counted.both_allow, counted.only_live_denies, counted.only_candidate_denies, counted.both_deny

        until(lambda: counts() == (2, 0, 1, 1), "the store has counted")
        assert repr(limiter.admin().candidate_counts("api")) == (
            "CandidateCounts(both_allow=2, only_live_denies=0, only_candidate_denies=1, both_deny=1)"
        )
        assert limiter.admin().candidate_counts("other") is None
        assert limiter.admin().candidate_counts("unknown") is None


def test_shadow_and_elastic_are_told(store, key):
    document = {
        "polylimit": 1,
        "policies": {
            "shadow": {"quotas": "1/day fixed_window", "mode": "shadow"},
            "own": {"quotas": "1/day fixed_window", "elastic": {"policy": "pool", "key": "all"}},
            "pool": {"quotas": "5/day fixed_window"},
            "none": {"quotas": "1/day", "mode": "off"},
        },
    }
    with Limiter(store, document=document, clock=ManualClock(START)) as limiter:
        assert not limiter.check(key, "shadow").shadowed
        shadowed = limiter.check(key, "shadow")
        assert (shadowed.allowed, shadowed.shadowed, shadowed.cause) == (True, True, "quota")
        assert shadowed.retry_after == 86_400
        assert repr(shadowed).endswith(", cause='quota', shadowed=True)")
        assert not limiter.check(key, "own").elastic
        elastic = limiter.check(key, "own")
        assert (elastic.allowed, elastic.elastic, elastic.cause) == (True, True, None)
        off = limiter.check(key, "none")
        assert (off.allowed, off.cause, off.source) == (True, "off", "configuration")


def test_asynchronous_limiter_has_the_same(run, store, key):
    async def main():
        async with AsyncLimiter(store, document=DOCUMENT, clock=ManualClock(START)) as limiter:
            decided = await limiter.decide(request("/model/x", user=key, tokens=2), id="x", ttl=timedelta(seconds=30))
            assert (decided.allowed, decided.decisions[0].reservation) == (True, "x")
            assert (await limiter.cancel(key, "x", policy="model")).found
            status = await limiter.admin().set_entry("deny user mallory", {"why": "test"})
            assert status == limiter.admin().configuration()
            assert (await limiter.admin().wait_for_version(status.version, timeout=5)).version >= status.version
            assert (await limiter.decide(request(user="mallory"))).status == 403
            await limiter.admin().delete_entry("deny user mallory")
            assert await limiter.decide(request(user="mallory"))
            assert limiter.admin().matching(request("/other")) == []
            assert limiter.admin().set_document(DOCUMENT).source == "document"
            assert limiter.admin().candidate_counts("api") is None
            with pytest.raises(InvalidArgumentError):
                await limiter.admin().publish(DOCUMENT)

    run(main())


def test_store_is_followed(own_redis, run, key):
    options = {"configuration": "store", "deadline": 10}
    with Limiter(own_redis.url, **options) as first, Limiter(own_redis.url, **options) as second:
        assert first.admin().configuration().source == "store"
        status = first.admin().publish(DOCUMENT, by="ann", why="the first one")
        assert (status.version > 0, status.source) == (True, "store")
        until(lambda: first.admin().configuration().error is None, "all that the store has is known")
        assert second.admin().wait_for_version(status.version, timeout=10).digest == status.digest
        assert second.check(key, "api").remaining == 4
        assert first.check(key, "api").remaining == 3
        with pytest.raises(InvalidArgumentError, match="version"):
            first.admin().publish(DOCUMENT, expected_version=99)
        with pytest.raises(InvalidArgumentError, match=r"^line 1, column "):
            first.admin().publish("polylimit = 2")
        with pytest.raises(InvalidArgumentError, match="it may be incomplete"):
            first.admin().publish("polylimit = 1")
        changed = first.admin().set_entry(f"override api {key}", {"numbers": "9/day fixed_window"})
        there = second.admin().wait_for_version(changed.version, timeout=10)
        assert second.check(key, "api").remaining == 6
        assert there.document_version == status.document_version < there.version
        published = second.admin().publish(DOCUMENT, expected_version=there.document_version)
        assert published.document_version == there.document_version + 1
        with pytest.raises(InvalidArgumentError, match="read it again"):
            first.admin().publish(DOCUMENT, expected_version=there.document_version)
        with pytest.raises(StoreUnavailableError, match="version"):
            second.admin().wait_for_version(10_000, timeout=0.05)

        async def main():
            published = await second.asynchronous.admin().publish(
                {"polylimit": 1, "policies": {"api": {"quotas": "20/day"}}}
            )
            return await first.asynchronous.admin().wait_for_version(published.version, 10)

        assert run(main()).version > changed.version
        with pytest.raises(InvalidArgumentError, match="store"):
            first.admin().set_document(DOCUMENT)


def test_file_is_followed(tmp_path, key):
    path = tmp_path / "polylimit.toml"
    path.write_text(DOCUMENT)
    copied = tmp_path / "copy"
    with Limiter(configuration=f"file:{path}", copy=str(copied)) as limiter:
        first = limiter.admin().configuration()
        assert first.source == f"file:{path}"
        assert limiter.check(key, "api").remaining == 4
        replaced = tmp_path / "new"
        replaced.write_text(DOCUMENT.replace("5/day", "9/day"))
        replaced.rename(path)
        until(lambda: limiter.admin().configuration().digest != first.digest, "the file is read again")
        assert limiter.check(key, "api").remaining == 7
        second = limiter.admin().configuration()
        replaced.write_text("polylimit = 2")
        replaced.rename(path)
        until(lambda: limiter.admin().configuration().error is not None, "the mistake is in the status")
        assert limiter.admin().configuration().digest == second.digest
        assert "line 1" in limiter.admin().configuration().error
        assert "error=" in repr(limiter.admin().configuration())
    with pytest.raises(InvalidArgumentError, match="line 1"):
        Limiter(configuration=f"file:{path}")


def test_limiter_without_a_configuration(key):
    limiter = Limiter(policies={"api": "5/day"})
    assert limiter.admin().configuration() is None
    assert limiter.admin().candidate_counts("api") is None
    for call in (
        lambda: limiter.decide(request()),
        lambda: limiter.admin().matching(request()),
        lambda: limiter.admin().set_entry("deny user mallory"),
        lambda: limiter.admin().delete_entry("deny user mallory"),
        lambda: limiter.admin().wait_for_version(1, 0),
        lambda: limiter.admin().publish(DOCUMENT),
    ):
        with pytest.raises(InvalidArgumentError, match="configuration"):
            call()


def test_types_of_arguments_are_checked():
    limiter = Limiter(document=DOCUMENT)
    calls = [
        (lambda: Limiter(document=5), "document is of type int: allowed are str and dict"),
        (lambda: limiter.admin().set_document(b"polylimit = 1"), "document is of type bytes: allowed are str and dict"),
        (lambda: limiter.admin().set_entry("deny user x", 5), "value is of type int: allowed are str and dict"),
        (lambda: limiter.admin().set_entry(5), "item is of type int: allowed is str"),
        (
            lambda: limiter.admin().set_entry("deny user x", {"until": {1}}),
            "a value in value is of type set: allowed are what JSON has",
        ),
        (lambda: limiter.decide({"method": "GET"}), "attributes"),
        (lambda: limiter.decide(request(), id=5), "id is of type int: allowed is str"),
        (lambda: limiter.admin().wait_for_version("1", 1), "version is of type str: allowed is int"),
        (lambda: limiter.admin().wait_for_version(1, "1s"), "timeout is of type str"),
        (lambda: limiter.admin().publish(DOCUMENT, expected_version="1"), "expected_version is of type str"),
        (lambda: limiter.admin().publish(DOCUMENT, by=1), "by is of type int"),
        (lambda: limiter.admin().candidate_counts(5), "policy is of type int"),
        (lambda: RequestAttributes(method=1.5), "method is of type float: allowed are str, bytes, int and UUID"),
        (lambda: RequestAttributes(peer=b"::1"), "peer is of type bytes: allowed is str"),
        (lambda: RequestAttributes(headers="x"), "headers is of type str"),
        (lambda: RequestAttributes(headers=[("x", None)]), "a value in headers is of type NoneType"),
        (lambda: RequestAttributes(attributes=[("user", "x")]), "attributes is of type list: allowed is a dict"),
        (lambda: RequestAttributes(attributes={5: "x"}), "a name in attributes is of type int"),
    ]
    for call, message in calls:
        with pytest.raises(TypeError, match=message):
            call()
    with pytest.raises(InvalidArgumentError, match="ttl"):
        limiter.decide(request("/model/x", user="bob", tokens=1), ttl=0)


def test_attributes_are_text_bytes_or_numbers():
    document = """
    polylimit = 1
    [policies.api]
    quotas = "5/day"
    [[rules]]
    apply = [{ policy = "api", key = "{header.x-a}|{user}|{size}|{none}|{method}" }]
    """
    limiter = Limiter(document=document)
    (found,) = limiter.admin().matching(
        RequestAttributes(
            method=b"GET",
            headers=[("X-A", "1"), (b"x-b", b"no"), ("x-a", "2")],
            attributes={"user": "é", "size": 7, "none": None},
        )
    )
    assert found.key == "1, 2|é|7||GET".encode()
    (found,) = limiter.admin().matching(RequestAttributes(headers={"x-a": "9"}))
    assert found.key == b"9||||"


def test_nothing_shows_a_key_or_an_attribute(key):
    limiter = Limiter(document=DOCUMENT)
    asked = request(user=key, headers=[("authorization", key)], peer=key, path=f"/v1/{key}")
    shown = [
        repr(each)
        for each in (asked, limiter.decide(asked), limiter.decide(asked).decisions, limiter.admin().matching(asked))
    ]
    assert not any(key in text for text in shown)
    assert shown[0] == 'RequestAttributes(method=..., path=..., peer=..., headers=1, attributes=["user"])'
    assert shown[1].startswith("RequestDecision(allowed=True, cause=None, retry_after=0.0, policies=")
    assert shown[3] == "[PolicyMatch(policy='api', key=..., cost=1, headroom=20)]"
    assert repr(limiter.admin().configuration()).startswith('ConfigurationStatus(source="document", version=')


def test_results_are_compared_by_value(key):
    limiter = Limiter(document=DOCUMENT, clock=ManualClock(START))
    asked = request("/other")
    assert limiter.decide(asked) == limiter.decide(asked)
    matching = limiter.admin().matching
    assert matching(request(user=key)) == matching(request(user=key)) != matching(request())
    assert limiter.decide(request(user=key)) != limiter.decide(request(user=key))


def test_closed_limiter_decides_nothing():
    limiter = Limiter(document=DOCUMENT)
    limiter.close()
    for call in (
        lambda: limiter.decide(request()),
        lambda: limiter.admin().matching(request()),
        lambda: limiter.admin().set_document(DOCUMENT),
        lambda: limiter.admin().set_entry("deny user x"),
    ):
        with pytest.raises(ClosedError):
            call()


def test_forked_child_keeps_the_document_and_can_replace_it():
    with Limiter(document=DOCUMENT) as limiter:
        before = limiter.admin().configuration()
        child = os.fork()
        if child == 0:
            try:
                kept = limiter.admin().configuration() == before
                replaced = limiter.admin().set_document(DOCUMENT.replace("5/day", "6/day"))
                allowed = limiter.check("a", policy="api").quotas[0].limit == 6
                os._exit(0 if kept and replaced.version == before.version + 1 and allowed else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert limiter.admin().configuration() == before
