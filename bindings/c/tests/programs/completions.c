/* Completions: submit, drain, cancel. */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

static int readable(const polylimit_completions *completions, int timeout_ms) {
    struct pollfd watched = {.fd = polylimit_completions_fd(completions), .events = POLLIN, .revents = 0};
    return poll(&watched, 1, timeout_ms) == 1;
}

static polylimit_completions *open_completions(void) {
    polylimit_completions *completions = NULL;
    OK(polylimit_completions_open(&completions, MESSAGE));
    return completions;
}

static polylimit_status submit(polylimit_completions *completions, const polylimit_limiter *limiter,
                               polylimit_request request, uint64_t tag, polylimit_result *result) {
    return polylimit_completions_submit(completions, limiter, &request, tag, result, sizeof *result, MESSAGE);
}

static size_t drain(polylimit_completions *completions, polylimit_result *results, size_t capacity) {
    size_t count = 99;
    OK(polylimit_completions_drain(completions, results, sizeof *results, capacity, &count, MESSAGE));
    CHECK(count <= capacity);
    return count;
}

static void submit_returns_an_immediate_answer(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "2/minute", NULL);
    polylimit_completions *completions = open_completions();
    polylimit_result result;
    IS(POLYLIMIT_OK, submit(completions, limiter, ask(POLYLIMIT_CHECK, "k", 1), 7, &result));
    CHECK(result.status == POLYLIMIT_OK && result.tag == 7 && result.answer.decision.remaining == 1);
    CHECK(result.size == sizeof result && result.answer.decision.size == sizeof result.answer.decision);
    IS(POLYLIMIT_OK, submit(completions, limiter, ask(POLYLIMIT_TAKE, "k", 5), 8, &result));
    CHECK(result.answer.usage.taken == 1);
    IS(POLYLIMIT_OK, submit(completions, limiter, ask(POLYLIMIT_PEEK, "k", 1), 9, &result));
    CHECK(result.answer.decision.allowed == 0);
    IS(POLYLIMIT_INVALID_ARGUMENT, submit(completions, limiter, ask(99, "k", 1), 9, &result));
    polylimit_request block = ask(POLYLIMIT_BLOCK, "blocked", 0);
    block.ttl_us = 60000000;
    IS(POLYLIMIT_OK, submit(completions, limiter, block, 8, &result));
    CHECK(result.answer.usage.remaining == 0 && result.answer.usage.reset_after_us == 60000000);
    block.ttl_us = 0;
    IS(POLYLIMIT_OK, submit(completions, limiter, block, 8, &result));
    CHECK(result.answer.usage.remaining == 2);
    IS(POLYLIMIT_INVALID_ARGUMENT, submit(completions, limiter, ask(POLYLIMIT_CHECK, "k", UINT64_MAX), 9, &result));
    CHECK(polylimit_completions_pending(completions) == 0 && !readable(completions, 0));
    CHECK((fcntl(polylimit_completions_fd(completions), F_GETFD) & FD_CLOEXEC) != 0);
    polylimit_completions_free(completions);
    polylimit_limiter_free(limiter);
}

