"""The continuously refilled bucket and the leaky bucket: core/rules/src/algorithm/token_bucket.rs and
leaky_bucket.rs.
"""

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
    """`State`: a debt, and its time in ticks."""

    debt: Int
    at: Int


@dataclass
class TokenBucket:
    """`TokenBucket`, with the methods of its implementation of `Rules`, for states that were written under the same
    numbers.
    """

    token: Int
    rate: Int
    capacity: Int
    tick_us: Int

    @property
    def empty(self) -> Int:
        """`new`: the debt of an empty bucket."""
        return self.capacity * self.token

    @property
    def saturated(self) -> Int:
        """`new`: the debt beyond which nothing can be charged."""
        return 8 * self.empty

    def ticks(self, us: Int) -> Int:
        """`ticks`."""
        if isinstance(self.tick_us, int) and self.tick_us == 1:
            return us
        return floor_div(us, self.tick_us)

    def as_of(self, state: State, now_us: Int) -> State:
        """`as_of` and `repaid`."""
        now = self.ticks(now_us)
        return self.as_of_tick(state, now)

    def as_of_tick(self, state: State, now: Int) -> State:
        """`repaid`, with the time in ticks."""
        repaid = minus(now, state.at) * self.rate
        return State(minus(least(state.debt, self.saturated), repaid), now)

    def repaid_after_us(self, debt: Int, now_us: Int) -> Int:
        """`repaid_after_us`."""
        ticks = self.repaid_after(debt)
        return choose(ticks == 0, 0, (self.ticks(now_us) + ticks) * self.tick_us - now_us)

    def repaid_after(self, debt: Int) -> Int:
        """`repaid_after_us`: the division."""
        return ceil_div(debt, self.rate)

    def remaining(self, state: State, now_us: Int) -> Int:
        """`remaining`."""
        return floor_div(minus(self.empty, self.as_of(state, now_us).debt), self.token)

    def room(self, state: State, now_us: Int) -> Int:
        """`room`."""
        return floor_div(self.saturated - self.as_of(state, now_us).debt, self.token)

    def admits(self, state: State, now_us: Int, cost: Int) -> Bool:
        """`admit`: the comparison."""
        return self.as_of(state, now_us).debt + cost * self.token <= self.empty

    def spend(self, state: State, now_us: Int, units: Int) -> State:
        """`spend`, and what `admit` writes."""
        debt, at = self.as_of(state, now_us)
        return State(debt + units * self.token, at)

    def refund(self, state: State, now_us: Int, units: Int) -> State:
        """`refund`."""
        debt, at = self.as_of(state, now_us)
        return State(minus(debt, units * self.token), at)

    def rewind(self, state: State, now_us: Int) -> State:
        """`rewind`, which is all that `deny` writes."""
        debt, at = self.as_of(state, now_us)
        ahead = state.at > at
        return State(choose(ahead, debt, state.debt), choose(ahead, at, state.at))

    def retry_after_us(self, state: State, now_us: Int, cost: Int) -> Int:
        """`retry_after_us`."""
        debt = self.as_of(state, now_us).debt + cost * self.token
        return self.repaid_after_us(minus(debt, self.empty), now_us)

    def reset_after_us(self, state: State, now_us: Int) -> Int:
        """`reset_after_us`."""
        return self.repaid_after_us(self.as_of(state, now_us).debt, now_us)

    def turn_after_us(self, state: State, now_us: Int, spent: Int) -> Int:
        """`turn_after_us`, which is the `delay_us` of the leaky bucket."""
        before = minus(self.as_of(state, now_us).debt, spent * self.token)
        return self.repaid_after_us(before, now_us)

    def ticks_begun(self, span_us: Int) -> Int:
        """`Quota::most_admitted`: the ticks of a span."""
        return ceil_div(span_us, self.tick_us)


# The parameters, as the builder admits them.


class Symbols(NamedTuple):
    """A bucket and the claim that has the builder's bounds as its assumptions."""

    bucket: TokenBucket
    claim: Claim


