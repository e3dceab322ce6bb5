"""Reads what earlier versions have written: states in Redis and in files of the local store, and the configuration.

Usage: ``formats.py check URL`` or ``formats.py write VERSION URL``, where ``URL`` is that of an empty Redis.

``write`` performs the first half of the operations of conformance cases and stores the states that they leave in a
folder, with the cases as they are then. ``check`` opens the states of each folder and performs the rest: every answer
has to be the expected one.
"""

from __future__ import annotations

import base64
import io
import json
import lzma
import sys
import tarfile
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

HERE = Path(__file__).resolve().parent
CASES = HERE.parent / "conformance"
sys.path.insert(0, str(CASES / "python"))

import policies  # noqa: E402
import redis  # noqa: E402
import runner  # noqa: E402
from polylimit import Limiter, ManualClock, PolylimitError, RequestAttributes  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The files of cases, and about how many of each are taken; all where there is no number.
FILES = {"reservations": None, "commits": None, "groups": None, "policies": None, "calendar_past": 40, "random": 200}
#: What changes the process and not the store, or is counted after the decision.
IN_PROCESS = {"configuration", "entry", "change", "candidate"}
KEY = "k"
DOCUMENT = """# Of the shop.
polylimit = 1
[policies.p]
quotas = "5/day fixed_window"
overrides = { vip = { numbers = "9/day fixed_window" } }
"""
ENTRIES = {"deny user mallory": '{"why":"scan"}', "override p user:7": '{"numbers": "7/day fixed_window"}'}


class Fixture(NamedTuple):
    """A case, and how many of its operations were performed by the version that wrote the states."""

    number: int
    case: dict[str, Any]
    performed: int


class Running(NamedTuple):
    """A limiter of a case."""

    limiter: Limiter
    #: Performs an operation; returns what differs from the answer that the case expects.
    perform: Callable[[dict[str, Any]], str | None]


@contextmanager
def running(case: dict[str, Any], url: str, **options: Any) -> Iterator[Running]:
    """Run a limiter with the policies of a case."""
    clock = ManualClock(0)
    if "document" in case:
        with Limiter(url, clock=clock, document=case["document"], **options) as limiter:
            asked = policies.Case(limiter, None)

            def perform(operation: dict[str, Any]) -> str | None:
                clock.set(policies.us(policies.START_US + operation["t_us"]))
                got = asked.perform(operation)
                if policies.agrees(operation["expect"], got):
                    return None
                return f"{operation['op']}: expected {operation['expect']}, got {got}"

            yield Running(limiter, perform)
        return
    with Limiter(
        url, {"case": runner.quotas(case["quotas"])}, clock=clock, outage={"case": "deny"}, **options
    ) as limiter:
        # A handle that is freed would end its reservation.
        held: list[Any] = []
        ask = runner.blocking(limiter, held)

        def perform_quotas(operation: dict[str, Any]) -> str | None:
            try:
                runner.run_operations([operation], KEY, clock, limiter, ask)
            except runner.DifferenceError as difference:
                return str(difference)
            return None

        yield Running(limiter, perform_quotas)


