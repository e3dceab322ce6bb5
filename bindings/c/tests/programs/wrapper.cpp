/* The C++ wrapper, polylimit.hpp. */
#include <polylimit.hpp>

#include "check.hpp"
#include <memory>
#include <mutex>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <variant>

using namespace std::chrono_literals;

template <typename Work> static polylimit_status status_of(Work work) {
    try {
        work();
    } catch (const polylimit::Error &error) {
        CHECK(std::string(error.what()).size() > 0 && std::string(error.code()).size() > 0);
        return error.status();
    }
    return POLYLIMIT_OK;
}

static_assert(std::is_move_constructible_v<polylimit::Limiter> && !std::is_copy_constructible_v<polylimit::Limiter>);

static void decides() {
    polylimit::ManualClock clock(1700000000000000);
    polylimit::Limiter limiter("memory:", {{"policy.api", "3/minute fixed_window"}}, &clock);
    auto decision = limiter.check("user:42", {nullptr, 3});
    CHECK(decision && decision.remaining() == 0 && decision.retry_after() == 0us && decision.reset_after() == 1min);
    decision = limiter.check("user:42");
    CHECK(!decision && decision.retry_after() == 1min && std::string(decision.source()) == "store");
    CHECK(decision.degraded() == nullptr);
    CHECK(limiter.check("user:42", {nullptr, 4}).retry_after() == std::nullopt);
    CHECK(limiter.headers(decision, nullptr, "legacy").find("x-ratelimit-limit: 3\r\n") == 0);
    auto problem = limiter.problem(decision);
    CHECK(problem && problem->first == 429 && problem->second[0] == '{');
    clock.advance(1min);
    CHECK(limiter.peek("user:42") && limiter.take("user:42", {nullptr, 5}).taken() == 3);
    CHECK(limiter.refund("user:42").remaining() == 1 && limiter.charge("user:42").remaining() == 0);
    CHECK(!limiter.acquire("user:42", 1s) && limiter.reset("user:42").remaining() == 3);
    CHECK(limiter.policy_for() == "api" && limiter.policy_for("1/s", "here") == "1|second^here");
    CHECK(limiter.policy("api") == "3/minute fixed_window");
    CHECK(status_of([&] { (void)limiter.policy("absent"); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(limiter.check("x", {"1/s; 2/m"}).remaining() == 0 && limiter.admin().doctor().empty());
    limiter.set_policy("api", "9/minute fixed_window");
    auto admin = limiter.admin();
    auto moved = std::move(limiter);
    CHECK(moved.check("user:42").remaining() == 8 && admin.doctor().empty());
    moved.close();
    CHECK(status_of([&] { (void)moved.check("user:42"); }) == POLYLIMIT_CLOSED);
    CHECK(status_of([&] { (void)admin.list(); }) == POLYLIMIT_CLOSED);
}

static void tells_which_quota_denied() {
    polylimit::ManualClock clock(1700000000000000);
    polylimit::Limiter limiter("memory:", {{"policy.api", "5/hour fixed_window; 2/minute fixed_window"}}, &clock);
    for (const auto &quota : limiter.check("user:42", {nullptr, 2}).quotas()) {
        CHECK(quota.allowed() && quota.retry_after() == 0us && quota.over() == 0);
    }
    auto quotas = limiter.check("user:42").quotas();
    CHECK(quotas.size() == 2 && quotas[0].allowed() && !quotas[1].allowed());
    CHECK(quotas[1].retry_after() == 1min && quotas[1].reset_after() == 1min);
    CHECK(quotas[0].limit() == 5 && quotas[0].remaining() == 3 && quotas[0].plain().allowed == 1);
    CHECK(limiter.peek("user:42", {nullptr, 4}).quotas()[1].retry_after() == std::nullopt);
    CHECK(limiter.charge("user:42").quotas()[1].allowed());
}

static void leaves_headroom_and_blocks() {
    polylimit::ManualClock clock(1700000000000000);
    polylimit::Limiter limiter("memory:", {{"policy.api", "10/minute fixed_window excess=1"}}, &clock);
    CHECK(limiter.check("k", {nullptr, 8, 25}) && !limiter.peek("k", {nullptr, 1, 25}));
    CHECK(!limiter.reserve("k", {nullptr, 1, 25}));
    auto decision = limiter.check("k", {nullptr, 3, 0, "gold"});
    CHECK(decision && decision.crossed() && decision.over() == 1 && decision.cause() == nullptr);
    CHECK(!decision.elastic() && !decision.shadowed() && std::string(limiter.check("k").cause()) == "quota");
    CHECK(limiter.admin().block("k", 2min).reset_after() == 2min);
    decision = limiter.check("k");
    CHECK(!decision && std::string(decision.cause()) == "blocked" && decision.retry_after() == 2min);
    clock.advance(1min);
    CHECK(limiter.admin().unblock("k").remaining() == 11 && limiter.check("k"));
    CHECK(status_of([&] { limiter.admin().block("k", -1us); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(status_of([&] { (void)limiter.check("k", {nullptr, 1, 100}); }) == POLYLIMIT_INVALID_ARGUMENT);
}

/* The message of an error; empty if there is none. */
template <typename Work> static std::string message_of(Work work) {
    try {
        work();
    } catch (const polylimit::Error &error) {
        CHECK(error.status() == POLYLIMIT_INVALID_ARGUMENT);
        return error.what();
    }
    return "";
}

static void reports_numbers_as_they_were_written() {
    polylimit::Limiter limiter("memory:", {{"policy.api", "3/minute"}});
    polylimit::ReserveOptions options;
    options.max_age = -1500ms;
    CHECK(message_of([&] { (void)limiter.check("k", {nullptr, -1}); }) ==
          "cost is -1: allowed are whole numbers of units, 0 to 10^12");
    CHECK(message_of([&] { (void)limiter.check("k", {nullptr, 1.5}); }).find("cost is 1.5") == 0);
    CHECK(message_of([&] { (void)limiter.renew("k", "id", -5s); }) == "ttl is -5 s: allowed is 0 or more");
    CHECK(message_of([&] { (void)limiter.acquire("k", -1us); }) == "timeout is -1 us: allowed is 0 or more");
    CHECK(message_of([&] { (void)limiter.reserve("k", {}, options); }) == "max_age is -1500 ms: allowed is 0 or more");
    CHECK(message_of([&] { limiter.ready(-1s); }).find("timeout is -1 s") == 0);
}

static void decides_by_a_configuration() {
    const char *document = R"({"polylimit": 1, "policies": {"api": {"quotas": "3/minute fixed_window"}, "slots": {"quotas": "1 concurrent"}},
        "rules": [{"match": {"path": "/slow"}, "apply": [{"policy": "slots", "key": "all"}], "continue": true},
                  {"apply": [{"policy": "api", "key": "{user,client}", "headroom": 20}]}]})";
    polylimit::Limiter limiter("memory:", {{"document", document}});
    polylimit::RequestAttributes request{"GET", "/slow", "192.0.2.1", {{"x-trace", "1"}}, {{"user", "alice"}}};
    auto matches = limiter.admin().matching(request);
    CHECK(matches.size() == 2 && matches[1].policy == "api" && matches[1].key == "user=alice" && matches[1].headroom == 20);
    polylimit::ReserveOptions options;
    options.id = "one";
    auto decided = limiter.decide(request, options);
    CHECK(decided && decided.status == 0 && decided.cause == nullptr && decided.decisions.size() == 2);
    CHECK(decided.decisions[0].reservation == "one" && !decided.decisions[1].reservation);
    CHECK(decided.decisions[1].decision.remaining() == 1 && decided.decisions[1].cost == 1);
    auto denied = limiter.decide(request);
    CHECK(!denied && denied.status == 429 && std::string(denied.cause) == "concurrency" && denied.retry_after > 1s);
    auto before = limiter.admin().configuration();
    CHECK(before && before->source == "document" && before->digest.size() == 64 && !before->error);
    CHECK(limiter.admin().set_entry("deny user alice", R"({"why": "a test"})").version > before->version);
    CHECK(limiter.decide(request).status == 403 && limiter.admin().candidate_counts("api") == std::nullopt);
    auto after = limiter.admin().delete_entry("deny user alice");
    CHECK(limiter.admin().wait_for_version(after.version, 0us).version == after.version);
    CHECK(limiter.admin().set_document(R"({"polylimit": 1, "policies": {"api": {"quotas": "9/s"}}})").version > after.version);
    CHECK(limiter.decide(request).decisions.empty());
    try {
        limiter.admin().set_document("polylimit = 1\nrule = 2\n");
        CHECK(false);
    } catch (const polylimit::Error &error) {
        CHECK(std::string(error.what()).find("line 2, column 1: ") == 0);
    }
    CHECK(status_of([&] { limiter.admin().publish(document, {1, "ann", "why"}); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(status_of([&] { limiter.admin().set_entry(std::string("deny user a\0b", 13)); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(!polylimit::Limiter("memory:", {{"policy.api", "1/s"}}).admin().configuration());
    polylimit::Completions completions;
    auto [pending, result] = completions.submit_decide(limiter, request, 1);
    CHECK(result && pending.get().allowed);
}

static bool has(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

static void tells_about_keys_and_metrics() {
    polylimit::ManualClock clock(1700000000000000);
    polylimit::Limiter limiter("memory:", {{"policy.api", "2/minute fixed_window"}, {"observe_keys", "64"}}, &clock);
    for (int at = 0; at < 3000; ++at) {
        (void)limiter.check("user:42");
    }
    CHECK(limiter.check("guest"));
    polylimit::ListOptions options;
    options.policy = "api";
    options.key_prefix = "user:";
    options.at_least_used = 100;
    options.entries = 10;
    auto admin = limiter.admin();
    auto page = admin.list(options);
    CHECK(has(page, "{\"keys\":[{\"policy\":\"api\",\"key\":\"user:42\"") && !has(page, "guest") && has(page, "\"cursor\":null}"));
    CHECK(has(admin.scan_top(1), "user:42") && !has(admin.scan_top(1), "guest"));
    CHECK(has(admin.explain("user:42"), "\"allowed\":false") && has(admin.explain("guest", {nullptr, 1, 50}), "\"allowed\":false"));
    CHECK(has(admin.top_keys(1), "{\"denied\":[{\"policy\":\"api\",\"key\":\"user:42\""));
    CHECK(has(limiter.metrics_text("prometheus"), "polylimit_decisions_total{policy=\"api\",result=\"denied\",source=\"store\"} 2998"));
    CHECK(has(limiter.metrics(), "[{\"name\":\"polylimit_decisions_total\""));
    CHECK(has(admin.reset_listed(options), "{\"reset\":1,") && limiter.check("user:42"));
    options.pace_percent = 101;
    CHECK(status_of([&] { (void)admin.list(options); }) == POLYLIMIT_INVALID_ARGUMENT);
    options.cursor = std::string("a\0b", 3);
    CHECK(status_of([&] { (void)admin.list(options); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(status_of([&] { (void)limiter.metrics_text("graphite"); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(status_of([&] { (void)admin.explain_request({}); }) == POLYLIMIT_INVALID_ARGUMENT);
    polylimit::Limiter configured("memory:", {{"document", R"({"polylimit": 1, "lists": {"deny": ["user mallory"]}})"}});
    polylimit::RequestAttributes request{"GET", "/", {}, {}, {{"user", "mallory"}}};
    CHECK(has(configured.admin().explain_request(request), "\"entry\":\"deny user mallory\""));
    polylimit::Completions completions;
    polylimit_query query = {};
    query.size = sizeof query;
    query.operation = POLYLIMIT_LIST;
    auto [report, result] = completions.submit_query(limiter, query, 1);
    CHECK(result && result->tag == 1 && has(std::string(*report.json()), "\"key\":\"guest\""));
}

/* One limiter publishes, and another one follows. */
static void publishes_a_configuration() {
    const char *url = std::getenv("REDIS_URL");
    CHECK(url != nullptr);
    const std::string name = "wrapper-" + std::to_string(getpid()), copy = "/tmp/polylimit-" + name;
    polylimit::Options options = {{"configuration", "store"}, {"prefix", name}, {"deadline", "30s"}};
    polylimit::Limiter writer(url, options);
    options.push_back({"copy", copy});
    polylimit::Limiter reader(url, options);
    const std::string document = "polylimit = 1\npolicies.api.quotas = '3/hour fixed_window'\n";
    auto published = writer.admin().publish(document, {std::nullopt, "ann", "the first"});
    CHECK(published.source == "store" && reader.admin().wait_for_version(published.version, 30s).digest == published.digest);
    CHECK(reader.check("k").remaining() == 2);
    CHECK(status_of([&] { writer.admin().publish(document, {99}); }) == POLYLIMIT_INVALID_ARGUMENT);
    auto changed = writer.admin().set_entry("override api k", R"({"numbers": "9/hour fixed_window"})");
    CHECK(reader.admin().wait_for_version(changed.version, 30s).version == changed.version && reader.check("k").remaining() == 7);
    changed = writer.admin().delete_entry("override api k");
    CHECK(reader.admin().wait_for_version(changed.version, 30s).version == changed.version && reader.check("k").remaining() == 0);
    CHECK(status_of([&] { reader.admin().wait_for_version(changed.version + 1, 1us); }) == POLYLIMIT_STORE_UNAVAILABLE);
    CHECK(status_of([&] { reader.admin().set_document(document); }) == POLYLIMIT_INVALID_ARGUMENT);
    // Without its server, a limiter starts from the copy, which is written after a change is active.
    for (int tries = 0;; ++tries) {
        auto started = polylimit::Limiter("redis://127.0.0.1:1?doctor_after=0", options).admin().configuration();
        if (started->version == changed.version) {
            CHECK(started->digest == published.digest && std::remove(copy.c_str()) == 0);
            break;
        }
        CHECK(tries < 60000 && usleep(1000) == 0);
    }
}

static void checks_several() {
    polylimit::ManualClock clock(1700000000000000);
    polylimit::Limiter limiter(
        "memory:", {{"policy.api", "3/minute fixed_window"}, {"policy.upload", "1/minute fixed_window"}}, &clock);
    auto results = limiter.check_many({{"a", {"api", 2}}, {"a", {"api", 2}}, {"a", {"absent"}}, {"b", {"upload"}}});
    CHECK(results.size() == 4 && std::get<polylimit::Decision>(results[0]).remaining() == 1);
    CHECK(!std::get<polylimit::Decision>(results[1]) && std::get<polylimit::Decision>(results[3]).allowed());
    const auto &error = std::get<polylimit::Error>(results[2]);
    CHECK(error.status() == POLYLIMIT_INVALID_ARGUMENT && std::string(error.what()).find("absent") != std::string::npos);

    auto decisions = limiter.check_together({{"c", {"api"}}, {"c", {"upload"}}});
    CHECK(decisions.size() == 2 && decisions[0] && decisions[1] && decisions[0].remaining() == 2);
    decisions = limiter.check_together({{"c", {"api"}}, {"c", {"upload"}}});
    CHECK(decisions[0] && !decisions[1] && limiter.peek("c", {"api"}).remaining() == 2);
    decisions = limiter.peek_together({{"c", {"api"}}, {"c", {"upload"}}});
    CHECK(decisions[0] && decisions[0].remaining() == 2 && !decisions[1]);
    CHECK(limiter.check_many({}).empty() && limiter.check_together({}).empty() && limiter.peek_together({}).empty());
    CHECK(status_of([&] { (void)limiter.peek_together({{"c", {"absent"}}}); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(status_of([&] { (void)limiter.check_together({{"c", {"api"}}, {"c", {"absent"}}}); }) ==
          POLYLIMIT_INVALID_ARGUMENT);
}

static void reserves_several() {
    polylimit::ManualClock clock(1700000000000000);
    polylimit::Limiter limiter("memory:",
                               {{"policy.model", "1 concurrent; 100/minute fixed_window"}, {"policy.rate", "9/minute"}}, &clock);
    std::vector<polylimit::Request> both = {{"c", {"model", 40}}, {"c", {"rate"}}};
    auto reserved = limiter.reserve_together(both);
    CHECK(reserved && reserved.id.size() == 32 && reserved.decisions.size() == 2 && reserved.decisions[1].remaining() == 8);
    CHECK(!limiter.reserve_together(both) && limiter.peek("c", {"rate"}).remaining() == 8);
    CHECK(limiter.cancel("c", reserved.id, "model").found() && !limiter.cancel("c", reserved.id, "rate").found());
    polylimit::ReserveOptions options;
    options.id = "job";
    options.remember = std::chrono::hours(1);
    for (bool repeated : {false, true}) {
        CHECK(limiter.reserve_together(both, options).id == "job");
        auto usage = limiter.commit("c", "job", 30, "model");
        CHECK(usage.found() && usage.repeated() == repeated && usage.remaining() == 70);
    }
    polylimit::Completions completions;
    polylimit::ReservationTerms terms;
    terms.id = "own";
    terms.ttl = std::chrono::seconds(1);
    auto known = completions.submit_together(limiter, POLYLIMIT_RESERVE, both, 1, terms);
    CHECK(known && known->at(0).allowed() && limiter.cancel("c", "own", "model").found());
    CHECK(completions.submit_together(limiter, POLYLIMIT_PEEK, both, 1)->at(1).remaining() == 5);
    options.timeout = std::chrono::seconds(1);
    CHECK(status_of([&] { (void)limiter.reserve_together(both, options); }) == POLYLIMIT_INVALID_ARGUMENT);
    options.timeout = {};
    options.ttl = std::chrono::seconds(-1);
    CHECK(status_of([&] { (void)limiter.reserve_together(both, options); }) == POLYLIMIT_INVALID_ARGUMENT);
    limiter.close();
    CHECK(status_of([&] { (void)limiter.reserve_together(both); }) == POLYLIMIT_CLOSED);
}

/* The counters are those of a store on a network, so this test needs one. */
static void counts() {
    const char *url = std::getenv("REDIS_URL");
    CHECK(url != nullptr);
    polylimit::Limiter limiter(url, {{"policy.api", "3/minute"}});
    limiter.ready(30s);
    CHECK(status_of([&] { limiter.admin().set_credentials(nullptr, nullptr); }) == POLYLIMIT_INVALID_ARGUMENT);
    limiter.admin().set_credentials("default", "");
    auto before = limiter.stats();
    (void)limiter.reset("C++ counts");
    auto after = limiter.stats();
    CHECK(before.size() > 5 && before.size() == after.size() && after != before);
}

/* The URL of the Redis server for tests, without options. */
static std::string bare_url() {
    const char *url = std::getenv("REDIS_URL");
    CHECK(url != nullptr);
    return std::string(url).substr(0, std::string(url).find('?'));
}

/* Runs a command of redis-cli on that server. */
static void redis(const std::string &words) {
    CHECK(std::system(("redis-cli -u " + bare_url() + " " + words + " >/dev/null 2>&1").c_str()) == 0);
}

static void takes_credentials_from_a_function() {
    const polylimit::Options options = {{"policy.api", "1000000/hour"}, {"deadline", "5s"}, {"doctor_after", "0"}, {"outage", "deny"}};
    const std::string url = bare_url();
    redis("acl setuser wrapper reset on '>one' '~*' '&*' +@all");
    std::mutex lock;
    std::string password = "one";
    {
        polylimit::Limiter limiter(url, options, [&] {
            std::lock_guard<std::mutex> locked(lock);
            return polylimit::Credentials{password, "wrapper"};
        });
        auto is_by_store = [&] {
            auto decision = limiter.check("k");
            CHECK(decision.degraded() == nullptr || std::string(decision.degraded()) != "auth");
            return std::string(decision.source()) == "store";
        };
        CHECK(is_by_store());
        redis("acl setuser wrapper '>two'");
        {
            std::lock_guard<std::mutex> locked(lock);
            password = "two";
        }
        redis("acl setuser wrapper '<one'");
        redis("client kill user wrapper");
        for (int tries = 0; !is_by_store(); ++tries) {
            CHECK(tries < 2000 && usleep(10000) == 0);
        }
        for (int decisions = 0; decisions < 50; ++decisions) {
            CHECK(is_by_store());
        }
        auto moved = std::move(limiter);
        CHECK(moved.check("k"));
    }
    auto cause_of = [&](polylimit::GiveCredentials give) {
        polylimit::Limiter limiter(url, options, std::move(give));
        CHECK(std::string(limiter.check("k").degraded()) == "auth");
        try {
            limiter.ready(30s);
        } catch (const polylimit::Error &error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(has(cause_of([]() -> polylimit::Credentials { throw std::runtime_error("the token service is away"); }),
              "the function credentials gives no password: the token service is away"));
    CHECK(has(cause_of([]() -> polylimit::Credentials { throw 5; }), "it has thrown what is no std::exception"));
    CHECK(has(cause_of([] { return polylimit::Credentials{std::string("a\0b", 3)}; }), "password has a NUL in it"));

    // The function is destroyed with the last use of it.
    auto held = std::make_shared<int>(5);
    auto holds = [held] { return polylimit::Credentials{std::to_string(*held)}; };
    CHECK(polylimit::Limiter("memory:", {{"policy.api", "1/s"}}, holds).check("k"));
    CHECK(status_of([&] { polylimit::Limiter("nonsense", {}, holds); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(held.use_count() == 2);
    CHECK(status_of([] { polylimit::Limiter("memory:", {}, polylimit::GiveCredentials()); }) == POLYLIMIT_INVALID_ARGUMENT);
}

static void tells() {
    polylimit::Limiter limiter("memory:", {{"policy.api", "3/minute"}, {"max_keys", "1"}});
    std::string told;
    limiter.on_degraded([&](const polylimit_degraded_event &event) {
        told += std::string(event.kind) + " " + event.reason;
        throw 5;
    });
    auto moved = std::move(limiter);
    CHECK(moved.check("one") && told.empty());
    CHECK(moved.check("another") && moved.check("a third"));
    CHECK(told == "started store_full");
    moved.on_degraded({});
    moved = polylimit::Limiter("memory:", {{"policy.api", "3/minute"}});
    CHECK(moved.check("one"));
}

static void refuses() {
    polylimit::Limiter limiter("memory:", {{"policy.api", "3/minute"}});
    auto refused = [&](auto cost) {
        return status_of([&] { (void)limiter.check("k", {nullptr, cost}); }) == POLYLIMIT_INVALID_ARGUMENT;
    };
    CHECK(refused(-1) && refused(-1L) && refused(std::nan("")) && refused(1e308) && refused(18446744073709551616.0));
    CHECK(refused(-0.5f) && refused(1.5) && refused(1000000000001) && refused(UINT64_MAX) && refused(INFINITY));
    CHECK(limiter.check("k", {nullptr, 3.0}).remaining() == 0);
    CHECK(status_of([] { polylimit::Limiter("nonsense"); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(status_of([] { polylimit::Limiter(std::string("memory:\0x", 9)); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(status_of([] { polylimit::ManualClock(UINT64_MAX); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(status_of([] { polylimit::Limiter("redis://127.0.0.1:1").ready(1ms); }) == POLYLIMIT_STORE_UNAVAILABLE);
    CHECK(status_of([] { polylimit::Limiter("memory:", {{"policy.a", std::string("1/s\0", 4)}}); }) ==
          POLYLIMIT_INVALID_ARGUMENT);
}

static void completes() {
    polylimit::ManualClock clock(1700000000000000);
    polylimit::Limiter limiter("memory:", {{"policy.api", "1/minute fixed_window"}}, &clock);
    polylimit::Completions completions;
    CHECK(completions.submit(limiter, POLYLIMIT_CHECK, "k", 1)->answer.decision.allowed == 1);
    CHECK(!completions.submit(limiter, POLYLIMIT_ACQUIRE, "k", 2, {}, 1h));
    CHECK(!completions.submit(limiter, POLYLIMIT_ACQUIRE, "k", 3, {}, 1h));
    CHECK(completions.pending() == 2 && completions.cancel(2) && !completions.cancel(2));
    clock.advance(1min);
    std::uint64_t tag = 0;
    while (tag == 0) {
        pollfd watched = {completions.fd(), POLLIN, 0};
        CHECK(poll(&watched, 1, 10000) == 1);
        completions.drain([&](const polylimit_result &result) { tag = result.tag; });
    }
    CHECK(tag == 3 && completions.pending() == 0);
}

static void reserves() {
    polylimit::ManualClock clock(1700000000000000);
    polylimit::Limiter limiter("memory:", {{"policy.api", "2 concurrent; 100/minute fixed_window"}}, &clock);
    auto left = [&] { return limiter.peek("k").remaining(); };
    try {
        auto reservation = limiter.reserve("k", {nullptr, 40});
        CHECK(reservation && reservation.decision().remaining() == 60 && reservation.id().size() == 32);
        throw 5;
    } catch (int) {
        CHECK(left() == 100);
    }
    {
        auto first = limiter.reserve("k", {nullptr, 40}), second = limiter.reserve("k", {nullptr, 20});
        auto denied = limiter.reserve("k");
        CHECK(first && second && !denied && denied.decision().retry_after() == 30s && !denied.commit(1).found());
        CHECK(first.commit(25).found() && !first.commit(25).found() && !first.is_lost());
        CHECK(second.commit_reserved().remaining() == 55 && !second.cancel().found());
        auto third = limiter.reserve("k", {"api", 10});
        auto moved = std::move(third);
        CHECK(moved.cancel().found() && left() == 55);
    }
    polylimit::ReserveOptions options;
    options.id = "mine";
    options.ttl = 10s;
    options.max_age = 0s;
    options.commit_at_end = true;
    CHECK(limiter.reserve("k", {nullptr, 5}, options) && left() == 50);
    CHECK(limiter.reserve("k", {nullptr, 5}, options).detach() == "mine" && left() == 45);
    CHECK(limiter.renew("k", "mine", 20s).reset_after() == 1min && limiter.commit("k", "mine", 4).remaining() == 46);
    CHECK(!limiter.commit_reserved("k", "mine").found() && !limiter.cancel("k", "mine", "api").found());
    clock.advance(1min);
    (void)limiter.reserve("k", {nullptr, 5}, options).detach();
    clock.advance(9999999us);
    CHECK(left() == 95);
    clock.advance(1us);
    CHECK(left() == 100);
    options.ttl = 48h + 1us;
    CHECK(status_of([&] { (void)limiter.reserve("k", {}, options); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(status_of([&] { limiter.commit("k", "mine", POLYLIMIT_AS_RESERVED); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(status_of([&] { limiter.reserve("k").commit(-1); }) == POLYLIMIT_INVALID_ARGUMENT && left() == 100);
    CHECK(status_of([&] { (void)limiter.check("k"); }) == POLYLIMIT_INVALID_ARGUMENT);
}

static void completes_reservations() {
    polylimit::Limiter limiter("memory:", {{"policy.api", "1 concurrent"}});
    polylimit::Completions completions;
    auto [first, known] = completions.submit_reserve(limiter, "k", 1);
    CHECK(known && known->tag == 1 && first.allowed());
    polylimit::ReserveOptions options;
    options.timeout = 1h;
    auto [second, pending] = completions.submit_reserve(limiter, "k", 2, {}, options);
    CHECK(!pending && status_of([&, &waiting = second] { (void)waiting.decision(); }) == POLYLIMIT_INVALID_ARGUMENT);
    CHECK(completions.submit_commit(first, 1, 3)->answer.usage.found == 1);
    std::uint64_t tag = 0;
    while (tag == 0) {
        pollfd watched = {completions.fd(), POLLIN, 0};
        CHECK(poll(&watched, 1, 60000) == 1);
        completions.drain([&](const polylimit_result &result) { tag = result.tag; });
    }
    CHECK(tag == 2 && second.allowed() && completions.submit_cancel(second, 4)->answer.usage.found == 1);
    auto reserved = completions.submit(limiter, POLYLIMIT_RESERVE, "k", 5, {}, {}, {"mine", 1min});
    CHECK(reserved && reserved->answer.decision.allowed == 1 && limiter.cancel("k", "mine").found());
}

int main() {
    run_tests({
        {"decides", decides},
        {"names the quota that denied", tells_which_quota_denied},
        {"leaves headroom and blocks", leaves_headroom_and_blocks},
        {"reports numbers as they were written", reports_numbers_as_they_were_written},
        {"decides by a configuration", decides_by_a_configuration},
        {"publishes a configuration", publishes_a_configuration},
        {"checks several", checks_several},
        {"reserves several", reserves_several},
        {"counts", counts},
        {"takes credentials from a function", takes_credentials_from_a_function},
        {"tells", tells},
        {"describes keys and metrics", tells_about_keys_and_metrics},
        {"refuses", refuses},
        {"completes", completes},
        {"reserves", reserves},
        {"completes reservations", completes_reservations},
    });
}
