"""Has processes of all languages ask for one key at the same time, round after round: exactly the limit is admitted.

rounds.py ROUNDS REDIS_URL NAME=PROGRAM...

Each process has 64 callers, each with one request.
"""

from __future__ import annotations

import contextlib
import pathlib
import secrets
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

LIMIT = 100
CALLERS = 64
ATTEMPTS = 1
# Neither admits a 101st unit for many minutes after the first.
QUOTAS = (f"{LIMIT}/day sliding_log", f"{LIMIT}/day token_bucket")


class Process:
    """The callers of one language."""

    def __init__(self, name: str, program: str, url: str) -> None:
        self.name = name
        self.admitted = 0
        self.denied = 0
        self._process = subprocess.Popen(
            [*program.split(), url, str(CALLERS), str(ATTEMPTS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def read(self) -> str:
        """Read what it answers, which ends when it does."""
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} has ended with {self._process.wait()}")
        return line.strip()

    def ask(self, key: str, quotas: str) -> None:
        """Have its callers ask, without waiting for them."""
        self._process.stdin.write(f"{key}\t{quotas}\n")

    def count(self) -> int:
        """Wait for its callers, and give how many were admitted."""
        admitted = int(self.read())
        self.admitted += admitted
        self.denied += CALLERS * ATTEMPTS - admitted
        return admitted

    def end(self) -> int:
        """Close its input, and return its status."""
        self._process.stdin.close()
        return self._process.wait(30)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()


@dataclass
class Outcome:
    """What came of a store's rounds."""

    wrong: list[str]
    shared: int


def play(processes: list[Process], rounds: int) -> Outcome:
    """Give each round a new key, which another process receives first in each round."""
    run = secrets.token_hex(4)
    outcome = Outcome([], 0)
    for number in range(rounds):
        first = number % len(processes)
        for process in processes[first:] + processes[:first]:
            process.ask(f"{run}-{number}", QUOTAS[number % len(QUOTAS)])
        admitted = [process.count() for process in processes]
        if sum(admitted) != LIMIT:
            each = ", ".join(f"{process.name} {count}" for process, count in zip(processes, admitted, strict=True))
            outcome.wrong.append(f"round {number}, {QUOTAS[number % len(QUOTAS)]}: {sum(admitted)} admitted ({each})")
        # One that was admitted in part has met its limit while others were asking.
        outcome.shared += sum(0 < count < CALLERS * ATTEMPTS for count in admitted) > 1
    for process in processes:
        if process.admitted == 0 or process.denied == 0:
            outcome.wrong.append(f"{process.name}: {process.admitted} admitted and {process.denied} denied in all")
        if (status := process.end()) != 0:
            outcome.wrong.append(f"{process.name} ends with {status}")
    return outcome


def test(store: str, url: str, programs: dict[str, str], rounds: int) -> bool:
    """Play on one store, and say what came of it."""
    started = time.monotonic()
    try:
        with contextlib.ExitStack() as stack:
            processes = [stack.enter_context(Process(name, program, url)) for name, program in programs.items()]
            for process in processes:
                process.read()
            outcome = play(processes, rounds)
    except (OSError, RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
        outcome, processes = Outcome([str(error)], 0), []
    for wrong in outcome.wrong:
        print(f"FAILED: {store}: {wrong}")
    spread = ", ".join(f"{process.name} {process.admitted}" for process in processes)
    print(f"  {rounds} rounds in {time.monotonic() - started:.1f} s; admitted: {spread}")
    print(f"  in {outcome.shared} rounds several languages were at the limit at the same time")
    print(f"test {store}: {LIMIT} of {len(programs) * CALLERS * ATTEMPTS} requests are admitted ... ", end="")
    print("FAILED" if outcome.wrong else "ok", flush=True)
    if not outcome.wrong:
        record(store, len(programs), rounds)
    return not outcome.wrong


def record(store: str, processes: int, rounds: int) -> None:
    """Record the row F50 of docs/faults.md: see tests/faults/record."""
    recorder = pathlib.Path(__file__).parents[1] / "faults/record"
    case = f"{processes} processes of seven languages with {CALLERS} callers, {store}"
    measured = f"measured=exactly {LIMIT} admitted in each of {rounds} rounds"
    numbers = (f"decisions={processes * CALLERS * ATTEMPTS * rounds}", f"admitted={LIMIT * rounds}")
    bound = (f"admitted_of_key={LIMIT}", f"bound={LIMIT}", measured)
    subprocess.run([recorder, "tests/shared_budget/rounds.py", "F50", case, *numbers, *bound], check=True)


def main(rounds: int, redis_url: str, programs: dict[str, str]) -> int:
    """Play on both stores."""
    with tempfile.TemporaryDirectory(prefix="polylimit-shared-") as folder:
        passed = [
            test("local", f"file://{folder}/store?size=64MiB", programs, rounds),
            test("redis", redis_url, programs, rounds),
        ]
    failed = passed.count(False)
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed.count(True)} passed; {failed} failed;")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], dict(each.split("=", 1) for each in sys.argv[3:])))
