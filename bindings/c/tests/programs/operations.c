/* Every operation of a limiter, with a manual clock. */
#include "check.h"

static void decision_has_all_numbers(void) {
    polylimit_clock *clock = NULL;
    OK(polylimit_clock_new(START_US, &clock, MESSAGE));
    polylimit_limiter *limiter = open_limiter("memory:", "3/minute token_bucket; 5/hour token_bucket", clock);

    polylimit_decision decision = check(limiter, "user:42", 3);
    CHECK(decision.allowed == 1 && decision.remaining == 0 && decision.retry_after_us == 0 && decision.delay_us == 0);
    CHECK(decision.quota_count == 2 && decision.quotas[1].limit == 5 && decision.quotas[1].remaining == 2);
    CHECK(strcmp(polylimit_source_name(decision.source), "store") == 0 && decision.degraded == 0);

    decision = check(limiter, "user:42", 1);
    CHECK(decision.allowed == 0 && decision.retry_after_us == 20000000 && decision.reset_after_us == 2160000000);
    decision = check(limiter, "user:42", 4);
    CHECK(decision.allowed == 0 && decision.retry_after_us == POLYLIMIT_NEVER);

    OK(polylimit_clock_advance(clock, 20000000, MESSAGE));
    CHECK(polylimit_clock_now_us(clock) == START_US + 20000000);
    polylimit_decision peeked = {.size = sizeof peeked};
    OK(polylimit_limiter_peek(limiter, "api", "user:42", 7, 1, &peeked, MESSAGE));
    CHECK(peeked.allowed == 1 && peeked.remaining == 1);
    CHECK(check(limiter, "user:42", 1).allowed == 1);

    polylimit_limiter_free(limiter);
    polylimit_clock_free(clock);
}

static void decision_tells_which_quota_denied(void) {
    polylimit_clock *clock = NULL;
    OK(polylimit_clock_new(START_US, &clock, MESSAGE));
    polylimit_limiter *limiter = open_limiter("memory:", "5/hour fixed_window; 2/minute fixed_window", clock);
    polylimit_decision decision = check(limiter, "k", 2);
    for (int at = 0; at < 2; at++) {
        CHECK(decision.quotas[at].allowed == 1 && decision.quotas[at].retry_after_us == 0);
    }
    decision = check(limiter, "k", 1);
    CHECK(decision.quotas[0].allowed == 1 && decision.quotas[0].retry_after_us == 0);
    CHECK(decision.quotas[1].allowed == 0 && decision.quotas[1].retry_after_us == 60000000);
    decision = check(limiter, "k", 4);
    CHECK(decision.quotas[0].allowed == 0 && decision.quotas[0].retry_after_us == 3600000000);
    CHECK(decision.quotas[1].allowed == 0 && decision.quotas[1].retry_after_us == POLYLIMIT_NEVER);
    polylimit_usage usage = {.size = sizeof usage};
    OK(polylimit_limiter_charge(limiter, NULL, "k", 1, 9, &usage, MESSAGE));
    CHECK(usage.quotas[1].allowed == 1 && usage.quotas[1].retry_after_us == 0 && usage.quotas[1].reserved == 0);
    polylimit_limiter_free(limiter);
    polylimit_clock_free(clock);
}

static void usage_has_all_numbers(void) {
    polylimit_clock *clock = NULL;
    OK(polylimit_clock_new(START_US, &clock, MESSAGE));
    polylimit_limiter *limiter = open_limiter("memory:", "10/minute fixed_window", clock);
    polylimit_usage usage = {.size = sizeof usage};
    OK(polylimit_limiter_take(limiter, NULL, "k", 1, 4, &usage, MESSAGE));
    CHECK(usage.taken == 4 && usage.remaining == 6 && usage.reset_after_us == 60000000 && usage.quota_count == 1);
    OK(polylimit_limiter_charge(limiter, NULL, "k", 1, 20, &usage, MESSAGE));
    CHECK(usage.taken == 0 && usage.remaining == 0);
    OK(polylimit_limiter_refund(limiter, NULL, "k", 1, 15, &usage, MESSAGE));
    CHECK(usage.remaining == 1);
    OK(polylimit_limiter_take(limiter, NULL, "k", 1, 4, &usage, MESSAGE));
    CHECK(usage.taken == 1 && usage.remaining == 0);
    OK(polylimit_limiter_reset(limiter, NULL, "k", 1, &usage, MESSAGE));
    CHECK(usage.remaining == 10 && usage.reset_after_us == 0);
    polylimit_limiter_free(limiter);
    polylimit_clock_free(clock);
}

