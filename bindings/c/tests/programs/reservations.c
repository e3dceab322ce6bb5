/* Reservations: by id, with a handle, and by completions. */
#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define SECOND 1000000u

/* A policy, and the clock by which its reservations end. */
struct held {
    polylimit_clock *clock;
    polylimit_limiter *limiter;
};

static struct held open_held(const char *quotas) {
    struct held held = {NULL, NULL};
    OK(polylimit_clock_new(START_US, &held.clock, MESSAGE));
    held.limiter = open_limiter("memory:", quotas, held.clock);
    return held;
}

static void close_held(struct held held) {
    polylimit_limiter_free(held.limiter);
    polylimit_clock_free(held.clock);
}

static uint64_t remaining(const polylimit_limiter *limiter) {
    polylimit_decision decision = {.size = sizeof decision};
    OK(polylimit_limiter_peek(limiter, NULL, "k", 1, 1, &decision, MESSAGE));
    return decision.remaining;
}

static polylimit_decision reserve(const polylimit_limiter *limiter, const char *id, uint64_t cost) {
    char room[POLYLIMIT_RESERVATION_ID_SIZE];
    size_t length = strlen(id);
    memcpy(room, id, length);
    polylimit_decision decision = {.size = sizeof decision};
    OK(polylimit_limiter_reserve(limiter, NULL, "k", 1, cost, room, &length, 10 * SECOND, 0, 0, &decision, MESSAGE));
    return decision;
}

static polylimit_reservation_options defaults(void) {
    polylimit_reservation_options options = {.size = sizeof options};
    OK(polylimit_reservation_defaults(&options, MESSAGE));
    return options;
}

static polylimit_reservation *hold(const polylimit_limiter *limiter, uint64_t cost,
                                   const polylimit_reservation_options *options) {
    polylimit_reservation *reservation = NULL;
    OK(polylimit_reservation_new(limiter, NULL, "k", 1, cost, options, &reservation, MESSAGE));
    CHECK(reservation != NULL);
    return reservation;
}

static uint32_t allowed(const polylimit_reservation *reservation) {
    polylimit_decision decision = {.size = sizeof decision};
    OK(polylimit_reservation_decision(reservation, &decision, MESSAGE));
    return decision.allowed;
}

static void wait_a_little(void) {
    struct timespec pause = {.tv_sec = 0, .tv_nsec = 2000000};
    nanosleep(&pause, NULL);
}

static void reservation_is_committed_or_cancelled_by_its_id(void) {
    struct held held = open_held("2 concurrent; 100/minute fixed_window");
    const polylimit_limiter *limiter = held.limiter;
    CHECK(reserve(limiter, "a", 40).remaining == 60 && reserve(limiter, "b", 50).remaining == 0);
    polylimit_decision denied = reserve(limiter, "c", 1);
    CHECK(denied.allowed == 0 && denied.retry_after_us == 10 * SECOND);
    polylimit_usage usage = {.size = sizeof usage};
    OK(polylimit_limiter_commit(limiter, NULL, "k", 1, "a", 1, 25, &usage, MESSAGE));
    CHECK(usage.found == 1 && usage.remaining == 25);
    OK(polylimit_limiter_commit(limiter, NULL, "k", 1, "a", 1, 25, &usage, MESSAGE));
    CHECK(usage.found == 0 && usage.remaining == 25);
    OK(polylimit_limiter_cancel(limiter, NULL, "k", 1, "b", 1, &usage, MESSAGE));
    CHECK(usage.found == 1 && usage.remaining == 75);
    CHECK(reserve(limiter, "d", 30).allowed == 1);
    OK(polylimit_limiter_commit(limiter, "api", "k", 1, "d", 1, POLYLIMIT_AS_RESERVED, &usage, MESSAGE));
    CHECK(usage.found == 1 && usage.remaining == 45);
    close_held(held);
}

