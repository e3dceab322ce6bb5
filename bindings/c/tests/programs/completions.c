/* Completions: submit, drain, cancel. */
#include "check.h"

#include <fcntl.h>
#include <poll.h>

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

static void unreachable_store_does_not_block_submit(void) {
    polylimit_limiter *limiter = open_limiter("redis://127.0.0.1:1", "5/minute", NULL);
    polylimit_completions *completions = open_completions();
    polylimit_result result;
    polylimit_request ready = ask(POLYLIMIT_READY, "", 0);
    ready.timeout_us = 500000;
    IS(POLYLIMIT_PENDING, submit(completions, limiter, ready, 5, &result));
    CHECK(readable(completions, 10000));
    while (drain(completions, &result, 1) == 0) {
        CHECK(readable(completions, 10000));
    }
    CHECK(result.tag == 5 && result.status == POLYLIMIT_STORE_UNAVAILABLE);
    polylimit_completions_free(completions);
    polylimit_limiter_free(limiter);
}

int main(void) {
    static const struct test tests[] = {
        {"submit returns an immediate answer", submit_returns_an_immediate_answer},
        {"submit together decides all or nothing", submit_together_decides_all_or_nothing},
        {"pending operation is drained with its tag", pending_operation_is_drained_with_its_tag},
        {"cancelled acquire spends nothing", cancelled_acquire_spends_nothing},
        {"limiter can be freed while operations are pending", limiter_can_be_freed_while_operations_are_pending},
        {"completions can be freed while operations are pending", completions_can_be_freed_while_operations_are_pending},
        {"unreachable store does not block submit", unreachable_store_does_not_block_submit},
    };
    RUN(tests);
}
