/*
 * Calls in random order with random valid and invalid arguments: random_calls [SEED] [CALLS]. It runs under sanitizers. A run is
 * repeated by its seed.
 */
#include "check.h"

#include <time.h>

enum { HANDLES = 4 };

static uint64_t state;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t below(uint64_t bound) { return next() % bound; }

static polylimit_limiter *limiters[HANDLES];
static polylimit_completions *completions[HANDLES];
static polylimit_clock *clocks[HANDLES];
static polylimit_address_rules *rules[HANDLES];
static polylimit_reservation *reservations[HANDLES];

static const char *some_text(void) {
    static const char *const texts[] = {
        "api", "login", "100/minute", "1/s; 5/m token_bucket burst=9", "3/h sliding_log", "2/s leaky_bucket burst=4", "",
        "nobody", "1 per year", "2 concurrent", "3 concurrent; 9/m", "policy.api", "outage.api", "deny", "memory:", "redis://127.0.0.1:1?deadline=1ms",
        "max_keys", "5", "observe_keys", "\xff\xfe", "ietf", "both epoch", "trust", "private", "10.0.0.1", "header", "forwarded",
        "x-forwarded-for", "for=\"[2001:db8::1]\", for=10.0.0.2", "1/s count_denied; 0/h", "60/m buckets=60"};
    uint64_t at = below(sizeof texts / sizeof *texts + 1);
    return at == sizeof texts / sizeof *texts ? NULL : texts[at];
}

static uint64_t some_number(void) {
    static const uint64_t numbers[] = {0, 1, 2, 3, 7, 100, 1000000, 1000000000000, 1000000000001, START_US, UINT64_MAX};
    return numbers[below(sizeof numbers / sizeof *numbers)];
}

static uint32_t some_size(size_t right) { return below(8) == 0 ? (uint32_t)below(1000) : (uint32_t)right; }

static polylimit_request some_request(void) {
    static char key[64], id[POLYLIMIT_RESERVATION_ID_SIZE + 2];
    polylimit_request request = {.operation = (uint32_t)below(15), .policy = some_text(), .cost = some_number()};
    /* A size that is too small is refused. A size beyond the struct is not tried, because the library may then write there. */
    request.size = below(8) == 0 ? (uint32_t)below(sizeof request) : sizeof request;
    request.key = below(16) == 0 ? NULL : key;
    request.key_length = below(sizeof key);
    request.timeout_us = below(3) == 0 ? some_number() : 0;
    request.id = below(16) == 0 ? NULL : id;
    request.id_length = below(8) == 0 ? below(sizeof id) : 1;
    request.ttl_us = below(2) ? 1000000 : some_number();
    request.plan = below(4) == 0 ? some_text() : NULL;
    request.headroom = below(4) == 0 ? (uint32_t)some_number() : 0;
    id[0] = (char)below(3);
    for (size_t at = 0; at < sizeof key; at++) {
        key[at] = (char)below(4);
    }
    return request;
}

static void open_something(size_t at) {
    polylimit_option options[3] = {{"policy.api", "3/minute"}, {some_text(), some_text()}, {some_text(), some_text()}};
    const polylimit_clock *clock = below(2) ? clocks[below(HANDLES)] : NULL;
    switch (below(4)) {
    case 0:
        polylimit_limiter_free(limiters[at]);
        limiters[at] = NULL;
        polylimit_limiter_open(below(4) == 0 ? some_text() : "memory:", options, below(4), clock, &limiters[at], MESSAGE);
        return;
    case 1:
        polylimit_completions_free(completions[at]);
        completions[at] = NULL;
        polylimit_completions_open(&completions[at], MESSAGE);
        return;
    case 2:
        polylimit_clock_free(clocks[at]);
        clocks[at] = NULL;
        polylimit_clock_new(some_number(), &clocks[at], MESSAGE);
        return;
    default:
        polylimit_address_rules_free(rules[at]);
        rules[at] = NULL;
        polylimit_address_rules_new(options + 1, below(3), &rules[at], MESSAGE);
    }
}