static void job_that_runs_again_is_charged_once(void) {
    struct held held = open_held("2 concurrent; 100/minute fixed_window");
    polylimit_usage usage = {.size = sizeof usage};
    polylimit_reservation_options options = defaults();
    options.id = "job";
    options.id_length = 3;
    options.remember_us = 3600 * SECOND;
    for (uint32_t run = 0; run < 2; run++) {
        polylimit_reservation *job = hold(held.limiter, 40, &options);
        CHECK(allowed(job) == 1);
        OK(polylimit_reservation_commit(job, 30, &usage, MESSAGE));
        CHECK(usage.found == 1 && usage.repeated == run && usage.remaining == 70);
        polylimit_reservation_free(job);
    }
    OK(polylimit_limiter_commit(held.limiter, NULL, "k", 1, "job", 3, 30, &usage, MESSAGE));
    CHECK(usage.found == 0 && usage.repeated == 1 && usage.remaining == 70);
    OK(polylimit_limiter_commit(held.limiter, NULL, "k", 1, "other", 5, 30, &usage, MESSAGE));
    CHECK(usage.found == 0 && usage.repeated == 0);
    options.remember_us = 999;
    polylimit_reservation *none = NULL;
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_reservation_new(held.limiter, NULL, "k", 1, 1, &options, &none, MESSAGE));
    close_held(held);
}

/* Requests that are reserved together: a slot with 40 units, and one unit of another policy. */
static void both(polylimit_request *requests, const char *id, uint64_t remember_us) {
    requests[0] = ask(POLYLIMIT_RESERVE, "k", 40);
    requests[1] = ask(POLYLIMIT_RESERVE, "k", 1);
    requests[0].policy = "api";
    requests[1].policy = "3/minute fixed_window";
    for (size_t at = 0; at < 2; at++) {
        requests[at].id = id;
        requests[at].id_length = strlen(id);
        requests[at].ttl_us = 10 * SECOND;
        requests[at].remember_us = remember_us;
    }
}

static void request_is_reserved_together_or_not_at_all(void) {
    struct held held = open_held("2 concurrent; 100/minute fixed_window");
    polylimit_request requests[2];
    polylimit_decision decisions[2];
    polylimit_usage usage = {.size = sizeof usage};
    size_t size = sizeof *requests, decision_size = sizeof *decisions;
    for (int at = 0; at < 2; at++) {
        both(requests, at == 0 ? "a" : "b", 0);
        OK(polylimit_limiter_reserve_together(held.limiter, requests, size, 2, decisions, decision_size, MESSAGE));
        /* Without a slot nothing remains. */
        CHECK(decisions[0].allowed == 1 && decisions[0].remaining == (at == 0 ? 60u : 0u));
        CHECK(decisions[1].allowed == 1 && decisions[1].remaining == 2 - (uint64_t)at);
    }
    both(requests, "c", 0);
    OK(polylimit_limiter_reserve_together(held.limiter, requests, size, 2, decisions, decision_size, MESSAGE));
    CHECK(decisions[0].allowed == 0 && decisions[1].allowed == 1 && decisions[1].remaining == 1);
    OK(polylimit_limiter_cancel(held.limiter, "api", "k", 1, "a", 1, &usage, MESSAGE));
    CHECK(usage.found == 1 && usage.remaining == 60);
    OK(polylimit_limiter_commit(held.limiter, "api", "k", 1, "b", 1, 10, &usage, MESSAGE));
    CHECK(usage.found == 1 && usage.remaining == 90);
    /* The same requests end what they have reserved. */
    polylimit_result result;
    OK(polylimit_limiter_reserve_together(held.limiter, requests, size, 2, decisions, decision_size, MESSAGE));
    requests[0].operation = POLYLIMIT_COMMIT;
    OK(polylimit_limiter_call(held.limiter, &requests[0], NULL, &result, sizeof result, MESSAGE));
    CHECK(result.answer.usage.found == 1 && result.answer.usage.remaining == 50);
    close_held(held);
}

static void commit_of_a_request_is_remembered(void) {
    struct held held = open_held("2 concurrent; 100/minute fixed_window");
    polylimit_request requests[2];
    polylimit_decision decisions[2];
    polylimit_usage usage = {.size = sizeof usage};
    for (uint32_t run = 0; run < 2; run++) {
        both(requests, "job", 3600 * SECOND);
        OK(polylimit_limiter_reserve_together(held.limiter, requests, sizeof *requests, 2, decisions, sizeof *decisions,
                                              MESSAGE));
        OK(polylimit_limiter_commit(held.limiter, "api", "k", 1, "job", 3, 30, &usage, MESSAGE));
        CHECK(usage.found == 1 && usage.repeated == run && usage.remaining == 70);
    }
    close_held(held);
}