static void submit_together_decides_all_or_nothing(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "9/hour", NULL);
    polylimit_completions *completions = open_completions();
    polylimit_request requests[2] = {ask(POLYLIMIT_CHECK, "k", 1), ask(POLYLIMIT_CHECK, "k", 1)};
    requests[1].policy = "1/day";
    polylimit_decision decisions[2];
    for (uint32_t round = 0; round < 2; round++) {
        OK(polylimit_completions_submit_together(completions, limiter, requests, sizeof *requests, 2, 1, decisions,
                                                 sizeof *decisions, MESSAGE));
        CHECK(decisions[0].allowed == 1 && decisions[0].remaining == 8 && decisions[1].allowed == (round == 0));
    }
    requests[0].operation = requests[1].operation = POLYLIMIT_PEEK;
    OK(polylimit_completions_submit_together(completions, limiter, requests, sizeof *requests, 2, 1, decisions,
                                             sizeof *decisions, MESSAGE));
    CHECK(decisions[0].allowed == 1 && decisions[0].remaining == 8 && decisions[1].allowed == 0);
    for (size_t at = 0; at < 2; at++) {
        requests[at] = ask(POLYLIMIT_RESERVE, "k", 1);
        requests[at].policy = at == 0 ? NULL : "1 concurrent";
        requests[at].id = "id";
        requests[at].id_length = 2;
        requests[at].ttl_us = 1000000;
    }
    for (uint32_t round = 0; round < 2; round++) {
        requests[0].id = requests[1].id = round == 0 ? "id" : "di";
        OK(polylimit_completions_submit_together(completions, limiter, requests, sizeof *requests, 2, 1, decisions,
                                                 sizeof *decisions, MESSAGE));
        CHECK(decisions[0].allowed == 1 && decisions[0].remaining == 7 && decisions[1].allowed == (round == 0));
    }
    requests[0].operation = POLYLIMIT_RESET;
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_completions_submit_together(completions, limiter, requests, sizeof *requests, 2, 1, decisions,
                                             sizeof *decisions, MESSAGE));
    CHECK(polylimit_completions_pending(completions) == 0);
    polylimit_completions_free(completions);
    polylimit_limiter_free(limiter);
}

static void pending_operation_is_drained_with_its_tag(void) {
    enum { WAITING = 10 };
    polylimit_clock *clock = NULL;
    OK(polylimit_clock_new(START_US, &clock, MESSAGE));
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute fixed_window", clock);
    polylimit_completions *completions = open_completions();
    polylimit_result result, results[3];
    for (uint64_t tag = 0; tag < WAITING; tag++) {
        char key[8];
        snprintf(key, sizeof key, "%d", (int)tag);
        polylimit_request acquire = ask(POLYLIMIT_ACQUIRE, key, 1);
        acquire.timeout_us = 3600000000;
        IS(POLYLIMIT_OK, submit(completions, limiter, acquire, 1000, &result));
        IS(POLYLIMIT_PENDING, submit(completions, limiter, acquire, tag, &result));
    }
    CHECK(polylimit_completions_pending(completions) == WAITING);
    CHECK(drain(completions, results, 3) == 0);
    OK(polylimit_clock_advance(clock, 60000000, MESSAGE));
    /* Drained in small arrays: the descriptor stays readable while results are left. */
    unsigned seen = 0, batches = 0;
    while (seen != (1 << WAITING) - 1) {
        CHECK(readable(completions, 10000));
        size_t count = drain(completions, results, 3);
        for (size_t at = 0; at < count; at++) {
            CHECK(results[at].status == POLYLIMIT_OK && results[at].answer.decision.allowed == 1);
            CHECK(results[at].tag < WAITING && !(seen & 1u << results[at].tag));
            seen |= 1u << results[at].tag;
        }
        batches++;
    }
    CHECK(batches >= (WAITING + 2) / 3 && polylimit_completions_pending(completions) == 0 && !readable(completions, 0));
    polylimit_completions_free(completions);
    polylimit_limiter_free(limiter);
    polylimit_clock_free(clock);
}

static void cancelled_acquire_spends_nothing(void) {
    polylimit_clock *clock = NULL;
    OK(polylimit_clock_new(START_US, &clock, MESSAGE));
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute fixed_window", clock);
    polylimit_completions *completions = open_completions();
    polylimit_result result;
    polylimit_request acquire = ask(POLYLIMIT_ACQUIRE, "k", 1);
    acquire.timeout_us = 3600000000;
    IS(POLYLIMIT_OK, submit(completions, limiter, acquire, 0, &result));
    IS(POLYLIMIT_PENDING, submit(completions, limiter, acquire, 1, &result));
    uint32_t cancelled = 0;
    OK(polylimit_completions_cancel(completions, 1, &cancelled, MESSAGE));
    CHECK(cancelled == 1);
    OK(polylimit_completions_cancel(completions, 1, &cancelled, MESSAGE));
    CHECK(cancelled == 0);
    OK(polylimit_clock_advance(clock, 60000000, MESSAGE));
    CHECK(check(limiter, "k", 1).allowed == 1);
    CHECK(drain(completions, &result, 1) == 0 && polylimit_completions_pending(completions) == 0);
    polylimit_completions_free(completions);
    polylimit_limiter_free(limiter);
    polylimit_clock_free(clock);
}

