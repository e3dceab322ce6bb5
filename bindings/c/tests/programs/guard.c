/* A guard: what a middleware in C asks about an HTTP request. */
#include "server.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>

static polylimit_clock *clock_of_tests;

static polylimit_limiter *limited(const char *quotas) {
    OK(polylimit_clock_new(START_US, &clock_of_tests, MESSAGE));
    return open_limiter("memory:", quotas, clock_of_tests);
}

static void freed(polylimit_limiter *limiter) {
    polylimit_limiter_free(limiter);
    polylimit_clock_free(clock_of_tests);
    clock_of_tests = NULL;
}

static polylimit_guard *guard_of(const polylimit_limiter *limiter, const polylimit_option *options, size_t count) {
    polylimit_guard *guard = NULL;
    OK(polylimit_guard_new(limiter, options, count, &guard, MESSAGE));
    return guard;
}

static polylimit_request_facts keyed(const char *key) {
    polylimit_request_facts facts = {.size = sizeof facts, .key = key, .key_length = strlen(key)};
    return facts;
}

static polylimit_guard_check *started(const polylimit_guard *guard, const polylimit_guard_check *earlier,
                                      const polylimit_request_facts *facts) {
    polylimit_guard_check *check = NULL;
    OK(polylimit_guard_check_new(guard, earlier, facts, &check, MESSAGE));
    OK(polylimit_guard_check_run(check, NULL, MESSAGE));
    return check;
}

static uint32_t concluded(const polylimit_guard_check *check, uint32_t on_outage) {
    uint32_t admitted = 2;
    OK(polylimit_guard_check_conclude(check, on_outage, &admitted, MESSAGE));
    OK(polylimit_guard_check_run(check, NULL, MESSAGE));
    return admitted;
}

static const char *fields_of(const polylimit_guard_check *check) {
    static char text[512];
    OK(polylimit_guard_check_fields(check, text, sizeof text, NULL, MESSAGE));
    return text;
}

static uint64_t left(const polylimit_limiter *limiter, const char *key) {
    polylimit_decision decision = {.size = sizeof decision};
    OK(polylimit_limiter_peek(limiter, "api", key, strlen(key), 1, &decision, MESSAGE));
    return decision.remaining;
}

static void request_is_denied_when_nothing_is_left(void) {
    polylimit_limiter *limiter = limited("1/hour fixed_window");
    polylimit_guard *guard = guard_of(limiter, NULL, 0);
    polylimit_request_facts facts = keyed("k");
    polylimit_guard_check *first = started(guard, NULL, &facts), *second = started(guard, NULL, &facts);
    CHECK(polylimit_guard_check_outage(first, NULL, NULL, 0) == 0);
    CHECK(concluded(first, POLYLIMIT_OUTAGE_LEAVE) == 1 && concluded(second, POLYLIMIT_OUTAGE_ADMIT) == 0);
    CHECK(strcmp(fields_of(first), "ratelimit-policy: \"api\";q=1;w=3600\r\nratelimit: \"api\";r=0;t=3600\r\n") == 0);
    CHECK(strstr(fields_of(second), "retry-after: 3600\r\n") != NULL);
    char text[512];
    size_t length = 0;
    uint32_t status = 0;
    OK(polylimit_guard_check_response(second, "text/plain", &status, text, sizeof text, &length, MESSAGE));
    CHECK(status == 429 && length == strlen(text));
    CHECK(strcmp(text, "content-type: text/plain; charset=utf-8\r\nvary: accept\r\n\r\n"
                       "Not enough of the quota is left: retry in 3600 s.\n") == 0);
    OK(polylimit_guard_check_response(second, NULL, &status, text, sizeof text, &length, MESSAGE));
    CHECK(strstr(text, "\r\n\r\n{\"type\"") != NULL);
    status = 7;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_response(first, NULL, &status, text, sizeof text, NULL, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_response(second, NULL, &status, text, 9, &length, MESSAGE));
    CHECK(status == 7 && length > 9);
    OK(polylimit_guard_check_finish(first, 1, MESSAGE));
    CHECK(left(limiter, "k") == 0);
    polylimit_guard_check_free(first);
    polylimit_guard_check_free(second);
    polylimit_guard_free(guard);
    freed(limiter);
}

static void guards_of_one_request_charge_once_and_refund_together(void) {
    polylimit_limiter *limiter = limited("5/hour fixed_window");
    polylimit_option other[] = {{"policy", "api"}, {"policy", "0/hour"}};
    polylimit_guard *outer = guard_of(limiter, other, 1), *inner = guard_of(limiter, other, 2);
    polylimit_request_facts facts = keyed("k");
    facts.has_cost = 1;
    facts.cost = 2;
    polylimit_guard_check *first = started(outer, NULL, &facts);
    CHECK(concluded(first, POLYLIMIT_OUTAGE_LEAVE) == 1 && left(limiter, "k") == 3);
    polylimit_guard_check *again = started(outer, first, &facts);
    CHECK(concluded(again, POLYLIMIT_OUTAGE_LEAVE) == 1 && left(limiter, "k") == 3);
    polylimit_guard_check *second = started(inner, first, &facts);
    CHECK(concluded(second, POLYLIMIT_OUTAGE_LEAVE) == 0 && left(limiter, "k") == 5);
    CHECK(strstr(fields_of(second), "\"api\";r=5;t=3600") != NULL);
    CHECK(polylimit_guard_check_outcomes(second, 0) == 2 && polylimit_guard_check_outcomes(first, 1) == 2);
    char policy[65];
    size_t length = 0;
    polylimit_decision decision = {.size = sizeof decision};
    OK(polylimit_guard_check_outcome(first, 1, 0, &decision, policy, sizeof policy, &length, MESSAGE));
    CHECK(strcmp(policy, "api") == 0 && length == 3 && decision.remaining == 5);
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_guard_check_outcome(first, 0, 1, &decision, policy, sizeof policy, &length, MESSAGE));
    polylimit_guard_check_free(first);
    polylimit_guard_check_free(again);
    polylimit_guard_check_free(second);
    polylimit_guard_free(outer);
    polylimit_guard_free(inner);
    freed(limiter);
}

