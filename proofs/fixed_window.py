"""The counter that restarts every period: core/rules/src/algorithm/fixed_window.rs. Windows start with a request, at
multiples of the period, or by a calendar, of which only the order of its windows and their least length is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import z3

from lemmas import product_grows
from prover import EXACT, MAX_UNITS, MAX_US, U64, Bool, Claim, Int, both, choose, either, floor_div, minus, theorem


class State(NamedTuple):
    """`State`."""

    counted: Int
    start_us: Int


@dataclass
class FixedWindow:
    """`FixedWindow` with `Windows::Floating`, and its implementation of `Rules`."""

    capacity: Int
    period_us: Int

    def start_us(self, now_us: Int) -> Int:
        """`start_us`."""
        return now_us

    def is_over(self, state: State, now_us: Int) -> Bool:
        """`as_of`: whether the window is over."""
        return both(state.start_us <= now_us, now_us - state.start_us >= self.period_us)

    def as_of(self, state: State, now_us: Int) -> State:
        """`as_of`."""
        fresh = either(state.counted == 0, self.is_over(state, now_us))
        start_us = choose(either(fresh, state.start_us > now_us), self.start_us(now_us), state.start_us)
        return State(choose(fresh, 0, state.counted), start_us)

    def ends_after_us(self, state: State, now_us: Int) -> Int:
        """`ends_after_us`."""
        return state.start_us + self.period_us - now_us

    def end_us(self, state: State) -> Int:
        """When the state's window ends."""
        return state.start_us + self.period_us

    def remaining(self, state: State, now_us: Int) -> Int:
        """`remaining`."""
        return minus(self.capacity, self.as_of(state, now_us).counted)

    def room(self, state: State, now_us: Int) -> Int:
        """`room`."""
        return minus(8 * self.capacity, self.as_of(state, now_us).counted)

    def admits(self, state: State, now_us: Int, cost: Int) -> Bool:
        """`admit`, as `Rules` has it."""
        return cost <= self.remaining(state, now_us)

    def spend(self, state: State, now_us: Int, units: Int) -> State:
        """`spend`."""
        count, start_us = self.as_of(state, now_us)
        return State(count + units, start_us)

    def refund(self, state: State, now_us: Int, units: Int) -> State:
        """`refund`."""
        count, start_us = self.as_of(state, now_us)
        return State(minus(count, units), start_us)

    def rewind(self, state: State, now_us: Int) -> State:
        """`rewind`."""
        ahead = state.start_us > now_us
        count, start_us = self.as_of(state, now_us)
        return State(choose(ahead, count, state.counted), choose(ahead, start_us, state.start_us))

    def retry_after_us(self, state: State, now_us: Int) -> Int:
        """`retry_after_us`."""
        return self.ends_after_us(self.as_of(state, now_us), now_us)

    def reset_after_us(self, state: State, now_us: Int) -> Int:
        """`reset_after_us`."""
        state = self.as_of(state, now_us)
        return choose(state.counted == 0, 0, self.ends_after_us(state, now_us))


class AlignedWindow(FixedWindow):
    """The same with `Windows::Aligned`."""

    def start_us(self, now_us: Int) -> Int:
        """`start_us`: the latest multiple of the period."""
        return floor_div(now_us, self.period_us) * self.period_us