/* The example of docs/reservations.md. */
static void page_on_reservations(void) {
    polylimit_option options[] = {{"policy.slots", "20 concurrent"}, {"policy.requests", "100/minute"}};
    polylimit_limiter *limiter = NULL;
    OK(polylimit_limiter_open("memory:", options, 2, NULL, &limiter, MESSAGE));
    char id[POLYLIMIT_RESERVATION_ID_SIZE];
    size_t id_length = 0;
    OK(polylimit_reservation_id_random(id, &id_length, MESSAGE));
    polylimit_request requests[2] = {
        {.operation = POLYLIMIT_RESERVE, .policy = "slots", .key = "tenant:7", .key_length = 8, .cost = 0},
        {.operation = POLYLIMIT_RESERVE, .policy = "requests", .key = "user:42", .key_length = 7, .cost = 1},
    };
    for (size_t at = 0; at < 2; at++) {
        requests[at].size = sizeof requests[at];
        requests[at].id = id;
        requests[at].id_length = id_length;
        requests[at].ttl_us = 120000000;
    }
    polylimit_decision decisions[2];
    OK(polylimit_limiter_reserve_together(limiter, requests, sizeof *requests, 2, decisions, sizeof *decisions, MESSAGE));
    if (decisions[0].allowed && decisions[1].allowed) {
        /* the work */
        polylimit_usage left = {.size = sizeof left};
        OK(polylimit_limiter_commit(limiter, "slots", "tenant:7", 8, id, id_length, POLYLIMIT_AS_RESERVED, &left, MESSAGE));
        CHECK(left.found == 1 && left.remaining == 20 && decisions[1].remaining == 99);
    }
    CHECK(decisions[0].allowed && decisions[1].allowed);
    polylimit_limiter_free(limiter);
}

static void terms_of_a_request_are_those_of_all(void) {
    struct held held = open_held("2 concurrent; 100/minute fixed_window");
    polylimit_request requests[2];
    polylimit_decision decisions[2];
    for (int wrong = 0; wrong < 6; wrong++) {
        both(requests, "a", 0);
        polylimit_request *last = &requests[1];
        switch (wrong) {
        case 0: last->id = "b"; break;
        case 1: last->ttl_us++; break;
        case 2: last->remember_us = SECOND; break;
        case 3: last->operation = POLYLIMIT_CHECK; break;
        case 4: requests[0].timeout_us = last->timeout_us = SECOND; break;
        default: requests[0].id_length = last->id_length = 0;
        }
        IS(POLYLIMIT_INVALID_ARGUMENT,
           polylimit_limiter_reserve_together(held.limiter, requests, sizeof *requests, 2, decisions, sizeof *decisions,
                                              MESSAGE));
        CHECK(strstr(message, wrong < 3 ? "several terms" : wrong == 3 ? "operation 1 " : wrong == 4 ? "timeout is 1s" : "id") !=
              NULL);
    }
    both(requests, "a", 0);
    requests[1].policy = "nobody";
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_limiter_reserve_together(held.limiter, requests, sizeof *requests, 2, decisions, sizeof *decisions, MESSAGE));
    CHECK(remaining(held.limiter) == 100);
    polylimit_limiter_close(held.limiter);
    both(requests, "a", 0);
    IS(POLYLIMIT_CLOSED,
       polylimit_limiter_reserve_together(held.limiter, requests, sizeof *requests, 2, decisions, sizeof *decisions, MESSAGE));
    close_held(held);
}

static void reservation_ends_at_its_time_unless_it_is_renewed(void) {
    struct held held = open_held("1 concurrent");
    polylimit_usage usage = {.size = sizeof usage};
    CHECK(reserve(held.limiter, "a", 1).allowed == 1);
    OK(polylimit_clock_advance(held.clock, 5 * SECOND, MESSAGE));
    OK(polylimit_limiter_renew(held.limiter, NULL, "k", 1, "a", 1, 20 * SECOND, &usage, MESSAGE));
    CHECK(usage.found == 1 && usage.reset_after_us == 20 * SECOND);
    OK(polylimit_clock_advance(held.clock, 20 * SECOND - 1, MESSAGE));
    CHECK(reserve(held.limiter, "b", 1).retry_after_us == 1);
    OK(polylimit_clock_advance(held.clock, 1, MESSAGE));
    OK(polylimit_limiter_renew(held.limiter, NULL, "k", 1, "a", 1, 20 * SECOND, &usage, MESSAGE));
    CHECK(usage.found == 0 && reserve(held.limiter, "b", 1).allowed == 1);
    close_held(held);
}