/* Of three waiting operations, pending counts those that were neither cancelled nor drained, from the call that cancels on. */
static void pending_leaves_out_what_was_cancelled(void) {
    polylimit_clock *clock = NULL;
    OK(polylimit_clock_new(START_US, &clock, MESSAGE));
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute fixed_window", clock);
    polylimit_completions *completions = open_completions();
    polylimit_result result;
    polylimit_request acquire = ask(POLYLIMIT_ACQUIRE, "k", 1);
    acquire.timeout_us = 3600000000;
    IS(POLYLIMIT_OK, submit(completions, limiter, acquire, 0, &result));
    CHECK(polylimit_completions_pending(completions) == 0);
    for (uint64_t tag = 1; tag <= 3; tag++) {
        IS(POLYLIMIT_PENDING, submit(completions, limiter, acquire, tag, &result));
        CHECK(polylimit_completions_pending(completions) == tag);
    }
    uint32_t cancelled = 0;
    OK(polylimit_completions_cancel(completions, 2, &cancelled, MESSAGE));
    CHECK(cancelled == 1 && polylimit_completions_pending(completions) == 2);
    /* Neither a second time nor another tag changes it, and neither does a drain that finds nothing. */
    OK(polylimit_completions_cancel(completions, 2, &cancelled, MESSAGE));
    CHECK(cancelled == 0 && polylimit_completions_pending(completions) == 2);
    OK(polylimit_completions_cancel(completions, 9, &cancelled, MESSAGE));
    CHECK(cancelled == 0 && drain(completions, &result, 1) == 0 && polylimit_completions_pending(completions) == 2);
    OK(polylimit_completions_cancel(completions, 1, &cancelled, MESSAGE));
    CHECK(cancelled == 1 && polylimit_completions_pending(completions) == 1);
    /* The one that is left finishes: it is pending until it is drained. */
    OK(polylimit_clock_advance(clock, 60000000, MESSAGE));
    while (drain(completions, &result, 1) == 0) {
        CHECK(polylimit_completions_pending(completions) == 1 && readable(completions, 10000));
    }
    CHECK(result.tag == 3 && result.status == POLYLIMIT_OK && polylimit_completions_pending(completions) == 0);
    OK(polylimit_completions_cancel(completions, 3, &cancelled, MESSAGE));
    CHECK(cancelled == 0 && polylimit_completions_pending(completions) == 0);
    polylimit_completions_free(completions);
    polylimit_limiter_free(limiter);
    polylimit_clock_free(clock);
}

static void limiter_can_be_freed_while_operations_are_pending(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "1/hour fixed_window", NULL);
    polylimit_completions *completions = open_completions();
    polylimit_result result;
    polylimit_request acquire = ask(POLYLIMIT_ACQUIRE, "k", 1);
    acquire.timeout_us = 3600000000 * 2;
    IS(POLYLIMIT_OK, submit(completions, limiter, acquire, 1, &result));
    IS(POLYLIMIT_PENDING, submit(completions, limiter, acquire, 2, &result));
    polylimit_limiter_free(limiter);
    CHECK(readable(completions, 10000));
    CHECK(drain(completions, &result, 1) == 1 && result.tag == 2 && result.status == POLYLIMIT_CLOSED);
    CHECK(strlen(result.message) > 0);
    polylimit_completions_free(completions);
}