/* Waits are bounded: a blocking acquire has a timeout of at most a millisecond. */
static void call_and_wait(const polylimit_limiter *limiter) {
    polylimit_request asked = some_request();
    polylimit_decision decision = {.size = some_size(sizeof decision)};
    polylimit_usage usage = {.size = some_size(sizeof usage)};
    polylimit_decision *decision_out = below(16) ? &decision : NULL;
    polylimit_usage *usage_out = below(16) ? &usage : NULL;
    /* As above, no size beyond the struct. */
    decision.size = decision.size > sizeof decision ? sizeof decision : decision.size;
    usage.size = usage.size > sizeof usage ? sizeof usage : usage.size;
    const char *policy = asked.policy;
    const void *key = asked.key;
    size_t length = asked.key_length;
    switch (below(9)) {
    case 0: polylimit_limiter_check(limiter, policy, key, length, asked.cost, decision_out, MESSAGE); return;
    case 1: polylimit_limiter_peek(limiter, policy, key, length, asked.cost, decision_out, MESSAGE); return;
    case 2: polylimit_limiter_take(limiter, policy, key, length, asked.cost, usage_out, MESSAGE); return;
    case 3: polylimit_limiter_charge(limiter, policy, key, length, asked.cost, usage_out, MESSAGE); return;
    case 4: polylimit_limiter_refund(limiter, policy, key, length, asked.cost, usage_out, MESSAGE); return;
    case 5: polylimit_limiter_reset(limiter, policy, key, length, usage_out, MESSAGE); return;
    case 6: polylimit_admin_block(limiter, policy, key, length, asked.ttl_us, usage_out, MESSAGE); return;
    case 7: polylimit_admin_unblock(limiter, policy, key, length, usage_out, MESSAGE); return;
    default:
        polylimit_limiter_acquire(limiter, policy, key, length, asked.cost, below(1000), decision_out, MESSAGE);
    }
}

/* Ids of a valid length, so that the library may write a random one. */
static void call_reservation(const polylimit_limiter *limiter, polylimit_completions *chosen, polylimit_reservation **handle) {
    polylimit_request asked = some_request();
    polylimit_decision decision = {.size = sizeof decision};
    polylimit_usage usage = {.size = sizeof usage};
    polylimit_result result;
    polylimit_reservation_options options = {.size = sizeof options};
    polylimit_reservation_defaults(&options, MESSAGE);
    options.commit_at_end = (uint32_t)below(3);
    options.ttl_us = asked.ttl_us;
    options.max_age_us = some_number();
    options.plan = asked.plan;
    options.headroom = asked.headroom;
    if (below(2)) {
        options.id = asked.id;
        options.id_length = asked.id_length;
    }
    char id[POLYLIMIT_RESERVATION_ID_SIZE] = "a";
    size_t id_length = below(3), length = asked.key_length;
    const char *policy = asked.policy;
    const void *key = asked.key;
    polylimit_reservation *made = NULL;
    switch (below(14)) {
    case 0:
        polylimit_limiter_reserve(limiter, policy, key, length, asked.cost, below(16) ? id : NULL, &id_length, asked.ttl_us,
                                  below(1000), below(3) ? 0 : asked.ttl_us, &decision, MESSAGE);
        return;
    case 1:
        polylimit_limiter_commit(limiter, policy, key, length, asked.id, asked.id_length, asked.cost, &usage, MESSAGE);
        return;
    case 2: polylimit_limiter_cancel(limiter, policy, key, length, asked.id, asked.id_length, &usage, MESSAGE); return;
    case 3:
        polylimit_limiter_renew(limiter, policy, key, length, asked.id, asked.id_length, asked.ttl_us, &usage, MESSAGE);
        return;
    case 4: polylimit_reservation_commit(*handle, asked.cost, &usage, MESSAGE); return;
    case 5: polylimit_reservation_cancel(*handle, &usage, MESSAGE); return;
    case 6: polylimit_reservation_detach(*handle); return;
    case 7: polylimit_reservation_submit_commit(chosen, *handle, asked.cost, below(40), &result, sizeof result, MESSAGE); return;
    case 8: polylimit_reservation_submit_cancel(chosen, *handle, below(40), &result, sizeof result, MESSAGE); return;
    case 9: polylimit_reservation_decision(*handle, &decision, MESSAGE); return;
    case 10: (void)(polylimit_reservation_id(*handle, &length) != NULL || polylimit_reservation_is_lost(*handle)); return;
    case 11:
        options.timeout_us = asked.timeout_us;
        polylimit_reservation_submit(chosen, limiter, policy, key, length, asked.cost, &options, below(40), &made, &result,
                                     sizeof result, MESSAGE);
        break;
    default:
        options.timeout_us = below(1000);
        polylimit_reservation_new(limiter, policy, key, length, asked.cost, below(4) ? &options : NULL, &made, MESSAGE);
    }
    if (made != NULL) {
        polylimit_reservation_free(*handle);
        *handle = made;
    }
}

