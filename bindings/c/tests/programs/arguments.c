/* Invalid arguments: NULL, sizes, lengths, texts, small buffers. */
#include "check.h"

static void null_is_refused_everywhere(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute", NULL), *none = NULL;
    polylimit_decision decision = {.size = sizeof decision};
    polylimit_usage usage = {.size = sizeof usage};
    polylimit_request request = ask(POLYLIMIT_CHECK, "k", 1);
    polylimit_quota quota = {.size = sizeof quota, .limit = 1, .period_us = 1000000};
    polylimit_result result;
    polylimit_option nameless = {NULL, "1/s"}, valueless = {"policy.a", NULL};
    polylimit_completions *completions = NULL;
    size_t count = 0;
    uint32_t number = 0;
    char text[64];
    OK(polylimit_completions_open(&completions, MESSAGE));
#define REFUSED(call) IS(POLYLIMIT_INVALID_ARGUMENT, call)
    REFUSED(polylimit_limiter_open(NULL, NULL, 0, NULL, &none, MESSAGE));
    REFUSED(polylimit_limiter_open("memory:", NULL, 1, NULL, &none, MESSAGE));
    REFUSED(polylimit_limiter_open("memory:", &nameless, 1, NULL, &none, MESSAGE));
    REFUSED(polylimit_limiter_open("memory:", &valueless, 1, NULL, &none, MESSAGE));
    REFUSED(polylimit_limiter_open("memory:", NULL, 0, NULL, NULL, MESSAGE));
    CHECK(strcmp(message, "limiter_out is NULL") == 0);
    CHECK(none == NULL);
    REFUSED(polylimit_limiter_check(NULL, NULL, "k", 1, 1, &decision, MESSAGE));
    REFUSED(polylimit_limiter_check(limiter, NULL, NULL, 1, 1, &decision, MESSAGE));
    REFUSED(polylimit_limiter_check(limiter, NULL, "k", 1, 1, NULL, MESSAGE));
    REFUSED(polylimit_limiter_check(limiter, NULL, "k", 1, 1, NULL, NULL, 0));
    REFUSED(polylimit_limiter_check(limiter, NULL, "k", SIZE_MAX, 1, &decision, MESSAGE));
    REFUSED(polylimit_limiter_peek(NULL, NULL, "k", 1, 1, &decision, MESSAGE));
    REFUSED(polylimit_limiter_peek(limiter, NULL, "k", 1, 1, NULL, MESSAGE));
    REFUSED(polylimit_limiter_acquire(NULL, NULL, "k", 1, 1, 1, &decision, MESSAGE));
    REFUSED(polylimit_limiter_take(NULL, NULL, "k", 1, 1, &usage, MESSAGE));
    REFUSED(polylimit_limiter_take(limiter, NULL, "k", 1, 1, NULL, MESSAGE));
    REFUSED(polylimit_limiter_charge(NULL, NULL, "k", 1, 1, &usage, MESSAGE));
    REFUSED(polylimit_limiter_refund(NULL, NULL, "k", 1, 1, &usage, MESSAGE));
    REFUSED(polylimit_limiter_reset(NULL, NULL, "k", 1, &usage, MESSAGE));
    REFUSED(polylimit_admin_block(NULL, NULL, "k", 1, 1000, &usage, MESSAGE));
    REFUSED(polylimit_admin_block(limiter, NULL, "k", 1, 1000, NULL, MESSAGE));
    REFUSED(polylimit_admin_unblock(NULL, NULL, "k", 1, &usage, MESSAGE));
    REFUSED(polylimit_limiter_check_many(NULL, &request, sizeof request, 1, &result, sizeof result, MESSAGE));
    REFUSED(polylimit_limiter_check_many(limiter, NULL, sizeof request, 1, &result, sizeof result, MESSAGE));
    REFUSED(polylimit_limiter_check_many(limiter, &request, sizeof request, 1, NULL, sizeof result, MESSAGE));
    REFUSED(polylimit_limiter_check_together(NULL, &request, sizeof request, 1, &decision, sizeof decision, MESSAGE));
    REFUSED(polylimit_limiter_check_together(limiter, NULL, sizeof request, 1, &decision, sizeof decision, MESSAGE));
    REFUSED(polylimit_limiter_check_together(limiter, &request, sizeof request, 1, NULL, sizeof decision, MESSAGE));
    REFUSED(polylimit_limiter_peek_together(NULL, &request, sizeof request, 1, &decision, sizeof decision, MESSAGE));
    REFUSED(polylimit_limiter_peek_together(limiter, NULL, sizeof request, 1, &decision, sizeof decision, MESSAGE));
    REFUSED(polylimit_limiter_reserve_together(NULL, &request, sizeof request, 1, &decision, sizeof decision, MESSAGE));
    REFUSED(polylimit_limiter_reserve_together(limiter, NULL, sizeof request, 1, &decision, sizeof decision, MESSAGE));
    REFUSED(polylimit_limiter_call(NULL, &request, NULL, &result, sizeof result, MESSAGE));
    REFUSED(polylimit_limiter_call(limiter, NULL, NULL, &result, sizeof result, MESSAGE));
    REFUSED(polylimit_limiter_call(limiter, &request, NULL, NULL, sizeof result, MESSAGE));
    REFUSED(polylimit_limiter_ready(NULL, 1, MESSAGE));
    REFUSED(polylimit_limiter_set_policy(limiter, NULL, "1/s", MESSAGE));
    REFUSED(polylimit_limiter_set_policy(limiter, "a", NULL, MESSAGE));
    REFUSED(polylimit_limiter_policy(NULL, NULL, text, sizeof text, &count, MESSAGE));
    REFUSED(polylimit_admin_set_credentials(limiter, NULL, NULL, MESSAGE));
    REFUSED(polylimit_admin_doctor(NULL, text, sizeof text, &count, MESSAGE));
    REFUSED(polylimit_limiter_stats(limiter, NULL, 0, NULL, MESSAGE));
    REFUSED(polylimit_limiter_stats(limiter, NULL, 1, &count, MESSAGE));
    REFUSED(polylimit_completions_open(NULL, MESSAGE));
    REFUSED(polylimit_completions_submit(NULL, limiter, &request, 1, &result, sizeof result, MESSAGE));
    REFUSED(polylimit_completions_submit(completions, NULL, &request, 1, &result, sizeof result, MESSAGE));
    REFUSED(polylimit_completions_submit(completions, limiter, NULL, 1, &result, sizeof result, MESSAGE));
    REFUSED(polylimit_completions_submit(completions, limiter, &request, 1, NULL, sizeof result, MESSAGE));
    REFUSED(polylimit_completions_submit_together(NULL, limiter, &request, sizeof request, 1, 1, &decision,
                                                  sizeof decision, MESSAGE));
    REFUSED(polylimit_completions_submit_together(completions, limiter, NULL, sizeof request, 1, 1, &decision,
                                                  sizeof decision, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_completions_submit_together(completions, limiter, &request, sizeof request, 0, 1, &decision,
                                             sizeof decision, MESSAGE));
    REFUSED(polylimit_completions_drain(NULL, &result, sizeof result, 1, &count, MESSAGE));
    REFUSED(polylimit_completions_drain(completions, NULL, sizeof result, 1, &count, MESSAGE));
    REFUSED(polylimit_completions_drain(completions, &result, sizeof result, 1, NULL, MESSAGE));
    REFUSED(polylimit_completions_cancel(NULL, 1, &number, MESSAGE));
    REFUSED(polylimit_completions_cancel(completions, 1, NULL, MESSAGE));
    REFUSED(polylimit_clock_new(1, NULL, MESSAGE));
    REFUSED(polylimit_clock_set(NULL, 1, MESSAGE));
    REFUSED(polylimit_clock_advance(NULL, 1, MESSAGE));
    REFUSED(polylimit_quota_parse(NULL, &quota, MESSAGE));
    REFUSED(polylimit_quota_parse("1/s", NULL, MESSAGE));
    REFUSED(polylimit_quota_text(NULL, text, sizeof text, &count, MESSAGE));
    REFUSED(polylimit_headers_render(NULL, NULL, 0, NULL, 0, text, sizeof text, &count, MESSAGE));
    REFUSED(polylimit_headers_render(limiter, NULL, 1, NULL, 0, text, sizeof text, &count, MESSAGE));
    REFUSED(polylimit_problem_render(limiter, NULL, 0, 1, 1, NULL, text, sizeof text, &count, MESSAGE));
    REFUSED(polylimit_address_rules_new(NULL, 1, NULL, MESSAGE));
    REFUSED(polylimit_address_rules_key(NULL, "1.2.3.4", NULL, 0, text, sizeof text, &count, MESSAGE));
    CHECK(polylimit_completions_fd(NULL) == -1 && polylimit_completions_pending(NULL) == 0);
    CHECK(polylimit_clock_now_us(NULL) == 0 && polylimit_address_rules_header(NULL) == NULL);
    polylimit_completions_free(completions);
    polylimit_completions_free(NULL);
    polylimit_clock_free(NULL);
    polylimit_address_rules_free(NULL);
    polylimit_limiter_free(limiter);
}

static void too_small_size_is_refused(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute", NULL);
    polylimit_decision decision = {.size = sizeof decision - 1};
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_check(limiter, NULL, "k", 1, 1, &decision, MESSAGE));
    CHECK(strstr(message, "decision has size 847") != NULL);
    decision.size = 0;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_peek(limiter, NULL, "k", 1, 1, &decision, MESSAGE));
    polylimit_usage usage = {.size = 4};
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_take(limiter, NULL, "k", 1, 1, &usage, MESSAGE));
    polylimit_request request = ask(POLYLIMIT_CHECK, "k", 1);
    polylimit_result result;
    request.size = 8;
    OK(polylimit_limiter_check_many(limiter, &request, sizeof request, 1, &result, sizeof result, MESSAGE));
    CHECK(result.status == POLYLIMIT_INVALID_ARGUMENT && strstr(result.message, "request has size 8") != NULL);
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_limiter_check_many(limiter, &request, 8, 1, &result, sizeof result, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_limiter_check_many(limiter, &request, sizeof request, SIZE_MAX / 8, &result, sizeof result, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_limiter_check_many(limiter, &request, sizeof request + 1, 1, &result, sizeof result, MESSAGE));
    CHECK(check(limiter, "k", 1).allowed == 1);
    polylimit_limiter_free(limiter);
}

