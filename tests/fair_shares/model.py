"""The meaning of groups that share a policy: docs/internals/fair-shares.md in executable form, in integers throughout.

It is written for reading, not for speed: every state is brought to the present by the formulas, and every wait is found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import lcm

NEVER = None
SATURATION = 8
MAX_EXACT = 1 << 53
MAX_TAG = 1 << 45
MAX_US = MAX_EXACT - 1
CLAIM_US = 1_000_000
MAX_RESERVATIONS = 1_000


def ceil_div(number: int, divisor: int) -> int:
    return -(-number // divisor)


@dataclass(frozen=True)
class Group:
    """One line of the table `groups`: percentages of every quota of the policy."""

    weight: int = 1
    minimum: int = 0
    maximum: int = 100


@dataclass
class Waiting:
    """What a group that was denied waits for, and its place in the order of those that borrow."""

    tag: int = 0
    claim: int = 0
    until: int = 0


@dataclass
class Debts(Waiting):
    """A group's part of the state of a bucket, in units times ticks."""

    own: int = 0
    top: int = 0


@dataclass
class Reservation:
    """Units of a group that are set aside."""

    group: int
    units: int
    ends: int
    ttl: int


def scale_of(groups: list[Group]) -> int:
    """What one unit moves a group of weight 1 back in the order: divisible by every weight."""
    return lcm(*(group.weight for group in groups))