def symbols(model: type[TokenBucket]) -> Symbols:
    """Any bucket: `8 * capacity * token <= 2^53` is what `tick::of_bucket` has found a tick for."""
    token, rate, capacity, tick_us = z3.Ints("token rate capacity tick_us")
    bucket = model(token, rate, capacity, tick_us)
    claim = Claim()
    claim.assume(token >= 1, rate >= 1, rate <= MAX_UNITS, capacity >= 1, capacity <= 2 * MAX_UNITS)
    claim.assume(tick_us >= 1, tick_us <= 10**13, 8 * (capacity * token) <= EXACT)
    return Symbols(bucket, claim)


def any_state(claim: Claim, bucket: TokenBucket) -> State:
    debt, at = z3.Ints("debt at")
    claim.assume(debt >= 0, debt <= bucket.saturated, at >= 0, at <= MAX_US)
    return State(debt, at)


def any_time(claim: Claim, name: str = "now_us") -> z3.ArithRef:
    now_us = z3.Int(name)
    claim.assume(now_us >= 0, now_us <= MAX_US)
    return now_us


def any_cost(claim: Claim, bucket: TokenBucket) -> z3.ArithRef:
    cost = z3.Int("cost")
    claim.assume(cost >= 1, cost <= bucket.capacity)
    return cost


class RoundsWaitsDown(TokenBucket):
    """Rounds the wait down."""

    def repaid_after(self, debt: Int) -> Int:
        return floor_div(debt, self.rate)


class AddsATick(TokenBucket):
    """Waits a tick too long."""

    def repaid_after(self, debt: Int) -> Int:
        return floor_div(debt, self.rate) + 1


class AdmitsOneTooMany(TokenBucket):
    """Compares with the debt that another token would make."""

    def admits(self, state: State, now_us: Int, cost: Int) -> Bool:
        return self.as_of(state, now_us).debt + cost * self.token < self.empty + self.token


class RefillsBackwards(TokenBucket):
    """Repays for a time by which the clock went back."""

    def as_of_tick(self, state: State, now: Int) -> State:
        passed = choose(now >= state.at, now - state.at, state.at - now)
        return State(minus(least(state.debt, self.saturated), passed * self.rate), now)


@theorem(TokenBucket, RoundsWaitsDown, AddsATick)
def retry_after_is_the_first_moment(model: type[TokenBucket]) -> Claim:
    """A denied request is admitted after `retry_after` and not one microsecond before."""
    bucket, claim = symbols(model)
    state = any_state(claim, bucket)
    now_us = any_time(claim)
    cost = any_cost(claim, bucket)
    now = bucket.ticks(now_us)
    claim.assume(state.at <= now)
    missing = bucket.as_of_tick(state, now).debt + cost * bucket.token - bucket.empty
    claim.assume(missing > 0)
    wait = bucket.retry_after_us(state, now_us, cost)
    ticks = bucket.repaid_after(minus(missing + bucket.empty, bucket.empty))
    claim.use(one_quotient, bucket.ticks(now_us + wait), now + ticks, bucket.tick_us)
    claim.use(one_quotient, bucket.ticks(now_us + wait - 1), now + ticks - 1, bucket.tick_us)
    claim.goal("it waits", wait > 0)
    claim.goal("admitted then", bucket.admits(state, now_us + wait, cost))
    claim.goal("denied a microsecond before", z3.Not(bucket.admits(state, now_us + wait - 1, cost)))
    return claim


class AddsBeforeItCompares(TokenBucket):
    """Spends although the request is denied."""

    def rewind(self, state: State, now_us: Int) -> State:
        return self.as_of(state, now_us)


class ForgetsOnReturn(TokenBucket):
    """A state that is ahead of the clock is dropped."""

    def rewind(self, state: State, now_us: Int) -> State:
        now = self.ticks(now_us)
        ahead = state.at > now
        return State(choose(ahead, 0, state.debt), choose(ahead, now, state.at))


class RoundsRemainingUp(TokenBucket):
    """Counts a token that has begun to arrive."""

    def remaining(self, state: State, now_us: Int) -> Int:
        return ceil_div(minus(self.empty, self.as_of(state, now_us).debt), self.token)


