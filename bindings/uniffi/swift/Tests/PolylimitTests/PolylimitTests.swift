import Foundation
import XCTest

@testable import Polylimit

private let start: Int64 = 1_700_000_000_000_000

final class PolylimitTests: XCTestCase {
    private func limiter(_ quotas: String, _ clock: ManualClock? = nil) throws -> Limiter {
        try Limiter(settings: Settings(policies: [Policy(name: "api", quotas: quotas)], clock: clock))
    }

    private func request(_ key: String, cost: Int64? = nil) -> Request {
        Request(key: Data(key.utf8), cost: cost)
    }

    func testDecisionHasExactNumbers() throws {
        let clock = try ManualClock(nowUs: start)
        let limiter = try limiter("3/minute fixed_window", clock)
        let admitted = try limiter.check(request: request("user", cost: 3))
        XCTAssertTrue(admitted.allowed)
        XCTAssertEqual(admitted.remaining, 0)
        let denied = try limiter.check(request: request("user"))
        XCTAssertFalse(denied.allowed)
        XCTAssertEqual(denied.retryAfter, .seconds(60))
        XCTAssertEqual(denied.source, "store")
        XCTAssertNil(try limiter.check(request: request("user", cost: 4)).retryAfter)
        XCTAssertEqual(try limiter.refund(request: request("user")).remaining, 1)
        XCTAssertEqual(try limiter.take(request: request("user", cost: 5)).taken, 1)
    }

    func testEveryQuotaHasAVerdictOfItsOwn() throws {
        let limiter = try limiter("2/minute token_bucket; 5/hour")
        XCTAssertEqual(try limiter.check(request: request("user", cost: 2)).quotas.map(\.allowed), [true, true])
        let denied = try limiter.check(request: request("user"))
        XCTAssertEqual(denied.quotas.map(\.allowed), [false, true])
        XCTAssertEqual(denied.quotas.map(\.retryAfter), [denied.retryAfter, .zero])
        XCTAssertNil(try limiter.check(request: request("user", cost: 9)).quotas[1].retryAfter)
    }

    func testSeveralRequestsSpendAllOrNothing() throws {
        let limiter = try limiter("2/minute")
        let requests = ["api", "1/minute"].map { Request(key: Data("user".utf8), policy: $0) }
        XCTAssertEqual(try limiter.checkTogether(requests: requests).map(\.allowed), [true, true])
        XCTAssertEqual(try limiter.checkTogether(requests: requests).map(\.allowed), [true, false])
        XCTAssertEqual(try limiter.peekTogether(requests: requests).map(\.allowed), [true, false])
        XCTAssertEqual(try limiter.peek(request: Request(key: Data("user".utf8), policy: "api")).remaining, 1)
    }

    func testARequestIsReservedTogetherOrNotAtAll() async throws {
        let limiter = try limiter("1 concurrent; 100/minute")
        let model = Request(key: Data("user".utf8), policy: "api", cost: 40)
        let requests = [model, Request(key: Data("user".utf8), policy: "9/minute")]
        let reserved = try limiter.reserveTogether(requests: requests)
        XCTAssertTrue(reserved.allowed)
        XCTAssertEqual(reserved.decisions.map(\.remaining), [0, 8])
        let denied = try await limiter.asynchronous().reserveTogether(requests: requests)
        XCTAssertFalse(denied.allowed)
        XCTAssertEqual(try limiter.peek(request: requests[1]).remaining, 8)
        XCTAssertTrue(try limiter.cancel(request: model, id: reserved.id).found)
        for repeated in [false, true] {
            let job = try await limiter.asynchronous()
                .reserveTogether(requests: requests, id: Data("job".utf8), remember: .seconds(60))
            let usage = try limiter.commit(request: model, id: job.id, spent: 30)
            XCTAssertEqual([usage.found, usage.repeated], [true, repeated])
        }
        XCTAssertEqual(try await limiter.asynchronous().peekTogether(requests: requests).map(\.remaining), [70, 6])
        XCTAssertEqual(try await limiter.asynchronous().checkTogether(requests: [requests[1]]).map(\.remaining), [5])
    }

    func testInvalidArgumentIsAnError() throws {
        let limiter = try limiter("2/minute")
        XCTAssertThrowsError(try limiter.check(request: request("user", cost: -1))) { error in
            guard case PolylimitError.InvalidArgument = error else { return XCTFail("\(error)") }
        }
    }

    func testAsynchronousCallsDecideAsBlockingOnes() async throws {
        let limiter = try limiter("2/minute")
        let asynchronous = limiter.asynchronous()
        let first = try await asynchronous.check(request: request("user"))
        let second = try await asynchronous.acquire(request: request("user"), timeout: .zero)
        let third = try await asynchronous.check(request: request("user"))
        XCTAssertEqual([first, second, third].map(\.allowed), [true, true, false])
    }