static void call_batch(const polylimit_limiter *limiter) {
    polylimit_request requests[5];
    polylimit_result results[5];
    size_t count = below(6);
    for (size_t at = 0; at < count; at++) {
        requests[at] = some_request();
        requests[at].operation = below(4) ? POLYLIMIT_CHECK : requests[at].operation;
    }
    polylimit_limiter_check_many(limiter, requests, sizeof *requests, count, below(16) ? results : NULL, sizeof *results,
                                 MESSAGE);
    polylimit_decision decisions[5];
    polylimit_limiter_check_together(limiter, requests, sizeof *requests, count, below(16) ? decisions : NULL,
                                     sizeof *decisions, MESSAGE);
    static const char id[POLYLIMIT_RESERVATION_ID_SIZE + 6] = "id";
    int reserves = below(2) == 0;
    for (size_t at = 0; at < count; at++) {
        requests[at].operation = below(16) ? reserves ? POLYLIMIT_RESERVE : POLYLIMIT_PEEK : requests[at].operation;
        requests[at].id = id;
        requests[at].id_length = below(16) ? 2 : below(sizeof id);
        requests[at].ttl_us = below(16) ? 1000000 : below(2000);
        requests[at].timeout_us = below(16) ? 0 : below(2000);
    }
    (reserves ? polylimit_limiter_reserve_together : polylimit_limiter_peek_together)(
        limiter, requests, sizeof *requests, count, decisions, sizeof *decisions, MESSAGE);
}

static void submit_or_drain(polylimit_completions *chosen, const polylimit_limiter *limiter) {
    polylimit_request asked = some_request();
    polylimit_result results[4];
    size_t count = 0;
    uint32_t cancelled = 0;
    switch (below(5)) {
    case 0: polylimit_completions_drain(chosen, results, sizeof *results, below(5), &count, MESSAGE); break;
    case 1: polylimit_completions_cancel(chosen, below(40), &cancelled, MESSAGE); break;
    case 2: (void)(polylimit_completions_pending(chosen) + (size_t)polylimit_completions_fd(chosen)); break;
    default:
        polylimit_completions_submit(chosen, limiter, &asked, below(40), results, sizeof *results, MESSAGE);
    }
    CHECK(count <= 4);
}

static void render(const polylimit_limiter *limiter, const polylimit_address_rules *chosen) {
    char text[600];
    size_t length = 0;
    uint32_t status = 0;
    polylimit_decision decision = {.size = sizeof decision};
    if (below(2)) {
        polylimit_limiter_check(limiter, "api", "k", 1, 1, &decision, MESSAGE);
    } else {
        for (size_t at = 4; at < sizeof decision; at++) {
            ((unsigned char *)&decision)[at] = (unsigned char)below(3);
        }
    }
    polylimit_outcome outcomes[2] = {{some_text(), &decision}, {"api", below(16) ? &decision : NULL}};
    polylimit_line lines[2] = {{"10.0.0.1", below(9)}, {"for=10.0.0.2", below(13)}};
    polylimit_quota quota = {.size = sizeof quota, .algorithm = (uint32_t)below(8), .limit = some_number()};
    quota.period_us = some_number();
    quota.burst = below(2) ? some_number() : 0;
    quota.step = below(4) ? 0 : some_number();
    quota.buckets = below(2) ? (uint32_t)below(70) : 0;
    switch (below(9)) {
    case 0:
        polylimit_headers_render(limiter, outcomes + below(2), below(3) ? 1 : 0, some_text(), some_number(),
                                 text, below(sizeof text), &length, MESSAGE);
        return;
    case 1:
        polylimit_problem_render(limiter, outcomes + below(2), 1, some_number(), (uint32_t)below(2), &status, text,
                                 below(sizeof text), &length, MESSAGE);
        return;
    case 2: polylimit_address_rules_key(chosen, some_text(), lines, below(3), text, below(64), &length, MESSAGE); return;
    case 3: polylimit_quota_parse(some_text(), &quota, MESSAGE); return;
    case 4: polylimit_quota_text(&quota, text, below(sizeof text), &length, MESSAGE); return;
    case 5: polylimit_limiter_policy(limiter, some_text(), text, below(64), &length, MESSAGE); return;
    case 6: polylimit_limiter_set_policy(limiter, some_text(), some_text(), MESSAGE); return;
    case 7: polylimit_limiter_stats(limiter, NULL, 0, &length, MESSAGE); return;
    default: (void)(polylimit_source_name((uint32_t)some_number()) == polylimit_address_rules_header(chosen));
    }
}