class HasMoreRoom(TokenBucket):
    """Rounds the room up."""

    def room(self, state: State, now_us: Int) -> Int:
        return ceil_div(self.saturated - self.as_of(state, now_us).debt, self.token)


class NeverCuts(TokenBucket):
    """Has room for 16 times the capacity."""

    @property
    def saturated(self) -> Int:
        return 16 * self.empty


class RefundsBelowZero(TokenBucket):
    """A refund makes the debt negative."""

    def refund(self, state: State, now_us: Int, units: Int) -> State:
        debt, at = self.as_of(state, now_us)
        return State(debt - units * self.token, at)


@theorem(TokenBucket, AddsBeforeItCompares)
def a_denial_changes_nothing(model: type[TokenBucket]) -> Claim:
    """A denied request leaves the state as it was, unless the clock went back."""
    bucket, claim = symbols(model)
    state = any_state(claim, bucket)
    now_us = any_time(claim)
    claim.assume(state.at <= bucket.ticks(now_us))
    after = bucket.rewind(state, now_us)
    claim.goal("the debt is the same", after.debt == state.debt)
    claim.goal("its time is the same", after.at == state.at)
    return claim


@theorem(TokenBucket, ForgetsOnReturn, RefillsBackwards)
def a_clock_that_went_back_refills_nothing(model: type[TokenBucket]) -> Claim:
    """When the clock went back, the debt stays the same and no state is ahead of the clock."""
    bucket, claim = symbols(model)
    state = any_state(claim, bucket)
    now_us = any_time(claim)
    now = bucket.ticks(now_us)
    claim.assume(state.at > now)
    after = bucket.rewind(state, now_us)
    claim.goal("the debt is the same", both(after.debt == state.debt, bucket.as_of(state, now_us).debt == state.debt))
    claim.goal("the state is at the clock", after.at == now)
    return claim


@theorem(TokenBucket, RoundsRemainingUp)
def remaining_is_what_admits(model: type[TokenBucket]) -> Claim:
    """A request is admitted exactly when its cost is at most `remaining`, so a lower cost is admitted wherever a
    higher one is.
    """
    bucket, claim = symbols(model)
    state = any_state(claim, bucket)
    now_us = any_time(claim)
    cost = any_cost(claim, bucket)
    remaining = bucket.remaining(state, now_us)
    claim.use(product_grows, bucket.token, cost, remaining)
    claim.use(product_grows, bucket.token, remaining + 1, cost)
    claim.goal("they agree", bucket.admits(state, now_us, cost) == (cost <= remaining))
    claim.goal(
        "no less than nothing, and no more than the capacity", both(remaining >= 0, remaining <= bucket.capacity)
    )
    return claim


@theorem(TokenBucket, RefillsBackwards)
def time_only_helps(model: type[TokenBucket]) -> Claim:
    """What is admitted stays admitted at every later time if nothing else arrives; this holds for a state ahead of
    the clock too.
    """
    bucket, claim = symbols(model)
    state = any_state(claim, bucket)
    now, later = z3.Ints("now later")
    claim.assume(now >= 0, now <= later, later <= MAX_US)
    claim.use(product_grows, bucket.rate, minus(now, state.at), minus(later, state.at))
    claim.goal("less debt", bucket.as_of_tick(state, later).debt <= bucket.as_of_tick(state, now).debt)
    return claim


@theorem(TokenBucket, HasMoreRoom, RefundsBelowZero)
def the_state_stays_valid(model: type[TokenBucket]) -> Claim:
    """Every operation leaves a debt from 0 to the saturated one: a check and a take within the capacity, a charge
    within its room.
    """
    bucket, claim = symbols(model)
    state = any_state(claim, bucket)
    now_us = any_time(claim)
    units = z3.Int("units")
    claim.assume(units >= 0)
    room = bucket.room(state, now_us)
    claim.use(product_grows, bucket.token, units, room)
    charged = bucket.spend(state, now_us, units).debt
    claim.goal("charge", z3.Implies(units <= room, both(charged >= 0, charged <= bucket.saturated)))
    refunded = bucket.refund(state, now_us, units).debt
    claim.goal("refund", both(refunded >= 0, refunded <= bucket.saturated))
    rewound = bucket.rewind(state, now_us).debt
    claim.goal("denial", both(rewound >= 0, rewound <= bucket.saturated))
    return claim