class CalendarWindow(FixedWindow):
    """The same with `Windows::Calendar`. `calendar.window_us` is any function that gives each moment a window that
    contains it, no shorter than `period_us`, such that two moments have the same window or the later one's starts no
    sooner than the other's ends.
    """

    starts = z3.Function("starts", z3.IntSort(), z3.IntSort())
    ends = z3.Function("ends", z3.IntSort(), z3.IntSort())

    def start_us(self, now_us: Int) -> Int:
        """`start_us`."""
        return self.starts(now_us)

    def is_over(self, state: State, now_us: Int) -> Bool:
        """`as_of`: whether the window is over."""
        return state.start_us < self.starts(now_us)

    def ends_after_us(self, state: State, now_us: Int) -> Int:
        """`ends_after_us`."""
        del state
        return self.ends(now_us) - now_us

    def end_us(self, state: State) -> Int:
        """When a window ends that starts where one of the calendar does."""
        return self.ends(state.start_us)

    def windows(self, *moments: Int) -> list[Bool]:
        """What is assumed of the windows of some moments."""
        known: list[Bool] = []
        for moment in moments:
            start, end = self.starts(moment), self.ends(moment)
            known.append(both(start <= moment, moment < end, end - start >= self.period_us))
            for other in moments:
                same = both(self.starts(other) == start, self.ends(other) == end)
                known.append(
                    either(
                        both(start <= other, other < end, same), self.starts(other) >= end, self.ends(other) <= start
                    )
                )
        return known


class Symbols(NamedTuple):
    """Any window in any state at any time, and the claim that has their bounds as its assumptions."""

    window: FixedWindow
    claim: Claim
    state: State
    now_us: z3.ArithRef


def symbols(model: type[FixedWindow]) -> Symbols:
    """Any quota that the builder makes: it checks the limit, the excess and the period."""
    capacity, period_us, count, start_us, now_us = z3.Ints("capacity period_us count start_us now_us")
    window = model(capacity, period_us)
    claim = Claim()
    claim.assume(capacity >= 1, capacity <= 2 * MAX_UNITS, period_us >= 1, period_us <= 366 * 86_400 * 10**6)
    claim.assume(count >= 0, count <= 8 * capacity, start_us >= 0, start_us <= MAX_US, now_us >= 0, now_us <= MAX_US)
    return Symbols(window, claim, State(count, start_us), now_us)


def assume_start(claim: Claim, window: FixedWindow, state: State, *moments: Int) -> None:
    """The state's window started where one starts; what is assumed of a calendar."""
    if isinstance(window, AlignedWindow):
        number = z3.Int("number")
        claim.assume(state.start_us == number * window.period_us)
        for moment in moments:
            # Two multiples that are different are a period apart.
            claim.use(product_grows, window.period_us, number + 1, floor_div(moment, window.period_us))
            claim.use(product_grows, window.period_us, floor_div(moment, window.period_us), number)
    if isinstance(window, CalendarWindow):
        starts = [window.starts(moment) for moment in moments]
        claim.assume(
            *window.windows(state.start_us, *moments, *starts), window.starts(state.start_us) == state.start_us
        )


class EndsLate(FixedWindow):
    """A window counts for a microsecond longer than a period."""

    def is_over(self, state: State, now_us: Int) -> Bool:
        return both(state.start_us <= now_us, now_us - state.start_us > self.period_us)


class EndsEarly(FixedWindow):
    """A window counts for a microsecond less than a period."""

    def is_over(self, state: State, now_us: Int) -> Bool:
        return both(state.start_us <= now_us, now_us - state.start_us >= self.period_us - 1)


class AlignedEndsEarly(AlignedWindow):
    """A window counts for a microsecond less than a period."""

    def is_over(self, state: State, now_us: Int) -> Bool:
        return both(state.start_us <= now_us, now_us - state.start_us >= self.period_us - 1)


class CalendarEndsLate(CalendarWindow):
    """A window is over a microsecond after the next one has started."""

    def is_over(self, state: State, now_us: Int) -> Bool:
        return state.start_us < self.starts(now_us - 1)


class CalendarEndsEarly(CalendarWindow):
    """A window is over a microsecond before the next one starts."""

    def is_over(self, state: State, now_us: Int) -> Bool:
        return state.start_us < self.starts(now_us + 1)


class AdmitsOneMore(FixedWindow):
    """Compares with one unit more."""

    def remaining(self, state: State, now_us: Int) -> Int:
        return minus(self.capacity + 1, self.as_of(state, now_us).counted)


class ForgetsOnReturn(FixedWindow):
    """Drops a window that is ahead of the clock."""

    def is_over(self, state: State, now_us: Int) -> Bool:
        return either(state.start_us > now_us, super().is_over(state, now_us))


