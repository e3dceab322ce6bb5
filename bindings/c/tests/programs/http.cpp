/* The C++ wrapper for HTTP, polylimit_http.hpp: guards, and clients that try again. */
#include <polylimit_http.hpp>

#include "check.hpp"
#include <poll.h>
#include <string>
#include <type_traits>

using namespace std::chrono_literals;

template <typename Work> static polylimit_status status_of(Work work) {
    try {
        work();
    } catch (const polylimit::Error &error) {
        return error.status();
    }
    return POLYLIMIT_OK;
}

static_assert(std::is_move_constructible_v<polylimit::GuardCheck> && !std::is_copy_constructible_v<polylimit::GuardCheck>);

static polylimit::RequestFacts keyed(std::string_view key) {
    polylimit::RequestFacts facts;
    facts.key = key;
    return facts;
}

static bool admits(const polylimit::GuardCheck &check, std::uint32_t on_outage = POLYLIMIT_OUTAGE_LEAVE) {
    CHECK(check.run());
    bool admitted = check.conclude(on_outage);
    CHECK(check.run());
    return admitted;
}

static void guard_admits_denies_and_refunds() {
    polylimit::ManualClock clock(1700000000000000);
    polylimit::Limiter limiter("memory:", {{"policy.api", "1/hour fixed_window"}}, &clock);
    polylimit::Guard guard(limiter, {{"method", "POST"}});
    CHECK(guard.applies_to("POST") && !guard.applies_to("GET"));
    CHECK(polylimit::Guard(limiter).applies_to("OPTIONS") && !polylimit::Guard(limiter).applies_to("OPTIONS", "POST"));
    polylimit::Guard readable(limiter, {{"cors_origin", "*"}});
    CHECK(readable.cors_fields("https://app.example").find("access-control-allow-origin: *\r\n") == 0);
    CHECK(readable.cors_fields(std::nullopt).empty() && guard.cors_fields("https://app.example").empty());
    polylimit::GuardCheck first(guard, keyed("k")), second(guard, keyed("k"));
    CHECK(admits(first) && !first.outage() && !admits(second));
    CHECK(first.fields() == "ratelimit-policy: \"api\";q=1;w=3600\r\nratelimit: \"api\";r=0;t=3600\r\n");
    auto [status, text] = second.response("text/plain");
    CHECK(status == 429 && text == "content-type: text/plain; charset=utf-8\r\nvary: accept\r\n\r\n"
                                   "Not enough of the quota is left: retry in 3600 s.\n");
    CHECK(second.response().text.find("\r\n\r\n{\"type\"") != std::string::npos);
    CHECK(status_of([&] { (void)first.response(); }) == POLYLIMIT_INVALID_ARGUMENT);
    auto outcomes = first.outcomes();
    CHECK(outcomes.size() == 1 && outcomes[0].first == "api" && outcomes[0].second.remaining() == 0);
    first.finish(false);
    CHECK(first.run() && limiter.peek("k").remaining() == 1);
    CHECK(first.outcomes(true)[0].second.remaining() == 1);
}

static void guard_holds_what_it_reserves() {
    polylimit::ManualClock clock(1700000000000000);
    polylimit::Limiter limiter("memory:", {{"policy.model", "2 concurrent; 100/hour fixed_window"}}, &clock);
    polylimit::Guard guard(limiter, {{"cost", "40"}});
    auto left = [&] { return limiter.peek("k").remaining(); };
    {
        polylimit::GuardCheck first(guard, keyed("k")), second(guard, keyed("k")), denied(guard, keyed("k"));
        CHECK(admits(first) && admits(second) && !admits(denied) && first.holds() && !denied.holds() && left() == 0);
        first.finish();
        first.end(7);
        CHECK(first.run() && !first.holds() && left() == 53);
        second.finish(false);
        second.end_in_background();
        CHECK(left() == 93);
    }
    {
        polylimit::GuardCheck dropped(guard, keyed("k"));
        CHECK(admits(dropped) && left() == 53);
    }
    polylimit::GuardCheck last(guard, keyed("k"));
    CHECK(left() == 53 && admits(last));
    CHECK(status_of([&] { last.end(POLYLIMIT_AS_RESERVED); }) == POLYLIMIT_INVALID_ARGUMENT && last.holds());
    last.end();
    CHECK(last.run() && left() == 13);
}