static void response_that_does_not_count_is_refunded(void) {
    polylimit_limiter *limiter = limited("5/hour fixed_window");
    polylimit_guard *guard = guard_of(limiter, NULL, 0);
    polylimit_request_facts facts = keyed("k");
    polylimit_guard_check *check = started(guard, NULL, &facts);
    CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1 && left(limiter, "k") == 4);
    OK(polylimit_guard_check_finish(check, 0, MESSAGE));
    OK(polylimit_guard_check_run(check, NULL, MESSAGE));
    CHECK(left(limiter, "k") == 5 && strstr(fields_of(check), "\"api\";r=5;") != NULL);
    polylimit_guard_check_free(check);
    polylimit_guard_free(guard);
    freed(limiter);
}

static void key_is_made_of_parts_or_is_the_address(void) {
    polylimit_limiter *limiter = limited("5/hour fixed_window");
    polylimit_option parts[] = {{"key_part", "header:X-Tenant"}, {"key_part", "address"}};
    polylimit_guard *guard = guard_of(limiter, parts, 2);
    polylimit_line values[] = {{"a|b", 3}, {NULL, 0}};
    polylimit_request_facts facts = {.size = sizeof facts, .key_values = values, .key_value_count = 2};
    facts.address = "10.0.0.1";
    polylimit_guard_check *check = started(guard, NULL, &facts);
    CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1 && left(limiter, "x-tenant:a%7Cb|10.0.0.1") == 4);
    polylimit_guard_check_free(check);
    values[0].start = NULL;
    check = started(guard, NULL, &facts);
    CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1 && left(limiter, "10.0.0.1") == 4);
    polylimit_guard_check_free(check);
    facts.address = NULL;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    polylimit_guard_free(guard);

    polylimit_option refuse[] = {{"key_part", "user"}, {"missing_key", "refuse"}};
    guard = guard_of(limiter, refuse, 2);
    facts.key_value_count = 0;
    check = started(guard, NULL, &facts);
    CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 0);
    char text[512];
    uint32_t status = 0;
    OK(polylimit_guard_check_response(check, NULL, &status, text, sizeof text, NULL, MESSAGE));
    CHECK(status == 400 && strstr(text, "user") != NULL);
    polylimit_guard_check_free(check);
    polylimit_guard_free(guard);
    freed(limiter);
}

static void policies_route_and_methods_are_those_of_the_request(void) {
    polylimit_limiter *limiter = limited("5/hour fixed_window");
    polylimit_option options[] = {{"policy", "1/hour fixed_window"}, {"per_route", "true"}, {"method", "post"}};
    polylimit_guard *guard = guard_of(limiter, options, 3);
    CHECK(polylimit_guard_applies_to(guard, "POST", NULL) == 1 && polylimit_guard_applies_to(guard, "GET", NULL) == 0);
    static const char *const routes[] = {"/a", "GET /b", "/a", "HEAD /b"};
    for (size_t at = 0; at < 4; at++) {
        polylimit_request_facts facts = keyed("k");
        facts.route = routes[at];
        polylimit_guard_check *check = started(guard, NULL, &facts);
        CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == (at < 2));
        polylimit_guard_check_free(check);
    }
    static const char *const policies[] = {"api"};
    for (size_t count = 0; count < 2; count++) {
        polylimit_request_facts facts = keyed("k");
        facts.policies = policies;
        facts.policy_count = count;
        polylimit_guard_check *check = started(guard, NULL, &facts);
        CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1 && polylimit_guard_check_outcomes(check, 0) == count);
        polylimit_guard_check_free(check);
    }
    CHECK(left(limiter, "k") == 4);
    polylimit_guard_free(guard);
    freed(limiter);
}

/* No server listens at this address, and the outage policy denies. */
/* The same limit with one more option. */
static polylimit_guard *limit_with(polylimit_limiter *limiter, const char *name, const char *value) {
    polylimit_option options[] = {{"method", "get"}, {name, value}};
    return guard_of(limiter, options, name == NULL ? 1 : 2);
}