static void completions_can_be_freed_while_operations_are_pending(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "1/hour fixed_window", NULL);
    polylimit_completions *completions = open_completions();
    polylimit_result result;
    polylimit_request acquire = ask(POLYLIMIT_ACQUIRE, "k", 1);
    acquire.timeout_us = 3600000000 * 2;
    IS(POLYLIMIT_OK, submit(completions, limiter, acquire, 1, &result));
    IS(POLYLIMIT_PENDING, submit(completions, limiter, acquire, 2, &result));
    polylimit_completions_free(completions);
    CHECK(check(limiter, "other", 1).allowed == 1);
    polylimit_limiter_free(limiter);
}

/* The status of what was submitted with a tag, once that is known. */
static polylimit_status finished(polylimit_completions *completions, polylimit_status status, uint64_t tag) {
    polylimit_result result;
    while (status == POLYLIMIT_PENDING) {
        CHECK(readable(completions, 60000));
        if (drain(completions, &result, 1) == 1) {
            CHECK(result.tag == tag);
            status = result.status;
            snprintf(message, sizeof message, "%s", result.message);
        }
    }
    return status;
}

static void unreachable_store_does_not_block_submit(void) {
    polylimit_limiter *limiter = open_limiter("redis://127.0.0.1:1", "5/minute", NULL);
    polylimit_completions *completions = open_completions();
    polylimit_result result;
    polylimit_request ready = ask(POLYLIMIT_READY, "", 0);
    ready.timeout_us = 3600000000;
    IS(POLYLIMIT_PENDING, submit(completions, limiter, ready, 4, &result));
    polylimit_completions_free(completions);
    completions = open_completions();
    /* On a busy machine a short time may be over before the submission returns. */
    ready.timeout_us = 500000;
    CHECK(finished(completions, submit(completions, limiter, ready, 5, &result), 5) == POLYLIMIT_STORE_UNAVAILABLE);
    polylimit_completions_free(completions);
    polylimit_limiter_free(limiter);
}

static polylimit_status change(polylimit_completions *completions, const polylimit_limiter *limiter, polylimit_change what) {
    polylimit_result result;
    what.size = sizeof what;
    return finished(completions,
                    polylimit_completions_submit_change(completions, limiter, &what, 9, &result, sizeof result, MESSAGE), 9);
}

/* The HTTP status of the decision about a request of alice; 0 when it is admitted. */
static uint32_t decided(polylimit_completions *completions, const polylimit_limiter *limiter) {
    polylimit_pair user = {{"user", 4}, {"alice", 5}};
    polylimit_attributes request = {.size = sizeof request, .attributes = &user, .attribute_count = 1};
    polylimit_request_decision *decision = NULL;
    polylimit_result result;
    OK(finished(completions,
                polylimit_completions_submit_decide(completions, limiter, &request, NULL, 4, &decision, &result, sizeof result,
                                                    MESSAGE),
                4));
    polylimit_request_outcome outcome = {.size = sizeof outcome};
    OK(polylimit_request_decision_outcome(decision, &outcome, MESSAGE));
    polylimit_request_decision_free(decision);
    return outcome.http_status;
}

static uint64_t version_of(const polylimit_limiter *limiter) {
    polylimit_configuration *status = NULL;
    OK(polylimit_admin_configuration(limiter, &status, MESSAGE));
    uint64_t version = status->version;
    polylimit_configuration_free(status);
    return version;
}

#define DOCUMENT                                                                                                       \
    "polylimit = 1\n"                                                                                                  \
    "policies.api.quotas = '1/hour fixed_window'\n"                                                                    \
    "rules = [{ apply = [{ policy = 'api', key = '{user}' }] }]\n"