class Bucket:
    """A token bucket whose groups have minimums, weights and maximums."""

    def __init__(self, limit: int, period_us: int, burst: int, groups: list[Group]) -> None:
        self.limit, self.burst, self.groups = limit, burst, groups
        self.period_us = period_us
        self.tick = 1
        while 2 * SATURATION * burst * (period_us // self.tick) > MAX_EXACT:
            self.tick *= 10
            assert period_us % self.tick == 0, "it cannot be counted exactly"
        self.unit = period_us // self.tick
        self.rates = [limit * group.minimum // 100 for group in groups]
        self.bursts = [max(1, burst * group.minimum // 200) if rate else 0 for group, rate in zip(groups, self.rates, strict=True)]
        self.top_rates = [limit * group.maximum // 100 if group.maximum < 100 else 0 for group in groups]
        self.top_bursts = [
            max(1, burst * group.maximum // 100) if rate else burst for group, rate in zip(groups, self.top_rates, strict=True)
        ]
        self.lent = burst - sum(self.bursts)
        assert self.lent >= 1
        self.scale = scale_of(groups)
        assert self.scale * burst <= MAX_TAG
        self.at, self.borrowed = 0, 0
        self.states = [Debts() for _ in groups]

    def copy(self) -> Bucket:
        other = object.__new__(Bucket)
        other.__dict__.update(self.__dict__)
        other.states = [Debts(**vars(state)) for state in self.states]
        return other

    def capacity(self, group: int) -> int:
        return min(self.bursts[group] + self.lent, self.top_bursts[group])

    # Time

    def bring(self, now: int) -> None:
        """Repays what the time since the last write repays; a clock that went back repays nothing."""
        ticks = now // self.tick
        passed = max(0, ticks - self.at)
        self.at = ticks
        repaid = 0
        for rate, top_rate, state in zip(self.rates, self.top_rates, self.states, strict=True):
            own = min(state.own, rate * passed)
            state.own -= own
            repaid += own
            state.top = max(0, state.top - top_rate * passed)
            state.until = min(state.until, now + self.claim_us(state.claim))
            if state.until <= now:
                state.claim, state.until = 0, 0
        self.borrowed = max(0, self.borrowed - (self.limit * passed - repaid))
        if not self.borrowed and all(not (state.own or state.top or state.until > now) for state in self.states):
            self.states = [Debts() for _ in self.groups]

    def claim_us(self, units: int) -> int:
        """How long a claim of these units holds: until they are refilled, and a second more to come back for them."""
        return CLAIM_US + ceil_div(units * self.unit, self.limit) * self.tick

    # What is left; the state is at the present

    def own_left(self, group: int) -> int:
        return max(0, self.bursts[group] * self.unit - self.states[group].own) // self.unit

    def left(self, group: int, now: int) -> int:
        lent = max(0, (self.lent * self.unit - self.borrowed) // self.unit - self.ahead(group, now))
        top = max(0, self.top_bursts[group] * self.unit - self.states[group].top) // self.unit if self.top_rates[group] else self.burst
        return min(self.own_left(group) + lent, top, self.capacity(group))

    def ahead(self, group: int, now: int) -> int:
        """The units that are kept for groups that wait and are before this one in the order."""
        tag, total = self.states[group].tag, 0
        for other, state in zip(self.groups, self.states, strict=True):
            if state.until > now and state.tag < tag:
                behind = (tag - state.tag) * other.weight // self.scale
                total += max(state.claim, min(behind, self.lent // (2 * len(self.groups))))
        return total

    # Changes; the state is at the present

    def debit(self, group: int, units: int) -> int:
        """Adds units to what is used: to the group's own, and what does not fit there to what is borrowed. Returns the latter."""
        state = self.states[group]
        own = min(units, self.own_left(group))
        most = max(0, SATURATION * self.burst * self.unit - self.borrowed) // self.unit
        borrowed = min(units - own, most)
        state.own += own * self.unit
        self.borrowed += borrowed * self.unit
        if self.top_rates[group]:
            state.top = min(state.top + (own + borrowed) * self.unit, SATURATION * self.burst * self.unit)
        return borrowed

    def serve(self, group: int, borrowed: int, now: int) -> None:
        """The group has got what it asked for: it waits no more, and what it borrowed moves it back in the order."""
        state = self.states[group]
        state.claim = 0
        state.until = min(state.until, now + CLAIM_US)
        if not borrowed:
            return
        start = state.tag
        state.tag += borrowed * (self.scale // self.groups[group].weight)
        # Tags count from the place in the order that was served last.
        for other in self.states:
            if start > 0:
                other.tag -= start
            if other is not state and other.until <= now:
                other.tag = max(other.tag, 0)
            other.tag = max(-MAX_TAG, min(other.tag, MAX_TAG))

    def wait(self, group: int, units: int, now: int) -> None:
        """The group was denied these units."""
        state = self.states[group]
        top = self.top_bursts[group] * self.unit - state.top
        if self.top_rates[group] and units * self.unit > top:
            return
        state.claim = max(0, units - self.own_left(group))
        state.until = now + self.claim_us(state.claim)

    def refund(self, group: int, units: int) -> None:
        """Gives back to the group's own first, then to what is lent."""
        state = self.states[group]
        units *= self.unit
        state.top = max(0, state.top - units)
        own = min(units, state.own)
        state.own -= own
        self.borrowed = max(0, self.borrowed - (units - own))

    def is_ahead(self, now: int) -> bool:
        return self.at > now // self.tick or any(state.until > now + self.claim_us(state.claim) for state in self.states)

    def used_until(self) -> int:
        """The ticks until nothing counts as used, if nothing else arrives."""
        low, high = 0, 1
        while not self.is_unused(high):
            high *= 2
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.is_unused(middle) else (middle + 1, high)
        return low

    def is_unused(self, passed: int) -> bool:
        repaid = sum(min(state.own, rate * passed) for rate, state in zip(self.rates, self.states, strict=True))
        own = all(state.own <= rate * passed for rate, state in zip(self.rates, self.states, strict=True))
        tops = all(state.top <= rate * passed for rate, state in zip(self.top_rates, self.states, strict=True))
        return own and tops and self.borrowed <= self.limit * passed - repaid


class Slots:
    """A quota of concurrency whose groups have minimums, weights and maximums."""

    def __init__(self, limit: int, groups: list[Group]) -> None:
        self.limit, self.groups = min(limit, MAX_RESERVATIONS), groups
        self.minimums = [self.limit * group.minimum // 100 for group in groups]
        self.kept = [minimum // 2 for minimum in self.minimums]
        self.maximums = [max(1, self.limit * group.maximum // 100) for group in groups]
        self.scale = scale_of(groups)
        self.states = [Waiting() for _ in groups]

    def bring(self, now: int) -> None:
        """Forgets claims that have ended; one holds no longer from now than when it was made."""
        for state in self.states:
            state.until = min(state.until, now + CLAIM_US)
            if state.until <= now:
                state.claim, state.until = 0, 0

    def capacity(self, group: int) -> int:
        return min(self.limit - sum(self.kept) + self.kept[group], self.maximums[group])

    def left(self, group: int, alive: list[int], now: int) -> int:
        def tag(at: int) -> int:
            return (alive[at] - self.minimums[at]) * (self.scale // self.groups[at].weight)

        free = self.limit - sum(alive)
        kept, ahead = 0, 0
        for other, state in enumerate(self.states):
            if other != group and alive[other] < self.kept[other]:
                kept += self.kept[other] - alive[other]
            elif other != group and state.until > now and tag(other) < tag(group):
                ahead += state.claim
        left = max(min(self.kept[group] - alive[group], free), free - kept - ahead)
        return max(0, min(left, self.maximums[group] - alive[group]))


class Policy:
    """A key of a policy with groups: a bucket, a quota of concurrency, or both, and the reservations."""

    def __init__(self, groups: list[Group], bucket: tuple[int, int, int] | None, slots: int | None) -> None:
        self.groups = groups
        self.bucket = Bucket(*bucket, groups) if bucket else None
        self.slots = Slots(slots, groups) if slots is not None else None
        self.reservations: dict[str, Reservation] = {}

    # What is left at some time; what is reserved counts as used

    def held(self, now: int) -> tuple[list[int], list[int]]:
        """The units and the number of the reservations of each group."""
        units, alive = [0] * len(self.groups), [0] * len(self.groups)
        for one in self.reservations.values():
            if min(one.ends, now + one.ttl) > now:
                units[one.group] += one.units
                alive[one.group] += 1
        return units, alive

    def seen(self, now: int) -> Bucket:
        """The bucket as it is seen at some time."""
        assert self.bucket
        bucket = self.bucket.copy()
        bucket.bring(now)
        for group, units in enumerate(self.held(now)[0]):
            bucket.debit(group, units)
        return bucket

    def units_left(self, group: int, now: int) -> int:
        return self.seen(now).left(group, now) if self.bucket else MAX_EXACT

    def slots_left(self, group: int, now: int) -> int:
        alive = self.held(now)[1]
        return self.slots.left(group, alive, now) if self.slots else MAX_RESERVATIONS - sum(alive)

    # Operations

    def decide(self, op: str, now: int, group: int, cost: int = 1, headroom: int = 0, name: str = "", ttl: int = 0) -> dict[str, object]:
        """check, peek or reserve."""
        if op != "peek":
            self.rewind(now)
        known = op == "reserve" and name in self.reservations and self.reservations[name].ends > now
        needs_slot = op == "reserve" or (op == "peek" and self.slots is not None)
        kept = ceil_div(self.bucket.capacity(group) * headroom, 100) if self.bucket else 0
        most = self.slots.capacity(group) if self.slots else MAX_RESERVATIONS
        kept_slots = ceil_div(most * headroom, 100)

        def has_units(at: int) -> bool:
            return cost == 0 or cost + kept <= self.units_left(group, at)

        def has_slot(at: int) -> bool:
            return not needs_slot or 1 + kept_slots <= self.slots_left(group, at)

        allowed = known or (has_units(now) and has_slot(now))
        never = (cost > 0 and self.bucket is not None and cost + kept > self.bucket.capacity(group)) or (needs_slot and kept_slots >= most)
        if op == "check" and allowed and cost:
            self.bring(now)
            self.spend(group, cost, now)
        elif op == "reserve" and allowed and not known:
            self.bring(now)
            if self.bucket and cost:
                self.bucket.serve(group, self.seen(now).debit(group, cost), now)
            if self.slots:
                state = self.slots.states[group]
                state.claim, state.until = 0, 0
            self.reservations[name] = Reservation(group, cost, min(now + ttl, MAX_US), ttl)
        elif op != "peek" and not allowed and not never:
            if not has_units(now):
                self.wait(group, cost, now)
            elif not has_slot(now) and self.slots:
                self.slots.bring(now)
                self.slots.states[group] = Waiting(0, 1, now + CLAIM_US)
        retry: int | None = 0
        if not allowed:
            retry = NEVER if never else self.first(now, lambda at: has_units(at) and has_slot(at))
        return {
            "allowed": bool(allowed),
            "remaining": self.remaining(group, now, kept, kept_slots),
            "retry_after_us": retry,
            "reset_after_us": self.reset_after(now),
        }

    def change(self, op: str, now: int, group: int, cost: int | None = 1, name: str = "", ttl: int = 0) -> dict[str, object]:
        """take, charge, refund, commit, cancel or renew."""
        answer: dict[str, object] = {}
        self.rewind(now)
        if op == "take":
            answer["taken"] = taken = min(cost or 0, self.units_left(group, now))
            if taken:
                self.bring(now)
                self.spend(group, taken, now)
        elif op in ("charge", "refund") and cost:
            self.bring(now)
            assert self.bucket
            if op == "charge":
                self.spend(group, cost, now)
            else:
                self.bucket.refund(group, cost)
        elif op in ("commit", "cancel", "renew"):
            self.bring(now)
            found = self.reservations.get(name)
            answer["found"] = found is not None
            if found and op == "renew":
                found.ends, found.ttl = min(now + ttl, MAX_US), ttl
            elif found:
                del self.reservations[name]
                if op == "commit" and self.bucket:
                    self.bucket.debit(found.group, found.units if cost is None else cost)
        return answer | {"remaining": self.remaining(group, now, 0, 0), "reset_after_us": self.reset_after(now)}

    def spend(self, group: int, cost: int, now: int) -> None:
        """Spends units. What moves the group back in the order is what does not fit in addition to its own reservations."""
        assert self.bucket
        borrowed = self.seen(now).debit(group, cost)
        self.bucket.debit(group, cost)
        self.bucket.serve(group, borrowed, now)

    def wait(self, group: int, cost: int, now: int) -> None:
        assert self.bucket
        seen = self.seen(now)
        self.bucket.bring(now)
        seen.wait(group, cost, now)
        state = self.bucket.states[group]
        state.claim, state.until = seen.states[group].claim, seen.states[group].until

    def rewind(self, now: int) -> None:
        """A clock that went back: nothing lasts longer than it was made for."""
        for one in self.reservations.values():
            one.ends = min(one.ends, now + one.ttl)
        if self.bucket and self.bucket.is_ahead(now):
            self.bucket.bring(now)
        if self.slots and any(state.until > now + CLAIM_US for state in self.slots.states):
            self.slots.bring(now)

    def bring(self, now: int) -> None:
        self.reservations = {name: one for name, one in self.reservations.items() if one.ends > now}
        if self.bucket:
            self.bucket.bring(now)
        if self.slots:
            self.slots.bring(now)

    # Explanations

    def remaining(self, group: int, now: int, kept: int, kept_slots: int) -> int:
        slots = max(0, self.slots_left(group, now) - kept_slots) if self.slots else MAX_RESERVATIONS
        if not self.bucket:
            return slots
        return max(0, self.units_left(group, now) - kept) if slots else 0

    def reset_after(self, now: int) -> int:
        ends = [min(one.ends, now + one.ttl) - now for one in self.reservations.values()]
        after = max([0, *ends])
        if self.bucket:
            bucket = self.bucket.copy()
            bucket.bring(now)
            ticks = bucket.used_until()
            after = max(after, (bucket.at + ticks) * bucket.tick - now if ticks else 0)
        return after

    @staticmethod
    def first(now: int, fits: Callable[[int], bool]) -> int:
        """How long until something holds that does not cease to hold while nothing else arrives."""
        high = 1
        while not fits(now + high):
            high *= 2
        low = high // 2
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(now + middle) else (middle + 1, high)
        return low
