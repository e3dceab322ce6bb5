"""The time of every admitted unit: core/rules/src/algorithm/sliding_log.rs.

There are two models. `SlidingLog` follows the code, for integers; it is compared with the code, and what it counts is
proved for logs of one to four entries. `Totals` is a log of any length: the running total up to and including each
moment is a function that never falls. `the_models_agree` connects them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import z3

from prover import EXACT, MAX_UNITS, MAX_US, Bool, Claim, Int, both, choose, minus, theorem

LONGEST_US = 366 * 86_400 * 10**6


class Entry(NamedTuple):
    """`Entry`: its time, and the running total up to and including it. Totals do not wrap around here."""

    at_us: Int
    total: Int


class State(NamedTuple):
    """`State`."""

    entries: tuple[Entry, ...]
    before: Int


class View(NamedTuple):
    """`View`."""

    first: Int
    before: Int
    used: Int


@dataclass
class SlidingLog:
    """`SlidingLog`, with the methods of its implementation of `Rules`."""

    capacity: Int
    period_us: Int

    def is_expired(self, at_us: Int, now_us: Int) -> Bool:
        """`view`: whether an entry of this time has expired. Without a time so early none has: entries have no
        negative time.
        """
        return at_us <= now_us - self.period_us

    def view(self, state: State, now_us: Int) -> View:
        """`view`. The entries are in order of time, so the expired ones are the first ones."""
        first: Int = 0
        before = state.before
        for entry in state.entries:
            expired = self.is_expired(entry.at_us, now_us)
            first = first + choose(expired, 1, 0)
            before = choose(expired, entry.total, before)
        total = state.entries[-1].total if state.entries else before
        return View(first, before, total - before)

    def remaining(self, state: State, now_us: Int) -> Int:
        """`remaining`."""
        return minus(self.capacity, self.view(state, now_us).used)

    def room(self, state: State, now_us: Int) -> Int:
        """`room`."""
        return minus(8 * self.capacity, self.view(state, now_us).used)

    def bring(self, state: State, now_us: int) -> State:
        """`bring`, for integers."""
        view = self.view(state, now_us)
        entries = state.entries[view.first :]
        if entries and entries[-1].at_us > now_us:
            in_time = tuple(entry for entry in entries if entry.at_us < now_us)
            entries = (*in_time, Entry(now_us, entries[-1].total))
        return State(entries, view.before)

    def spend(self, state: State, now_us: int, units: int) -> State:
        """`spend`, for integers."""
        used = self.view(state, now_us).used
        entries, before = self.bring(state, now_us)
        total = before + used + units
        if entries and entries[-1].at_us == now_us:
            entries = (*entries[:-1], Entry(now_us, total))
        elif units > 0:
            entries = (*entries, Entry(now_us, total))
        return State(entries, before)

    def refund(self, state: State, now_us: int, units: int) -> State:
        """`refund`, for integers."""
        used = self.view(state, now_us).used
        entries, before = self.bring(state, now_us)
        kept = minus(used, units)
        while entries:
            newest, entries = entries[-1], entries[:-1]
            older = entries[-1].total if entries else before
            if older - before < kept:
                return State((*entries, Entry(newest.at_us, before + kept)), before)
        return State(entries, before)

    def rewind(self, state: State, now_us: int) -> State:
        """`rewind`, for integers."""
        ahead = state.entries and state.entries[-1].at_us > now_us
        return self.bring(state, now_us) if ahead else state

    def expires_after_us(self, entry: Entry, now_us: int) -> int:
        """`expires_after_us`, for integers."""
        return min(entry.at_us, now_us) + self.period_us - now_us

    def retry_after_us(self, state: State, now_us: int, cost: int) -> int:
        """`retry_after_us`, for integers: `Totals` says where it stops."""
        view = self.view(state, now_us)
        missing = minus(view.used + cost, self.capacity)
        for entry in state.entries:
            if entry.total - state.before >= missing + view.before - state.before:
                return self.expires_after_us(entry, now_us)
        return 0

    def reset_after_us(self, state: State, now_us: int) -> int:
        """`reset_after_us`, for integers."""
        return self.expires_after_us(state.entries[-1], now_us) if self.view(state, now_us).used > 0 else 0


@dataclass
class Totals:
    """A log of any length that is not ahead of the clock: `total(t)` units were spent up to and including `t`."""

    capacity: z3.ArithRef
    period_us: z3.ArithRef

    total = z3.Function("total", z3.IntSort(), z3.IntSort())

    def used(self, newest_us: Int, now_us: Int) -> Int:
        """`view`: what has been spent less than a period ago, when nothing was spent after `newest_us`."""
        return self.total(newest_us) - self.total(now_us - self.period_us)

    def expires_us(self, at_us: Int) -> Int:
        """`expires_after_us`: when an entry expires."""
        return at_us + self.period_us

    def admits(self, used: Int, cost: Int) -> Bool:
        """`admit`, as `Rules` has it."""
        return cost <= minus(self.capacity, used)

    def rises(self, *moments: Int) -> list[Bool]:
        """What is known of the totals at some moments: the later one is no less."""
        return [z3.Implies(a <= b, self.total(a) <= self.total(b)) for a in moments for b in moments]


def symbols(model: type[Totals]) -> tuple[Totals, Claim, z3.ArithRef]:
    """Any log at any time."""
    capacity, period_us, now_us = z3.Ints("capacity period_us now_us")
    claim = Claim()
    claim.assume(capacity >= 1, capacity <= 2 * MAX_UNITS, period_us >= 1, period_us <= LONGEST_US)
    claim.assume(now_us >= 0, now_us <= MAX_US)
    return model(capacity, period_us), claim, now_us


class ExpiresLate(Totals):
    """An entry expires a microsecond later."""

    def expires_us(self, at_us: Int) -> Int:
        return at_us + self.period_us + 1


class ExpiresEarly(Totals):
    """An entry expires a microsecond sooner."""

    def expires_us(self, at_us: Int) -> Int:
        return at_us + self.period_us - 1


class AdmitsOneMore(Totals):
    """Compares with one unit more."""

    def admits(self, used: Int, cost: Int) -> Bool:
        return cost <= minus(self.capacity + 1, used)


class CountsLess(Totals):
    """A unit counts for a microsecond less than a period."""

    def used(self, newest_us: Int, now_us: Int) -> Int:
        return self.total(newest_us) - self.total(now_us - self.period_us + 1)


class CountsBackwards(Totals):
    """Counts what has expired."""

    def used(self, newest_us: Int, now_us: Int) -> Int:
        del newest_us
        return self.total(now_us - self.period_us)


@theorem(Totals, ExpiresLate, ExpiresEarly)
def retry_after_is_the_first_moment(model: type[Totals]) -> Claim:
    """A denied request is admitted when the first entry expires up to which enough was spent, and not one microsecond
    before.
    """
    log, claim, now_us = symbols(model)
    cost, at_us = z3.Ints("cost at_us")
    claim.assume(cost >= 1, cost <= log.capacity, at_us <= now_us)
    expired = log.total(now_us - log.period_us)
    missing = log.used(now_us, now_us) + cost - log.capacity
    claim.assume(missing > 0, log.total(at_us) - expired >= missing, log.total(at_us - 1) - expired < missing)
    claim.assume(*log.rises(now_us, now_us - log.period_us, at_us, at_us - 1))
    then_us = log.expires_us(at_us)
    claim.assume(
        *log.rises(
            then_us - log.period_us, then_us - 1 - log.period_us, now_us, at_us, at_us - 1, now_us - log.period_us
        )
    )
    claim.goal("it waits", then_us > now_us)
    claim.goal("admitted then", log.admits(log.used(now_us, then_us), cost))
    claim.goal("denied a microsecond before", z3.Not(log.admits(log.used(now_us, then_us - 1), cost)))
    return claim


@theorem(Totals, ExpiresLate, ExpiresEarly)
def reset_after_is_the_first_moment(model: type[Totals]) -> Claim:
    """Nothing is in use when the newest entry expires, and something is one microsecond before."""
    log, claim, now_us = symbols(model)
    at_us = z3.Int("at_us")
    claim.assume(at_us <= now_us, log.total(at_us) == log.total(now_us), log.total(at_us - 1) < log.total(at_us))
    then_us = log.expires_us(at_us)
    claim.assume(*log.rises(then_us - log.period_us, then_us - 1 - log.period_us, now_us, at_us, at_us - 1))
    claim.goal("unused then", log.used(now_us, then_us) <= 0)
    claim.goal("used a microsecond before", log.used(now_us, then_us - 1) > 0)
    return claim


@theorem(Totals, CountsBackwards)
def time_only_helps(model: type[Totals]) -> Claim:
    """What is in use never grows when nothing arrives."""
    log, claim, now_us = symbols(model)
    later_us = z3.Int("later_us")
    claim.assume(now_us <= later_us, *log.rises(now_us - log.period_us, later_us - log.period_us))
    claim.goal("no more", log.used(now_us, later_us) <= log.used(now_us, now_us))
    return claim


@theorem(Totals, AdmitsOneMore)
def an_admission_stays_within_the_capacity(model: type[Totals]) -> Claim:
    """A request is admitted exactly when what is in use with it is at most the capacity, so a lower cost is admitted
    as well.
    """
    log, claim, now_us = symbols(model)
    cost = z3.Int("cost")
    used = log.used(now_us, now_us)
    claim.assume(cost >= 1, used >= 0)
    claim.goal("within", log.admits(used, cost) == (used + cost <= log.capacity))
    return claim


@theorem(Totals, AdmitsOneMore, CountsLess)
def the_bound_holds(model: type[Totals]) -> Claim:
    """No span of one period admits more than the capacity: at its last admission, everything since its beginning
    counts.
    """
    log, claim, last_us = symbols(model)
    begin_us, cost, admitted = z3.Ints("begin_us cost admitted")
    claim.assume(begin_us >= 0, begin_us <= last_us, last_us < begin_us + log.period_us, cost >= 1)
    # What the span has admitted before; charges add to the totals, and nothing was given back.
    claim.assume(admitted >= 0, admitted <= log.total(last_us) - log.total(begin_us - 1))
    claim.assume(*log.rises(begin_us - 1, last_us - log.period_us, last_us - log.period_us + 1, last_us))
    claim.assume(log.admits(log.used(last_us, last_us), cost))
    claim.goal("the bound", admitted + cost <= log.capacity)
    return claim


class KeepsOneTooMany(SlidingLog):
    """An entry expires a microsecond later."""

    def is_expired(self, at_us: Int, now_us: Int) -> Bool:
        return at_us < now_us - self.period_us


@theorem(SlidingLog, KeepsOneTooMany)
def the_models_agree(model: type[SlidingLog]) -> Claim:
    """For logs of one to four entries, the code counts the units of those that are less than a period old, and
    nothing overflows.
    """
    whole = Claim()
    capacity, period_us, now_us, before = z3.Ints("capacity period_us now_us before")
    whole.assume(
        capacity >= 1, capacity <= 2 * MAX_UNITS, period_us >= 1, period_us <= LONGEST_US, now_us >= 0, now_us <= MAX_US
    )
    log = model(capacity, period_us)
    for length in range(1, 5):
        times = z3.Ints(" ".join(f"at{place}" for place in range(length)))
        units = z3.Ints(" ".join(f"units{place}" for place in range(length)))
        entries: list[Entry] = []
        total: Int = before
        counted: Int = 0
        for place, (at_us, spent) in enumerate(zip(times, units, strict=True)):
            total = total + spent
            entries.append(Entry(at_us, total))
            counted = counted + choose(now_us - at_us < period_us, spent, 0)
            whole.assume(at_us >= 0, at_us <= MAX_US, spent >= 1)
            if place > 0:
                whole.assume(times[place - 1] < at_us)
        view = log.view(State(tuple(entries), before), now_us)
        whole.goal(f"{length} entries", view.used == counted)
        whole.goal(f"{length} entries, the first", both(view.first >= 0, view.first <= length))
        whole.goal(f"{length} entries, 6 bytes", both(8 * capacity < 2**48, 8 * capacity <= EXACT))
    return whole