static void random_id_is_written_to_the_buffer(void) {
    struct held held = open_held("9 concurrent");
    char ids[3][POLYLIMIT_RESERVATION_ID_SIZE];
    size_t lengths[3] = {0, 0, 0};
    polylimit_decision decision = {.size = sizeof decision};
    for (size_t at = 0; at < 2; at++) {
        OK(polylimit_limiter_reserve(held.limiter, NULL, "k", 1, 1, ids[at], &lengths[at], SECOND, 0, 0, &decision, MESSAGE));
        CHECK(decision.remaining == 8 - at);
    }
    OK(polylimit_reservation_id_random(ids[2], &lengths[2], MESSAGE));
    CHECK(lengths[0] == 32 && lengths[1] == 32 && lengths[2] == 32);
    CHECK(memcmp(ids[0], ids[1], 32) != 0 && memcmp(ids[1], ids[2], 32) != 0);
    /* With the id that is there, a repeated reserve changes nothing. */
    OK(polylimit_limiter_reserve(held.limiter, NULL, "k", 1, 1, ids[0], &lengths[0], SECOND, 0, 0, &decision, MESSAGE));
    CHECK(decision.allowed == 1 && remaining(held.limiter) == 7);
    polylimit_limiter_close(held.limiter);
    lengths[2] = 0;
    IS(POLYLIMIT_CLOSED,
       polylimit_limiter_reserve(held.limiter, NULL, "k", 1, 1, ids[2], &lengths[2], SECOND, 0, 0, &decision, MESSAGE));
    CHECK(lengths[2] == 32);
    close_held(held);
}

static void wrong_ids_times_and_algorithms_are_refused(void) {
    struct held held = open_held("1 concurrent");
    const polylimit_limiter *limiter = held.limiter;
    polylimit_decision decision = {.size = sizeof decision};
    polylimit_usage usage = {.size = sizeof usage};
    char id[POLYLIMIT_RESERVATION_ID_SIZE + 1] = "a";
    size_t one = 1, longer = sizeof id;
    uint64_t day = 24ull * 3600 * SECOND;
    uint64_t ttls[] = {0, 999, 2 * day + 1, UINT64_MAX};
#define REFUSED(text, call)                                                                                            \
    do {                                                                                                               \
        IS(POLYLIMIT_INVALID_ARGUMENT, call);                                                                          \
        CHECK(strstr(message, text) != NULL);                                                                          \
    } while (0)
    for (size_t at = 0; at < 4; at++) {
        REFUSED("ttl", polylimit_limiter_reserve(limiter, NULL, "k", 1, 1, id, &one, ttls[at], 0, 0, &decision, MESSAGE));
        REFUSED("ttl", polylimit_limiter_renew(limiter, NULL, "k", 1, id, 1, ttls[at], &usage, MESSAGE));
    }
    REFUSED("65 bytes", polylimit_limiter_reserve(limiter, NULL, "k", 1, 1, id, &longer, day, 0, 0, &decision, MESSAGE));
    REFUSED("65 bytes", polylimit_limiter_commit(limiter, NULL, "k", 1, id, longer, 1, &usage, MESSAGE));
    REFUSED("0 bytes", polylimit_limiter_cancel(limiter, NULL, "k", 1, id, 0, &usage, MESSAGE));
    REFUSED("cost", polylimit_limiter_commit(limiter, NULL, "k", 1, id, 1, UINT64_MAX - 1, &usage, MESSAGE));
    REFUSED("concurren", polylimit_limiter_check(limiter, NULL, "k", 1, 1, &decision, MESSAGE));
    REFUSED("concurren", polylimit_limiter_take(limiter, NULL, "k", 1, 1, &usage, MESSAGE));
    REFUSED("concurren", polylimit_limiter_acquire(limiter, NULL, "k", 1, 1, SECOND, &decision, MESSAGE));
    REFUSED("leaky_bucket", polylimit_limiter_reserve(limiter, "1/s leaky_bucket", "k", 1, 1, id, &one, day, 0, 0, &decision,
                                                      MESSAGE));
    polylimit_reservation *none = NULL;
    polylimit_reservation_options options = defaults();
    options.commit_at_end = 2;
    REFUSED("commit_at_end is 2", polylimit_reservation_new(limiter, NULL, "k", 1, 1, &options, &none, MESSAGE));
    options = defaults();
    options.ttl_us = 0;
    REFUSED("ttl", polylimit_reservation_new(limiter, NULL, "k", 1, 1, &options, &none, MESSAGE));
    options = defaults();
    options.id = id;
    REFUSED("0 bytes", polylimit_reservation_new(limiter, NULL, "k", 1, 1, &options, &none, MESSAGE));
    options.size = 47;
    REFUSED("options has size 47", polylimit_reservation_new(limiter, NULL, "k", 1, 1, &options, &none, MESSAGE));
    CHECK(none == NULL && remaining(limiter) == 1);
    close_held(held);
}