/* A program that was built with the header of a later version passes bigger structs; the library ignores the new fields. */
static void struct_of_later_header_is_accepted(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute", NULL);
    struct {
        polylimit_decision decision;
        uint64_t later[4];
    } grown = {.decision = {.size = sizeof grown}, .later = {7, 7, 7, 7}};
    OK(polylimit_limiter_check(limiter, NULL, "k", 1, 1, &grown.decision, MESSAGE));
    CHECK(grown.decision.allowed == 1 && grown.decision.size == sizeof grown && grown.later[0] == 7);
    struct {
        polylimit_result result;
        uint64_t later;
    } results[2] = {{.later = 7}, {.later = 7}};
    struct {
        polylimit_request request;
        uint64_t later;
    } requests[2] = {{.request = ask(POLYLIMIT_CHECK, "a", 1)}, {.request = ask(POLYLIMIT_CHECK, "b", 1)}};
    OK(polylimit_limiter_check_many(limiter, &requests[0].request, sizeof *requests, 2, &results[0].result,
                                    sizeof *results, MESSAGE));
    CHECK(results[1].result.status == POLYLIMIT_OK && results[1].result.answer.decision.allowed == 1);
    CHECK(results[0].later == 7 && results[1].later == 7 && results[1].result.size == sizeof(polylimit_result));
    polylimit_limiter_free(limiter);
}