class BringsWhenDenied(FixedWindow):
    """Writes the state of a denied request."""

    def rewind(self, state: State, now_us: Int) -> State:
        return State(state.counted, now_us)


class HasMoreRoom(FixedWindow):
    """Has room for one unit more."""

    def room(self, state: State, now_us: Int) -> Int:
        return super().room(state, now_us) + 1


def first_moment(model: type[FixedWindow]) -> Claim:
    """What `retry_after` and `reset_after` promise, which are the same."""
    window, claim, state, now_us = symbols(model)
    cost = z3.Int("cost")
    claim.assume(state.start_us <= now_us, cost >= 1, cost <= window.capacity)
    claim.assume(z3.Not(window.admits(state, now_us, cost)))
    wait = window.retry_after_us(state, now_us)
    assume_start(claim, window, state, now_us, now_us + wait, now_us + wait - 1)
    if isinstance(window, CalendarWindow):
        # A defect asks for the windows next to these.
        claim.assume(*window.windows(now_us + wait, now_us + wait - 2), *window.windows(now_us - 1, now_us, now_us + 1))
    claim.goal("it waits", wait > 0)
    claim.goal("admitted then", window.admits(state, now_us + wait, cost))
    claim.goal("denied a microsecond before", z3.Not(window.admits(state, now_us + wait - 1, cost)))
    claim.goal("the same as the reset", window.reset_after_us(state, now_us) == wait)
    return claim


@theorem(FixedWindow, EndsLate, EndsEarly)
def retry_after_is_the_first_moment(model: type[FixedWindow]) -> Claim:
    """A denied request is admitted after `retry_after` and not one microsecond before; then nothing is in use."""
    return first_moment(model)


@theorem(AlignedWindow, AlignedEndsEarly)
def retry_after_is_the_first_moment_of_aligned_windows(model: type[AlignedWindow]) -> Claim:
    """The same for windows at multiples of the period."""
    return first_moment(model)


@theorem(CalendarWindow, CalendarEndsLate, CalendarEndsEarly)
def retry_after_is_the_first_moment_by_the_calendar(model: type[CalendarWindow]) -> Claim:
    """The same for windows by a calendar."""
    return first_moment(model)


@theorem(FixedWindow, BringsWhenDenied)
def a_denial_changes_nothing(model: type[FixedWindow]) -> Claim:
    """A denied request leaves the state as it was, unless the clock went back."""
    window, claim, state, now_us = symbols(model)
    claim.assume(state.start_us <= now_us)
    after = window.rewind(state, now_us)
    claim.goal("nothing changes", both(after.counted == state.counted, after.start_us == state.start_us))
    return claim


@theorem(FixedWindow, ForgetsOnReturn)
def a_clock_that_went_back_refills_nothing(model: type[FixedWindow]) -> Claim:
    """When the clock went back, the count stays the same, and the window ends within a period from now."""
    window, claim, state, now_us = symbols(model)
    claim.assume(state.start_us > now_us)
    after = window.rewind(state, now_us)
    claim.goal(
        "the count is the same",
        both(after.counted == state.counted, window.as_of(state, now_us).counted == state.counted),
    )
    claim.goal("no longer wait", z3.Implies(state.counted > 0, window.ends_after_us(after, now_us) <= window.period_us))
    return claim


@theorem(FixedWindow, AdmitsOneMore)
def an_admission_stays_within_the_capacity(model: type[FixedWindow]) -> Claim:
    """A request is admitted exactly when the count with it is at most the capacity; so a lower cost is admitted as
    well.
    """
    window, claim, state, now_us = symbols(model)
    cost = z3.Int("cost")
    claim.assume(cost >= 1)
    within = window.spend(state, now_us, cost).counted <= window.capacity
    claim.goal("within", window.admits(state, now_us, cost) == within)
    return claim