    func testReservationChargesWhatWasSpent() throws {
        let limiter = try limiter("1 concurrent; 100/hour")
        let first = try limiter.reserve(request: request("user", cost: 40))
        XCTAssertTrue(first.allowed())
        XCTAssertFalse(try limiter.reserve(request: request("user")).allowed())
        XCTAssertTrue(try first.commit(spent: 30).found)
        XCTAssertFalse(try first.cancel().found)
        // It is freed at once, and so cancelled.
        _ = try limiter.reserve(request: request("user"), options: ReserveOptions(ttl: .seconds(10)))
        XCTAssertEqual(try limiter.peek(request: request("user")).remaining, 70)
    }

    func testAsynchronousReservationChargesWhatWasSpent() async throws {
        let limiter = try limiter("1 concurrent; 100/hour")
        let reservation = try await limiter.asynchronous().reserve(request: request("user", cost: 40))
        let committed = try await reservation.commit(spent: 30)
        XCTAssertTrue(committed.found)
        let renewed = try await limiter.asynchronous().renew(request: request("user"), id: reservation.id(), ttl: .seconds(10))
        XCTAssertFalse(renewed.found)
    }

    func testBlockedKeyIsDenied() async throws {
        let limiter = try limiter("10/hour fixed_window")
        XCTAssertFalse(try limiter.check(request: Request(key: Data("user".utf8), cost: 9, headroom: 50)).allowed)
        XCTAssertEqual(try limiter.admin().block(request: request("user"), time: .seconds(60)).remaining, 0)
        XCTAssertEqual(try limiter.check(request: request("user")).cause, "blocked")
        _ = try await limiter.asynchronous().admin().unblock(request: request("user"))
        XCTAssertTrue(try limiter.check(request: request("user")).allowed)
    }

    func testDocumentDecidesAboutRequests() async throws {
        let document = """
            polylimit = 1
            [policies.api]
            quotas = "1/hour fixed_window"
            [[rules]]
            match = { path = "/v1/{*rest}" }
            apply = [{ policy = "api", key = "{user}" }]
            """
        let limiter = try Limiter(settings: Settings(document: document))
        let attributes = RequestAttributes(path: "/v1/items", attributes: ["user": Data("alice".utf8)])
        XCTAssertEqual(try limiter.admin().matching(attributes: attributes).map(\.policy), ["api"])
        XCTAssertTrue(try limiter.decide(attributes: attributes).allowed)
        let denied = try await limiter.asynchronous().decide(attributes: attributes)
        XCTAssertEqual(denied.status, 429)
        XCTAssertEqual(limiter.admin().configuration()?.source, "document")
        XCTAssertEqual(try limiter.admin().setEntry(item: "deny user alice", value: "{}").source, "document")
        XCTAssertEqual(try limiter.decide(attributes: attributes).cause, "deny_list")
    }

    func testReportsTellWhatIsUsedAndWhy() async throws {
        let limiter = try Limiter(settings: Settings(policies: [Policy(name: "api", quotas: "2/hour fixed_window")], options: ["observe_keys": "16"]))
        _ = try limiter.charge(request: request("user:1", cost: 2))
        let page = try limiter.admin().list(options: ListOptions(policy: "api", keyPrefix: Data("user:".utf8), atLeastUsed: 100))
        XCTAssertEqual(page.keys.map(\.key.text), ["user:1"])
        XCTAssertNil(page.cursor)
        let explained = try await limiter.asynchronous().admin().explain(request: request("user:1"))
        XCTAssertEqual(explained.quotas.map(\.admits), [false])
        XCTAssertEqual(try limiter.admin().scanTop(number: 1).keys.count, 1)
        XCTAssertEqual(try limiter.admin().topKeys(number: 1).counters, 16)
        let reset = try await limiter.asynchronous().admin().resetListed()
        XCTAssertEqual(reset.reset, 1)
        XCTAssertTrue(limiter.metrics().contains { $0.name == "polylimit_decisions_total" })
        XCTAssertTrue(try limiter.metricsText(format: "openmetrics").hasSuffix("# EOF\n"))
    }

    func testThreadForCredentialsEndsWithTheLimiter() throws {
        final class Source: Sendable {
            func token() -> String { "word" }
        }
        // No server is there. In memory, the function is let go at once.
        let settings = Settings(store: "redis://127.0.0.1:1", policies: [Policy(name: "api", quotas: "2/minute")])
        var source: Source? = Source()
        weak var released = source
        let limiter = try Limiter.withCredentials(settings: settings) { [source = source!] in
            Credentials(password: source.token(), username: "limits")
        }
        source = nil
        XCTAssertTrue(try limiter.check(request: request("user")).allowed)
        XCTAssertNotNil(released)
        try limiter.shutDown()
        let end = Date() + 20
        while released != nil, Date() < end { Thread.sleep(forTimeInterval: 0.01) }
        XCTAssertNil(released)
        XCTAssertThrowsError(try Limiter.withCredentials(settings: Settings(store: "nowhere")) { Credentials(password: "word") })
    }

    func testTextOfCredentialsShowsNoSecret() {
        XCTAssertEqual("\(Credentials(password: "word", username: "limits"))", "Credentials(***)")
    }

    func testClosedLimiterIsAnError() throws {
        let limiter = try limiter("2/minute")
        try limiter.shutDown()
        XCTAssertThrowsError(try limiter.check(request: request("user"))) { error in
            guard case PolylimitError.Closed = error else { return XCTFail("\(error)") }
        }
    }
}