static void key_may_be_any_bytes(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute", NULL);
    polylimit_decision decision = {.size = sizeof decision};
    const char *keys[] = {"a\0b", "a\0c", "\xff\xfe\0", "   "};
    for (size_t at = 0; at < 4; at++) {
        OK(polylimit_limiter_check(limiter, NULL, keys[at], 3, 1, &decision, MESSAGE));
        CHECK(decision.allowed == 1);
    }
    OK(polylimit_limiter_check(limiter, NULL, NULL, 0, 1, &decision, MESSAGE));
    CHECK(decision.allowed == 1);
    OK(polylimit_limiter_check(limiter, NULL, "", 0, 1, &decision, MESSAGE));
    CHECK(decision.allowed == 0);
    size_t longest = 1 << 20;
    char *key = calloc(longest + 1, 1);
    CHECK(key != NULL);
    OK(polylimit_limiter_check(limiter, NULL, key, longest, 1, &decision, MESSAGE));
    CHECK(decision.allowed == 1);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_check(limiter, NULL, key, longest + 1, 1, &decision, MESSAGE));
    CHECK(strstr(message, "1048577 bytes") != NULL);
    free(key);
    polylimit_limiter_free(limiter);
}

static void cost_out_of_range_is_refused(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute", NULL);
    polylimit_decision decision = {.size = sizeof decision, .remaining = 77};
    polylimit_usage usage = {.size = sizeof usage, .remaining = 77};
    uint64_t costs[] = {1000000000001, (uint64_t)-1, (uint64_t)INT64_MIN, UINT64_MAX};
    for (size_t at = 0; at < 4; at++) {
        uint64_t cost = costs[at];
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_check(limiter, NULL, "k", 1, cost, &decision, MESSAGE));
        CHECK(strstr(message, "cost is ") != NULL);
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_peek(limiter, NULL, "k", 1, cost, &decision, MESSAGE));
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_acquire(limiter, NULL, "k", 1, cost, 1, &decision, MESSAGE));
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_take(limiter, NULL, "k", 1, cost, &usage, MESSAGE));
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_charge(limiter, NULL, "k", 1, cost, &usage, MESSAGE));
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_refund(limiter, NULL, "k", 1, cost, &usage, MESSAGE));
    }
    CHECK(decision.remaining == 77 && usage.remaining == 77);
    polylimit_limiter_free(limiter);
}

static void acquire_waits_until_admitted(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "1/20ms fixed_window", NULL);
    polylimit_decision decision = {.size = sizeof decision};
    for (int at = 0; at < 3; at++) {
        OK(polylimit_limiter_acquire(limiter, NULL, "k", 1, 1, 60000000, &decision, MESSAGE));
        CHECK(decision.allowed == 1);
    }
    OK(polylimit_limiter_acquire(limiter, NULL, "k", 1, 2, 60000000, &decision, MESSAGE));
    CHECK(decision.allowed == 0 && decision.retry_after_us == POLYLIMIT_NEVER);
    polylimit_limiter_free(limiter);
}

static void check_many_has_a_result_for_each_request(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "2/minute", NULL);
    polylimit_request requests[5];
    for (size_t at = 0; at < 5; at++) {
        requests[at] = ask(POLYLIMIT_CHECK, "k", 1);
    }
    requests[1].policy = "nobody";
    requests[2].policy = "1/hour";
    requests[4].operation = POLYLIMIT_RESET;
    polylimit_result results[5];
    OK(polylimit_limiter_check_many(limiter, requests, sizeof *requests, 5, results, sizeof *results, MESSAGE));
    CHECK(results[0].status == POLYLIMIT_OK && results[0].answer.decision.remaining == 1);
    CHECK(results[1].status == POLYLIMIT_INVALID_ARGUMENT && strstr(results[1].message, "nobody") != NULL);
    CHECK(results[2].status == POLYLIMIT_OK && results[2].answer.decision.quotas[0].limit == 1);
    CHECK(results[3].status == POLYLIMIT_OK && results[3].answer.decision.remaining == 0 && results[3].tag == 3);
    CHECK(results[4].status == POLYLIMIT_INVALID_ARGUMENT);
    OK(polylimit_limiter_check_many(limiter, NULL, sizeof *requests, 0, NULL, sizeof *results, MESSAGE));
    polylimit_limiter_free(limiter);
}