static void null_is_refused(void) {
    struct held held = open_held("1 concurrent");
    const polylimit_limiter *limiter = held.limiter;
    polylimit_completions *completions = NULL;
    OK(polylimit_completions_open(&completions, MESSAGE));
    polylimit_decision decision = {.size = sizeof decision};
    polylimit_usage usage = {.size = sizeof usage};
    polylimit_reservation *reservation = NULL;
    polylimit_result result;
    char id[POLYLIMIT_RESERVATION_ID_SIZE] = "a";
    size_t length = 0, one = 1;
    REFUSED("id is NULL", polylimit_reservation_id_random(NULL, &length, MESSAGE));
    REFUSED("id_length_out", polylimit_reservation_id_random(id, NULL, MESSAGE));
    REFUSED("limiter", polylimit_limiter_reserve(NULL, NULL, "k", 1, 1, id, &one, SECOND, 0, 0, &decision, MESSAGE));
    REFUSED("id is NULL", polylimit_limiter_reserve(limiter, NULL, "k", 1, 1, NULL, &one, SECOND, 0, 0, &decision, MESSAGE));
    REFUSED("id is NULL", polylimit_limiter_reserve(limiter, NULL, "k", 1, 1, NULL, &length, SECOND, 0, 0, &decision, MESSAGE));
    REFUSED("id_length", polylimit_limiter_reserve(limiter, NULL, "k", 1, 1, id, NULL, SECOND, 0, 0, &decision, MESSAGE));
    REFUSED("decision", polylimit_limiter_reserve(limiter, NULL, "k", 1, 1, id, &one, SECOND, 0, 0, NULL, MESSAGE));
    REFUSED("limiter", polylimit_limiter_commit(NULL, NULL, "k", 1, id, 1, 1, &usage, MESSAGE));
    REFUSED("usage", polylimit_limiter_cancel(limiter, NULL, "k", 1, id, 1, NULL, MESSAGE));
    REFUSED("id is NULL", polylimit_limiter_renew(limiter, NULL, "k", 1, NULL, 1, SECOND, &usage, MESSAGE));
    REFUSED("options", polylimit_reservation_defaults(NULL, MESSAGE));
    REFUSED("limiter", polylimit_reservation_new(NULL, NULL, "k", 1, 1, NULL, &reservation, MESSAGE));
    REFUSED("reservation_out", polylimit_reservation_new(limiter, NULL, "k", 1, 1, NULL, NULL, MESSAGE));
    REFUSED("completions", polylimit_reservation_submit(NULL, limiter, NULL, "k", 1, 1, NULL, 1, &reservation, &result,
                                                        sizeof result, MESSAGE));
    REFUSED("result", polylimit_reservation_submit(completions, limiter, NULL, "k", 1, 1, NULL, 1, &reservation, NULL,
                                                   sizeof result, MESSAGE));
    REFUSED("reservation", polylimit_reservation_decision(NULL, &decision, MESSAGE));
    REFUSED("reservation", polylimit_reservation_commit(NULL, 1, &usage, MESSAGE));
    REFUSED("reservation", polylimit_reservation_cancel(NULL, &usage, MESSAGE));
    REFUSED("reservation", polylimit_reservation_submit_commit(completions, NULL, 1, 1, &result, sizeof result, MESSAGE));
    REFUSED("reservation", polylimit_reservation_submit_cancel(completions, NULL, 1, &result, sizeof result, MESSAGE));
    CHECK(polylimit_reservation_id(NULL, &length) == NULL && polylimit_reservation_is_lost(NULL) == 0);
    polylimit_reservation_detach(NULL);
    polylimit_reservation_free(NULL);
    CHECK(reservation == NULL && remaining(limiter) == 1);
    /* A commit without a place for its answer leaves the handle as it is: freeing it gives back. */
    reservation = hold(limiter, 1, NULL);
    REFUSED("usage", polylimit_reservation_commit(reservation, 1, NULL, MESSAGE));
    CHECK(polylimit_reservation_id(reservation, NULL) == NULL && remaining(limiter) == 0);
    polylimit_reservation_free(reservation);
    CHECK(remaining(limiter) == 1);
    polylimit_completions_free(completions);
    close_held(held);
}

