"""The bucket that is refilled several tokens at a time: core/rules/src/algorithm/stepped_bucket.rs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import z3

from lemmas import one_quotient, product_grows
from prover import (
    EXACT,
    MAX_UNITS,
    MAX_US,
    U64,
    Bool,
    Claim,
    Int,
    both,
    ceil_div,
    choose,
    floor_div,
    least,
    minus,
    theorem,
)


class State(NamedTuple):
    """`State`: the units in use, and when the clock struck."""

    used: Int
    at_us: Int


@dataclass
class SteppedBucket:
    """`SteppedBucket`, with the methods of its implementation of `Rules`."""

    step: Int
    interval_us: Int
    capacity: Int

    @property
    def saturated(self) -> Int:
        """`saturated`."""
        return 8 * self.capacity

    def strikes(self, passed_us: Int) -> Int:
        """`as_of`: the division."""
        return floor_div(passed_us, self.interval_us)

    def as_of(self, state: State, now_us: Int) -> State:
        """`as_of`."""
        at_us = least(state.at_us, now_us)
        strikes = self.strikes(now_us - at_us)
        used = minus(least(state.used, self.saturated), strikes * self.step)
        return State(used, self.clock(used, at_us + strikes * self.interval_us, now_us))

    def clock(self, used: Int, struck_us: Int, now_us: Int) -> Int:
        """`as_of`: the clock of a full bucket stands still."""
        return choose(used == 0, now_us, struck_us)

    def struck_after_us(self, strikes: Int, state: State, now_us: Int) -> Int:
        """`struck_after_us`."""
        return strikes * self.interval_us - (now_us - state.at_us)

    def steps(self, units: Int) -> Int:
        """`retry_after_us` and `reset_after_us`: the division."""
        return ceil_div(units, self.step)

    def remaining(self, state: State, now_us: Int) -> Int:
        """`remaining`."""
        return minus(self.capacity, self.as_of(state, now_us).used)

    def room(self, state: State, now_us: Int) -> Int:
        """`room`."""
        return self.saturated - self.as_of(state, now_us).used

    def admits(self, state: State, now_us: Int, cost: Int) -> Bool:
        """`admit`, as `Rules` has it."""
        return cost <= self.remaining(state, now_us)

    def spend(self, state: State, now_us: Int, units: Int) -> State:
        """`spend`."""
        used, at_us = self.as_of(state, now_us)
        return State(used + units, at_us)

    def refund(self, state: State, now_us: Int, units: Int) -> State:
        """`refund`."""
        used, at_us = self.as_of(state, now_us)
        return State(minus(used, units), at_us)

    def rewind(self, state: State, now_us: Int) -> State:
        """`rewind`."""
        return State(state.used, least(state.at_us, now_us))

    def retry_after_us(self, state: State, now_us: Int, cost: Int) -> Int:
        """`retry_after_us`."""
        state = self.as_of(state, now_us)
        return self.struck_after_us(self.steps(minus(state.used + cost, self.capacity)), state, now_us)

    def reset_after_us(self, state: State, now_us: Int) -> Int:
        """`reset_after_us`."""
        state = self.as_of(state, now_us)
        return choose(state.used == 0, 0, self.struck_after_us(self.steps(state.used), state, now_us))

    def most_admitted(self, span_us: Int) -> Int:
        """`Quota::most_admitted` for a quota with a step."""
        return (floor_div(span_us, self.interval_us) + 1) * self.step + self.capacity


class Symbols(NamedTuple):
    """Any bucket with any state at any time, and the claim that has their bounds as its assumptions."""

    bucket: SteppedBucket
    claim: Claim
    state: State
    now_us: z3.ArithRef


def symbols(model: type[SteppedBucket]) -> Symbols:
    """`builder::checked_step`: ceil(8 * capacity / step) * interval <= 2^53."""
    step, interval_us, capacity, used, at_us, now_us = z3.Ints("step interval_us capacity used at_us now_us")
    bucket = model(step, interval_us, capacity)
    claim = Claim()
    claim.assume(step >= 1, step <= MAX_UNITS, interval_us >= 1, capacity >= 1, capacity <= 2 * MAX_UNITS)
    claim.assume(ceil_div(8 * capacity, step) * interval_us <= EXACT)
    claim.assume(used >= 0, used <= bucket.saturated, at_us >= 0, at_us <= MAX_US, now_us >= 0, now_us <= MAX_US)
    return Symbols(bucket, claim, State(used, at_us), now_us)


class RoundsStepsDown(SteppedBucket):
    """Waits for too few strikes."""

    def steps(self, units: Int) -> Int:
        return floor_div(units, self.step)


class WaitsFromNow(SteppedBucket):
    """Starts the clock at the request."""

    def struck_after_us(self, strikes: Int, state: State, now_us: Int) -> Int:
        del state, now_us
        return strikes * self.interval_us


class StrikesAtOnce(SteppedBucket):
    """Rounds the strikes up."""

    def strikes(self, passed_us: Int) -> Int:
        return ceil_div(passed_us, self.interval_us)


class HasMoreRoom(SteppedBucket):
    """Has room for one unit more."""

    def room(self, state: State, now_us: Int) -> Int:
        return super().room(state, now_us) + 1


class RunsWhenFull(SteppedBucket):
    """The clock of a full bucket runs on."""

    def clock(self, used: Int, struck_us: Int, now_us: Int) -> Int:
        del used, now_us
        return struck_us


class DropsTheRest(SteppedBucket):
    """The clock starts anew whenever the state is read."""

    def clock(self, used: Int, struck_us: Int, now_us: Int) -> Int:
        del used, struck_us
        return now_us


class BringsWhenDenied(SteppedBucket):
    """Writes the state of a denied request."""

    def rewind(self, state: State, now_us: Int) -> State:
        return self.as_of(state, now_us)


class AdmitsOneMore(SteppedBucket):
    """Compares with one unit more."""

    def remaining(self, state: State, now_us: Int) -> Int:
        return minus(self.capacity + 1, self.as_of(state, now_us).used)


def use_strikes(claim: Claim, bucket: SteppedBucket, state: State, time_us: Int, strikes: Int) -> None:
    """The strikes until some time are this many."""
    claim.use(one_quotient, bucket.strikes(time_us - least(state.at_us, time_us)), strikes, bucket.interval_us)


@theorem(SteppedBucket, RoundsStepsDown, WaitsFromNow)
def retry_after_is_the_first_moment(model: type[SteppedBucket]) -> Claim:
    """A denied request is admitted after `retry_after` and not one microsecond before."""
    bucket, claim, state, now_us = symbols(model)
    cost = z3.Int("cost")
    claim.assume(cost >= 1, cost <= bucket.capacity, state.at_us <= now_us)
    claim.assume(z3.Not(bucket.admits(state, now_us, cost)))
    wait = bucket.retry_after_us(state, now_us, cost)
    brought = bucket.as_of(state, now_us)
    steps = bucket.steps(minus(brought.used + cost, bucket.capacity))
    struck = bucket.strikes(now_us - least(state.at_us, now_us))
    claim.step("in use", brought.used > 0)
    claim.step("it waits", wait > 0)
    for time_us, strikes in ((now_us + wait, struck + steps), (now_us + wait - 1, struck + steps - 1)):
        use_strikes(claim, bucket, state, time_us, strikes)
    claim.goal("it waits", wait > 0)
    claim.goal("admitted then", bucket.admits(state, now_us + wait, cost))
    claim.goal("denied a microsecond before", z3.Not(bucket.admits(state, now_us + wait - 1, cost)))
    return claim


@theorem(SteppedBucket, RoundsStepsDown, WaitsFromNow)
def reset_after_is_the_first_moment(model: type[SteppedBucket]) -> Claim:
    """Nothing is in use after `reset_after`, and something is one microsecond before."""
    bucket, claim, state, now_us = symbols(model)
    claim.assume(state.at_us <= now_us)
    brought = bucket.as_of(state, now_us)
    claim.assume(brought.used > 0)
    wait = bucket.reset_after_us(state, now_us)
    struck, steps = bucket.strikes(now_us - least(state.at_us, now_us)), bucket.steps(brought.used)
    claim.step("it waits", wait > 0)
    for time_us, strikes in ((now_us + wait, struck + steps), (now_us + wait - 1, struck + steps - 1)):
        use_strikes(claim, bucket, state, time_us, strikes)
    claim.goal("it waits", wait > 0)
    claim.goal("unused then", bucket.as_of(state, now_us + wait).used == 0)
    claim.goal("used a microsecond before", bucket.as_of(state, now_us + wait - 1).used > 0)
    return claim


@theorem(SteppedBucket, BringsWhenDenied)
def a_denial_changes_nothing(model: type[SteppedBucket]) -> Claim:
    """A denied request leaves the state as it was, unless the clock went back; then the units in use stay the same."""
    bucket, claim, state, now_us = symbols(model)
    after = bucket.rewind(state, now_us)
    claim.goal(
        "nothing changes", z3.Implies(state.at_us <= now_us, both(after.used == state.used, after.at_us == state.at_us))
    )
    claim.goal("back", z3.Implies(state.at_us > now_us, both(after.used == state.used, after.at_us == now_us)))
    return claim


@theorem(SteppedBucket, StrikesAtOnce)
def a_clock_that_went_back_refills_nothing(model: type[SteppedBucket]) -> Claim:
    """When the clock went back, the units in use stay the same, and the next strike is an interval from now."""
    bucket, claim, state, now_us = symbols(model)
    claim.assume(state.at_us > now_us)
    brought = bucket.as_of(state, now_us)
    claim.goal("the use is the same", brought.used == state.used)
    claim.goal("the clock starts now", brought.at_us == now_us)
    # Whatever the state, the time since the last strike is less than an interval.
    other = bucket.as_of(state, MAX_US)
    claim.goal("no negative time", both(other.at_us <= MAX_US, MAX_US - other.at_us < bucket.interval_us))
    return claim


@theorem(SteppedBucket, DropsTheRest)
def time_only_helps(model: type[SteppedBucket]) -> Claim:
    """Reading a state at some time and again later gives what reading it later gives, and no more is in use then."""
    bucket, claim, state, now_us = symbols(model)
    later_us = z3.Int("later_us")
    claim.assume(state.at_us <= now_us, now_us <= later_us, later_us <= MAX_US)
    first = bucket.as_of(state, now_us)
    direct = bucket.as_of(state, later_us)
    twice = bucket.as_of(first, later_us)
    struck, in_all = (
        bucket.strikes(now_us - least(state.at_us, now_us)),
        bucket.strikes(later_us - least(state.at_us, later_us)),
    )
    since = bucket.strikes(later_us - least(first.at_us, later_us))
    claim.use(one_quotient, in_all, struck + since, bucket.interval_us)
    claim.use(product_grows, bucket.interval_us, in_all + 1, struck)
    claim.use(product_grows, bucket.step, struck, in_all)
    claim.goal("no more is in use", direct.used <= first.used)
    claim.goal("the same use", twice.used == direct.used)
    claim.goal("the same clock", z3.Implies(direct.used > 0, twice.at_us == direct.at_us))
    return claim


@theorem(SteppedBucket, HasMoreRoom)
def the_state_stays_valid(model: type[SteppedBucket]) -> Claim:
    """Every operation leaves from 0 to 8 times the capacity in use, and a time that is not ahead of the clock."""
    bucket, claim, state, now_us = symbols(model)
    units = z3.Int("units")
    claim.assume(units >= 0)
    brought = bucket.as_of(state, now_us)
    charged = bucket.spend(state, now_us, units)
    claim.goal("charge", z3.Implies(units <= bucket.room(state, now_us), charged.used <= bucket.saturated))
    refunded = bucket.refund(state, now_us, units)
    claim.goal("refund", both(refunded.used >= 0, refunded.used <= bucket.saturated))
    claim.goal("read", both(brought.used >= 0, brought.at_us <= now_us, brought.at_us >= 0))
    return claim


@theorem(SteppedBucket, AdmitsOneMore)
def an_admission_stays_within_the_capacity(model: type[SteppedBucket]) -> Claim:
    """A request is admitted exactly when what is in use with it is at most the capacity; so a lower cost is admitted
    as well.
    """
    bucket, claim, state, now_us = symbols(model)
    cost = z3.Int("cost")
    claim.assume(cost >= 1)
    after = bucket.spend(state, now_us, cost)
    claim.goal("within", bucket.admits(state, now_us, cost) == (after.used <= bucket.capacity))
    return claim


@theorem(SteppedBucket, StrikesAtOnce, RunsWhenFull)
def the_admitted_units_are_in_use(model: type[SteppedBucket]) -> Claim:
    """By induction over any sequence of checks, takes, charges and denials at times that do not go back: the units
    admitted since some time are at most those in use plus a step for each strike since, and two strikes are an
    interval apart or more.
    """
    bucket, claim, state, now_us = symbols(model)
    start, admitted, strikes, units, charged = z3.Ints("start admitted strikes units charged")
    claim.assume(start >= 0, admitted >= 0, strikes >= 0, units >= 1, charged >= 0)
    claim.assume(state.at_us <= now_us, start <= now_us)

    def owed(state: State, admitted: Int, strikes: Int) -> Bool:
        return both(
            admitted <= state.used + strikes * bucket.step,
            state.at_us > start + (strikes - 1) * bucket.interval_us,
        )

    # The first admission is at `start`, in a state that was brought there: less than an interval after the last strike.
    at_start = bucket.as_of(state, start)
    began = z3.Implies(state.at_us <= start, owed(State(at_start.used + units, at_start.at_us), units, 0))
    claim.assume(owed(state, admitted, strikes))
    struck = bucket.strikes(now_us - least(state.at_us, now_us))
    # A full bucket that is spent from: its clock starts then.
    brought = bucket.as_of(state, now_us)
    after = State(brought.used + units, brought.at_us)
    claim.use(product_grows, bucket.interval_us, 0, struck)
    claim.goal("at the start", began)
    claim.goal("admission", owed(after, admitted + units, strikes + struck))
    claim.goal("charge", owed(State(brought.used + charged, brought.at_us), admitted, strikes + struck))
    # A full bucket's clock that stood still has not struck sooner than an interval after it started.
    claim.goal("a full bucket", z3.Implies(brought.used == 0, after.at_us == now_us))
    return claim


class ExpectsNoStrike(SteppedBucket):
    """Leaves out the strike that may come at once."""

    def most_admitted(self, span_us: Int) -> Int:
        return floor_div(span_us, self.interval_us) * self.step + self.capacity


@theorem(SteppedBucket, ExpectsNoStrike)
def the_bound_holds(model: type[SteppedBucket]) -> Claim:
    """Any span of W microseconds admits at most B + step * (floor(W / interval) + 1) units, by
    `the_admitted_units_are_in_use`.
    """
    bucket, claim, state, now_us = symbols(model)
    start, admitted, strikes = z3.Ints("start admitted strikes")
    claim.assume(start >= 0, start <= now_us, admitted >= 0, strikes >= 0, state.at_us <= now_us)
    claim.assume(state.used <= bucket.capacity, admitted <= state.used + strikes * bucket.step)
    claim.assume(state.at_us > start + (strikes - 1) * bucket.interval_us)
    span_us = now_us - start + 1
    most = floor_div(span_us, bucket.interval_us) + 1
    claim.use(product_grows, bucket.interval_us, most, strikes - 1)
    claim.use(product_grows, bucket.step, strikes, most)
    claim.goal("the bound", admitted <= bucket.most_admitted(span_us))
    return claim


class SaturatesLater(SteppedBucket):
    """Has room for 16 times the capacity."""

    @property
    def saturated(self) -> Int:
        return 16 * self.capacity


@theorem(SteppedBucket, SaturatesLater)
def nothing_overflows(model: type[SteppedBucket]) -> Claim:
    """Units in use and waits are at most 2^53, every sum and product fits 64 bits, and the saturating product changes
    no result.
    """
    bucket, claim, state, now_us = symbols(model)
    cost, units = z3.Ints("cost units")
    claim.assume(cost >= 0, cost <= bucket.capacity, units >= 0, units <= bucket.room(state, now_us))
    brought = bucket.as_of(state, now_us)
    strikes = bucket.strikes(now_us - least(state.at_us, now_us))
    product = strikes * bucket.step
    cut = least(state.used, bucket.saturated)
    most = ceil_div(8 * bucket.capacity, bucket.step)
    missing = minus(brought.used + cost, bucket.capacity)
    for needed in (missing, brought.used):
        steps = bucket.steps(needed)
        claim.use(product_grows, bucket.step, most, steps - 1)
        claim.use(product_grows, bucket.interval_us, steps, most)
        claim.goal("steps", steps * bucket.interval_us <= EXACT)
    claim.goal("`spend`", brought.used + units <= EXACT)
    claim.goal("six bytes of a record", brought.used + units < 2**48)
    claim.goal("`saturating_mul`", minus(cut, least(product, U64 - 1)) == minus(cut, product))
    claim.goal("`as_of`", strikes * bucket.interval_us <= MAX_US)
    return claim