static void check_together_spends_all_or_nothing(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "9/hour", NULL);
    polylimit_request requests[2] = {ask(POLYLIMIT_CHECK, "k", 1), ask(POLYLIMIT_CHECK, "k", 1)};
    requests[1].policy = "1/day";
    polylimit_decision decisions[2];
    size_t size = sizeof *decisions;
    OK(polylimit_limiter_check_together(limiter, requests, sizeof *requests, 2, decisions, size, MESSAGE));
    CHECK(decisions[0].allowed == 1 && decisions[0].remaining == 8 && decisions[0].size == size);
    CHECK(decisions[1].allowed == 1 && decisions[1].remaining == 0);
    OK(polylimit_limiter_check_together(limiter, requests, sizeof *requests, 2, decisions, size, MESSAGE));
    CHECK(decisions[0].allowed == 1 && decisions[0].remaining == 8 && decisions[1].allowed == 0);
    requests[1].policy = "nobody";
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_limiter_check_together(limiter, requests, sizeof *requests, 2, decisions, size, MESSAGE));
    CHECK(strstr(message, "nobody") != NULL);
    requests[1] = ask(POLYLIMIT_RESET, "k", 1);
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_limiter_check_together(limiter, requests, sizeof *requests, 2, decisions, size, MESSAGE));
    requests[0].operation = requests[1].operation = POLYLIMIT_PEEK;
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_limiter_check_together(limiter, requests, sizeof *requests, 2, decisions, size, MESSAGE));
    requests[1] = ask(POLYLIMIT_PEEK, "k", 1);
    requests[1].policy = "1/day";
    OK(polylimit_limiter_peek_together(limiter, requests, sizeof *requests, 2, decisions, size, MESSAGE));
    CHECK(decisions[0].allowed == 1 && decisions[0].remaining == 8 && decisions[1].allowed == 0);
    requests[1].operation = POLYLIMIT_CHECK;
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_limiter_peek_together(limiter, requests, sizeof *requests, 2, decisions, size, MESSAGE));
    CHECK(strstr(message, "operation 1 ") != NULL);
    CHECK(check(limiter, "k", 1).remaining == 7);
    OK(polylimit_limiter_check_together(limiter, NULL, sizeof *requests, 0, NULL, size, MESSAGE));
    OK(polylimit_limiter_peek_together(limiter, NULL, sizeof *requests, 0, NULL, size, MESSAGE));
    OK(polylimit_limiter_reserve_together(limiter, NULL, sizeof *requests, 0, NULL, size, MESSAGE));
    polylimit_limiter_close(limiter);
    requests[1].operation = POLYLIMIT_PEEK;
    IS(POLYLIMIT_CLOSED,
       polylimit_limiter_peek_together(limiter, requests, sizeof *requests, 2, decisions, size, MESSAGE));
    polylimit_limiter_free(limiter);
}

static void call_waits_until_it_is_stopped(void) {
    polylimit_clock *clock = NULL;
    OK(polylimit_clock_new(1700000000000000, &clock, MESSAGE));
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute fixed_window", clock);
    polylimit_request request = ask(POLYLIMIT_ACQUIRE, "k", 1);
    request.timeout_us = 3600000000;
    polylimit_result result;
    uint32_t stopped = 1;
    OK(polylimit_limiter_call(limiter, &request, NULL, &result, sizeof result, MESSAGE));
    CHECK(result.status == POLYLIMIT_OK && result.answer.decision.allowed == 1);
    /* It would have to wait, and is stopped from the start, so that nothing is spent. */
    IS(POLYLIMIT_PENDING, polylimit_limiter_call(limiter, &request, &stopped, &result, sizeof result, MESSAGE));
    request.operation = POLYLIMIT_PEEK;
    OK(polylimit_limiter_call(limiter, &request, &stopped, &result, sizeof result, MESSAGE));
    CHECK(result.answer.decision.allowed == 0 && result.answer.decision.retry_after_us == 60000000);
    request.policy = "nobody";
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_call(limiter, &request, NULL, &result, sizeof result, MESSAGE));
    polylimit_limiter_free(limiter);
    polylimit_clock_free(clock);
}