@theorem(FixedWindow, HasMoreRoom)
def the_state_stays_valid(model: type[FixedWindow]) -> Claim:
    """Every operation leaves a count from 0 to 8 times the capacity and a start that is not ahead of the clock;
    nothing overflows.
    """
    window, claim, state, now_us = symbols(model)
    units = z3.Int("units")
    claim.assume(units >= 0)
    charged, refunded = window.spend(state, now_us, units), window.refund(state, now_us, units)
    in_room = z3.Implies(units <= window.room(state, now_us), charged.counted <= 8 * window.capacity)
    claim.goal("charge", in_room)
    claim.goal("refund", both(refunded.counted >= 0, refunded.counted <= 8 * window.capacity))
    claim.goal("start", both(charged.start_us >= 0, charged.start_us <= now_us))
    claim.goal("six bytes of a record", 8 * window.capacity < 2**48)
    claim.goal("`ends_after_us`", both(charged.start_us + window.period_us < U64, 8 * window.capacity <= EXACT))
    return claim


@theorem(FixedWindow, ForgetsOnReturn)
def time_only_helps(model: type[FixedWindow]) -> Claim:
    """What is admitted stays admitted at every later time if nothing else arrives; this holds for a state ahead of
    the clock too.
    """
    window, claim, state, now_us = symbols(model)
    later_us = z3.Int("later_us")
    claim.assume(now_us <= later_us)
    claim.goal("no more counts", window.as_of(state, later_us).counted <= window.as_of(state, now_us).counted)
    return claim


def at_most_two_windows(model: type[FixedWindow]) -> Claim:
    """The induction: in a span of one period there are units of the window at its start, and of one more."""
    window, claim, state, now_us = symbols(model)
    begin, admitted, units, charged = z3.Ints("begin admitted units charged")
    claim.assume(begin >= 0, begin <= now_us, now_us < begin + window.period_us, state.start_us <= now_us)
    claim.assume(admitted >= 0, units >= 1, charged >= 0)

    def holds(state: State, admitted: Int) -> Bool:
        # A window that has units of the span has not ended before the span began.
        reaches = either(admitted == 0, begin < window.end_us(state))
        first = both(state.start_us <= begin, reaches, admitted <= state.counted, admitted <= window.capacity)
        second = both(state.start_us > begin, admitted <= window.capacity + state.counted)
        return both(either(first, second), admitted <= 2 * window.capacity)

    assume_start(claim, window, state, now_us, begin)
    claim.goal("at the start", z3.Implies(state.start_us <= begin, holds(state, 0)))
    claim.assume(holds(state, admitted))
    brought = window.as_of(state, now_us)
    after = State(brought.counted + units, brought.start_us)
    claim.goal("admission", z3.Implies(window.admits(state, now_us, units), holds(after, admitted + units)))
    claim.goal("charge", holds(State(brought.counted + charged, brought.start_us), admitted))
    claim.goal("one window", z3.Implies(window.admits(state, now_us, units), after.counted <= window.capacity))
    return claim


@theorem(FixedWindow, EndsEarly, AdmitsOneMore)
def the_bound_holds(model: type[FixedWindow]) -> Claim:
    """By induction over any sequence of checks, takes, charges and denials at times that do not go back: a span of
    one period admits at most twice the capacity, and a window at most the capacity.
    """
    return at_most_two_windows(model)


@theorem(AlignedWindow, AlignedEndsEarly)
def the_bound_holds_for_aligned_windows(model: type[AlignedWindow]) -> Claim:
    """The same for windows at multiples of the period."""
    return at_most_two_windows(model)


class CalendarForgets(CalendarWindow):
    """A window is over when it started before now."""

    def is_over(self, state: State, now_us: Int) -> Bool:
        return state.start_us < now_us


@theorem(CalendarWindow, CalendarForgets)
def the_bound_holds_by_the_calendar(model: type[CalendarWindow]) -> Claim:
    """The same for windows by a calendar, where the period is the length of the shortest window."""
    return at_most_two_windows(model)