/* The operations of a configuration on a limiter that has one. */
static void change_and_decide(polylimit_completions *completions, const polylimit_limiter *limiter) {
    CHECK(decided(completions, limiter) == 0 && decided(completions, limiter) == 429);
    uint64_t version = version_of(limiter);
    polylimit_change more = {.operation = POLYLIMIT_SET_ENTRY, .entry = "override api alice"};
    more.value = "{\"numbers\": \"9/hour fixed_window\"}";
    OK(change(completions, limiter, more));
    OK(change(completions, limiter, (polylimit_change){.operation = POLYLIMIT_WAIT_FOR_VERSION, .version = version + 1}));
    CHECK(version_of(limiter) == version + 1 && decided(completions, limiter) == 0);
    polylimit_change deny = {.operation = POLYLIMIT_SET_ENTRY, .entry = "deny user alice"};
    OK(change(completions, limiter, deny));
    CHECK(decided(completions, limiter) == 403);
    deny.operation = POLYLIMIT_DELETE_ENTRY;
    OK(change(completions, limiter, deny));
    CHECK(version_of(limiter) == version + 3 && decided(completions, limiter) == 0);
    polylimit_change late = {.operation = POLYLIMIT_WAIT_FOR_VERSION, .version = version + 4, .timeout_us = 1};
    IS(POLYLIMIT_STORE_UNAVAILABLE, change(completions, limiter, late));
}

static void configuration_is_changed_by_completions(void) {
    polylimit_completions *completions = open_completions();
    polylimit_limiter *limiter = NULL;
    polylimit_option document = {"document", DOCUMENT};
    OK(polylimit_limiter_open("memory:", &document, 1, NULL, &limiter, MESSAGE));
    change_and_decide(completions, limiter);
    polylimit_change publish = {.operation = POLYLIMIT_PUBLISH, .document = DOCUMENT};
    IS(POLYLIMIT_INVALID_ARGUMENT, change(completions, limiter, publish));
    polylimit_limiter_free(limiter);

    char prefix[64];
    snprintf(prefix, sizeof prefix, "completions-%ld", (long)getpid());
    polylimit_option options[] = {{"configuration", "store"}, {"prefix", prefix}, {"deadline", "30s"}};
    OK(polylimit_limiter_open(redis_url(), options, 3, NULL, &limiter, MESSAGE));
    OK(change(completions, limiter, publish));
    change_and_decide(completions, limiter);
    publish.has_version = 1;
    publish.version = 99;
    IS(POLYLIMIT_INVALID_ARGUMENT, change(completions, limiter, publish));
    CHECK(strstr(message, "99") != NULL);
    polylimit_limiter_free(limiter);
    polylimit_completions_free(completions);
}

/* Whether the report of a query has this part. */
static int told(polylimit_completions *completions, const polylimit_limiter *limiter, polylimit_query query, const char *part) {
    polylimit_report *report = NULL;
    polylimit_result result;
    query.size = sizeof query;
    polylimit_status status =
        polylimit_completions_submit_query(completions, limiter, &query, 7, &report, &result, sizeof result, MESSAGE);
    CHECK((polylimit_report_json(report) == NULL) == (status != POLYLIMIT_OK));
    OK(finished(completions, status, 7));
    const char *json = polylimit_report_json(report);
    CHECK(json != NULL);
    int found = strstr(json, part) != NULL;
    if (!found) {
        fprintf(stderr, "%s\nhas no %s\n", json, part);
    }
    polylimit_report_free(report);
    return found;
}

/* The queries on a limiter that has a configuration. */
static void ask_about_keys(polylimit_completions *completions, const polylimit_limiter *limiter) {
    CHECK(decided(completions, limiter) == 0 && decided(completions, limiter) == 429);
    polylimit_request request = ask(POLYLIMIT_PEEK, "alice", 1);
    polylimit_query explain = {.operation = POLYLIMIT_EXPLAIN, .request = &request};
    CHECK(told(completions, limiter, explain, "\"key\":\"alice\",\"cost\":1,\"headroom\":0,\"allowed\":false,\"cause\":\"quota\""));
    polylimit_pair user = {{"user", 4}, {"alice", 5}};
    polylimit_attributes attributes = {.size = sizeof attributes, .attributes = &user, .attribute_count = 1};
    polylimit_query explain_request = {.operation = POLYLIMIT_EXPLAIN_REQUEST, .attributes = &attributes};
    CHECK(told(completions, limiter, explain_request, "{\"allowed\":false,\"cause\":\"quota\""));
    polylimit_list_options options = {.size = sizeof options};
    OK(polylimit_list_defaults(&options, MESSAGE));
    options.pace_percent = 100;
    polylimit_query top = {.operation = POLYLIMIT_SCAN_TOP, .options = &options, .most = 1};
    CHECK(told(completions, limiter, top, "{\"keys\":[{\"policy\":\"api\",\"key\":\"alice\""));
    options.key_prefix = "ali";
    options.key_prefix_length = 3;
    CHECK(told(completions, limiter, (polylimit_query){.operation = POLYLIMIT_LIST, .options = &options}, "\"key\":\"alice\""));
    polylimit_query reset = {.operation = POLYLIMIT_RESET_LISTED, .options = &options};
    CHECK(told(completions, limiter, reset, "{\"reset\":1,\"unknown\":0,"));
    CHECK(decided(completions, limiter) == 0);
}