static void methods_of_a_limit_have_head_and_no_preflights(void) {
    polylimit_limiter *limiter = limited("5/hour fixed_window");
    static const struct {
        const char *name, *value;
        uint32_t head, options, preflight;
    } limits[] = {{NULL, NULL, 1, 0, 0},
                  {"separate_head", "true", 0, 0, 0},
                  {"method", "options", 1, 1, 1},
                  {"count_preflights", "true", 1, 0, 0}};
    for (size_t at = 0; at < sizeof limits / sizeof *limits; at++) {
        polylimit_guard *guard = limit_with(limiter, limits[at].name, limits[at].value);
        CHECK(polylimit_guard_applies_to(guard, "GET", NULL) == 1 && polylimit_guard_applies_to(guard, "POST", NULL) == 0);
        CHECK(polylimit_guard_applies_to(guard, "HEAD", NULL) == limits[at].head);
        CHECK(polylimit_guard_applies_to(guard, "OPTIONS", NULL) == limits[at].options);
        CHECK(polylimit_guard_applies_to(guard, "OPTIONS", "GET") == limits[at].preflight);
        polylimit_guard_free(guard);
    }
    polylimit_guard *all = guard_of(limiter, NULL, 0);
    CHECK(polylimit_guard_applies_to(all, "OPTIONS", "GET") == 0 && polylimit_guard_applies_to(all, "OPTIONS", "") == 1);
    polylimit_guard_free(all);
    polylimit_option counting = {"count_preflights", "true"};
    all = guard_of(limiter, &counting, 1);
    CHECK(polylimit_guard_applies_to(all, "OPTIONS", "GET") == 1);
    polylimit_guard_free(all);
    freed(limiter);
}

static void pages_of_allowed_origins_may_read_a_denial(void) {
    polylimit_limiter *limiter = limited("5/hour fixed_window");
    polylimit_option origins[] = {{"cors_origin", "https://app.example"}, {"cors_origin", "http://localhost:3000"}};
    polylimit_guard *guard = guard_of(limiter, origins, 2);
    char text[512] = "";
    size_t length = 0;
    OK(polylimit_guard_cors_fields(guard, "http://localhost:3000", text, sizeof text, &length, MESSAGE));
    CHECK(strstr(text, "access-control-allow-origin: http://localhost:3000\r\n") == text && strstr(text, "vary: origin\r\n") != NULL);
    CHECK(strstr(text, "access-control-expose-headers: ratelimit, ratelimit-policy") != NULL && length == strlen(text));
    static const char *const others[] = {"https://other.example", "", NULL};
    for (size_t at = 0; at < 3; at++) {
        OK(polylimit_guard_cors_fields(guard, others[at], text, sizeof text, &length, MESSAGE));
        CHECK(length == 0 && text[0] == 0);
    }
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_cors_fields(guard, "http://localhost:3000", text, 10, &length, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_cors_fields(NULL, NULL, text, sizeof text, NULL, MESSAGE));
    polylimit_guard_free(guard);
    freed(limiter);
}

static void empty_key_is_a_missing_key(void) {
    polylimit_limiter *limiter = limited("5/hour fixed_window");
    polylimit_option options[] = {{"missing_key", "refuse"}, {"key_part", "user"}};
    polylimit_line empty = {"", 0};
    for (size_t count = 1; count <= 2; count++) {
        polylimit_guard *guard = guard_of(limiter, options, count);
        polylimit_request_facts facts = {.size = sizeof facts, .key = "", .key_length = 0};
        facts.key_values = &empty;
        facts.key_value_count = 1;
        polylimit_guard_check *check = started(guard, NULL, &facts);
        CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 0);
        polylimit_guard_check_free(check);
        polylimit_guard_free(guard);
    }
    /* By its address, as a request without a key. */
    polylimit_guard *guard = guard_of(limiter, NULL, 0);
    polylimit_request_facts facts = {.size = sizeof facts, .key = "", .key_length = 0, .address = "192.0.2.1"};
    polylimit_guard_check *check = started(guard, NULL, &facts);
    CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1);
    polylimit_guard_check_free(check);
    polylimit_guard_free(guard);
    polylimit_decision left = {.size = sizeof left};
    OK(polylimit_limiter_peek(limiter, NULL, "192.0.2.1", 9, 1, &left, MESSAGE));
    CHECK(left.remaining == 4);
    freed(limiter);
}

