"""Runs the applications side by side and reports what failed."""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from driver import page
from driver.application import applications, versions_of
from driver.examination import Report, examine, show

VERSIONS = ("oldest", "newest")
#: Applications that show what the driver finds; they are run by `check_defects` and when they are named.
OWN = {"reference"}
#: How many applications run at a time. Each waits for the driver and the driver for it, so two share a core.
AT_A_TIME = 3


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="tests/spellings/run", description=__doc__)
    parser.add_argument("--only", help="applications, such as express,koa")
    parser.add_argument("--site", help="one site of them")
    parser.add_argument("--variant", help="variants whose names contain this text")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the order of requests"
    )
    parser.add_argument(
        "--thorough", action="store_true", help="each variant on its own at every site, not only at one"
    )
    parser.add_argument("--versions", default=",".join(VERSIONS), help="oldest, newest or both")
    parser.add_argument("--defect", help="a deliberate defect, by the name that the application knows")
    parser.add_argument("--write", action="store_true", help="write the table of docs/frameworks.md")
    parser.add_argument(
        "--check", action="store_true", help="fail if docs/frameworks.md says something else of these versions"
    )
    options = parser.parse_args()
    partial = options.only or options.site or options.variant
    if (options.write or options.check) and partial:
        parser.error("--write and --check need all applications, sites and variants")
    if options.write and set(options.versions.split(",")) != set(VERSIONS):
        parser.error("--write needs both versions")
    known = applications()
    options.only = options.only.split(",") if options.only else [name for name in known if name not in OWN]
    unknown = set(options.only) - set(known)
    if unknown:
        parser.error(f"unknown applications: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    options.versions = options.versions.split(",")
    if set(options.versions) - set(VERSIONS):
        parser.error(f"unknown versions: {','.join(options.versions)}; allowed are oldest, newest, or both")
    return options


def main() -> int:
    """Run what the command line asks for."""
    options = parse_options()
    print(f"seed {options.seed}", flush=True)
    reports: list[Report] = []
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(AT_A_TIME, mp_context=context) as pool:
        runs = [
            pool.submit(examine, name, version, options)
            for name in options.only
            for version in versions_of(name)
            if version in options.versions
        ]
        for done in concurrent.futures.as_completed(runs):
            reports.append(done.result())
            show(reports[-1])
    passed = sum(report.passed for report in reports)
    failed = sum(len(report.failures) for report in reports)
    if options.write or options.check:
        rows = [report.seen for report in reports if report.seen]
        if options.write:
            page.write(rows)
        mistake = page.check(rows)
        failed += mistake is not None
        passed += mistake is None
        if mistake:
            print(f"FAILED: page: {mistake}")
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed;")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
