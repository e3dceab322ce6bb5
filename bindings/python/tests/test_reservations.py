"""Reservations of the blocking limiter, and what both classes share."""

import copy
import gc
import os
import pickle
import sys
import threading
import weakref
from datetime import timedelta

import pytest
from polylimit import (
    ClosedError,
    InvalidArgumentError,
    Limiter,
    ManualClock,
    PolylimitError,
    Quota,
    Request,
    RequestReservation,
)
from redis_server import until

POLICIES = {"model": "2 concurrent; 100/day fixed_window", "slots": "1 concurrent"}


def test_every_operation_on_every_store(store, key):
    with Limiter(store, POLICIES) as limiter:
        reservation = limiter.reserve(key, "model", cost=40, id="first", ttl=20, max_age=0)
        assert reservation
        assert reservation.allowed
        assert reservation.id == "first"
        assert not reservation.is_lost
        assert reservation.decision.remaining == 60
        assert reservation.decision.quotas[0].remaining == 1
        again = limiter.reserve(key, "model", cost=99, id="first")
        assert again.decision.remaining == 60
        second = limiter.reserve(key, "model", cost=61)
        assert not second
        assert not second.allowed
        assert second.decision.retry_after > 0
        usage = limiter.renew(key, "first", timedelta(seconds=50), policy="model")
        assert usage.found
        assert usage.reset_after > 20
        usage = reservation.commit(25)
        assert usage.found
        assert usage.remaining == 75
        assert not reservation.commit(25).found
        assert not limiter.commit(key, "first", spent=25, policy="model").found
        assert not limiter.cancel(key, "first", policy="model").found
        assert not limiter.renew(key, "first", 10, policy="model").found
        assert limiter.peek(key, "model").remaining == 75


def test_request_is_reserved_together_or_not_at_all(store, key):
    with Limiter(store, {**POLICIES, "rate": "2/day fixed_window"}) as limiter:
        requests = [Request(key, "model", cost=40), Request(key, "rate")]
        first = limiter.reserve_together(requests)
        assert isinstance(first, RequestReservation)
        assert first
        assert first.allowed
        assert [decision.remaining for decision in first.decisions] == [60, 1]
        second = limiter.reserve_together(requests, id="second", ttl=timedelta(seconds=40))
        assert second.id == "second"
        assert second.id != first.id
        denied = limiter.reserve_together(requests)
        assert not denied
        assert [decision.allowed for decision in denied.decisions] == [False, False]
        assert limiter.peek(key, "model").quotas[1].remaining == 20
        assert limiter.peek(key, "rate").remaining == 0
        # What was spent stays spent, and what was reserved ends by the id.
        assert limiter.cancel(key, first.id, policy="model").remaining == 60
        assert not limiter.cancel(key, first.id, policy="rate").found
        used = limiter.commit(key, second.id, spent=10, policy="model")
        assert (used.found, used.remaining) == (True, 90)
        # A slot is free again, and the policy that has nothing left denies: no slot is taken.
        assert not limiter.reserve_together(requests)
        assert limiter.peek(key, "model").quotas[0].remaining == 2
        assert limiter.reserve_together([]).decisions == ()


def test_commits_of_a_request_are_remembered(store, key):
    with Limiter(store, {**POLICIES, "rate": "9/day fixed_window"}) as limiter:
        requests = [Request(key, "model", cost=40), Request(key, "rate")]
        for run in range(2):
            job = limiter.reserve_together(requests, id="job", remember=timedelta(hours=1))
            left = limiter.commit(key, job.id, spent=30, policy="model")
            assert (left.found, left.repeated, left.remaining) == (True, run == 1, 70)
        for arguments in ({"remember": 49 * 3600}, {"ttl": 0}, {"id": ""}, {"id": "x" * 65}):
            with pytest.raises(InvalidArgumentError):
                limiter.reserve_together(requests, **arguments)
        with pytest.raises(InvalidArgumentError, match="unknown"):
            limiter.reserve_together([*requests, Request(key, "unknown")])
        assert limiter.peek(key, "rate").remaining == 7