@theorem(TokenBucket, RoundsRemainingUp)
def an_admission_stays_within_the_capacity(model: type[TokenBucket]) -> Claim:
    """After a check, and after a take of what remains, at most the capacity is in use."""
    bucket, claim = symbols(model)
    state = any_state(claim, bucket)
    now_us = any_time(claim)
    cost = any_cost(claim, bucket)
    remaining = bucket.remaining(state, now_us)
    claim.use(product_grows, bucket.token, cost, remaining)
    spent = bucket.spend(state, now_us, cost).debt
    claim.goal("a check", z3.Implies(bucket.admits(state, now_us, cost), spent <= bucket.empty))
    claim.goal("a take", z3.Implies(cost <= remaining, spent <= bucket.empty))
    return claim


class CountsNoTicks(TokenBucket):
    """Takes the start of the current tick for now."""

    def repaid_after_us(self, debt: Int, now_us: Int) -> Int:
        return self.repaid_after(debt) * self.tick_us


@theorem(TokenBucket, CountsNoTicks, RoundsWaitsDown)
def reset_after_is_the_first_moment(model: type[TokenBucket]) -> Claim:
    """Nothing is in use after `reset_after`, and something is one microsecond before."""
    bucket, claim = symbols(model)
    state = any_state(claim, bucket)
    now_us = any_time(claim)
    now = bucket.ticks(now_us)
    claim.assume(state.at <= now)
    debt = bucket.as_of_tick(state, now).debt
    claim.assume(debt > 0)
    wait = bucket.reset_after_us(state, now_us)
    ticks = bucket.repaid_after(debt)
    claim.use(one_quotient, bucket.ticks(now_us + wait), now + ticks, bucket.tick_us)
    claim.use(one_quotient, bucket.ticks(now_us + wait - 1), now + ticks - 1, bucket.tick_us)
    claim.goal("unused then", bucket.as_of(state, now_us + wait).debt == 0)
    claim.goal("used a microsecond before", bucket.as_of(state, now_us + wait - 1).debt > 0)
    return claim


class RepaysDouble(TokenBucket):
    """Repays twice."""

    def as_of_tick(self, state: State, now: Int) -> State:
        return State(minus(least(state.debt, self.saturated), 2 * (minus(now, state.at) * self.rate)), now)


class ForgetsDebt(TokenBucket):
    """Keeps no debt of a bucket that is more than empty."""

    def as_of_tick(self, state: State, now: Int) -> State:
        debt, at = super().as_of_tick(state, now)
        return State(choose(debt > self.empty, 0, debt), at)


@theorem(TokenBucket, RepaysDouble, ForgetsDebt)
def the_admitted_units_are_owed(model: type[TokenBucket]) -> Claim:
    """By induction over any sequence of checks, takes, charges and denials at times that do not go back: the units
    admitted since some tick are worth at most the debt plus what was repaid since.
    """
    bucket, claim = symbols(model)
    state = any_state(claim, bucket)
    start, now, admitted, units, charged = z3.Ints("start now admitted units charged")
    claim.assume(start >= 0, start <= state.at, state.at <= now, now <= MAX_US)
    claim.assume(admitted >= 0, units >= 0, charged >= 0)

    def owed(state: State, admitted: Int) -> Bool:
        return admitted * bucket.token <= state.debt + (state.at - start) * bucket.rate

    claim.goal("at the start", z3.Implies(state.at == start, owed(state, 0)))
    claim.assume(owed(state, admitted))
    debt = bucket.as_of_tick(state, now).debt
    claim.goal("admission", owed(State(debt + units * bucket.token, now), admitted + units))
    claim.use(product_grows, bucket.token, 0, charged)
    claim.goal("charge", owed(State(debt + charged * bucket.token, now), admitted))
    return claim


class AdmitsBeyond(TokenBucket):
    """Admits what fits a token more."""

    @property
    def empty(self) -> Int:
        return self.capacity * self.token + self.token