static void error_message_names_the_invalid_setting(void) {
    struct {
        const char *url, *name, *value, *shown;
    } wrong[] = {
        {"nonsense", "policy.a", "1/s", "no known scheme"},
        {"redis://:hunter2@localhost:0", "policy.a", "1/s", ""},
        {"memory:", "policy.a", "1 per decade", "or month, quarter or year"},
        {"memory:", "policy.a b", "1/s", "policy name"},
        {"memory:", "outage.a", "deny", "add that policy first"},
        {"memory:", "outage.a", "open", "is not known"},
        {"memory:", "deadline", "20", "deadline is"},
        {"memory:", "dead\nline", "20ms", "is not known"},
        {"memory:", "max_keys", "0", "max_keys is 0"},
        {"memory:", "policy.\xff", "1/s", "is not UTF-8"},
        {"\xff", "policy.a", "1/s", "is not UTF-8"},
    };
    for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++) {
        polylimit_limiter *limiter = NULL;
        polylimit_option option = {wrong[at].name, wrong[at].value};
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_open(wrong[at].url, &option, 1, NULL, &limiter, MESSAGE));
        if (strstr(message, wrong[at].shown) == NULL) {
            fprintf(stderr, "%s: %s\n", wrong[at].name, message);
        }
        CHECK(limiter == NULL && strstr(message, wrong[at].shown) != NULL && strstr(message, "hunter2") == NULL);
        CHECK(strchr(message, '\n') == NULL);
    }
}

/* Only Redis has outages and leases: a program may have the same settings with every store. */
static void outage_and_lease_are_accepted_by_other_stores_than_redis(void) {
    const char *given[][3] = {
        {"memory:", "outage.a", "allow"}, {"memory:", "lease.a", "auto"}, {"local:unused", "outage.a", "deny"},
        {"local:unused", "lease.a", "10"},
    };
    for (size_t at = 0; at < sizeof given / sizeof *given; at++) {
        polylimit_limiter *limiter = NULL;
        polylimit_option options[] = {{"policy.a", "1/s"}, {given[at][1], given[at][2]}};
        OK(polylimit_limiter_open(given[at][0], options, 2, NULL, &limiter, MESSAGE));
        polylimit_limiter_free(limiter);
    }
}