def test_request_reservation_is_a_value():
    limiter = Limiter(policies={"slots": "1 concurrent"}, clock=ManualClock(1))
    reserved = limiter.reserve_together(["a"], id="mine")
    assert repr(reserved) == "RequestReservation(id='mine', allowed=True, decisions=1)"
    assert copy.copy(reserved) is reserved
    assert copy.deepcopy(reserved) is reserved
    assert reserved == limiter.reserve_together(["a"], id="mine")
    assert reserved != limiter.reserve_together(["a"], id="other")


def test_job_that_runs_again_is_charged_once(store, key):
    with Limiter(store, POLICIES) as limiter:
        for run in range(2):
            with limiter.reserve(key, "model", cost=40, id="job", remember=timedelta(hours=1)) as job:
                left = job.commit(30)
            assert (left.found, left.repeated, left.remaining) == (True, run == 1, 70)
        again = limiter.commit(key, "job", spent=30, policy="model")
        assert (again.found, again.repeated) == (False, True)
        assert "repeated=True" in repr(again)
        assert again.as_dict()["repeated"] is True
        assert pickle.loads(pickle.dumps(again)) == again
        assert not limiter.commit(key, "other", spent=30, policy="model").repeated
        assert limiter.peek(key, "model").remaining == 70
        with pytest.raises(InvalidArgumentError, match="remembered for"):
            limiter.reserve(key, "model", remember=49 * 3600)


def test_commit_without_units_charges_what_was_reserved(store, key):
    with Limiter(store, POLICIES) as limiter:
        assert limiter.reserve(key, "model", cost=40).commit().remaining == 60
        other = limiter.reserve(key, "model", cost=10)
        assert limiter.commit(key, other.id, policy="model").remaining == 50
        assert limiter.reserve(key, "model", cost=10).commit(0).remaining == 50
        assert limiter.reserve(key, "model", cost=10).commit(45).remaining == 5


def test_random_ids_differ(key):
    limiter = Limiter(policies=POLICIES)
    ids = {limiter.reserve(key, "model").id for _ in range(10)}
    assert len(ids) == 10
    assert all(len(each) == 32 for each in ids)


def test_scope_that_is_left_without_a_commit_cancels(store, key):
    with Limiter(store, POLICIES) as limiter:
        with limiter.reserve(key, "model", cost=40) as reservation:
            assert limiter.peek(key, "model").remaining == 60
        assert limiter.peek(key, "model").remaining == 100
        assert not reservation.cancel().found


def test_scope_commits_where_the_caller_has_chosen_it(store, key):
    with Limiter(store, POLICIES) as limiter:
        with limiter.reserve(key, "model", cost=40, commit_at_end=True):
            pass
        assert limiter.peek(key, "model").remaining == 60
        with limiter.reserve(key, "model", cost=40, commit_at_end=True) as reservation:
            reservation.commit(1)
        assert limiter.peek(key, "model").remaining == 59
        with limiter.reserve(key, "model", cost=40, commit_at_end=True) as reservation:
            reservation.cancel()
        assert limiter.peek(key, "model").remaining == 59


@pytest.mark.parametrize("commit_at_end", [None, False, True])
def test_scope_that_is_left_by_an_error_cancels(store, key, commit_at_end):
    with Limiter(store, POLICIES) as limiter:
        with pytest.raises(KeyError, match="work"), limiter.reserve(key, "model", cost=9, commit_at_end=commit_at_end):
            raise KeyError("work")
        assert limiter.peek(key, "model").remaining == 100


def test_denied_reservation_enters_its_scope(key):
    limiter = Limiter(policies=POLICIES)
    with limiter.reserve(key, "slots") as first, limiter.reserve(key, "slots") as second:
        assert first.allowed
        assert not second.allowed
        assert not second.commit().found
    assert limiter.peek(key, "slots")


def test_error_of_the_end_takes_no_place_of_the_error_that_leaves_the_scope(key, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda event: reported.append(event.exc_value))
    limiter = Limiter(policies=POLICIES)
    with pytest.raises(KeyError), limiter.reserve(key, "model"):
        limiter.close()
        raise KeyError("work")
    assert [type(error) for error in reported] == [ClosedError]
    limiter = Limiter(policies=POLICIES)
    with pytest.raises(ClosedError), limiter.reserve(key, "model"):
        limiter.close()