def fixtures() -> list[Fixture]:
    """Choose cases whose first half leaves a state that the second half depends on."""
    chosen: list[Fixture] = []
    for name, most in FILES.items():
        cases = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))["cases"]
        step = 1 if most is None else max(1, len(cases) // most)
        for case in cases[::step]:
            performed = len(case["ops"]) // 2
            if performed and not IN_PROCESS & {operation["op"] for operation in case["ops"]}:
                chosen.append(Fixture(len(chosen), case, performed))
    return chosen


def states(server: Any) -> list[list[str]]:
    """Read everything in Redis, as commands that write it again."""
    commands: list[list[bytes]] = []
    for key in sorted(server.scan_iter("*", count=10_000)):
        kind = server.type(key)
        if kind == b"string":
            commands.append([b"SET", key, server.get(key)])
        elif kind == b"hash":
            commands.append([b"HSET", key, *(part for pair in sorted(server.hgetall(key).items()) for part in pair)])
        elif kind == b"stream":
            for number, fields in server.xrange(key):
                commands.append([b"XADD", key, number, *(part for pair in fields.items() for part in pair)])
        else:
            raise ValueError(f"{key!r} is a {kind!r}, which this program does not store")
    return [[base64.b64encode(part).decode() for part in command] for command in commands]


def pack(files: dict[str, bytes]) -> bytes:
    """Pack files so that the same files make the same archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            # The store accepts no file that others can read.
            entry.mode = 0o600
            archive.addfile(entry, io.BytesIO(content))
    return lzma.compress(packed.getvalue())


def write(folder: Path, url: str) -> None:
    """Write the states of this version."""
    server: Any = redis.Redis.from_url(url.partition("?")[0])
    if server.dbsize():
        raise ValueError(f"the Redis at {url} is not empty")
    chosen: list[Fixture] = []
    files: dict[str, bytes] = {}
    for fixture in fixtures():
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "store"
            with (
                running(fixture.case, f"file://{path}?size=1MiB") as local,
                running(fixture.case, url, prefix=f"formats{fixture.number}", denial_cache_max=0) as remote,
            ):
                for operation in fixture.case["ops"][: fixture.performed]:
                    for store in (local, remote):
                        if different := store.perform(operation):
                            raise ValueError(f"{fixture.case['name']}: {different}")
                if not path.exists():
                    continue
                # Before the limiters are closed, and the handles of reservations end them.
                files[f"{fixture.number}.store"] = path.read_bytes()
                chosen.append(fixture)
    with Limiter(url, configuration="store") as limiter:
        limiter.admin().publish(DOCUMENT)
        for entry, value in ENTRIES.items():
            limiter.admin().set_entry(entry, value)
    commands = states(server)
    written = {"redis": commands, "cases": [fixture._asdict() for fixture in chosen]}
    folder.mkdir()
    (folder / "local.tar.xz").write_bytes(pack(files))
    (folder / "states.json.xz").write_bytes(lzma.compress(json.dumps(written, separators=(",", ":")).encode()))
    sys.stdout.write(f"{folder.name}: {len(chosen)} cases, {len(commands)} commands\n")


def check_case(fixture: Fixture, place: str, url: str, **options: Any) -> str | None:
    """Perform the rest of a case's operations; return the first difference."""
    try:
        with running(fixture.case, url, **options) as store:
            for operation in fixture.case["ops"][fixture.performed :]:
                if different := store.perform(operation):
                    return f"{place}: {fixture.case['name']}: {different}"
    except PolylimitError as error:
        return f"{place}: {fixture.case['name']}: {error}"
    return None


def check_configuration(url: str) -> str | None:
    """Read the document and the entries; return what differs."""
    with Limiter(url, configuration="store") as limiter:
        status = limiter.admin().wait_for_version(1 + len(ENTRIES), 20)
        denied = limiter.decide(RequestAttributes(attributes={"user": "mallory"}))
        got = [
            status.version,
            denied.cause,
            *(limiter.check(key, "p").remaining for key in ("user:1", "user:7", "vip")),
        ]
        expected = [1 + len(ENTRIES), "deny_list", 4, 6, 8]
        return None if got == expected else f"redis: the configuration has {got} in place of {expected}"


def check(folder: Path, url: str) -> list[str | None]:
    """Read the states of a version; return what differs in each case and store."""
    written = json.loads(lzma.decompress((folder / "states.json.xz").read_bytes()))
    server: Any = redis.Redis.from_url(url.partition("?")[0])
    server.flushall()
    for command in written["redis"]:
        server.execute_command(*map(base64.b64decode, command))
    results = [check_configuration(url)]
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(folder / "local.tar.xz") as archive:
            archive.extractall(place, filter="data")
        for fixture in (Fixture(**each) for each in written["cases"]):
            path = Path(place) / f"{fixture.number}.store"
            results.append(check_case(fixture, "local", f"file://{path}?size=1MiB"))
            results.append(check_case(fixture, "redis", url, prefix=f"formats{fixture.number}"))
            path.unlink()
    return results


def main(arguments: list[str]) -> int:
    """Run the program."""
    match arguments:
        case ["write", version, url]:
            write(HERE / version, url)
            return 0
        case ["check", url]:
            folders = sorted(path.parent for path in HERE.glob("*/states.json.xz"))
            passed = failed = 0
            for folder in folders:
                results = check(folder, url)
                differences = [result for result in results if result is not None]
                sys.stdout.writelines(f"FAILED: {folder.name}, {result}\n" for result in differences)
                sys.stdout.write(f"{folder.name}: {len(results) - len(differences)} of {len(results)} agree\n")
                passed, failed = passed + len(results) - len(differences), failed + len(differences)
            failed += not folders
            word = "FAILED" if failed else "ok"
            sys.stdout.write(f"test result: {word}. {passed} passed; {failed} failed;\n")
            return 1 if failed else 0
        case _:
            sys.stderr.write("usage: formats.py check URL, formats.py write VERSION URL\n")
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