static void policy_for_finds_or_refuses_a_policy(void) {
    polylimit_option options[] = {{"policy.api", "100/minute"}, {"policy.login", "5/minute"}};
    polylimit_limiter *limiter = NULL;
    OK(polylimit_limiter_open("memory:", options, 2, NULL, &limiter, MESSAGE));
    struct {
        const char *policy, *scope, *name;
    } found[] = {
        {"api", NULL, "api"}, {"api", "/login", "api"}, {"100/minute", NULL, "100|minute"},
        {"100 per 60s", NULL, "100|minute"}, {"100/minute", "login", "100|minute^login"},
    };
    char name[65];
    size_t length = 0;
    for (size_t at = 0; at < sizeof found / sizeof *found; at++) {
        OK(polylimit_limiter_policy_for(limiter, found[at].policy, found[at].scope, name, sizeof name, &length, MESSAGE));
        CHECK(strcmp(name, found[at].name) == 0 && length == strlen(name));
        polylimit_decision decision = {.size = sizeof decision};
        OK(polylimit_limiter_peek(limiter, name, "k", 1, 1, &decision, MESSAGE));
    }
    struct {
        const char *policy, *scope, *shown;
    } wrong[] = {
        {NULL, NULL, "there are several"}, {"nobody", NULL, "is not known"}, {"100/minut", NULL, "read \"minut\""},
        {"100/minute", "", "scope"}, {"\xff", NULL, "is not UTF-8"}, {"api", "\xff", "is not UTF-8"},
    };
    for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++) {
        IS(POLYLIMIT_INVALID_ARGUMENT,
           polylimit_limiter_policy_for(limiter, wrong[at].policy, wrong[at].scope, name, sizeof name, NULL, MESSAGE));
        CHECK(strstr(message, wrong[at].shown) != NULL);
    }
    polylimit_limiter_close(limiter);
    IS(POLYLIMIT_CLOSED, polylimit_limiter_policy_for(limiter, "api", NULL, name, sizeof name, NULL, MESSAGE));
    polylimit_limiter_free(limiter);
}

static void too_small_buffer_gets_the_needed_length(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "100/minute", NULL);
    char text[32];
    size_t length = 0;
    for (size_t capacity = 0; capacity <= 10; capacity++) {
        memset(text, '#', sizeof text);
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_policy(limiter, NULL, text, capacity, &length, MESSAGE));
        CHECK(length == 10 && text[0] == '#' && strstr(message, "11 are needed") != NULL);
    }
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_policy(limiter, NULL, NULL, 100, &length, MESSAGE));
    OK(polylimit_limiter_policy(limiter, NULL, text, 11, &length, MESSAGE));
    CHECK(strcmp(text, "100/minute") == 0 && text[11] == '#');
    char tiny[5] = "####";
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_policy(limiter, "nobody", text, 11, &length, tiny, 4));
    CHECK(strlen(tiny) == 3);
    polylimit_limiter_free(limiter);
}

static void every_number_has_a_name(void) {
    for (int32_t status = POLYLIMIT_PENDING; status <= POLYLIMIT_INTERNAL; status++) {
        CHECK(polylimit_status_name(status) != NULL);
    }
    CHECK(strcmp(polylimit_status_name(POLYLIMIT_STORE_UNAVAILABLE), "store_unavailable") == 0);
    CHECK(polylimit_status_name(POLYLIMIT_INTERNAL + 1) == NULL);
    CHECK(polylimit_abi_version() == POLYLIMIT_ABI_VERSION && strchr(polylimit_version(), '.') != NULL);
}

int main(void) {
    static const struct test tests[] = {
        {"NULL is refused everywhere", null_is_refused_everywhere},
        {"too small size is refused", too_small_size_is_refused},
        {"struct of later header is accepted", struct_of_later_header_is_accepted},
        {"error message names the invalid setting", error_message_names_the_invalid_setting},
        {"outages and leases are accepted by other stores", outage_and_lease_are_accepted_by_other_stores_than_redis},
        {"policy for finds or refuses a policy", policy_for_finds_or_refuses_a_policy},
        {"too small buffer gets the needed length", too_small_buffer_gets_the_needed_length},
        {"every number has a name", every_number_has_a_name},
    };
    RUN(tests);
}
