"""Shows in a terminal what the services answer: a line for each while they run, a table and a plot at the end."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callers import Tally

COLOURS = (36, 32, 33, 35)
BAR = 40
PLOT_WIDTH = 60
PLOT_HEIGHT = 10


class Picture:
    """Draws over itself in a terminal; elsewhere it writes one line now and then."""

    def __init__(self, tallies: list[Tally], limit: int) -> None:
        self._tallies = tallies
        self._limit = limit
        self._is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._has_colours = self._is_terminal and "NO_COLOR" not in os.environ
        self._drawn = 0
        self._last = 0.0

    def _colour(self, number: int, text: str) -> str:
        return f"\033[{COLOURS[number]}m{text}\033[0m" if self._has_colours else text

    def _totals(self) -> tuple[int, int]:
        return sum(len(tally.admitted) for tally in self._tallies), sum(tally.denied for tally in self._tallies)

    def show(self, seconds: float, *, last: bool = False) -> None:
        """Show how far they are."""
        admitted, denied = self._totals()
        if not self._is_terminal:
            if last or seconds - self._last >= 0.5:
                self._last = seconds
                print(f"{seconds:5.1f} s   admitted {admitted:>5} of {self._limit}   denied {denied:>5}", flush=True)
            return
        lines = []
        for number, tally in enumerate(self._tallies):
            full = BAR * len(tally.admitted) // tally.requests
            rest = BAR * tally.answered // tally.requests - full
            bar = self._colour(number, "█" * full) + "░" * rest + " " * (BAR - full - rest)
            lines.append(f"{tally.title:<20} {bar} {len(tally.admitted):>5} admitted {tally.denied:>5} denied")
        lines.append(f"{'together':<20} {seconds:>{BAR - 2}.1f} s {admitted:>5} admitted {denied:>5} denied")
        up = f"\033[{self._drawn}A" if self._drawn else ""
        sys.stdout.write(up + "".join(f"\033[2K{line}\n" for line in lines))
        sys.stdout.flush()
        self._drawn = len(lines)

    def table(self) -> None:
        """Show what each has admitted and denied, and how long its requests took."""
        row = "{:<20} {:>9} {:>9} {:>9} {:>12} {:>12}"
        print("\n" + row.format("service", "requests", "admitted", "denied", "median ms", "99 % ms"))
        for number, tally in enumerate(self._tallies):
            latencies = (f"{tally.latency_ms(part):.2f}" for part in (0.5, 0.99))
            line = row.format(tally.title, tally.answered, len(tally.admitted), tally.denied, *latencies)
            print(self._colour(number, line))
        admitted, denied = self._totals()
        print(row.format("together", admitted + denied, admitted, denied, "", ""))

    def plot(self) -> None:
        """Show how each service spent the budget over time."""
        times = [sorted(at for at, _ in tally.admitted) for tally in self._tallies]
        end = max((each[-1] for each in times if each), default=0.0)
        print(f"\nadmitted until each moment, by service, in {end:.1f} s\n")
        columns = []
        for column in range(1, PLOT_WIDTH + 1):
            stack, total = [], 0
            for number, (tally, each) in enumerate(zip(self._tallies, times, strict=True)):
                total += sum(at <= end * column / PLOT_WIDTH for at in each)
                height = round(PLOT_HEIGHT * total / self._limit)
                stack += [self._colour(number, tally.letter)] * (height - len(stack))
            columns.append(stack)
        for height in reversed(range(max(PLOT_HEIGHT, *map(len, columns)))):
            label = str(self._limit) if height + 1 == PLOT_HEIGHT else ""
            print(f"{label:>7} │" + "".join(stack[height] if height < len(stack) else " " for stack in columns))
        print(f"{0:>7} └{'─' * PLOT_WIDTH}")
        names = (self._colour(at, f"{one.letter} {one.title}") for at, one in enumerate(self._tallies))
        print(f"{'':>9}{'   '.join(names)}\n")
