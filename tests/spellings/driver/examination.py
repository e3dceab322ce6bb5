"""One version of an application: started, and all of its sites checked."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import page
from .application import CannotStartError, SkippedError, running
from .checks import Checker
from .variants import read_variants

if TYPE_CHECKING:
    import argparse


@dataclass
class Report:
    """What a run of one version of an application has shown."""

    name: str
    version: str
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    skipped: str = ""
    seconds: float = 0
    requests: int = 0
    reached: int = 0
    seen: page.Row | None = None


def examine(name: str, version: str, options: argparse.Namespace) -> Report:
    """Start one version of an application and check its sites."""
    since = time.monotonic()
    report = Report(name, version)
    variants = [variant for variant in read_variants() if not options.variant or options.variant in variant.name]
    chance = random.Random(f"{options.seed} {name} {version}")
    try:
        with running(name, version, options.defect) as application:
            # The first site is that of the framework's own settings.
            first = next(iter(application.sites), None)
            ignored = Checker(first, read_variants(), chance, {}).ignored() if first else []
            report.seen = page.row_of(application, version, ignored)
            sites = [site for site in application.sites if options.site in (None, site.name)]
            reach: dict[str, set[str]] = {}
            # Any site can be the first, which is checked with more requests than the others.
            for site in chance.sample(sites, len(sites)):
                findings = Checker(site, variants, chance, {} if options.thorough else reach).check()
                report.passed += findings.passed
                report.failures += findings.failures
                report.requests += findings.requests
            report.reached = len(set().union(*reach.values()))
            if report.seen is None:
                report.failures.append("the application has not printed its version")
            if not report.passed and not report.failures and not options.site:
                report.failures.append("the application has no site")
    except SkippedError as why:
        report.skipped = str(why)
    except (CannotStartError, OSError) as why:
        report.failures.append(f"start: {why}")
    report.seconds = time.monotonic() - since
    return report


def show(report: Report) -> None:
    """Print what a run has shown."""
    title = f"{report.name} {report.version}"
    framework = f"{report.seen.framework} {report.seen.version}" if report.seen else "no version"
    if report.skipped:
        print(f"skipped: spellings of {title}: {report.skipped}")
        return
    for failure in report.failures:
        print(f"FAILED: {title}: {failure}")
    print(
        f"{title} ({framework}): {report.passed} passed, {len(report.failures)} failures, "
        f"{report.reached} variants run a handler, {report.requests} requests, {report.seconds:.1f} s",
        flush=True,
    )