static void program_decides_in_an_outage(void) {
    polylimit_option options[] = {{"policy.api", "5/minute"}, {"outage.api", "deny"}};
    polylimit_limiter *limiter = NULL;
    OK(polylimit_limiter_open("redis://127.0.0.1:1?doctor_after=0", options, 2, NULL, &limiter, MESSAGE));
    polylimit_guard *guard = guard_of(limiter, NULL, 0);
    for (uint32_t action = POLYLIMIT_OUTAGE_LEAVE; action <= POLYLIMIT_OUTAGE_DENY; action++) {
        polylimit_request_facts facts = keyed("k");
        polylimit_guard_check *check = started(guard, NULL, &facts);
        polylimit_status cause = 9;
        CHECK(polylimit_guard_check_outage(check, &cause, MESSAGE) == 1 && cause == POLYLIMIT_OK);
        CHECK(concluded(check, action) == (action == POLYLIMIT_OUTAGE_ADMIT));
        if (action == POLYLIMIT_OUTAGE_ADMIT) {
            CHECK(strcmp(fields_of(check), "x-ratelimit-outage: on_outage\r\n") == 0);
        }
        polylimit_guard_check_free(check);
    }
    /* The program waits no longer: no decision could be made. */
    polylimit_request_facts facts = keyed("k");
    polylimit_guard_check *check = NULL;
    OK(polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    polylimit_guard_check_give_up(check);
    polylimit_status cause = POLYLIMIT_OK;
    CHECK(polylimit_guard_check_outage(check, &cause, MESSAGE) == 1 && cause == POLYLIMIT_STORE_UNAVAILABLE);
    CHECK(strstr(message, "deadline") != NULL && concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 0);
    polylimit_guard_check_free(check);
    polylimit_guard_free(guard);
    polylimit_limiter_free(limiter);
}

/* Does the next step of a check through completions. */
static void finish_step(const polylimit_guard_check *check, const polylimit_completions *completions) {
    polylimit_status status = polylimit_guard_check_submit(check, completions, 7, MESSAGE);
    while (status == POLYLIMIT_PENDING) {
        struct pollfd readable = {.fd = polylimit_completions_fd(completions), .events = POLLIN};
        CHECK(poll(&readable, 1, 60000) == 1);
        polylimit_result results[4];
        size_t count = 0;
        OK(polylimit_completions_drain(completions, results, sizeof *results, 4, &count, MESSAGE));
        if (count > 0) {
            CHECK(count == 1 && results[0].tag == 7 && results[0].status == POLYLIMIT_OK);
            status = polylimit_guard_check_submit(check, completions, 7, MESSAGE);
        }
    }
    OK(status);
}

static void check_on_redis_waits_by_completions(void) {
    char key[64];
    snprintf(key, sizeof key, "guard-%p", (void *)key);
    polylimit_option options[] = {{"policy.api", "5/hour fixed_window"}, {"policy.day", "9/day"}};
    polylimit_limiter *limiter = NULL;
    OK(polylimit_limiter_open(redis_url(), options, 2, NULL, &limiter, MESSAGE));
    polylimit_option both[] = {{"policy", "api"}, {"policy", "day"}};
    polylimit_guard *guard = guard_of(limiter, both, 2);
    polylimit_completions *completions = NULL;
    OK(polylimit_completions_open(&completions, MESSAGE));
    polylimit_request_facts facts = keyed(key);
    polylimit_guard_check *check = NULL;
    OK(polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    finish_step(check, completions);
    CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1 && left(limiter, key) == 4);
    OK(polylimit_guard_check_finish(check, 0, MESSAGE));
    finish_step(check, completions);
    CHECK(left(limiter, key) == 5);
    polylimit_guard_check_free(check);
    polylimit_option reserved[] = {{"policy", "api"}, {"policy", "day"}, {"cost", "4"}, {"reserved", "true"}};
    polylimit_guard *holding = guard_of(limiter, reserved, 4);
    OK(polylimit_guard_check_new(holding, NULL, &facts, &check, MESSAGE));
    finish_step(check, completions);
    CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1 && left(limiter, key) == 1);
    OK(polylimit_guard_check_finish(check, 1, MESSAGE));
    OK(polylimit_guard_check_end(check, 2, 0, MESSAGE));
    finish_step(check, completions);
    CHECK(left(limiter, key) == 3);
    polylimit_guard_check_free(check);
    polylimit_guard_free(holding);

    /* A check may be freed while its answer is pending, as it is for certain while the server is stopped. */
    OK(polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    pid_t pid = server();
    CHECK(kill(pid, SIGSTOP) == 0);
    IS(POLYLIMIT_PENDING, polylimit_guard_check_submit(check, completions, 8, MESSAGE));
    uint32_t admitted = 2;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_conclude(check, 0, &admitted, MESSAGE));
    CHECK(admitted == 2);
    polylimit_guard_check_free(check);
    CHECK(kill(pid, SIGCONT) == 0);
    polylimit_completions_free(completions);
    polylimit_guard_free(guard);
    polylimit_limiter_free(limiter);
}

/* Tokens under one policy, requests under another. */
static polylimit_limiter *of_tokens(void) {
    OK(polylimit_clock_new(START_US, &clock_of_tests, MESSAGE));
    polylimit_option options[] = {{"policy.tokens", "10000/hour fixed_window"}, {"policy.requests", "60/hour fixed_window"}};
    polylimit_limiter *limiter = NULL;
    OK(polylimit_limiter_open("memory:", options, 2, clock_of_tests, &limiter, MESSAGE));
    return limiter;
}

static bool are_left(const polylimit_limiter *limiter, uint64_t tokens, uint64_t requests) {
    polylimit_decision of_tokens = {.size = sizeof of_tokens}, of_requests = {.size = sizeof of_requests};
    OK(polylimit_limiter_peek(limiter, "tokens", "k", 1, 1, &of_tokens, MESSAGE));
    OK(polylimit_limiter_peek(limiter, "requests", "k", 1, 1, &of_requests, MESSAGE));
    return of_tokens.remaining == tokens && of_requests.remaining == requests;
}