static polylimit_decision decided(const polylimit_limiter *limiter, const polylimit_request *request) {
    polylimit_result result;
    OK(polylimit_limiter_call(limiter, request, NULL, &result, sizeof result, MESSAGE));
    CHECK(result.status == POLYLIMIT_OK);
    return result.answer.decision;
}

static void headroom_is_left_for_others(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "10/minute fixed_window excess=2", NULL);
    polylimit_request request = ask(POLYLIMIT_CHECK, "k", 9);
    request.headroom = 25;
    polylimit_decision decision = decided(limiter, &request);
    CHECK(decision.allowed == 1 && decision.remaining == 0 && decision.cause == 0 && decision.crossed == 0);
    request.cost = 1;
    decision = decided(limiter, &request);
    CHECK(decision.allowed == 0 && strcmp(polylimit_cause_name(decision.cause), "quota") == 0);
    polylimit_reservation_options options = {.size = sizeof options};
    OK(polylimit_reservation_defaults(&options, MESSAGE));
    options.headroom = 25;
    polylimit_reservation *reservation = NULL;
    OK(polylimit_reservation_new(limiter, NULL, "k", 1, 1, &options, &reservation, MESSAGE));
    OK(polylimit_reservation_decision(reservation, &decision, MESSAGE));
    CHECK(decision.allowed == 0);
    polylimit_reservation_free(reservation);
    decision = check(limiter, "k", 2);
    CHECK(decision.allowed == 1 && decision.over == 1 && decision.crossed == 1);
    CHECK(check(limiter, "k", 1).crossed == 0 && decision.elastic == 0 && decision.shadowed == 0);
    const uint32_t percents[] = {100, 255, 256, UINT32_MAX};
    for (size_t at = 0; at < 4; at++) {
        polylimit_result result;
        request.headroom = percents[at];
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_call(limiter, &request, NULL, &result, sizeof result, MESSAGE));
        CHECK(strstr(message, "0 to 99 %") != NULL);
    }
    request.headroom = 0;
    request.plan = "\xff";
    polylimit_result refused;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_call(limiter, &request, NULL, &refused, sizeof refused, MESSAGE));
    CHECK(strcmp(message, "plan is not UTF-8") == 0);
    polylimit_limiter_free(limiter);
}

static void blocked_key_is_denied_until_then(void) {
    polylimit_clock *clock = NULL;
    OK(polylimit_clock_new(START_US, &clock, MESSAGE));
    polylimit_limiter *limiter = open_limiter("memory:", "10/minute", clock);
    polylimit_usage usage = {.size = sizeof usage};
    OK(polylimit_admin_block(limiter, NULL, "k", 1, 5000000, &usage, MESSAGE));
    CHECK(usage.remaining == 0 && usage.reset_after_us == 5000000);
    polylimit_decision decision = check(limiter, "k", 1);
    CHECK(decision.allowed == 0 && decision.retry_after_us == 5000000);
    CHECK(strcmp(polylimit_cause_name(decision.cause), "blocked") == 0);
    CHECK(check(limiter, "other", 1).allowed == 1);
    OK(polylimit_admin_unblock(limiter, NULL, "k", 1, &usage, MESSAGE));
    CHECK(usage.remaining == 10 && check(limiter, "k", 1).allowed == 1);
    polylimit_request request = ask(POLYLIMIT_BLOCK, "k", 0);
    request.ttl_us = 1000;
    polylimit_result result;
    OK(polylimit_limiter_call(limiter, &request, NULL, &result, sizeof result, MESSAGE));
    CHECK(result.answer.usage.reset_after_us >= 1000 && check(limiter, "k", 1).allowed == 0);
    OK(polylimit_clock_advance(clock, 1000, MESSAGE));
    CHECK(check(limiter, "k", 1).allowed == 1);
    const uint64_t times[] = {1, 999, UINT64_C(366) * 86400000000 + 1, UINT64_MAX};
    for (size_t at = 0; at < 4; at++) {
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_block(limiter, NULL, "k", 1, times[at], &usage, MESSAGE));
        CHECK(strstr(message, "366 days") != NULL);
    }
    polylimit_limiter_free(limiter);
    polylimit_clock_free(clock);
}