def test_forgotten_handle_ends_its_reservation(store, key):
    with Limiter(store, POLICIES) as limiter:
        reservation = limiter.reserve(key, "model", cost=40)
        assert limiter.peek(key, "model").remaining == 60
        del reservation
        until(lambda: limiter.peek(key, "model").remaining == 100, "the reservation is cancelled")
        reservation = limiter.reserve(key, "model", cost=40, commit_at_end=True)
        del reservation
        until(lambda: limiter.peek(key, "model").quotas[0].remaining == 2, "the reservation is committed")
        assert limiter.peek(key, "model").remaining == 60


def test_handle_in_a_cycle_ends_its_reservation(key):
    class Holder:
        pass

    limiter = Limiter(policies=POLICIES)
    holder = Holder()
    holder.itself, holder.reservation = holder, limiter.reserve(key, "slots")
    reference = weakref.ref(holder.reservation)
    del holder
    gc.collect()
    assert reference() is None
    assert limiter.peek(key, "slots")


def test_denied_handle_that_is_forgotten_ends_nothing(key):
    limiter = Limiter(policies=POLICIES)
    first = limiter.reserve(key, "slots", id="mine")
    assert not limiter.reserve(key, "slots")
    gc.collect()
    assert not limiter.peek(key, "slots")
    assert first.cancel().found


def test_reservation_is_renewed_while_its_handle_lives(key):
    clock = ManualClock(0)
    limiter = Limiter(policies=POLICIES, clock=clock)
    reservation = limiter.reserve(key, "slots", ttl=30)
    for _ in range(5):
        clock.advance(11)
        until(lambda: limiter.peek(key, "slots").reset_after == 30, "the reservation is renewed")
    assert not reservation.is_lost
    assert "is_lost=False" in repr(reservation)
    del reservation
    assert limiter.peek(key, "slots")


def test_reservation_is_not_renewed_beyond_its_age(key):
    clock = ManualClock(0)
    limiter = Limiter(policies=POLICIES, clock=clock)
    kept = limiter.reserve(key, "slots", ttl=30, max_age=0)
    clock.advance(29.999999)
    assert not limiter.peek(key, "slots")
    clock.advance(0.000001)
    assert limiter.peek(key, "slots")
    assert not kept.commit().found


def test_lost_reservation_says_so(key):
    clock = ManualClock(0)
    limiter = Limiter(policies=POLICIES, clock=clock)
    reservation = limiter.reserve(key, "slots", ttl=30, max_age=float("inf"))
    assert limiter.cancel(key, reservation.id, policy="slots").found
    assert not reservation.is_lost
    clock.advance(11)
    until(lambda: reservation.is_lost, "the renewal does not find the reservation")
    assert not reservation.commit().found


def test_reserve_with_a_timeout_waits_in_line(store, key):
    with Limiter(store, POLICIES) as limiter:
        first = limiter.reserve(key, "slots")
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(limiter.reserve(key, "slots", timeout=60)))
        waiting.start()
        assert not limiter.reserve(key, "slots")
        first.cancel()
        waiting.join(60)
        assert answers[0].allowed
        assert not limiter.peek(key, "slots")
        assert answers[0].cancel().found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"id": ""}, "0 bytes: allowed are 1 to 64"),
        ({"id": "x" * 65}, "65 bytes: allowed are 1 to 64"),
        ({"id": "\ud800"}, "id has half of a surrogate pair"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": 0.000999}, "ttl"),
        ({"ttl": timedelta(hours=48, microseconds=1)}, "ttl"),
        ({"ttl": float("inf")}, "ttl"),
        ({"ttl": -1}, "ttl is -1: allowed are seconds from 0 up"),
        ({"timeout": -1}, "timeout is -1: allowed"),
        ({"max_age": float("nan")}, "max_age is nan: allowed"),
        ({"cost": 10**12 + 1}, "cost is 1000000000001: allowed is a whole number from 0 to 1000000000000"),
        ({"cost": -1}, "cost is -1"),
        ({"policy": "unknown"}, "unknown"),
        ({"policy": "5/s leaky_bucket"}, "leaky_bucket"),
    ],
)
def test_arguments_of_reserve_are_validated(key, arguments, message):
    limiter = Limiter(policies=POLICIES)
    with pytest.raises(InvalidArgumentError, match=message):
        limiter.reserve(key, **{"policy": "model", **arguments})
    assert limiter.admin().keys() == 0