static void each_policy_has_its_own_cost(void) {
    polylimit_limiter *limiter = of_tokens();
    polylimit_option options[] = {{"cost.tokens", "4000"}, {"policy", "tokens"}, {"policy", "requests"}};
    polylimit_guard *guard = guard_of(limiter, options, 3);
    uint64_t given[] = {100, POLYLIMIT_GUARD_COST, 7}, two[] = {POLYLIMIT_GUARD_COST, 2};
    struct {
        const uint64_t *costs;
        size_t count;
        uint32_t admitted;
        uint64_t tokens, requests;
    } steps[] = {
        {NULL, 0, 1, 6000, 59}, {given, 3, 1, 5900, 58}, {two, 2, 1, 1900, 56},
        /* A request that one of the policies denies spends nothing under the other. */
        {NULL, 0, 0, 1900, 56}, {given, 1, 1, 1800, 55}, {(uint64_t[]){0, 56}, 2, 0, 1800, 55},
    };
    for (size_t at = 0; at < sizeof steps / sizeof *steps; at++) {
        polylimit_request_facts facts = keyed("k");
        facts.costs = steps[at].costs;
        facts.cost_count = steps[at].count;
        polylimit_guard_check *check = started(guard, NULL, &facts);
        CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == steps[at].admitted);
        CHECK(are_left(limiter, steps[at].tokens, steps[at].requests));
        polylimit_guard_check_free(check);
    }
    /* The cost of a request is for policies without one of their own. */
    polylimit_request_facts facts = keyed("k");
    facts.has_cost = 1;
    facts.cost = 5;
    facts.costs = given;
    facts.cost_count = 1;
    polylimit_guard_check *check = started(guard, NULL, &facts);
    CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1 && are_left(limiter, 1700, 50));
    polylimit_guard_check_free(check);
    given[0] = 1000000000001;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    facts.costs = NULL;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    CHECK(strcmp(message, "costs is NULL") == 0);
    polylimit_guard_free(guard);
    freed(limiter);
}

static void each_policy_settles_what_was_spent_under_it(void) {
    polylimit_limiter *limiter = of_tokens();
    polylimit_option options[] = {
        {"policy", "tokens"}, {"policy", "requests"}, {"cost.tokens", "4000"}, {"reserved.tokens", "true"}, {"reserved", "true"},
    };
    uint64_t used[] = {1234, POLYLIMIT_AS_RESERVED}, many[] = {5000, 3}, beyond[] = {1, 1000000000001};
    struct {
        size_t options;
        const uint64_t *spent;
        size_t count;
        uint32_t in_background;
        polylimit_status status;
        uint64_t tokens, requests;
    } steps[] = {
        {4, used, 2, 0, POLYLIMIT_OK, 8766, 59},   {4, used, 1, 1, POLYLIMIT_OK, 8766, 59},
        {5, many, 2, 0, POLYLIMIT_OK, 5000, 57},   {5, many, 2, 1, POLYLIMIT_OK, 5000, 57},
        {5, NULL, 0, 0, POLYLIMIT_OK, 6000, 59},   {5, beyond, 2, 0, POLYLIMIT_INVALID_ARGUMENT, 6000, 59},
        {5, NULL, 1, 0, POLYLIMIT_INVALID_ARGUMENT, 6000, 59},
    };
    for (size_t at = 0; at < sizeof steps / sizeof *steps; at++) {
        polylimit_guard *guard = guard_of(limiter, options, steps[at].options);
        polylimit_request_facts facts = keyed("k");
        polylimit_guard_check *check = started(guard, NULL, &facts);
        CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1 && polylimit_guard_check_holds(check) == 1);
        CHECK(are_left(limiter, 6000, 59));
        OK(polylimit_guard_check_finish(check, 1, MESSAGE));
        OK(polylimit_guard_check_run(check, NULL, MESSAGE));
        IS(steps[at].status,
           polylimit_guard_check_end_each(check, steps[at].spent, steps[at].count, steps[at].in_background, MESSAGE));
        if (!steps[at].in_background) {
            OK(polylimit_guard_check_run(check, NULL, MESSAGE));
        }
        polylimit_guard_check_free(check);
        CHECK(are_left(limiter, steps[at].tokens, steps[at].requests));
        polylimit_guard_free(guard);
        OK(polylimit_clock_advance(clock_of_tests, 3600000000, MESSAGE));
    }
    freed(limiter);
}

static void response_reports_what_was_spent(void) {
    polylimit_limiter *limiter = of_tokens();
    polylimit_option options[] = {
        {"policy", "tokens"}, {"policy", "requests"}, {"cost.tokens", "4000"}, {"spent.tokens", "usage:total + header:x-extra"},
    };
    polylimit_guard *guard = guard_of(limiter, options, 4);
    static const char json[] = "content-type: application/json\r\nx-extra: 30\r\n", text[] = "Content-Type: text/plain\r\nx-extra: 30\r\n";
    static const char body[] = "{\"usage\": {\"prompt_tokens\": 1000, \"completion_tokens\": 204}}";
    struct {
        const char *head;
        uint32_t reads_body;
        uint64_t tokens;
    } steps[] = {{json, 1, 8766}, {text, 0, 6000}, {NULL, 0, 6000}};
    for (size_t at = 0; at < sizeof steps / sizeof *steps; at++) {
        polylimit_request_facts facts = keyed("k");
        polylimit_guard_check *check = started(guard, NULL, &facts);
        CHECK(polylimit_guard_check_reads_response(check) == 0);
        CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1 && polylimit_guard_check_reads_response(check) == 1);
        uint32_t reads_body = 0;
        if (steps[at].head != NULL) {
            OK(polylimit_guard_check_read_head(check, (const uint8_t *)steps[at].head, strlen(steps[at].head), &reads_body, MESSAGE));
        }
        CHECK(reads_body == steps[at].reads_body);
        for (size_t piece = 0; piece < sizeof body - 1; piece += 7) {
            size_t rest = sizeof body - 1 - piece;
            OK(polylimit_guard_check_read_body(check, (const uint8_t *)body + piece, rest < 7 ? rest : 7, MESSAGE));
        }
        OK(polylimit_guard_check_finish(check, 1, MESSAGE));
        OK(polylimit_guard_check_end(check, POLYLIMIT_AS_RESERVED, 0, MESSAGE));
        OK(polylimit_guard_check_run(check, NULL, MESSAGE));
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_read_body(check, NULL, 1, MESSAGE));
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_read_head(check, NULL, 0, NULL, MESSAGE));
        polylimit_guard_check_free(check);
        CHECK(are_left(limiter, steps[at].tokens, 59));
        OK(polylimit_clock_advance(clock_of_tests, 3600000000, MESSAGE));
    }
    CHECK(polylimit_guard_check_reads_response(NULL) == 0);
    polylimit_guard_free(guard);
    options[3].value = "usage";
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_new(limiter, options, 4, &guard, MESSAGE));
    CHECK(strstr(message, "spent is \"usage\", where \"usage\" is not a source: allowed are") == message);
    freed(limiter);
}