static void each_policy_has_its_own_cost() {
    polylimit::ManualClock clock(1700000000000000);
    polylimit::Limiter limiter(
        "memory:", {{"policy.tokens", "10000/hour fixed_window"}, {"policy.requests", "60/hour fixed_window"}}, &clock);
    polylimit::Options both = {{"policy", "tokens"}, {"policy", "requests"}};
    auto are_left = [&](std::uint64_t tokens, std::uint64_t requests) {
        return limiter.peek("k", {"tokens"}).remaining() == tokens && limiter.peek("k", {"requests"}).remaining() == requests;
    };
    polylimit::Guard guard(limiter, both);
    auto facts = keyed("k");
    facts.costs = {4000};
    CHECK(admits(polylimit::GuardCheck(guard, facts)) && are_left(6000, 59));
    facts.costs = {std::nullopt, 2};
    CHECK(admits(polylimit::GuardCheck(guard, facts)) && are_left(5999, 57));
    facts.costs = {6000};
    CHECK(!admits(polylimit::GuardCheck(guard, facts)) && are_left(5999, 57));
    facts.costs = {POLYLIMIT_GUARD_COST};
    CHECK(status_of([&] { polylimit::GuardCheck(guard, facts); }) == POLYLIMIT_INVALID_ARGUMENT);
    both.emplace_back("reserved", "true");
    both.emplace_back("cost.tokens", "2000");
    polylimit::Guard holding(limiter, both);
    for (bool is_in_background : {false, true}) {
        polylimit::GuardCheck check(holding, keyed("k"));
        CHECK(admits(check) && check.holds());
        CHECK(status_of([&] { check.end_each({POLYLIMIT_AS_RESERVED}); }) == POLYLIMIT_INVALID_ARGUMENT && check.holds());
        if (is_in_background) {
            check.end_each_in_background({std::nullopt, 0});
        } else {
            check.end_each({500});
            CHECK(check.run());
        }
    }
    CHECK(are_left(3499, 56));
    both.back() = {"spent.tokens", "usage:total"};
    {
        polylimit::Guard metered(limiter, both);
        polylimit::GuardCheck check(metered, keyed("k"));
        CHECK(admits(check) && check.reads_response() && check.read_head("content-type: application/json\r\n"));
        check.read_body("{\"usage\": {\"input_tokens\": 90, ");
        check.read_body("\"output_tokens\": 9}}");
        check.end();
        CHECK(check.run());
    }
    CHECK(are_left(3400, 55));
    both.back().first = "cost.token";
    CHECK(status_of([&] { polylimit::Guard refused(limiter, both); }) == POLYLIMIT_INVALID_ARGUMENT);
}

