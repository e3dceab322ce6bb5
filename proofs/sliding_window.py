"""Counters of sub-windows: core/rules/src/algorithm/sliding_window.rs.

There are two models. `SlidingWindow` follows the code, with a list of counts in place of the ring; it is compared
with the code, and theorems about it are proved for one to four sub-windows. `Walk` has any number of sub-windows:
their counts are a function of their age, and the sums of the newest ones another. `the_models_agree` connects them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

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

if TYPE_CHECKING:
    from collections.abc import Sequence


class State(NamedTuple):
    """`State`: the number of the newest sub-window, and the counts from it to the oldest; no counts when nothing was
    ever spent.
    """

    newest: Int
    counts: Sequence[Int]


@dataclass
class SlidingWindow:
    """`SlidingWindow`, with the methods of its implementation of `Rules`."""

    capacity: Int
    buckets: int
    width: Int
    tick_us: Int

    @property
    def saturated(self) -> Int:
        """`saturated`."""
        return 8 * self.capacity

    def position(self, now_us: Int) -> tuple[Int, Int]:
        """`position`."""
        now = now_us if isinstance(self.tick_us, int) and self.tick_us == 1 else floor_div(now_us, self.tick_us)
        current = floor_div(now, self.width)
        return current, now - current * self.width

    def newest_first(self, state: State) -> list[Int]:
        """`newest_first`."""
        return [least(count, self.saturated) for count in state.counts]

    def by_age(self, state: State, current: Int) -> list[Int]:
        """`by_age`, as the count of each age from 0 to `buckets`."""
        counts, past = self.newest_first(state), current - state.newest
        return [self.at(counts, age - past) for age in range(self.buckets + 1)]

    @staticmethod
    def at(counts: Sequence[Int], place: Int) -> Int:
        """The count at a place, 0 outside."""
        if isinstance(place, int):
            return counts[place] if 0 <= place < len(counts) else 0
        found: Int = 0
        for here, count in enumerate(counts):
            found = choose(place == here, count, found)
        return found

    def move_back(self, state: State, current: Int) -> State:
        """`move_back`."""
        counts, ahead = self.newest_first(state), state.newest - current
        # A sub-window before the epoch was never written.
        written = [choose(place <= state.newest, count, 0) for place, count in enumerate(counts)]
        moved: Int = 0
        for place, count in enumerate(written):
            moved = choose(place <= ahead, least(moved + count, self.saturated), moved)
        older = [self.at(written, age + ahead) for age in range(1, self.buckets + 1)]
        return State(current, [moved, *older])

    def not_ahead(self, state: State, current: Int) -> State:
        """`not_ahead`."""
        if not state.counts:
            return State(least(state.newest, current), state.counts)
        ahead = state.newest > current
        if isinstance(ahead, bool):
            return self.move_back(state, current) if ahead else state
        moved = self.move_back(state, current)
        counts = [choose(ahead, after, before) for after, before in zip(moved.counts, state.counts, strict=True)]
        return State(choose(ahead, current, state.newest), counts)

    def inside(self, oldest: Int, elapsed: Int) -> Int:
        """`inside`."""
        return ceil_div(oldest * (self.width - elapsed), self.width)

    def used(self, state: State, now_us: Int) -> Int:
        """`used`."""
        current, elapsed = self.position(now_us)
        *newer, oldest = self.by_age(self.not_ahead(state, current), current)
        return sum(newer) + self.inside(oldest, elapsed)

    def bring(self, state: State, current: Int) -> State:
        """`bring`."""
        if not state.counts:
            return State(current, [0] * (self.buckets + 1))
        return State(current, self.by_age(self.not_ahead(state, current), current))

    def remaining(self, state: State, now_us: Int) -> Int:
        """`remaining`."""
        return minus(self.capacity, self.used(state, now_us))

    def room(self, state: State, now_us: Int) -> Int:
        """`room`."""
        return minus(self.saturated, self.used(state, now_us))

    def spend(self, state: State, now_us: Int, units: Int) -> State:
        """`spend`."""
        newest, counts = self.bring(state, self.position(now_us)[0])
        return State(newest, [counts[0] + units, *counts[1:]])

    def refund(self, state: State, now_us: Int, units: Int) -> State:
        """`refund`."""
        if not state.counts:
            return state
        newest, counts = self.bring(state, self.position(now_us)[0])
        left, kept = units, []
        for count in counts:
            given_back = least(left, count)
            kept.append(count - given_back)
            left = left - given_back
        return State(newest, kept)

    def rewind(self, state: State, now_us: Int) -> State:
        """`rewind`."""
        return self.not_ahead(state, self.position(now_us)[0])

    def retry_after_us(self, state: State, now_us: int, cost: int) -> int:
        """`retry_after_us`, for integers: `Walk.wait_us` is what it computes of the sub-window at which it stops."""
        current, _ = self.position(now_us)
        state = self.not_ahead(state, current)
        target, newer = self.capacity - cost, 0
        for age, count in enumerate(self.by_age(state, current)):
            if newer + count > target:
                elapsed = self.width - (target - newer) * self.width // count
                return ((current + self.buckets - age) * self.width + elapsed) * self.tick_us - now_us
            newer += count
        return 0

    def reset_after_us(self, state: State, now_us: int) -> int:
        """`reset_after_us`, for integers."""
        current, _ = self.position(now_us)
        for age, count in enumerate(self.by_age(self.not_ahead(state, current), current)):
            if count > 0:
                return (current + self.buckets - age + 1) * self.width * self.tick_us - now_us
        return 0


@dataclass
class Walk:
    """A state that is not ahead of the clock, at the time of a call: `count(age)` units are in the sub-window of each
    age, and the newest `n` have `newest(n)` units.
    """

    capacity: z3.ArithRef
    buckets: z3.ArithRef
    width: z3.ArithRef
    tick_us: z3.ArithRef

    count = z3.Function("count", z3.IntSort(), z3.IntSort())
    newest = z3.Function("newest", z3.IntSort(), z3.IntSort())

    def inside(self, oldest: Int, elapsed: Int) -> Int:
        """`inside`."""
        return ceil_div(oldest * (self.width - elapsed), self.width)

    def used(self, later: Int, elapsed: Int) -> Int:
        """`used`, this many sub-windows later, when nothing else has arrived: each age has grown by as many."""
        oldest = self.buckets - later
        return choose(oldest < 0, 0, self.newest(oldest) + self.inside(self.count(oldest), elapsed))

    def slides(self, target: Int, newer: Int, count: Int) -> Int:
        """`retry_after_us`: how many ticks of the sub-window have to slide out."""
        return self.width - floor_div((target - newer) * self.width, count)

    def sums(self, *ages: Int) -> list[Bool]:
        """What is known of the sums."""
        known: list[Bool] = []
        for age in ages:
            known.append(self.newest(age + 1) == self.newest(age) + self.count(age))
            known.append(z3.And(self.count(age) >= 0, self.count(age) <= 8 * self.capacity))
            known.append(z3.Implies(age >= 0, self.newest(age) >= 0))
        return [*known, self.newest(0) == 0]


W = TypeVar("W", bound=Walk)


def walk(model: type[W]) -> tuple[W, Claim]:
    """Any sliding window: `8 * capacity * width <= 2^53` is what `tick::of_sliding_window` has found a tick for."""
    capacity, buckets, width, tick_us = z3.Ints("capacity buckets width tick_us")
    claim = Claim()
    claim.assume(capacity >= 1, capacity <= 2 * MAX_UNITS, buckets >= 1, buckets <= 60, width >= 1, tick_us >= 1)
    claim.assume(8 * (capacity * width) <= EXACT)
    return model(capacity, buckets, width, tick_us), claim


class SlidesTooFar(Walk):
    """Rounds the part that may stay down once more."""

    def slides(self, target: Int, newer: Int, count: Int) -> Int:
        return self.width - ceil_div((target - newer) * self.width, count)


class SlidesATickMore(Walk):
    """Waits a tick too long."""

    def slides(self, target: Int, newer: Int, count: Int) -> Int:
        return super().slides(target, newer, count) + 1


class RoundsInsideDown(Walk):
    """Rounds down what is inside."""

    def inside(self, oldest: Int, elapsed: Int) -> Int:
        return floor_div(oldest * (self.width - elapsed), self.width)


@theorem(Walk, SlidesTooFar, SlidesATickMore, RoundsInsideDown)
def retry_after_is_the_first_moment(model: type[Walk]) -> Claim:
    """Where the walk stops, the request fits in that tick, and not in the tick before, which is not before the call."""
    window, claim = walk(model)
    target, age, elapsed = z3.Ints("target age elapsed")
    claim.assume(
        target >= 0, target < window.capacity, age >= 0, age <= window.buckets, elapsed >= 0, elapsed < window.width
    )
    claim.assume(*window.sums(age - 1, age, window.buckets))
    newer, count = window.newest(age), window.count(age)
    # The walk stops at the first age with these units; it does stop, because the request is denied now.
    claim.assume(newer <= target, newer + count > target, window.used(0, elapsed) > target)
    slides, later = window.slides(target, newer, count), window.buckets - age
    kept = floor_div((target - newer) * window.width, count)
    claim.use(product_grows, window.width, target - newer + 1, count)
    claim.use(product_grows, count, kept + 1, window.width)
    claim.use(product_grows, window.width, 0, target - newer)
    claim.step("it slides", z3.And(slides >= 1, slides <= window.width))
    at = choose(slides == window.width, window.used(later + 1, 0), window.used(later, slides))
    inside = window.inside(count, slides)
    claim.use(product_grows, window.width, target - newer + 1, inside)
    # With nothing left in it the next sub-window has begun, and the one before slides in full.
    next_inside = window.inside(window.count(age - 1), 0)
    claim.use(one_quotient, next_inside, window.count(age - 1), window.width)
    claim.goal("fits then", at <= target)
    before = window.inside(count, slides - 1)
    claim.use(product_grows, window.width, before, target - newer)
    claim.use(product_grows, count, elapsed, slides - 1)
    claim.goal("does not fit a tick before", window.used(later, slides - 1) > target)
    inside_now = window.inside(window.count(window.buckets), elapsed)
    claim.use(product_grows, count, slides, elapsed)
    claim.use(product_grows, window.width, target - newer + 1, inside_now)
    claim.goal("not before now", z3.Implies(later == 0, slides > elapsed))
    return claim


@theorem(Walk, RoundsInsideDown)
def reset_after_is_the_first_moment(model: type[Walk]) -> Claim:
    """When the newest sub-window with units has slid out, nothing is in use, and in the tick before something is."""
    window, claim = walk(model)
    age = z3.Int("age")
    claim.assume(
        age >= 0, age <= window.buckets, *window.sums(age - 1, age), window.newest(age) == 0, window.count(age) > 0
    )
    later = window.buckets - age
    claim.assume(z3.Implies(age > 0, z3.And(window.newest(age - 1) == 0, window.count(age - 1) == 0)))
    claim.use(product_grows, window.width, window.inside(window.count(age), window.width - 1), 0)
    claim.goal("unused then", window.used(later + 1, 0) == 0)
    claim.goal("used a tick before", window.used(later, window.width - 1) > 0)
    return claim


class Grows(Walk):
    """Counts the part that has slid out."""

    def inside(self, oldest: Int, elapsed: Int) -> Int:
        return ceil_div(oldest * elapsed, self.width)


@theorem(Walk, Grows)
def time_only_helps(model: type[Walk]) -> Claim:
    """What is in use never grows when nothing arrives: from a tick to a later one of the same sub-window, and to the
    next one.
    """
    window, claim = walk(model)
    later, elapsed, more = z3.Ints("later elapsed more")
    claim.assume(later >= 0, elapsed >= 0, elapsed <= more, more < window.width)
    oldest = window.buckets - later
    claim.assume(*window.sums(oldest, oldest - 1))
    count, before = window.count(oldest), window.count(oldest - 1)
    claim.use(product_grows, count, window.width - more, window.width - elapsed)
    first, second = window.inside(count, elapsed), window.inside(count, more)
    claim.use(product_grows, window.width, first + 1, second)
    claim.use(product_grows, window.width, first + 1, 0)
    claim.use(product_grows, count, 0, window.width - elapsed)
    claim.use(one_quotient, window.inside(before, 0), before, window.width)
    claim.goal("in a sub-window", window.used(later, more) <= window.used(later, elapsed))
    claim.goal("into the next", window.used(later + 1, 0) <= window.used(later, elapsed))
    return claim


class Numbered(Walk):
    """A window with the numbers of its sub-windows."""

    def number(self, us: Int) -> Int:
        """`position`: the number of the sub-window."""
        return floor_div(floor_div(us, self.tick_us), self.width)


class NumberedByHalves(Numbered):
    """Sub-windows of half the width."""

    def number(self, us: Int) -> Int:
        return floor_div(floor_div(us, self.tick_us) * 2, self.width)


@theorem(Numbered, NumberedByHalves)
def a_span_touches_few_windows(model: type[Numbered]) -> Claim:
    """Two moments in a span of k sub-windows are in sub-windows whose numbers differ by at most k."""
    window, claim = walk(model)
    first, apart, spans = z3.Ints("first apart spans")
    claim.assume(first >= 0, apart >= 0, spans >= 0, apart < spans * window.width * window.tick_us)
    ticks, later_ticks = floor_div(first, window.tick_us), floor_div(first + apart, window.tick_us)
    claim.use(product_grows, window.tick_us, ticks + spans * window.width + 1, later_ticks)
    claim.step("ticks", later_ticks <= ticks + spans * window.width)
    number, later = window.number(first), window.number(first + apart)
    claim.use(product_grows, window.width, number + spans + 1, later)
    claim.goal("sub-windows", later - number <= spans)
    return claim


class Admitting(Walk):
    """A window that admits."""

    def admits(self, used: Int, cost: Int) -> Bool:
        """`admit`, as `Rules` has it: `cost <= capacity - used`."""
        return cost <= minus(self.capacity, used)


class AdmitsTheWhole(Admitting):
    """Leaves out what is sliding out."""

    def inside(self, oldest: Int, elapsed: Int) -> Int:
        del oldest, elapsed
        return 0


class AdmitsBeyond(Admitting):
    """Compares with one unit more."""

    def admits(self, used: Int, cost: Int) -> Bool:
        return cost <= minus(self.capacity + 1, used)


@theorem(Admitting, AdmitsBeyond)
def the_bound_holds(model: type[Admitting]) -> Claim:
    """A span of P - P/n admits at most the capacity: at its last admission, all sub-windows that it touches are among
    the newest n (`a_span_touches_few_windows`), whose counts have at least the units that were admitted since it
    began.
    """
    window, claim = walk(model)
    elapsed, cost, admitted, oldest_touched = z3.Ints("elapsed cost admitted oldest_touched")
    claim.assume(elapsed >= 0, elapsed < window.width, cost >= 1, *window.sums(window.buckets))
    claim.assume(oldest_touched >= 0, oldest_touched <= window.buckets - 1)
    # Before the last admission, by `the_admitted_units_are_counted`, in the sub-windows that the span touches.
    claim.assume(admitted >= 0, admitted <= window.newest(oldest_touched + 1))
    claim.assume(window.newest(oldest_touched + 1) <= window.newest(window.buckets))
    claim.assume(window.admits(window.used(0, elapsed), cost))
    claim.use(product_grows, window.count(window.buckets), 0, window.width - elapsed)
    claim.use(product_grows, window.width, window.inside(window.count(window.buckets), elapsed) + 1, 0)
    claim.goal("the bound", admitted + cost <= window.capacity)
    return claim


@theorem(Admitting, AdmitsBeyond, AdmitsTheWhole)
def the_bound_of_a_period_holds(model: type[Admitting]) -> Claim:
    """A span of P admits less than twice the capacity: at its last admission, it touches the newest n sub-windows and
    the one that is sliding out, of which at least one unit still counts if it has any.
    """
    window, claim = walk(model)
    elapsed, cost, newer, older = z3.Ints("elapsed cost newer older")
    claim.assume(elapsed >= 0, elapsed < window.width, cost >= 1, *window.sums(window.buckets))
    oldest = window.count(window.buckets)
    claim.assume(newer >= 0, newer <= window.newest(window.buckets), older >= 0, older <= oldest)
    # What the sub-window that is sliding out has admitted, by `the_admitted_units_are_counted`.
    claim.assume(older <= window.capacity)
    claim.assume(window.admits(window.used(0, elapsed), cost))
    claim.use(product_grows, oldest, 1, window.width - elapsed)
    claim.use(product_grows, window.width, window.inside(oldest, elapsed), 0)
    claim.goal("the bound", newer + cost + older < 2 * window.capacity)
    return claim


class MultipliesTicks(Walk):
    """Multiplies by the width in microseconds."""

    def inside(self, oldest: Int, elapsed: Int) -> Int:
        return ceil_div(self.product(oldest, elapsed), self.width)

    def product(self, oldest: Int, elapsed: Int) -> Int:
        return oldest * ((self.width - elapsed) * self.tick_us)


class Multiplies(Walk):
    """A window with its largest product."""

    def product(self, oldest: Int, elapsed: Int) -> Int:
        """`inside`: the product."""
        return oldest * (self.width - elapsed)


@theorem(Multiplies, MultipliesTicks)
def nothing_overflows(model: type[Multiplies]) -> Claim:
    """Every product of a count is at most 2^53, every sum of counts as well, and every time fits 64 bits."""
    window, claim = walk(model)
    count, elapsed, target, newer, current, now_us, age = z3.Ints("count elapsed target newer current now_us age")
    claim.assume(count >= 0, count <= 8 * window.capacity, elapsed >= 0, elapsed < window.width)
    claim.use(product_grows, count, window.width - elapsed, window.width)
    claim.use(product_grows, window.width, count, 8 * window.capacity)
    claim.goal("`inside`", window.product(count, elapsed) <= EXACT)
    claim.assume(newer >= 0, newer <= target, target < window.capacity)
    claim.use(product_grows, window.width, target - newer, window.capacity)
    claim.goal("`retry_after_us`", (target - newer) * window.width <= EXACT)
    claim.use(product_grows, 8 * window.capacity, window.buckets, 60)
    claim.goal("`used`", (window.buckets + 1) * (8 * window.capacity) <= EXACT)
    # The period is at most 366 days.
    ticks = window.width * window.tick_us
    claim.assume(window.buckets * ticks <= 366 * 86_400 * 10**6, now_us >= 0, now_us <= MAX_US)
    claim.assume(current >= 0, current * ticks <= now_us, age >= 0, age <= window.buckets)
    claim.use(product_grows, ticks, window.buckets - age + 1, window.buckets + 1)
    claim.use(product_grows, ticks, 1, window.buckets)
    claim.goal("times", (current + window.buckets - age + 1) * ticks < U64)
    return claim


# Theorems about the model of the code itself, for one to four sub-windows.


def states(model: type[SlidingWindow], buckets: int) -> tuple[SlidingWindow, Claim, State, z3.ArithRef, z3.ArithRef]:
    """Any state, and a position of the clock."""
    capacity, width, newest, current, elapsed = z3.Ints("capacity width newest current elapsed")
    counts = z3.Ints(" ".join(f"count{age}" for age in range(buckets + 1)))
    claim = Claim()
    claim.assume(capacity >= 1, capacity <= 2 * MAX_UNITS, width >= 1, 8 * (capacity * width) <= EXACT)
    claim.assume(newest >= 0, current >= 0, newest <= MAX_US, current <= MAX_US, elapsed >= 0, elapsed < width)
    for age, count in enumerate(counts):
        # A sub-window before the epoch was never written.
        claim.assume(count >= 0, count <= 8 * capacity, z3.Implies(newest < age, count == 0))
    return model(capacity, buckets, width, 1), claim, State(newest, counts), current, elapsed


class KeepsTheSlidOut(SlidingWindow):
    """Brings a state too few sub-windows forward."""

    def by_age(self, state: State, current: Int) -> list[Int]:
        return super().by_age(State(state.newest, state.counts), choose(current > state.newest, current - 1, current))


class DropsWhatIsAhead(SlidingWindow):
    """Drops the units that are ahead of the clock."""

    def move_back(self, state: State, current: Int) -> State:
        newest, counts = super().move_back(state, current)
        return State(newest, [state.counts[0], *counts[1:]])


class SpendsInTheOldest(SlidingWindow):
    """Counts new units in the sub-window that is sliding out."""

    def spend(self, state: State, now_us: Int, units: Int) -> State:
        newest, counts = super().spend(state, now_us, 0)
        return State(newest, [*counts[:-1], counts[-1] + units])


class DropsTheOldest(SlidingWindow):
    """Forgets what is sliding out as soon as the state is read."""

    def bring(self, state: State, current: Int) -> State:
        newest, counts = super().bring(state, current)
        return State(newest, [*counts[:-1], 0])


@theorem(SlidingWindow, DropsTheOldest)
def the_admitted_units_are_counted(model: type[SlidingWindow]) -> Claim:
    """For one to four sub-windows, by induction over any sequence of checks, takes, charges and denials at times that
    do not go back: no sub-window has admitted more units than it counts, nor more than the capacity.
    """
    whole = Claim()
    for buckets in range(1, 5):
        window, claim, state, _, elapsed = states(model, buckets)
        admitted = z3.Ints(" ".join(f"admitted{age}" for age in range(buckets + 1)))
        units, charged, later = z3.Ints("units charged later")
        whole.assume(*claim.assumed, units >= 0, charged >= 0, later >= 0)
        for own, count in zip(admitted, state.counts, strict=True):
            whole.assume(own >= 0, own <= count, own <= window.capacity)
        brought = window.bring(state, state.newest + later)
        # The ghosts move with their sub-windows.
        moved = window.by_age(State(state.newest, admitted), state.newest + later)
        inside = window.inside(brought.counts[-1], elapsed)
        whole.use(product_grows, brought.counts[-1], 0, window.width - elapsed)
        whole.use(product_grows, window.width, inside + 1, 0)
        fits = sum_of(brought.counts[:-1]) + inside + units <= window.capacity
        first = both(moved[0] + units <= brought.counts[0] + units, moved[0] + units <= window.capacity)
        whole.goal(f"{buckets}, admission", z3.Implies(fits, first))
        whole.goal(f"{buckets}, charge", moved[0] <= brought.counts[0] + charged)
        for own, count in zip(moved, brought.counts, strict=True):
            whole.goal(f"{buckets}, the others", both(own >= 0, own <= count, own <= window.capacity))
    return whole


class RefundsTwice(SlidingWindow):
    """Gives back the units of each sub-window."""

    def refund(self, state: State, now_us: Int, units: Int) -> State:
        newest, counts = self.bring(state, self.position(now_us)[0])
        return State(newest, [minus(count, 2 * units) for count in counts])


def sum_of(counts: Sequence[Int]) -> Int:
    """Their sum, as a term."""
    total: Int = 0
    for count in counts:
        total = total + count
    return total


@theorem(SlidingWindow, KeepsTheSlidOut)
def the_models_agree(model: type[SlidingWindow]) -> Claim:
    """For one to four sub-windows, what the code counts some sub-windows after the newest one is what `Walk.used`
    says.
    """
    whole = Claim()
    for buckets in range(1, 5):
        window, claim, state, _, elapsed = states(model, buckets)
        whole.assume(*claim.assumed)
        for later in range(buckets + 2):
            ages = window.by_age(state, state.newest + later)
            oldest = buckets - later
            full = sum_of(state.counts[:oldest]) if oldest > 0 else 0
            sliding = state.counts[oldest] if oldest >= 0 else 0
            whole.goal(f"{buckets}, full, {later} later", sum_of(ages[:-1]) == full)
            whole.goal(f"{buckets}, sliding, {later} later", ages[-1] == sliding)
            # Bringing the state and reading it later gives the same.
            brought = window.bring(state, state.newest + later)
            again = window.by_age(brought, state.newest + later)
            whole.goal(f"{buckets}, brought", both(*(a == b for a, b in zip(ages, again, strict=True))))
        del elapsed
    return whole


class BringsWhenDenied(SlidingWindow):
    """Writes the state of a denied request."""

    def rewind(self, state: State, now_us: Int) -> State:
        return self.bring(state, self.position(now_us)[0])


@theorem(SlidingWindow, BringsWhenDenied)
def a_denial_changes_nothing(model: type[SlidingWindow]) -> Claim:
    """For one to four sub-windows, a denied request leaves the state as it was, unless the clock went back."""
    whole = Claim()
    for buckets in range(1, 5):
        window, claim, state, current, elapsed = states(model, buckets)
        now_us = current * window.width + elapsed
        whole.assume(*claim.assumed, state.newest <= window.position(now_us)[0])
        after = window.rewind(state, now_us)
        same = both(*(a == b for a, b in zip(after.counts, state.counts, strict=True)))
        whole.goal(f"{buckets}, nothing changes", both(after.newest == state.newest, same))
    return whole


@theorem(SlidingWindow, DropsWhatIsAhead)
def a_clock_that_went_back_refills_nothing(model: type[SlidingWindow]) -> Claim:
    """For one to four sub-windows: all units of a state that is moved back count in full, up to saturation, and no
    sub-window has more than 8 times the capacity.
    """
    whole = Claim()
    for buckets in range(1, 5):
        window, claim, state, current, _ = states(model, buckets)
        whole.assume(*claim.assumed, current < state.newest)
        moved = window.move_back(state, current)
        before, after = sum_of(state.counts), sum_of(moved.counts[:-1])
        whole.goal(f"{buckets}, nothing is refilled", z3.Or(after >= before, moved.counts[0] == 8 * window.capacity))
        whole.goal(
            f"{buckets}, valid", both(*(both(count >= 0, count <= 8 * window.capacity) for count in moved.counts))
        )
        whole.goal(f"{buckets}, not ahead", moved.newest == current)
    return whole


@theorem(SlidingWindow, SpendsInTheOldest)
def an_admission_stays_within_the_capacity(model: type[SlidingWindow]) -> Claim:
    """For one to four sub-windows: spending adds exactly the cost to what is in use, so a check that is admitted
    leaves at most the capacity, a charge within its room at most 8 times the capacity, and a lower cost is admitted
    wherever a higher one is.
    """
    whole = Claim()
    for buckets in range(1, 5):
        window, claim, state, current, elapsed = states(model, buckets)
        cost = z3.Int("cost")
        whole.assume(*claim.assumed, cost >= 0)
        now_us = current * window.width + elapsed
        whole.use(one_quotient, window.position(now_us)[0], current, window.width)
        after = window.spend(state, now_us, cost)
        ages = window.by_age(window.not_ahead(state, window.position(now_us)[0]), window.position(now_us)[0])
        whole.goal(f"{buckets}, the newest", after.counts[0] == ages[0] + cost)
        whole.goal(f"{buckets}, the others", both(*(a == b for a, b in zip(after.counts[1:], ages[1:], strict=True))))
        inside = window.inside(ages[-1], now_us - window.position(now_us)[0] * window.width)
        whole.use(product_grows, ages[-1], 0, window.width - elapsed)
        whole.use(product_grows, window.width, inside + 1, 0)
        used, later = window.used(state, now_us), window.used(after, now_us)
        again = window.by_age(window.not_ahead(after, window.position(now_us)[0]), window.position(now_us)[0])
        whole.use(
            one_quotient,
            inside,
            window.inside(again[-1], now_us - window.position(now_us)[0] * window.width),
            window.width,
        )
        whole.step(f"{buckets}, the same slides out", again[-1] == least(ages[-1], window.saturated))
        fits = cost <= window.remaining(state, now_us)
        whole.goal(f"{buckets}, what is in use", z3.Implies(fits, later == used + cost))
        whole.goal(f"{buckets}, admission", z3.Implies(both(fits, cost >= 1), later <= window.capacity))
        in_room = cost <= window.room(state, now_us)
        whole.goal(f"{buckets}, room", z3.Implies(in_room, after.counts[0] <= 8 * window.capacity))
    return whole


@theorem(SlidingWindow, RefundsTwice)
def a_refund_gives_back_the_newest(model: type[SlidingWindow]) -> Claim:
    """For one to four sub-windows: a refund gives back as many units as it says, or all, and from a sub-window only
    when all newer ones are empty.
    """
    whole = Claim()
    for buckets in range(1, 5):
        window, claim, state, current, elapsed = states(model, buckets)
        units = z3.Int("units")
        whole.assume(*claim.assumed, units >= 0)
        now_us = current * window.width + elapsed
        before = window.bring(state, window.position(now_us)[0]).counts
        after = window.refund(state, now_us, units).counts
        total = sum_of(before)
        whole.goal(f"{buckets}, as many", sum_of(after) == minus(total, units))
        whole.goal(f"{buckets}, valid", both(*(both(a >= 0, a <= b) for a, b in zip(after, before, strict=True))))
        for age in range(1, buckets + 1):
            emptied = both(*(count == 0 for count in after[:age]))
            whole.goal(f"{buckets}, newest first, {age}", z3.Implies(after[age] < before[age], emptied))
    return whole