static void costs_that_cannot_be_meant_are_refused(void) {
    polylimit_limiter *limiter = of_tokens();
    static const struct {
        polylimit_option option;
        const char *message;
    } wrong[] = {
        {{"cost.tokens", "10001"}, "cost is 10001 for policy \"tokens\", which never admits more than 10000 at once: "},
        {{"cost", "61"}, "cost is 61 for policy \"requests\", which never admits more than 60 at once: "},
        {{"cost.token", "2"}, "option cost.token is about no policy of the guard: allowed are cost.tokens, cost.requests"},
        {{"reserved.token", "true"},
         "option reserved.token is about no policy of the guard: allowed are reserved.tokens, reserved.requests"},
        {{"cost.tokens", "many"}, "cost.tokens is many: allowed is a number of units"},
        {{"reserved.tokens", "1"}, "reserved.tokens is 1: allowed is true or false"},
    };
    polylimit_guard *guard = NULL;
    for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++) {
        polylimit_option options[] = {{"policy", "tokens"}, {"policy", "requests"}, wrong[at].option};
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_new(limiter, options, 3, &guard, MESSAGE));
        CHECK(strstr(message, wrong[at].message) == message);
    }
    polylimit_option alone = {"cost.tokens", "2"};
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_new(limiter, &alone, 1, &guard, MESSAGE));
    CHECK(strstr(message, "give the guard each of its policies") != NULL);
    polylimit_option per_request[] = {{"policy", "tokens"}, {"per_request", "true"}, alone};
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_new(limiter, per_request, 3, &guard, MESSAGE));
    CHECK(strstr(message, "cost is given for single policies, and each request brings its policies") == message && guard == NULL);
    /* Costs of the guard are those of its own policies. */
    polylimit_option fixed[] = {{"policy", "tokens"}, alone};
    guard = guard_of(limiter, fixed, 2);
    const char *other = "requests";
    polylimit_request_facts facts = keyed("k");
    facts.policies = &other;
    facts.policy_count = 1;
    polylimit_guard_check *check = NULL;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    CHECK(strstr(message, "policies is given with a request, next to cost of single policies of the guard") == message);
    facts.policy_count = 0;
    check = started(guard, NULL, &facts);
    CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1 && are_left(limiter, 10000, 60));
    polylimit_guard_check_free(check);
    polylimit_guard_free(guard);
    freed(limiter);
}