@theorem(TokenBucket, AdmitsBeyond)
def the_bound_holds(model: type[TokenBucket]) -> Claim:
    """Any span of W ticks admits at most B + floor(W * L / P) units, by `the_admitted_units_are_owed` and because an
    admission leaves at most an empty bucket's debt.
    """
    bucket, claim = symbols(model)
    limit, period, gcd, elapsed, admitted, debt = z3.Ints("limit period gcd elapsed admitted debt")
    # L and P in ticks, as `new` divides them.
    claim.assume(gcd >= 1, limit == gcd * bucket.rate, period == gcd * bucket.token, elapsed >= 0, admitted >= 0)
    claim.assume(debt <= bucket.empty, admitted * bucket.token <= debt + elapsed * bucket.rate)
    refilled = floor_div(elapsed * limit, period)
    beyond = admitted - bucket.capacity
    claim.use(product_grows, gcd, beyond * bucket.token, elapsed * bucket.rate)
    claim.use(product_grows, gcd * bucket.token, refilled + 1, beyond)
    claim.goal("the bound", admitted <= bucket.capacity + refilled)
    return claim


class CountsFullTicks(TokenBucket):
    """Counts the ticks that fit into the span, as W * L / P without ticks does."""

    def ticks_begun(self, span_us: Int) -> Int:
        return floor_div(span_us, self.tick_us)


@theorem(TokenBucket, CountsFullTicks)
def a_span_has_no_more_ticks(model: type[TokenBucket]) -> Claim:
    """Two moments in a span of W microseconds are at most ceil(W / tick) ticks apart, so W counts in whole ticks
    begun.
    """
    bucket, claim = symbols(model)
    first, apart, span = z3.Ints("first apart span")
    claim.assume(first >= 0, apart >= 0, span > apart)
    begun = bucket.ticks_begun(span)
    claim.use(product_grows, bucket.tick_us, begun + 1, bucket.ticks(first + apart) - bucket.ticks(first))
    claim.goal("ticks", bucket.ticks(first + apart) - bucket.ticks(first) <= begun)
    return claim


class DelaysWithItself(TokenBucket):
    """Counts the request's own units."""

    def turn_after_us(self, state: State, now_us: Int, spent: Int) -> Int:
        return self.repaid_after_us(self.as_of(state, now_us).debt, now_us)


@theorem(TokenBucket, RoundsWaitsDown, DelaysWithItself)
def the_delay_is_the_turn(model: type[TokenBucket]) -> Claim:
    """The delay of an admitted request of a leaky bucket ends in the first tick in which everything before it has
    drained.
    """
    bucket, claim = symbols(model)
    state = any_state(claim, bucket)
    now_us = any_time(claim)
    cost = any_cost(claim, bucket)
    now = bucket.ticks(now_us)
    before = bucket.as_of_tick(state, now).debt
    after = bucket.spend(state, now_us, cost)
    claim.assume(after.debt <= bucket.empty, state.at <= now)
    delay = bucket.turn_after_us(after, now_us, cost)
    ticks = bucket.repaid_after(before)
    claim.goal("none for an empty queue", (delay == 0) == (before == 0))
    claim.goal("whole ticks", z3.Implies(before > 0, now_us + delay == (now + ticks) * bucket.tick_us))
    claim.goal("drained by then", ticks * bucket.rate >= before)
    claim.goal("not a tick sooner", z3.Implies(before > 0, (ticks - 1) * bucket.rate < before))
    return claim


@theorem(TokenBucket, DelaysWithItself)
def turns_are_spaced(model: type[TokenBucket]) -> Claim:
    """Two requests that a leaky bucket admits one after the other leave less than one tick closer than cost * period
    / limit.
    """
    bucket, claim = symbols(model)
    first = any_state(claim, bucket)
    now_us = any_time(claim)
    later_us = any_time(claim, "later_us")
    cost, other = any_cost(claim, bucket), z3.Int("other")
    now, later = bucket.ticks(now_us), bucket.ticks(later_us)
    claim.assume(other >= 1, other <= bucket.capacity, now_us <= later_us, first.at <= now)
    claim.use(product_grows, bucket.tick_us, later + 1, now)
    claim.step("ticks follow each other", now <= later)
    after = bucket.spend(first, now_us, cost)
    second = bucket.spend(after, later_us, other)
    claim.assume(after.debt <= bucket.empty, second.debt <= bucket.empty)
    leaves = now_us + bucket.turn_after_us(after, now_us, cost)
    leaves_later = later_us + bucket.turn_after_us(second, later_us, other)
    # rate * (apart + tick) > cost * token * tick, where token / rate ticks are period / limit.
    claim.goal("apart", bucket.rate * (leaves_later - leaves + bucket.tick_us) > cost * bucket.token * bucket.tick_us)
    return claim


