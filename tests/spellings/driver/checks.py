"""What is asserted of a site: no spelling of a request runs a handler more often than its limit admits."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .variants import HANDLERS, PLAIN, Handler, Variant, request_of
from .wire import Connection, Response

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from .application import Site
    from .variants import Request

#: What the limits of all applications admit to one client.
LIMIT = 3
OVER = 429
HOUR = 3600


@dataclass
class Findings:
    """What the requests to a site have shown."""

    #: Cases that passed: handlers of a site, and pairs of separate ones.
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    requests: int = 0


class Checker:
    """Sends the requests of one site."""

    def __init__(self, site: Site, variants: list[Variant], chance: random.Random, reach: dict[str, set[str]]) -> None:
        self.site = site
        self.variants = variants
        self.chance = chance
        #: For each handler that an earlier site of the application has, the variants that run it.
        self.reach = reach
        self.connection = Connection(site.port)
        self.findings = Findings()
        self.clients = (f"{site.name}-{number}-{chance.getrandbits(32):x}" for number in itertools.count())

    def check(self) -> Findings:
        """Check every handler, or the pairs of a site whose handlers have budgets of their own."""
        try:
            if any(":" in handler for handler in self.site.handlers):
                self._case(self._separate)
            for name in self.site.handlers:
                if ":" in name:
                    continue
                if name in HANDLERS:
                    self._case(lambda handler=HANDLERS[name]: self._handler(handler))  # type: ignore[misc]
                else:
                    self.findings.failures.append(f"{self.site.name}: unknown handler {name!r}")
        finally:
            self.connection.close()
        return self.findings

    def ignored(self) -> list[str]:
        """Return what the router of the site ignores, by the variants that say it."""
        handler = HANDLERS["report"]
        found = []
        for variant in self.variants:
            if variant.ignores:
                ran = self._ask(request_of(variant, handler, self.site.port), next(self.clients)).runs()
                found += [variant.ignores] if ran and ran[0] == handler.name else []
        self.connection.close()
        return found

    def _case(self, check: Callable[[], list[str]]) -> None:
        failures = check()
        self.findings.failures += failures
        self.findings.passed += not failures

    def _ask(self, request: Request, client: str) -> Response:
        self.findings.requests += 1
        return self.connection.ask(request, client)

    def _within_an_hour(self, ask: Callable[[str], list[str]]) -> list[str]:
        """Run requests of one client; again with another one if a new window of the limit began meanwhile."""
        while True:
            hour = time.time() // HOUR
            failures = ask(next(self.clients))
            if time.time() // HOUR == hour:
                return failures

    def _handler(self, handler: Handler) -> list[str]:
        variants = [
            variant
            for variant in self.variants
            if variant.fits(handler) and (variant.version != "2" or self.connection.speaks_http2())
        ]
        # Those that run the handler are sent below, where one run too many shows any of them.
        known = self.reach.get(handler.name, set())
        others = [variant for variant in variants if variant.name not in known]
        failures = self._within_an_hour(lambda client: self._after_plain(handler, others, client))
        # Without a limit, what else the variants do says nothing.
        if any(f", {PLAIN.name}\n" in failure for failure in failures):
            return failures
        # The sites of an application have one router. The first one shows which variants run a handler.
        if handler.name not in self.reach:
            self.reach[handler.name] = set()
            for variant in variants:
                failures += self._within_an_hour(
                    lambda client, variant=variant: self._variant(handler, variant, client)  # type: ignore[misc]
                )
        running = [variant for variant in variants if variant.name in self.reach[handler.name]]
        return failures + self._within_an_hour(lambda client: self._mix(handler, running, client))

    def _after_plain(self, handler: Handler, variants: list[Variant], client: str) -> list[str]:
        """The plain request until it is denied, then variants of the same client: no handler runs for them."""
        failures = self._plain(handler, client)
        if failures:
            return failures
        for variant in self.chance.sample(variants, len(variants)):
            request = request_of(variant, handler, self.site.port)
            response = self._ask(request, client)
            ran = response.runs()
            # Another handler that a variant reaches, such as that of the other method, has a limit of its own.
            if ran and (ran[0] == handler.name or ran[1] > LIMIT):
                told = f"over the limit of the plain request: {response}"
                failures.append(self._failure(handler, variant, request, told))
        return failures + self._still_denied(handler, client)

    def _plain(self, handler: Handler, client: str) -> list[str]:
        """The plain request alone: as many run as the limit admits, and the next one is denied."""
        request = request_of(PLAIN, handler, self.site.port)
        for number in range(1, LIMIT + 1):
            response = self._ask(request, client)
            if response.status != 200 or response.runs() != (handler.name, number):
                return [self._failure(handler, PLAIN, request, f"request {number} of {LIMIT}: {response}")]
        return self._still_denied(handler, client)

    def _still_denied(self, handler: Handler, client: str) -> list[str]:
        """A client that has spent its budget is denied, so the application still runs."""
        request = request_of(PLAIN, handler, self.site.port)
        response = self._ask(request, client)
        if response.status == OVER and not response.runs():
            return []
        return [self._failure(handler, PLAIN, request, f"a client over its limit must get {OVER}: {response}")]

    def _variant(self, handler: Handler, variant: Variant, client: str) -> list[str]:
        """Two plain requests and two of the variant in any order: the handler runs at most as often as it may."""
        spellings = [PLAIN, PLAIN, variant, variant]
        self.chance.shuffle(spellings)
        story: list[str] = []
        runs = 0
        for spelling in spellings:
            request = request_of(spelling, handler, self.site.port)
            response = self._ask(request, client)
            story.append(f"{spelling.name}: {response}")
            ran = response.runs()
            runs += ran is not None and ran[0] == handler.name
            # A failure shows the variant's request, also when a plain one was the last.
            request = request_of(variant, handler, self.site.port)
            if self._too_often(ran) or runs > LIMIT:
                return [self._failure(handler, variant, request, "; ".join(story))]
            if spelling is variant:
                if ran:
                    self.reach[handler.name].add(variant.name)
                elif runs < LIMIT and variant.runs:
                    return [self._failure(handler, variant, request, f"must run the handler: {'; '.join(story)}")]
                elif runs < LIMIT and response.status != OVER:
                    # It reaches no handler, though the limit would admit it.
                    return []
            elif runs < LIMIT - 1 and not ran and response.status != OVER:
                return [self._failure(handler, variant, request, f"the plain request fails: {'; '.join(story)}")]
        return []

    def _mix(self, handler: Handler, variants: list[Variant], client: str) -> list[str]:
        """All variants that run the handler, of one client in any order, with plain requests."""
        spellings = [*variants, *[PLAIN] * (LIMIT + 1)]
        self.chance.shuffle(spellings)
        story: list[str] = []
        runs = 0
        for spelling in spellings:
            request = request_of(spelling, handler, self.site.port)
            response = self._ask(request, client)
            ran = response.runs()
            runs += ran is not None and ran[0] == handler.name
            if ran:
                story.append(f"{spelling.name}: {response}")
            if self._too_often(ran) or runs > LIMIT:
                return [self._failure(handler, spelling, request, f"among all variants: {'; '.join(story)}")]
        return self._still_denied(handler, client)

    def _too_often(self, ran: tuple[str, int] | None) -> bool:
        return ran is not None and ran[1] > LIMIT

    def _separate(self) -> list[str]:
        return self._within_an_hour(self._separate_client)

    def _separate_client(self, client: str) -> list[str]:
        """Each handler is admitted once, whatever the others have spent, and denied the next time."""
        handlers = [name for name in self.site.handlers if ":" in name]
        failures: list[str] = []
        for wanted in (200, OVER):
            self.chance.shuffle(handlers)
            for name in handlers:
                # METHOD:/path, or METHOD:/path@Name=value with a field that chooses the handler.
                method, _, target = name.partition(":")
                path, _, field_text = target.partition("@")
                field_name, _, value = field_text.partition("=")
                handler = Handler(name, method, path)
                variant = Variant(PLAIN.name, headers=(f"{field_name}: {value}",) if field_text else ())
                if field_name.lower() == "host":
                    variant = Variant(PLAIN.name, host=value)
                request = request_of(variant, handler, self.site.port)
                response = self._ask(request, client)
                if response.status != wanted:
                    which = "first" if wanted == 200 else "second"
                    failures.append(
                        self._failure(handler, PLAIN, request, f"{which} request: {response}, not {wanted}")
                    )
        return failures

    def _failure(self, handler: Handler, variant: Variant, request: Request, what: str) -> str:
        sent = ", ".join([request.line, *request.headers[1:]])
        return f"{self.site.name}, {handler.name}, {variant.name}\n    sent: {sent!r}\n    {what}"