static void handle_commits_cancels_and_gives_back(void) {
    struct held held = open_held("2 concurrent; 100/minute fixed_window");
    const polylimit_limiter *limiter = held.limiter;
    polylimit_usage usage = {.size = sizeof usage};
    polylimit_reservation *first = hold(limiter, 40, NULL), *second = hold(limiter, 50, NULL), *third;
    CHECK(allowed(first) && allowed(second) && polylimit_reservation_is_lost(first) == 0);
    third = hold(limiter, 1, NULL);
    CHECK(!allowed(third));
    OK(polylimit_reservation_commit(third, 1, &usage, MESSAGE));
    CHECK(usage.found == 0);
    polylimit_reservation_free(third);
    OK(polylimit_reservation_commit(first, 25, &usage, MESSAGE));
    CHECK(usage.found == 1 && usage.remaining == 25);
    OK(polylimit_reservation_commit(first, 25, &usage, MESSAGE));
    CHECK(usage.found == 0 && usage.remaining == 25);
    OK(polylimit_reservation_cancel(second, &usage, MESSAGE));
    CHECK(usage.found == 1 && usage.remaining == 75 && allowed(second));
    polylimit_reservation_free(first);
    polylimit_reservation_free(second);
    CHECK(remaining(limiter) == 75);
    first = hold(limiter, 20, NULL);
    CHECK(remaining(limiter) == 55);
    polylimit_reservation_free(first);
    CHECK(remaining(limiter) == 75);
    polylimit_reservation_options options = defaults();
    options.id = "left";
    options.id_length = 4;
    first = hold(limiter, 20, &options);
    polylimit_reservation_detach(first);
    polylimit_reservation_free(first);
    CHECK(remaining(limiter) == 55);
    OK(polylimit_limiter_cancel(limiter, NULL, "k", 1, "left", 4, &usage, MESSAGE));
    CHECK(usage.found == 1 && usage.remaining == 75);
    options.commit_at_end = 1;
    options.id = "mine";
    options.id_length = 4;
    first = hold(limiter, 20, &options);
    size_t length = 0;
    const void *id = polylimit_reservation_id(first, &length);
    CHECK(length == 4 && memcmp(id, "mine", 4) == 0);
    polylimit_reservation_free(first);
    CHECK(remaining(limiter) == 55);
    OK(polylimit_limiter_cancel(limiter, NULL, "k", 1, "mine", 4, &usage, MESSAGE));
    CHECK(usage.found == 0);
    close_held(held);
}

static void handle_renews_its_reservation_and_tells_its_loss(void) {
    struct held held = open_held("1 concurrent");
    polylimit_reservation_options options = defaults();
    options.ttl_us = 30 * SECOND;
    polylimit_reservation *reservation = hold(held.limiter, 1, &options);
    polylimit_decision decision = {.size = sizeof decision};
    for (int third = 0; third < 5; third++) {
        OK(polylimit_clock_advance(held.clock, 10 * SECOND, MESSAGE));
        do {
            wait_a_little();
            OK(polylimit_limiter_peek(held.limiter, NULL, "k", 1, 1, &decision, MESSAGE));
        } while (decision.retry_after_us != 30 * SECOND);
        CHECK(polylimit_reservation_is_lost(reservation) == 0);
    }
    size_t length = 0;
    const void *id = polylimit_reservation_id(reservation, &length);
    polylimit_usage usage = {.size = sizeof usage};
    OK(polylimit_limiter_cancel(held.limiter, NULL, "k", 1, id, length, &usage, MESSAGE));
    CHECK(usage.found == 1);
    OK(polylimit_clock_advance(held.clock, 10 * SECOND, MESSAGE));
    while (polylimit_reservation_is_lost(reservation) == 0) {
        wait_a_little();
    }
    OK(polylimit_reservation_commit(reservation, 1, &usage, MESSAGE));
    CHECK(usage.found == 0);
    polylimit_reservation_free(reservation);
    close_held(held);
}

static void handle_can_outlive_its_limiter(void) {
    struct held held = open_held("1 concurrent");
    polylimit_reservation *reservation = hold(held.limiter, 1, NULL);
    close_held(held);
    polylimit_usage usage = {.size = sizeof usage};
    IS(POLYLIMIT_CLOSED, polylimit_reservation_commit(reservation, 1, &usage, MESSAGE));
    CHECK(allowed(reservation) == 1);
    polylimit_reservation_free(reservation);
}