static void keys_are_asked_about_by_completions(void) {
    polylimit_completions *completions = open_completions();
    polylimit_limiter *limiter = NULL;
    char prefix[64];
    snprintf(prefix, sizeof prefix, "queries-%ld", (long)getpid());
    polylimit_option options[] = {{"document", DOCUMENT}, {"prefix", prefix}, {"deadline", "30s"}};
    OK(polylimit_limiter_open("memory:", options, 1, NULL, &limiter, MESSAGE));
    ask_about_keys(completions, limiter);
    polylimit_limiter_free(limiter);
    OK(polylimit_limiter_open(redis_url(), options, 3, NULL, &limiter, MESSAGE));
    ask_about_keys(completions, limiter);

    /* One that was cancelled has no report, and a wrong one neither. */
    polylimit_report *report = NULL;
    polylimit_result result;
    polylimit_query list = {.size = sizeof list, .operation = POLYLIMIT_LIST};
    if (polylimit_completions_submit_query(completions, limiter, &list, 8, &report, &result, sizeof result, MESSAGE) ==
        POLYLIMIT_PENDING) {
        uint32_t cancelled = 0;
        OK(polylimit_completions_cancel(completions, 8, &cancelled, MESSAGE));
        CHECK(cancelled == 0 || polylimit_report_json(report) == NULL);
    }
    polylimit_report_free(report);
    report = NULL;
    polylimit_list_options wrong = {.size = sizeof wrong};
    list.options = &wrong;
    IS(POLYLIMIT_INVALID_ARGUMENT,
       finished(completions,
                polylimit_completions_submit_query(completions, limiter, &list, 9, &report, &result, sizeof result, MESSAGE), 9));
    CHECK(strstr(message, "entries of a list is 0") != NULL);
    polylimit_report_free(report);
    uint32_t stopped = 1;
    list.options = NULL;
    report = NULL;
    IS(POLYLIMIT_PENDING, polylimit_admin_query(limiter, &list, &stopped, &report, MESSAGE));
    stopped = 0;
    OK(polylimit_admin_query(limiter, &list, &stopped, &report, MESSAGE));
    CHECK(strstr(polylimit_report_json(report), "\"examined\":") != NULL);
    polylimit_report_free(report);
    polylimit_limiter_free(limiter);
    polylimit_completions_free(completions);
}

int main(void) {
    static const struct test tests[] = {
        {"submit returns an immediate answer", submit_returns_an_immediate_answer},
        {"submit together decides all or nothing", submit_together_decides_all_or_nothing},
        {"pending operation is drained with its tag", pending_operation_is_drained_with_its_tag},
        {"cancelled acquire spends nothing", cancelled_acquire_spends_nothing},
        {"pending leaves out what was cancelled", pending_leaves_out_what_was_cancelled},
        {"limiter can be freed while operations are pending", limiter_can_be_freed_while_operations_are_pending},
        {"completions can be freed while operations are pending", completions_can_be_freed_while_operations_are_pending},
        {"unreachable store does not block submit", unreachable_store_does_not_block_submit},
        {"configuration is changed by completions", configuration_is_changed_by_completions},
        {"keys are asked about by completions", keys_are_asked_about_by_completions},
    };
    RUN(tests);
}