def test_bounds_of_reserve_are_allowed(key):
    limiter = Limiter(policies={"model": "2 concurrent; 1000000000000/day fixed_window"})
    for arguments in (
        {"id": "x"},
        {"id": "é" * 32},
        {"ttl": 0.001},
        {"ttl": timedelta(hours=48)},
        {"timeout": 0},
        {"max_age": 0},
        {"cost": 0},
        {"cost": 10**12},
    ):
        with limiter.reserve(key, **arguments) as reservation:
            assert reservation.allowed
            assert reservation.id == arguments.get("id", reservation.id)


def test_types_of_arguments_are_checked(key):
    limiter = Limiter(policies=POLICIES)
    reservation = limiter.reserve(key, "model")
    calls = [
        (lambda: limiter.reserve(key, "model", id=5), "id is of type int: allowed is str"),
        (lambda: limiter.reserve(key, "model", id=b"x"), "id is of type bytes: allowed is str"),
        (lambda: limiter.reserve(key, "model", ttl="30s"), "ttl is of type str"),
        (lambda: limiter.reserve(key, "model", commit_at_end="yes"), "commit_at_end"),
        (lambda: limiter.reserve(1.5, "model"), "key is of type float"),
        (lambda: limiter.commit(key, None), "id is of type NoneType"),
        (lambda: limiter.commit(key, "x", spent="5"), "spent is of type str: allowed is int"),
        (lambda: limiter.renew(key, "x", None), "ttl is of type NoneType"),
        (lambda: reservation.commit("5"), "spent is of type str: allowed is int"),
        (lambda: Quota.concurrent("20"), "limit is of type str"),
    ]
    for call, message in calls:
        with pytest.raises(TypeError, match=message):
            call()
    for spent in (-1, 1.5, 10**12 + 1):
        with pytest.raises(InvalidArgumentError, match=r"spent is .*: allowed is a whole number from 0"):
            reservation.commit(spent)
    assert reservation.commit(5).found


def test_operations_by_id_validate_their_arguments(key):
    limiter = Limiter(policies=POLICIES)
    for call in (limiter.commit, limiter.cancel, lambda key, name, policy: limiter.renew(key, name, 5, policy=policy)):
        with pytest.raises(InvalidArgumentError, match="allowed are 1 to 64"):
            call(key, "", policy="model")
        with pytest.raises(InvalidArgumentError, match="unknown"):
            call(key, "id", policy="unknown")
    for ttl in (0, timedelta(hours=49)):
        with pytest.raises(InvalidArgumentError, match="ttl"):
            limiter.renew(key, "id", ttl, policy="model")


def test_policy_with_slots_is_only_reserved(key):
    limiter = Limiter(policies=POLICIES)
    for call in (limiter.check, limiter.take, lambda key, policy: limiter.acquire(key, policy, timeout=1)):
        with pytest.raises(InvalidArgumentError, match="reserve"):
            call(key, "slots")
    assert limiter.peek(key, "slots")
    assert limiter.charge(key, "model", cost=5).remaining == 95
    assert limiter.refund(key, "model", cost=5).remaining == 100


def test_closed_limiter_reserves_nothing(key):
    limiter = Limiter(policies=POLICIES)
    reservation = limiter.reserve(key, "model")
    limiter.close()
    for call in (
        lambda: limiter.reserve(key, "model"),
        lambda: limiter.reserve(key, "model", timeout=5),
        lambda: limiter.commit(key, "id", policy="model"),
        lambda: limiter.cancel(key, "id", policy="model"),
        lambda: limiter.renew(key, "id", 5, policy="model"),
        reservation.commit,
        reservation.cancel,
    ):
        with pytest.raises(ClosedError):
            call()


