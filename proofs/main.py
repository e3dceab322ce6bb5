"""Runs everything: theorems, protocols, defects, and comparisons with the code. Prints `N passed, N failed`."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import compare
import divisor
import fixed_window
import lemmas
import protocol_models
import sliding_log
import sliding_window
import stepped_bucket
import token_bucket
from prover import (
    Int,
    NotProvedError,
    Theorem,
    assumptions_hold_somewhere,
    floor_div,
    prove,
    refute,
    theorems,
    used_lemmas,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODULES = (lemmas, divisor, token_bucket, stepped_bucket, fixed_window, sliding_window, sliding_log)


class Tally:
    """Counts and prints what passed and failed."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0

    def run(self, name: str, action: Callable[[], str]) -> None:
        """One case."""
        began = time.monotonic()
        try:
            result, word = action(), "ok"
            self.passed += 1
        except NotProvedError as failure:
            result, word = str(failure), "FAILED"
            self.failed += 1
        print(f"{word:6} {name} ({time.monotonic() - began:.1f} s) {result}".rstrip(), flush=True)


def check_theorem(tally: Tally, theorem: Theorem, seconds: float) -> None:
    """The theorem itself, whether it says anything, and its defects."""

    def proved() -> str:
        prove(theorem, seconds)
        assumptions_hold_somewhere(theorem, seconds)
        if theorem.model and not theorem.mutants:
            msg = "no defect of the model is refuted"
            raise NotProvedError(msg)
        return ""

    tally.run(theorem.name, proved)
    for mutant in theorem.mutants:
        tally.run(f"  defect {mutant.__name__}", partial(refute, theorem, mutant, seconds))


def check_lemmas() -> str:
    """Every lemma that was used is a theorem."""
    unknown = used_lemmas - {
        theorem.name.rsplit(".", 1)[-1] for theorem in theorems if theorem.name.startswith("lemmas.")
    }
    if unknown:
        msg = f"not proved: {sorted(unknown)}"
        raise NotProvedError(msg)
    return ", ".join(sorted(used_lemmas))


def table() -> str:
    """The theorems, as `docs/proofs.md` lists them."""
    rows = ["| theorem | file | function |", "|---|---|---|"]
    for theorem in theorems:
        module, name = theorem.name.split(".")
        rows.append(f"| {' '.join(theorem.meaning.split())} | `{module}.py` | `{name}` |")
    return "\n".join(rows)


def check_page() -> str:
    """`docs/proofs.md` has the tables."""
    page = (Path(__file__).parent.parent / "docs/proofs.md").read_text()
    if table() not in page or protocol_models.table() not in page:
        msg = "the tables of docs/proofs.md are not what `main.py --table` prints"
        raise NotProvedError(msg)
    return ""


def compared(program: Path, cases: Iterator[tuple[compare.Quota, Iterator[compare.Case]]]) -> str:
    """No difference between model and code."""
    counts = compare.compare(program, cases)
    if counts.differences:
        raise NotProvedError("\n".join(counts.differences[:5]))
    return f"{counts.cases:,} cases of {counts.quotas:,} quotas, {counts.refused:,} quotas refused"


def finds_a_defect(program: Path, mutant: type, algorithm: str) -> str:
    """With a defective model the comparison has a difference."""
    counts = compare.compare(program, compare.random_cases(algorithm, 0, 5_000), mutant)
    if not counts.differences:
        msg = "no difference"
        raise NotProvedError(msg)
    return counts.differences[0]


class ChangedRoundsDown(compare.ChangedBucket):
    """Rounds waits down, for states that were written under other numbers as well."""

    def repaid_after(self, debt: Int) -> Int:
        return floor_div(debt, self.rate)


# A defect of the model of each algorithm.
DEFECTS: dict[str, type] = {
    "token_bucket": token_bucket.RoundsWaitsDown,
    "leaky_bucket": token_bucket.DelaysWithItself,
    compare.CHANGED: ChangedRoundsDown,
    "stepped_bucket": stepped_bucket.RunsWhenFull,
    "fixed_window": fixed_window.EndsLate,
    "sliding_window": sliding_window.DropsWhatIsAhead,
    "sliding_log": sliding_log.KeepsOneTooMany,
}


def compare_all(tally: Tally, asked: argparse.Namespace) -> None:
    """Small cases, random ones, and defects that the comparison must find."""
    for name, small in compare.SMALL.items():
        if asked.only in name:
            tally.run(name, partial(compared, asked.program, small()))
    for algorithm in compare.RANDOM:
        if asked.only in algorithm:
            cases = compare.random_cases(algorithm, asked.seed, asked.cases)
            tally.run(f"random {algorithm}", partial(compared, asked.program, cases))
    for algorithm, mutant in DEFECTS.items():
        if asked.only in algorithm:
            name = f"comparison with the defect {mutant.__name__}"
            tally.run(name, partial(finds_a_defect, asked.program, mutant, algorithm))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, help="answers the cases")
    parser.add_argument("--cases", type=int, default=200_000, help="random cases for each algorithm")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120, help="for each step and goal of a theorem")
    parser.add_argument("--only", default="", help="a part of the names of what is run")
    parser.add_argument("--table", action="store_true", help="print the theorems as docs/proofs.md lists them")
    asked = parser.parse_args()
    if asked.table:
        print(table(), protocol_models.table(), sep="\n\n")
        return 0
    if not asked.program:
        parser.error("--program is missing")
    tally = Tally()
    for theorem in theorems:
        if asked.only in theorem.name:
            check_theorem(tally, theorem, asked.seconds)
    tally.run("lemmas that were used", check_lemmas)
    tally.run("docs/proofs.md", check_page)
    for name, case in protocol_models.cases():
        if asked.only in name:
            tally.run(name, case)
    compare_all(tally, asked)
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
