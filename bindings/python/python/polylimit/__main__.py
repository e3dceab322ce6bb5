"""``python -m polylimit``: examines a store, or checks one key."""

from __future__ import annotations

import argparse
import logging
import sys

from polylimit import Limiter, PolylimitError, __version__

#: The sources of decisions that the outage policy made.
_OUTAGE_SOURCES = ("fallback", "allow", "deny")


def _doctor(arguments: argparse.Namespace) -> int:
    with Limiter(arguments.url) as limiter:
        findings = limiter.doctor()
    for finding in findings:
        print(finding)
    if not findings:
        print("fine: the store answers")
    return 1 if any(finding.severity == "problem" for finding in findings) else 0


def _check(arguments: argparse.Namespace) -> int:
    with Limiter(arguments.url) as limiter:
        decision = limiter.check(arguments.key, arguments.quota, cost=arguments.cost)
    print(decision)
    if decision.source in _OUTAGE_SOURCES:
        print(f"polylimit: the store cannot be asked: {decision.degraded}", file=sys.stderr)
        return 2
    return 0 if decision else 1


def main(arguments: list[str] | None = None) -> int:
    """Run the program. Return 0 if the store is healthy or the request allowed, 1 if not, and 2 if that is unknown."""
    parser = argparse.ArgumentParser(prog="python -m polylimit", description="Examines a store, or checks one key.")
    parser.add_argument("--version", action="version", version=f"polylimit {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    doctor = commands.add_parser("doctor", help="report problems of a store")
    doctor.add_argument("url", metavar="URL", help="such as redis://localhost:6379 or local:web")
    doctor.set_defaults(run=_doctor)
    check = commands.add_parser("check", help="check a key once; it is counted")
    check.add_argument("url", metavar="URL")
    check.add_argument("key", metavar="KEY")
    check.add_argument("quota", metavar="QUOTA", help='such as "100/minute"')
    check.add_argument("--cost", type=int, default=1, help="units (1)")
    check.set_defaults(run=_check)
    given = parser.parse_args(arguments)
    # The output already reports the outage, so the log line is suppressed.
    logging.getLogger("polylimit").addHandler(logging.NullHandler())
    try:
        status: int = given.run(given)
    except PolylimitError as error:
        print(f"polylimit: {error}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