static void request_holds_its_reservations_until_it_ends(void) {
    polylimit_limiter *limiter = limited("2 concurrent; 100/hour fixed_window");
    polylimit_option options[] = {{"cost", "40"}, {"reserved", "true"}, {"ttl_us", "5000000"}, {"max_age_us", "0"}};
    polylimit_guard *guard = guard_of(limiter, options, 4);
    polylimit_request_facts facts = keyed("k");
    struct {
        uint64_t spent, left;
        uint32_t counts, in_background;
    } ends[] = {
        {7, 93, 1, 0}, {7, 86, 1, 1}, {POLYLIMIT_AS_RESERVED, 46, 1, 0}, {7, 46, 0, 1}, {0, 46, 1, 0},
    };
    for (size_t at = 0; at < sizeof ends / sizeof *ends; at++) {
        uint64_t before = left(limiter, "k");
        polylimit_guard_check *check = started(guard, NULL, &facts);
        CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1 && polylimit_guard_check_holds(check) == 1);
        OK(polylimit_guard_check_finish(check, ends[at].counts, MESSAGE));
        OK(polylimit_guard_check_run(check, NULL, MESSAGE));
        CHECK(left(limiter, "k") == before - 40 && strstr(fields_of(check), "\"api:1\";r=1") != NULL);
        OK(polylimit_guard_check_end(check, ends[at].spent, ends[at].in_background, MESSAGE));
        CHECK(polylimit_guard_check_holds(check) == 0);
        if (!ends[at].in_background) {
            OK(polylimit_guard_check_run(check, NULL, MESSAGE));
        }
        CHECK(left(limiter, "k") == ends[at].left);
        OK(polylimit_guard_check_end(check, 50, 1, MESSAGE));
        polylimit_guard_check_free(check);
        CHECK(left(limiter, "k") == ends[at].left);
    }
    /* A check that is freed ends as if its client had left; too many units commit those that were reserved. */
    polylimit_guard_check *check = started(guard, NULL, &facts);
    CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1 && left(limiter, "k") == 6);
    polylimit_guard_check *denied = started(guard, NULL, &facts);
    CHECK(concluded(denied, POLYLIMIT_OUTAGE_LEAVE) == 0 && polylimit_guard_check_holds(denied) == 0);
    OK(polylimit_guard_check_end(denied, 1, 0, MESSAGE));
    polylimit_guard_check_free(denied);
    polylimit_guard_check_free(check);
    CHECK(left(limiter, "k") == 6);
    OK(polylimit_clock_advance(clock_of_tests, 3600000000, MESSAGE));
    check = started(guard, NULL, &facts);
    CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_end(check, 1000000000001, 0, MESSAGE));
    OK(polylimit_guard_check_run(check, NULL, MESSAGE));
    CHECK(left(limiter, "k") == 60);
    polylimit_guard_check_free(check);
    /* The ttl gives back what a process that has died held. */
    check = started(guard, NULL, &facts);
    CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1 && left(limiter, "k") == 20);
    OK(polylimit_clock_advance(clock_of_tests, 5000000, MESSAGE));
    CHECK(left(limiter, "k") == 60);
    polylimit_guard_check_free(check);
    polylimit_guard_free(guard);
    polylimit_option checked = {"policy", "9/hour"};
    guard = guard_of(limiter, &checked, 1);
    check = started(guard, NULL, &facts);
    CHECK(concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1 && polylimit_guard_check_holds(check) == 0);
    polylimit_guard_check_free(check);
    polylimit_guard_free(guard);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_end(NULL, 1, 0, MESSAGE));
    CHECK(polylimit_guard_check_holds(NULL) == 0);
    freed(limiter);
}