class SaturatesLater(TokenBucket):
    """Has room for 16 times the capacity."""

    @property
    def saturated(self) -> Int:
        return 16 * self.empty


def builders_longest_wait(claim: Claim, bucket: TokenBucket) -> None:
    """`builder::longest_wait_us` is below 2^63: ceil(8 * capacity * period / limit), where period / limit = token *
    tick / rate. The builder checks more: that it is so when rounded up to a tick.
    """
    claim.assume(8 * (bucket.capacity * bucket.token) * bucket.tick_us <= (2**63 - 1) * bucket.rate)


@theorem(TokenBucket, SaturatesLater)
def nothing_overflows(model: type[TokenBucket]) -> Claim:
    """What is stored is at most 2^53, and every sum and product in Rust fits 64 bits; the one that saturates changes
    no result.
    """
    bucket, claim = symbols(model)
    builders_longest_wait(claim, bucket)
    debt, units, passed, now_us, cost, owed = z3.Ints("debt units passed now_us cost owed")
    claim.assume(debt >= 0, debt <= bucket.saturated, units >= 0, cost >= 0, cost <= bucket.capacity)
    claim.assume(passed >= 0, now_us >= 0, now_us <= MAX_US)
    room = floor_div(bucket.saturated - debt, bucket.token)
    claim.use(product_grows, bucket.token, units, room)
    claim.use(product_grows, bucket.token, cost, bucket.capacity)
    claim.goal("`saturated`", bucket.saturated <= EXACT)
    claim.goal("`spend`", z3.Implies(units <= room, debt + units * bucket.token <= EXACT))
    claim.goal("`admit` and `retry_after_us`", debt + cost * bucket.token < 2 * EXACT)
    product = passed * bucket.rate
    claim.goal("`saturating_mul`", minus(debt, least(product, U64 - 1)) == minus(debt, product))
    # The longest wait is that for the debt of `retry_after_us` or `reset_after_us`, both at most the saturated one.
    claim.assume(owed >= 0, owed <= bucket.saturated)
    ticks = bucket.repaid_after(owed)
    claim.use(product_grows, bucket.tick_us, (ticks - 1) * bucket.rate, bucket.saturated)
    claim.step("the wait", (ticks - 1) * bucket.tick_us <= 2**63 - 1)
    claim.goal("a wait", ticks * bucket.tick_us <= 2**63 - 1 + bucket.tick_us)
    claim.goal("the debt of a retry", minus(debt + cost * bucket.token, bucket.empty) <= bucket.saturated)
    claim.goal("`repaid_after_us`", (bucket.ticks(now_us) + ticks) * bucket.tick_us < U64)
    return claim


class Doubles(TokenBucket):
    """The arithmetic of `bucket.lua` and of the fast paths, in doubles."""

    def rounded(self, number: z3.ArithRef) -> z3.ArithRef:
        """A double: the number itself up to 2^53; beyond, rounding keeps the order of numbers, so no less than 2^53."""
        double = z3.Int(f"double!{number.get_id()}")
        exact = z3.And(number <= EXACT, number >= -EXACT)
        self.facts.append(z3.If(exact, double == number, z3.If(number > 0, double >= EXACT, double <= -EXACT)))
        self.terms.append(number)
        return double

    facts: list[z3.BoolRef]
    terms: list[z3.ArithRef]


class WrapsAround(Doubles):
    """Keeps the lower 53 bits of a number that is too large."""

    def rounded(self, number: z3.ArithRef) -> z3.ArithRef:
        return floor_div(number, 1) % EXACT