def test_quota_of_slots():
    quota = Quota.concurrent(20)
    assert str(quota) == "20 concurrent"
    assert (quota.limit, quota.period, quota.algorithm) == (20, 0, "concurrency")
    assert quota == Quota("20 concurrent") == pickle.loads(pickle.dumps(quota))
    for limit in (-1, 10**12 + 1):
        with pytest.raises(InvalidArgumentError):
            Quota.concurrent(limit)
    with pytest.raises(InvalidArgumentError, match="20 concurrent"):
        Quota(20, 60, algorithm="concurrency")
    limiter = Limiter(policies={"model": [Quota.concurrent(1), "5/day"]})
    with limiter.reserve("key") as reservation:
        assert reservation
        assert not limiter.reserve("key")


def test_handle_shows_no_key_and_is_not_copied():
    reservation = Limiter(policies=POLICIES).reserve("secret key", "model", id="mine")
    assert repr(reservation) == "Reservation(id='mine', allowed=True, is_lost=False)"
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            copying(reservation)


def test_usage_shows_whether_the_reservation_was_found(key):
    limiter = Limiter(policies=POLICIES)
    assert "found=False" in repr(limiter.cancel(key, "none", policy="model"))
    assert "found" not in repr(limiter.charge(key, "model"))
    assert limiter.charge(key, "model").found


def test_handles_are_used_by_several_threads(key):
    limiter = Limiter(policies={"slots": "20 concurrent"})
    alive, most, lock = 0, 0, threading.Lock()

    def work():
        nonlocal alive, most
        for _ in range(50):
            with limiter.reserve(key, timeout=60) as reservation:
                assert reservation.allowed
                with lock:
                    alive += 1
                    most = max(most, alive)
                with lock:
                    alive -= 1

    threads = [threading.Thread(target=work) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert alive == 0
    assert 1 <= most <= 20
    assert limiter.peek(key).remaining == 20


def in_child(work):
    """Run a function in a forked child; return its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        status = 0 if work() else 2
    finally:
        os._exit(status)


def test_forked_child_leaves_the_reservation_of_its_parent(local, key):
    with Limiter(local, POLICIES) as limiter:
        with limiter.reserve(key, "slots", id="parent") as reservation:

            def leave_scope():
                reservation.__exit__(None, None, None)
                return not limiter.peek(key, "slots")

            assert in_child(leave_scope) == 0
            held = [limiter.reserve(key, "model", cost=40)]

            def forget():
                held.clear()
                gc.collect()
                return limiter.peek(key, "model").remaining == 60

            assert in_child(forget) == 0
            assert in_child(lambda: limiter.commit(key, held[0].id, spent=5, policy="model").found) == 0
            assert not held[0].cancel().found
            assert limiter.peek(key, "model").remaining == 95
        assert limiter.peek(key, "slots")


def test_forked_child_renews_reservations_of_its_own(local, key):
    clock = ManualClock(0)
    with Limiter(local, POLICIES, clock=clock) as limiter, limiter.reserve(key, "model", ttl=30) as reservation:

        def renews_its_own():
            own = limiter.reserve(f"{key} of the child", "slots", ttl=30)
            for _ in range(5):
                clock.advance(11)
                until(lambda: limiter.peek(f"{key} of the child", "slots").reset_after == 30, "the child renews")
            return not own.is_lost

        assert in_child(renews_its_own) == 0
        for _ in range(5):
            clock.advance(11)
            until(lambda: limiter.peek(key, "model").reset_after >= 30, "the parent renews")
        assert reservation.cancel().found


def test_handles_are_made_by_limiters_only():
    for name in ("Reservation", "AsyncReservation", "ReserveOperation"):
        with pytest.raises(TypeError):
            getattr(sys.modules["polylimit"], name)()


def test_errors_of_reservations_have_a_code(key):
    with pytest.raises(PolylimitError) as raised:
        Limiter(policies=POLICIES).reserve(key, "model", ttl=0)
    assert raised.value.code == "invalid_argument"