/* Waits until an operation has finished, and drains its result. */
static polylimit_result drained(const polylimit_completions *completions) {
    polylimit_result result;
    size_t count = 0;
    do {
        struct pollfd watched = {.fd = polylimit_completions_fd(completions), .events = POLLIN, .revents = 0};
        CHECK(poll(&watched, 1, 60000) == 1);
        OK(polylimit_completions_drain(completions, &result, sizeof result, 1, &count, MESSAGE));
    } while (count == 0);
    return result;
}

static void completions_reserve_commit_and_cancel(void) {
    struct held held = open_held("1 concurrent; 100/minute fixed_window");
    const polylimit_limiter *limiter = held.limiter;
    polylimit_completions *completions = NULL;
    OK(polylimit_completions_open(&completions, MESSAGE));
    polylimit_reservation_options options = defaults();
    polylimit_reservation *first = NULL, *second = NULL, *third = NULL;
    polylimit_result result;
    OK(polylimit_reservation_submit(completions, limiter, NULL, "k", 1, 30, NULL, 1, &first, &result, sizeof result, MESSAGE));
    CHECK(result.tag == 1 && result.answer.decision.allowed == 1 && allowed(first) == 1);
    options.timeout_us = 3600ull * SECOND;
    IS(POLYLIMIT_PENDING, polylimit_reservation_submit(completions, limiter, NULL, "k", 1, 30, &options, 2, &second, &result,
                                                       sizeof result, MESSAGE));
    IS(POLYLIMIT_PENDING, polylimit_reservation_submit(completions, limiter, NULL, "k", 1, 30, &options, 3, &third, &result,
                                                       sizeof result, MESSAGE));
    polylimit_decision decision = {.size = sizeof decision};
    REFUSED("no decision yet", polylimit_reservation_decision(second, &decision, MESSAGE));
    OK(polylimit_reservation_submit_commit(completions, first, 10, 4, &result, sizeof result, MESSAGE));
    CHECK(result.answer.usage.found == 1);
    polylimit_reservation_free(first);
    result = drained(completions);
    CHECK(result.tag == 2 && result.status == POLYLIMIT_OK && result.answer.decision.allowed == 1 && allowed(second));
    /* The third handle is freed before its result is drained, so that draining gives back. */
    polylimit_reservation_free(third);
    OK(polylimit_reservation_submit_cancel(completions, second, 5, &result, sizeof result, MESSAGE));
    CHECK(result.answer.usage.found == 1);
    polylimit_reservation_free(second);
    result = drained(completions);
    CHECK(result.tag == 3 && result.answer.decision.allowed == 1 && remaining(limiter) == 90);
    CHECK(polylimit_completions_pending(completions) == 0);
    polylimit_completions_free(completions);
    close_held(held);
}

static void cancelled_reserve_leaves_the_line(void) {
    struct held held = open_held("1 concurrent");
    polylimit_completions *completions = NULL;
    OK(polylimit_completions_open(&completions, MESSAGE));
    polylimit_reservation *first = hold(held.limiter, 1, NULL), *second = NULL;
    polylimit_reservation_options options = defaults();
    options.timeout_us = 3600ull * SECOND;
    polylimit_result result;
    IS(POLYLIMIT_PENDING, polylimit_reservation_submit(completions, held.limiter, NULL, "k", 1, 1, &options, 7, &second,
                                                       &result, sizeof result, MESSAGE));
    uint32_t cancelled = 0;
    OK(polylimit_completions_cancel(completions, 7, &cancelled, MESSAGE));
    CHECK(cancelled == 1);
    polylimit_reservation_free(second);
    polylimit_reservation_free(first);
    size_t count = 0;
    OK(polylimit_completions_drain(completions, &result, sizeof result, 1, &count, MESSAGE));
    CHECK(count == 0 && polylimit_completions_pending(completions) == 0 && remaining(held.limiter) == 1);
    polylimit_completions_free(completions);
    close_held(held);
}