static void bad_input_is_refused(void) {
    polylimit_limiter *limiter = limited("5/hour");
    polylimit_guard *guard = NULL;
    polylimit_option wrong[] = {{"policy", "nobody"},      {"policy", "1/eon"},   {"colour", "red"},       {"status", "200"},
                                {"status", "many"},        {"key_part", "ip"},    {"missing_key", "drop"}, {"cost", "-1"},
                                {"cost", "1000000000001"}, {"headers", "loud"}, {"per_route", "1"},
                                {"dry_run", ""},           {NULL, "x"},           {"policy", NULL},        {"policy", "\xff"},
                                {"scope", NULL},           {"header_name.x", "y"}, {"reserved", "1"},       {"ttl_us", "0"},
                                {"ttl_us", "30s"},         {"max_age_us", "-1"},   {"method", "G T"},       {"method", ""},
                                {"separate_head", "1"},    {"count_preflights", ""}, {"cors_origin", "app.example"}};
    for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++) {
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_new(limiter, &wrong[at], 1, &guard, MESSAGE));
        CHECK(guard == NULL && message[0] != 0);
    }
    polylimit_option twice[] = {{"policy", "100/minute"}, {"policy", "100/60s"}};
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_new(limiter, twice, 2, &guard, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_new(NULL, NULL, 0, &guard, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_new(limiter, NULL, 1, &guard, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_new(limiter, NULL, 0, NULL, MESSAGE));

    guard = guard_of(limiter, NULL, 0);
    polylimit_guard_check *check = NULL;
    polylimit_request_facts facts = keyed("k");
    facts.size = 8;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    facts = keyed("k");
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_new(NULL, NULL, &facts, &check, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_new(guard, NULL, NULL, &check, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_new(guard, NULL, &facts, NULL, MESSAGE));
    facts.route = "\xff";
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    facts = keyed("k");
    facts.key_length = (1 << 20) + 1;
    char *long_key = calloc(facts.key_length, 1);
    CHECK(long_key != NULL);
    facts.key = long_key;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    free(long_key);
    facts = keyed("k");
    facts.has_cost = 1;
    facts.cost = UINT64_MAX;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    static const char *const policies[] = {"api", NULL, "nobody"};
    facts = keyed("k");
    facts.policies = policies;
    facts.policy_count = 2;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    facts.policies = policies + 2;
    facts.policy_count = 1;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    CHECK(check == NULL);

    facts = keyed("k");
    uint32_t admitted = 2;
    OK(polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_conclude(check, 0, &admitted, MESSAGE));
    OK(polylimit_guard_check_run(check, NULL, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_conclude(check, 3, &admitted, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_conclude(check, 0, NULL, MESSAGE));
    CHECK(admitted == 2 && concluded(check, POLYLIMIT_OUTAGE_LEAVE) == 1);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_conclude(check, 0, &admitted, MESSAGE));
    polylimit_guard_check_free(check);

    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_run(NULL, NULL, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_submit(NULL, NULL, 0, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_finish(NULL, 0, MESSAGE));
    CHECK(polylimit_guard_check_outage(NULL, NULL, NULL, 0) == 0 && polylimit_guard_check_outcomes(NULL, 1) == 0);
    CHECK(polylimit_guard_applies_to(NULL, NULL, NULL) == 1);
    polylimit_guard_check_give_up(NULL);
    polylimit_guard_check_free(NULL);
    polylimit_guard_free(NULL);

    /* A closed limiter decides nothing, and that is no outage. */
    polylimit_limiter_close(limiter);
    IS(POLYLIMIT_CLOSED, polylimit_guard_new(limiter, NULL, 0, &guard, MESSAGE));
    freed(limiter);
    OK(polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    OK(polylimit_guard_check_run(check, NULL, MESSAGE));
    CHECK(polylimit_guard_check_outage(check, NULL, NULL, 0) == 0);
    IS(POLYLIMIT_CLOSED, polylimit_guard_check_conclude(check, 0, &admitted, MESSAGE));
    polylimit_guard_check_free(check);
    polylimit_guard_free(guard);
}

static void request_is_held_until_its_units_return(void) {
    polylimit_limiter *limiter = limited("1/minute leaky_bucket burst=10");
    polylimit_option options[] = {{"wait_us", "60000000"}, {"max_waiting", "1"}};
    polylimit_guard *guard = guard_of(limiter, options, 2);
    polylimit_request_facts facts = keyed("k");
    polylimit_guard_check *first = started(guard, NULL, &facts), *held = NULL;
    CHECK(concluded(first, POLYLIMIT_OUTAGE_LEAVE) == 1 && left(limiter, "k") == 9);
    OK(polylimit_guard_check_new(guard, NULL, &facts, &held, MESSAGE));
    uint32_t stopped = 1, admitted = 2;
    IS(POLYLIMIT_PENDING, polylimit_guard_check_run(held, &stopped, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_conclude(held, 0, &admitted, MESSAGE));
    /* The only place to wait is taken. */
    polylimit_guard_check *further = started(guard, NULL, &facts);
    CHECK(concluded(further, POLYLIMIT_OUTAGE_LEAVE) == 0 && left(limiter, "k") == 8);
    /* A request that is not waited for any more is denied, and has spent nothing. */
    polylimit_guard_check_give_up(held);
    CHECK(polylimit_guard_check_outage(held, NULL, NULL, 0) == 0);
    CHECK(concluded(held, POLYLIMIT_OUTAGE_LEAVE) == 0 && left(limiter, "k") == 9);
    polylimit_guard_check_free(held);

    polylimit_completions *completions = NULL;
    OK(polylimit_completions_open(&completions, MESSAGE));
    OK(polylimit_guard_check_new(guard, NULL, &facts, &held, MESSAGE));
    IS(POLYLIMIT_PENDING, polylimit_guard_check_submit(held, completions, 7, MESSAGE));
    OK(polylimit_clock_advance(clock_of_tests, 60000000, MESSAGE));
    struct pollfd readable = {.fd = polylimit_completions_fd(completions), .events = POLLIN};
    polylimit_result result;
    size_t count = 0;
    while (count == 0) {
        CHECK(poll(&readable, 1, 60000) == 1);
        OK(polylimit_completions_drain(completions, &result, sizeof result, 1, &count, MESSAGE));
    }
    CHECK(result.tag == 7 && result.status == POLYLIMIT_OK);
    OK(polylimit_guard_check_submit(held, completions, 7, MESSAGE));
    CHECK(concluded(held, POLYLIMIT_OUTAGE_LEAVE) == 1);
    polylimit_completions_free(completions);
    polylimit_guard_check_free(held);
    polylimit_guard_check_free(further);
    polylimit_guard_check_free(first);
    polylimit_guard_free(guard);

    polylimit_option wrong[][1] = {{{"wait_us", "60000001"}}, {{"wait_us", "200ms"}}, {{"max_waiting", "0"}}, {{"max_waiting", "-1"}}};
    for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++) {
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_new(limiter, wrong[at], 1, &guard, MESSAGE));
    }
    freed(limiter);
}

int main(void) {
    static const struct test tests[] = {
        {"request is denied when nothing is left", request_is_denied_when_nothing_is_left},
        {"guards of one request charge once and refund together", guards_of_one_request_charge_once_and_refund_together},
        {"response that does not count is refunded", response_that_does_not_count_is_refunded},
        {"key is made of parts or is the address", key_is_made_of_parts_or_is_the_address},
        {"policies, route and methods are those of the request", policies_route_and_methods_are_those_of_the_request},
        {"methods of a limit have head and no preflights", methods_of_a_limit_have_head_and_no_preflights},
        {"pages of allowed origins may read a denial", pages_of_allowed_origins_may_read_a_denial},
        {"empty key is a missing key", empty_key_is_a_missing_key},
        {"program decides in an outage", program_decides_in_an_outage},
        {"check on Redis waits by completions", check_on_redis_waits_by_completions},
        {"each policy has its own cost", each_policy_has_its_own_cost},
        {"each policy settles what was spent under it", each_policy_settles_what_was_spent_under_it},
        {"response reports what was spent", response_reports_what_was_spent},
        {"costs that cannot be meant are refused", costs_that_cannot_be_meant_are_refused},
        {"request holds its reservations until it ends", request_holds_its_reservations_until_it_ends},
        {"request is held until its units return", request_is_held_until_its_units_return},
        {"bad input is refused", bad_input_is_refused},
    };
    RUN(tests);
}