static void set_policy_changes_a_policy(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "100/min;10/s token_bucket burst=20", NULL);
    char text[128];
    size_t length = 0;
    OK(polylimit_limiter_policy(limiter, NULL, text, sizeof text, &length, MESSAGE));
    CHECK(strcmp(text, "100/minute; 10/second token_bucket burst=20") == 0 && length == strlen(text));
    OK(polylimit_limiter_set_policy(limiter, "api", "7/minute", MESSAGE));
    OK(polylimit_limiter_policy(limiter, "api", text, sizeof text, NULL, MESSAGE));
    CHECK(strcmp(text, "7/minute") == 0);
    CHECK(check(limiter, "k", 1).remaining == 6);
    OK(polylimit_limiter_set_policy(limiter, "login", "1/s", MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_policy(limiter, NULL, text, sizeof text, &length, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_set_policy(limiter, "login", "1 per decade", MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_set_credentials(limiter, NULL, "hunter2", MESSAGE));
    CHECK(strstr(message, "hunter2") == NULL);
    polylimit_limiter_free(limiter);
}

static void operations_after_close_return_closed(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute", NULL);
    polylimit_limiter_close(limiter);
    polylimit_limiter_close(limiter);
    polylimit_decision decision = {.size = sizeof decision};
    IS(POLYLIMIT_CLOSED, polylimit_limiter_check(limiter, NULL, "k", 1, 1, &decision, MESSAGE));
    IS(POLYLIMIT_CLOSED, polylimit_limiter_acquire(limiter, NULL, "k", 1, 1, 1, &decision, MESSAGE));
    polylimit_limiter_free(limiter);
    polylimit_limiter_free(NULL);
    polylimit_limiter_close(NULL);
}

/* What only describes a limiter can be read after it was closed. */
static void closed_limiter_describes_itself(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "9/hour", NULL);
    CHECK(check(limiter, "k", 1).allowed);
    polylimit_limiter_close(limiter);
    char text[65536];
    OK(polylimit_limiter_policy(limiter, "api", text, sizeof text, NULL, MESSAGE));
    CHECK(strcmp(text, "9/hour") == 0);
    OK(polylimit_limiter_policy(limiter, NULL, text, sizeof text, NULL, MESSAGE));
    OK(polylimit_limiter_metrics_text(limiter, "prometheus", text, sizeof text, NULL, MESSAGE));
    CHECK(strstr(text, "polylimit_decisions_total{policy=\"api\"") != NULL);
    polylimit_stat stats[64];
    size_t count = 0;
    OK(polylimit_limiter_stats(limiter, stats, 64, &count, MESSAGE));
    CHECK(count > 0);
    polylimit_report *report = NULL;
    OK(polylimit_admin_top_keys(limiter, 9, &report, MESSAGE));
    polylimit_report_free(report);
    IS(POLYLIMIT_CLOSED, polylimit_limiter_set_policy(limiter, "api", "5/hour", MESSAGE));
    IS(POLYLIMIT_CLOSED, polylimit_limiter_policy_for(limiter, "5/minute", NULL, text, sizeof text, NULL, MESSAGE));
    polylimit_limiter_free(limiter);
}

static void unknown_option_is_answered_with_the_nearest_in_a_short_message(void) {
    polylimit_option options[] = {{"polcy.a", "1/s"}};
    polylimit_limiter *limiter = NULL;
    char short_message[256];
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_limiter_open("memory:", options, 1, NULL, &limiter, short_message, sizeof short_message));
    CHECK(strcmp(short_message, "option polcy.a is not known: did you mean policy.a?") == 0);
}

int main(void) {
    static const struct test tests[] = {
        {"decision has all numbers", decision_has_all_numbers},
        {"decision names the quota that denied", decision_tells_which_quota_denied},
        {"usage has all numbers", usage_has_all_numbers},
        {"key may be any bytes", key_may_be_any_bytes},
        {"cost out of range is refused", cost_out_of_range_is_refused},
        {"acquire waits until admitted", acquire_waits_until_admitted},
        {"check many has a result for each request", check_many_has_a_result_for_each_request},
        {"check together spends all or nothing", check_together_spends_all_or_nothing},
        {"call waits until it is stopped", call_waits_until_it_is_stopped},
        {"headroom is left for others", headroom_is_left_for_others},
        {"blocked key is denied until then", blocked_key_is_denied_until_then},
        {"set policy changes a policy", set_policy_changes_a_policy},
        {"operations after close return closed", operations_after_close_return_closed},
        {"closed limiter describes itself", closed_limiter_describes_itself},
        {"unknown option is answered with the nearest in a short message",
         unknown_option_is_answered_with_the_nearest_in_a_short_message},
    };
    RUN(tests);
}