static void requests_of_completions_name_a_reservation(void) {
    struct held held = open_held("2 concurrent; 9/minute fixed_window");
    polylimit_completions *completions = NULL;
    OK(polylimit_completions_open(&completions, MESSAGE));
    struct {
        uint32_t operation;
        uint64_t cost, remaining;
        uint32_t found;
    } steps[] = {
        {POLYLIMIT_RESERVE, 5, 4, 0}, {POLYLIMIT_RENEW, UINT64_MAX, 4, 1}, {POLYLIMIT_COMMIT, POLYLIMIT_AS_RESERVED, 4, 1},
        {POLYLIMIT_COMMIT, 5, 4, 0},  {POLYLIMIT_RESERVE, 2, 2, 0},        {POLYLIMIT_CANCEL, UINT64_MAX, 4, 1},
    };
    for (size_t at = 0; at < sizeof steps / sizeof *steps; at++) {
        polylimit_request request = ask(steps[at].operation, "k", steps[at].cost);
        request.id = "a";
        request.id_length = 1;
        request.ttl_us = SECOND;
        polylimit_result result;
        OK(polylimit_completions_submit(completions, held.limiter, &request, at, &result, sizeof result, MESSAGE));
        if (steps[at].operation == POLYLIMIT_RESERVE) {
            CHECK(result.answer.decision.allowed == 1 && result.answer.decision.remaining == steps[at].remaining);
        } else {
            CHECK(result.answer.usage.found == steps[at].found && result.answer.usage.remaining == steps[at].remaining);
        }
        request.id_length = 0;
        REFUSED("0 bytes", polylimit_completions_submit(completions, held.limiter, &request, at, &result, sizeof result,
                                                        MESSAGE));
    }
    polylimit_completions_free(completions);
    close_held(held);
}

enum { SLOTS = 3, CALLERS = 8, ROUNDS = 40 };

static polylimit_limiter *crowded;
static atomic_int inside, most;

static void *hold_in_turn(void *unused) {
    char text[512] = "";
    for (int round = 0; round < ROUNDS; round++) {
        polylimit_reservation *reservation = NULL;
        polylimit_reservation_options options = {.size = sizeof options};
        CHECK(polylimit_reservation_defaults(&options, text, sizeof text) == POLYLIMIT_OK);
        options.timeout_us = 3600ull * SECOND;
        CHECK(polylimit_reservation_new(crowded, NULL, "k", 1, 1, &options, &reservation, text, sizeof text) == POLYLIMIT_OK);
        int now = atomic_fetch_add(&inside, 1) + 1, before = atomic_load(&most);
        while (now > before && !atomic_compare_exchange_weak(&most, &before, now)) {
        }
        atomic_fetch_sub(&inside, 1);
        polylimit_usage usage = {.size = sizeof usage};
        if (round % 2) {
            CHECK(polylimit_reservation_commit(reservation, 1, &usage, text, sizeof text) == POLYLIMIT_OK && usage.found == 1);
        }
        polylimit_reservation_free(reservation);
    }
    return unused;
}

static void threads_hold_no_more_than_the_limit(void) {
    pthread_t threads[CALLERS];
    char quotas[32];
    snprintf(quotas, sizeof quotas, "%d concurrent", SLOTS);
    crowded = open_limiter("memory:", quotas, NULL);
    for (size_t at = 0; at < CALLERS; at++) {
        CHECK(pthread_create(&threads[at], NULL, hold_in_turn, NULL) == 0);
    }
    for (size_t at = 0; at < CALLERS; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
    }
    CHECK(atomic_load(&most) >= 1 && atomic_load(&most) <= SLOTS && remaining(crowded) == SLOTS);
    polylimit_limiter_free(crowded);
}

int main(void) {
    static const struct test tests[] = {
        {"reservation is committed or cancelled by its id", reservation_is_committed_or_cancelled_by_its_id},
        {"job that runs again is charged once", job_that_runs_again_is_charged_once},
        {"request is reserved together or not at all", request_is_reserved_together_or_not_at_all},
        {"commit of a request is remembered", commit_of_a_request_is_remembered},
        {"page on reservations", page_on_reservations},
        {"terms of a request are those of all", terms_of_a_request_are_those_of_all},
        {"reservation ends at its time unless it is renewed", reservation_ends_at_its_time_unless_it_is_renewed},
        {"random id is written to the buffer", random_id_is_written_to_the_buffer},
        {"wrong ids, times and algorithms are refused", wrong_ids_times_and_algorithms_are_refused},
        {"NULL is refused", null_is_refused},
        {"handle commits, cancels and gives back", handle_commits_cancels_and_gives_back},
        {"handle renews its reservation and reports its loss", handle_renews_its_reservation_and_tells_its_loss},
        {"handle can outlive its limiter", handle_can_outlive_its_limiter},
        {"completions reserve, commit and cancel", completions_reserve_commit_and_cancel},
        {"cancelled reserve leaves the line", cancelled_reserve_leaves_the_line},
        {"requests of completions name a reservation", requests_of_completions_name_a_reservation},
        {"threads hold no more than the limit", threads_hold_no_more_than_the_limit},
    };
    RUN(tests);
}