static void ask_about_keys(const polylimit_limiter *limiter, polylimit_completions *chosen) {
    polylimit_request asked = some_request();
    polylimit_list_options options = {.size = sizeof options, .at_least_used = (uint32_t)below(300), .policy = some_text()};
    options.key_prefix = asked.key;
    options.key_prefix_length = below(3);
    options.cursor = below(4) == 0 ? some_text() : NULL;
    options.entries = below(4);
    options.examined = some_number();
    options.pace_percent = (uint32_t)below(110);
    polylimit_query query = {.operation = (uint32_t)below(7), .options = below(4) ? &options : NULL};
    query.size = below(8) == 0 ? (uint32_t)below(sizeof query) : sizeof query;
    query.most = some_number();
    query.request = below(4) ? &asked : NULL;
    static const uint32_t stopped = 1;
    polylimit_report *report = NULL;
    polylimit_result result;
    char text[600];
    size_t length = 0;
    switch (below(5)) {
    case 0: polylimit_admin_query(limiter, &query, &stopped, &report, MESSAGE); break;
    case 1:
        polylimit_completions_submit_query(chosen, limiter, &query, below(40), &report, &result, sizeof result, MESSAGE);
        break;
    case 2: polylimit_admin_top_keys(limiter, some_number(), &report, MESSAGE); break;
    case 3: polylimit_limiter_metrics(limiter, &report, MESSAGE); break;
    default:
        polylimit_limiter_metrics_text(limiter, below(2) ? "openmetrics" : some_text(), text, below(sizeof text), &length, MESSAGE);
    }
    CHECK(report == NULL || polylimit_report_json(report) == NULL || strlen(polylimit_report_json(report)) > 1);
    polylimit_report_free(report);
}

int main(int count, char **arguments) {
    uint64_t seed = count > 1 ? strtoull(arguments[1], NULL, 10) : (uint64_t)time(NULL);
    long calls = count > 2 ? atol(arguments[2]) : 20000;
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    state = seed * 2654435761u + 88172645463325252u;
    for (long call = 0; call < calls; call++) {
        size_t at = below(HANDLES);
        const polylimit_limiter *limiter = below(32) ? limiters[below(HANDLES)] : NULL;
        switch (below(15)) {
        case 0: open_something(at); break;
        case 1: below(2) ? polylimit_limiter_close(limiter) : (void)0; break;
        case 2: polylimit_clock_set(clocks[at], some_number(), MESSAGE); break;
        case 3: polylimit_clock_advance(clocks[at], some_number(), MESSAGE); break;
        case 4: call_batch(limiter); break;
        case 5:
        case 6: submit_or_drain(completions[at], limiter); break;
        case 7:
        case 8: render(limiter, rules[at]); break;
        case 9:
        case 10: call_reservation(limiter, completions[at], &reservations[at]); break;
        case 11: ask_about_keys(limiter, completions[at]); break;
        default: call_and_wait(limiter);
        }
    }
    for (size_t at = 0; at < HANDLES; at++) {
        polylimit_limiter_free(limiters[at]);
        polylimit_completions_free(completions[at]);
        polylimit_clock_free(clocks[at]);
        polylimit_address_rules_free(rules[at]);
        polylimit_reservation_free(reservations[at]);
    }
    printf("test %ld random calls ... ok\ntest result: ok. 1 passed; 0 failed;\n", calls);
    return 0;
}