@theorem(Doubles, WrapsAround)
def doubles_decide_alike(model: type[Doubles]) -> Claim:
    """In the scripts a product beyond 2^53 is rounded, and neither the debt nor the decision depends on how."""
    bucket, claim = symbols(model)
    doubles = model(bucket.token, bucket.rate, bucket.capacity, bucket.tick_us)
    doubles.facts, doubles.terms = [], []
    debt, passed, want = z3.Ints("debt passed want")
    claim.assume(debt >= 0, debt <= bucket.saturated, passed >= 0, passed <= EXACT, want >= 0, want <= EXACT)
    left = doubles.rounded(debt - doubles.rounded(passed * bucket.rate))
    claim.goal("repaid", choose(left < 0, 0, left) == minus(debt, passed * bucket.rate))
    spent = doubles.rounded(debt + doubles.rounded(want * bucket.token))
    claim.goal("denied", (spent > bucket.empty) == (debt + want * bucket.token > bucket.empty))
    claim.goal("written", z3.Implies(spent <= bucket.empty, spent == debt + want * bucket.token))
    claim.assume(*doubles.facts)
    return claim


@dataclass
class Conversion:
    """`converted`: a debt under other numbers."""

    old_rate: Int
    old_tick_us: Int
    rate: Int
    tick_us: Int

    def full_at_us(self, debt: Int, at: Int) -> Int:
        """`converted`: when the debt is repaid under its own numbers."""
        return (at + ceil_div(debt, self.old_rate)) * self.old_tick_us

    def converted(self, debt: Int, at: Int) -> State:
        """`converted`."""
        at_now = floor_div(at * self.old_tick_us, self.tick_us)
        span_us = self.full_at_us(debt, at) - at_now * self.tick_us
        return State(self.debt_of(span_us), at_now)

    def debt_of(self, span_us: Int) -> Int:
        """`converted`: the debt that takes this long to repay, rounded up."""
        return ceil_div(span_us * self.rate, self.tick_us)


class RoundsDebtDown(Conversion):
    """Rounds the debt down."""

    def debt_of(self, span_us: Int) -> Int:
        return floor_div(span_us * self.rate, self.tick_us)


class AddsADebt(Conversion):
    """Rounds the debt up once too often."""

    def debt_of(self, span_us: Int) -> Int:
        return floor_div(span_us * self.rate, self.tick_us) + 1


@theorem(Conversion, RoundsDebtDown, AddsADebt)
def changed_numbers_keep_the_time(model: type[Conversion]) -> Claim:
    """Under changed numbers the debt is repaid in the first tick that is no sooner than before the change, as long as
    it is not cut to the saturated debt of the new numbers.
    """
    old_rate, old_tick_us, rate, tick_us, debt, at = z3.Ints("old_rate old_tick_us rate tick_us debt at")
    claim = Claim()
    claim.assume(old_rate >= 1, old_tick_us >= 1, rate >= 1, tick_us >= 1, debt >= 1, debt <= EXACT, at >= 0)
    claim.assume(at * old_tick_us <= MAX_US)
    numbers = model(old_rate, old_tick_us, rate, tick_us)
    full_us = numbers.full_at_us(debt, at)
    changed = numbers.converted(debt, at)
    span_us = full_us - changed.at * tick_us
    ticks, whole = ceil_div(changed.debt, rate), ceil_div(span_us, tick_us)
    # ceil(ceil(span * rate / tick) / rate) = ceil(span / tick).
    claim.use(product_grows, rate, span_us, whole * tick_us)
    claim.use(product_grows, tick_us, whole * rate + 1, changed.debt)
    claim.use(product_grows, rate, whole + 1, ticks)
    claim.use(product_grows, rate, ticks, whole - 1)
    claim.use(product_grows, tick_us, changed.debt, (whole - 1) * rate)
    claim.use(product_grows, rate, (whole - 1) * tick_us + 1, span_us)
    claim.step("the same ticks", ticks == whole)
    then_us = (changed.at + ticks) * tick_us
    claim.goal("no sooner", then_us >= full_us)
    claim.goal("less than a tick later", then_us < full_us + tick_us)
    return claim