static void guard_decides_by_the_configuration() {
    polylimit::Limiter limiter("memory:", {{"document", R"(
        polylimit = 1
        [policies.tokens]
        quotas = "100/hour fixed_window"
        [[rules]]
        match = { method = "POST", path = "/v1/{*rest}" }
        apply = [{ policy = "tokens", key = "{user}", cost = "{header.x-tokens}", missing = "deny" }]
        [lists]
        deny = ["client 203.0.113.0/24"]
    )"}});
    polylimit::Guard guard(limiter, {{"by_configuration", "true"}});
    auto status = [&](const polylimit::RequestAttributes &request) {
        polylimit::RequestFacts facts;
        facts.attributes = request;
        polylimit::GuardCheck check(guard, facts);
        return admits(check) ? 200 : check.response().status;
    };
    polylimit::RequestAttributes request{"POST", "/v1/a", "192.0.2.1", {{"X-Tokens", "60"}}, {{"user", "ann"}}};
    CHECK(status(request) == 200 && status(request) == 429);
    request.method = "GET";
    CHECK(status(request) == 200);
    request.peer = "203.0.113.9";
    CHECK(status(request) == 403);
    CHECK(status({"POST", "/v1/a", "192.0.2.1", {{"X-Tokens", "1"}}, {}}) == 400);
    CHECK(status({"POST", "/v1/a", "192.0.2.1", {{"X-Tokens", "many"}}, {{"user", "ann"}}}) == 400);
    limiter.admin().set_entry("override tokens ann", R"({"numbers": "200/hour fixed_window"})");
    CHECK(status({"POST", "/v1/b", "192.0.2.1", {{"X-Tokens", "140"}}, {{"user", "ann"}}}) == 200);
    CHECK(status_of([&] { polylimit::GuardCheck check(guard, keyed("k")); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(status_of([&] { polylimit::Guard both(limiter, {{"by_configuration", "true"}, {"policy", "tokens"}}); }) ==
          POLYLIMIT_INVALID_ARGUMENT);
}

static void facts_reach_the_guard() {
    polylimit::ManualClock clock(1700000000000000);
    polylimit::Limiter limiter("memory:", {{"policy.api", "5/hour fixed_window"}}, &clock);
    polylimit::Guard outer(limiter, {{"policy", "api"}});
    polylimit::Guard inner(limiter, {{"per_request", "true"}, {"key_part", "user"}, {"key_part", "address"}, {"scope", "s"}});
    auto facts = keyed("outer");
    facts.cost = 2;
    polylimit::GuardCheck first(outer, facts);
    CHECK(admits(first) && limiter.peek("outer").remaining() == 3);
    polylimit::RequestFacts parts;
    parts.key_values = {"ann", std::nullopt};
    parts.address = "192.0.2.1";
    parts.route = "/r";
    parts.policies = {"0/hour"};
    polylimit::GuardCheck second(inner, parts, &first);
    CHECK(!admits(second) && second.outcomes(true).size() == 2);
    // The denial gives back what the outer guard has spent.
    CHECK(limiter.peek("outer").remaining() == 5);
    parts.policies = std::vector<std::string>();
    polylimit::GuardCheck unlimited(inner, parts);
    CHECK(admits(unlimited) && unlimited.outcomes().empty());
    // An empty key is none, and then the address is needed.
    CHECK(status_of([&] { polylimit::GuardCheck(outer, keyed("")); }) == POLYLIMIT_INVALID_ARGUMENT);
    parts.route = std::string("a\0b", 3);
    CHECK(status_of([&] { polylimit::GuardCheck(inner, parts); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(status_of([&] { polylimit::Guard(limiter, {{"nonsense", "1"}}); }) == POLYLIMIT_INVALID_ARGUMENT);
}

static void program_overrules_an_outage() {
    polylimit::Limiter limiter("redis://127.0.0.1:1?deadline=20ms&first_connect_max=20ms",
                               {{"policy.api", "5/hour"}, {"outage.api", "deny"}});
    polylimit::Guard guard(limiter);
    polylimit::GuardCheck check(guard, keyed("k"));
    CHECK(check.run());
    auto outage = check.outage();
    CHECK(outage && !outage->cause && check.conclude(POLYLIMIT_OUTAGE_ADMIT));
    polylimit::GuardCheck left(guard, keyed("k"));
    left.give_up();
    outage = left.outage();
    CHECK(outage && outage->cause && outage->cause->status() == POLYLIMIT_STORE_UNAVAILABLE);
    CHECK(!admits(left, POLYLIMIT_OUTAGE_DENY) && left.response().status == 503);
}

static void check_completes_later() {
    polylimit::Limiter limiter(std::string(std::getenv("REDIS_URL")), {{"policy.api", "1000000/hour"}});
    limiter.ready(10s);
    polylimit::Guard guard(limiter);
    polylimit::Completions completions;
    polylimit::GuardCheck check(guard, keyed("http.cpp"));
    while (!check.submit(completions, 7)) {
        std::uint64_t tag = 0;
        while (tag == 0) {
            pollfd watched = {completions.fd(), POLLIN, 0};
            CHECK(poll(&watched, 1, 10000) == 1);
            completions.drain([&](const polylimit_result &result) { tag = result.tag; });
        }
        CHECK(tag == 7);
    }
    CHECK(check.conclude() && check.outcomes().size() == 1);
}

static void client_waits_and_gives_up() {
    std::chrono::system_clock::time_point date(784111777s);
    CHECK(polylimit::server_wait({{"ratelimit", "\"a\";r=0;t=30"}, {"retry-after", "2"}}) == 2s);
    CHECK(polylimit::server_wait({{"RateLimit", "\"a\";r=0;t=30"}}) == 30s);
    CHECK(polylimit::server_wait({{"Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT"}}, date - 1500ms) == 1500ms);
    CHECK(polylimit::server_wait({{"Retry-After", "1"}, {"Retry-After-Ms", "120"}}) == 120ms);
    CHECK(!polylimit::server_wait({}) && !polylimit::server_wait({{"", ""}}));
    auto backoff = polylimit::Backoff();
    CHECK(*backoff.wait(0) <= 100ms);
    backoff.base(1s).cap(2s).max_wait(1min).max_retries(2);
    CHECK(*backoff.wait(1, 3s) >= 3s && *backoff.wait(1, 3s) <= 5s);
    CHECK(!backoff.wait(2) && !backoff.wait(0, 2min));
    CHECK(status_of([&] { (void)backoff.base(-1s); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(status_of([&] { polylimit::Throttle refused(backoff.base(0s)); }) == POLYLIMIT_INVALID_ARGUMENT);
}

static void request_is_acquired_sent_retried_and_refused() {
    polylimit::Limiter limiter("memory:", {{"policy.api", "1/hour"}});
    polylimit::Throttle throttle;
    polylimit::Attempts attempts(throttle, "host", "GET", true);
    auto [step, timeout] = attempts.step();
    CHECK(step == POLYLIMIT_STEP_ACQUIRE && timeout > 0us && timeout <= 5min);
    attempts.acquired(limiter.check("host"));
    CHECK(attempts.step().step == POLYLIMIT_STEP_SEND && !attempts.refusal());
    CHECK(attempts.responded(429, {{"Retry-After", "60"}}));
    CHECK(attempts.step().step == POLYLIMIT_STEP_WAIT);
    polylimit::Attempts refused(throttle, "host", "GET", true, 1s);
    CHECK(refused.step().step == POLYLIMIT_STEP_REFUSE);
    auto refusal = refused.refusal();
    CHECK(refusal && refusal->reason.find("the server asked for a wait of 60 s") == 0 && *refusal->retry_after <= 60s);
    CHECK(!refused.responded(200));
    CHECK(status_of([&] { (void)refused.responded(70000); }) == POLYLIMIT_INVALID_ARGUMENT);
}

int main() {
    run_tests({
        {"guard admits denies and refunds", guard_admits_denies_and_refunds},
        {"guard holds what it reserves", guard_holds_what_it_reserves},
        {"each policy has its own cost", each_policy_has_its_own_cost},
        {"guard decides by the configuration", guard_decides_by_the_configuration},
        {"facts reach the guard", facts_reach_the_guard},
        {"program overrules an outage", program_overrules_an_outage},
        {"check completes later", check_completes_later},
        {"client waits and gives up", client_waits_and_gives_up},
        {"request is acquired sent retried and refused", request_is_acquired_sent_retried_and_refused},
    });
}
