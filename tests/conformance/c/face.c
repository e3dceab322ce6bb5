#include "face.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Calls that wait have a function for each operation. */
static polylimit_status run_blocking(const polylimit_limiter *limiter, const polylimit_request *request,
                                     polylimit_result *result) {
    polylimit_decision *decision = &result->answer.decision;
    polylimit_usage *usage = &result->answer.usage;
    const char *policy = request->policy;
    const void *key = request->key;
    size_t length = request->key_length;
    uint64_t cost = request->cost;
    const void *id = request->id;
    size_t id_length = request->id_length;
    char room[POLYLIMIT_RESERVATION_ID_SIZE];
    char *message = result->message;
    size_t capacity = sizeof result->message;
    if (request->headroom != 0 || request->plan != NULL) {
        return polylimit_limiter_call(limiter, request, NULL, result, sizeof *result, message, capacity);
    }
    switch (request->operation) {
    case POLYLIMIT_CHECK:
        decision->size = sizeof *decision;
        return polylimit_limiter_check(limiter, policy, key, length, cost, decision, message, capacity);
    case POLYLIMIT_PEEK:
        decision->size = sizeof *decision;
        return polylimit_limiter_peek(limiter, policy, key, length, cost, decision, message, capacity);
    case POLYLIMIT_TAKE:
        usage->size = sizeof *usage;
        return polylimit_limiter_take(limiter, policy, key, length, cost, usage, message, capacity);
    case POLYLIMIT_CHARGE:
        usage->size = sizeof *usage;
        return polylimit_limiter_charge(limiter, policy, key, length, cost, usage, message, capacity);
    case POLYLIMIT_REFUND:
        usage->size = sizeof *usage;
        return polylimit_limiter_refund(limiter, policy, key, length, cost, usage, message, capacity);
    case POLYLIMIT_RESERVE:
        decision->size = sizeof *decision;
        memcpy(room, id, id_length < sizeof room ? id_length : sizeof room);
        return polylimit_limiter_reserve(limiter, policy, key, length, cost, room, &id_length, request->ttl_us, 0,
                                         request->remember_us, decision, message, capacity);
    case POLYLIMIT_COMMIT:
        usage->size = sizeof *usage;
        return polylimit_limiter_commit(limiter, policy, key, length, id, id_length, cost, usage, message, capacity);
    case POLYLIMIT_CANCEL:
        usage->size = sizeof *usage;
        return polylimit_limiter_cancel(limiter, policy, key, length, id, id_length, usage, message, capacity);
    case POLYLIMIT_BLOCK:
        usage->size = sizeof *usage;
        return polylimit_admin_block(limiter, policy, key, length, request->ttl_us, usage, message, capacity);
    case POLYLIMIT_RENEW:
        usage->size = sizeof *usage;
        return polylimit_limiter_renew(limiter, policy, key, length, id, id_length, request->ttl_us, usage, message,
                                       capacity);
    default:
        usage->size = sizeof *usage;
        return polylimit_limiter_reset(limiter, policy, key, length, usage, message, capacity);
    }
}

static uint64_t tag = 0;

/* Waits for the result of the last tag. */
static polylimit_status await(const polylimit_completions *completions, polylimit_status status, polylimit_result *result) {
    char *message = result->message;
    size_t capacity = sizeof result->message;
    while (status == POLYLIMIT_PENDING) {
        struct pollfd watched = {.fd = polylimit_completions_fd(completions), .events = POLLIN, .revents = 0};
        if (poll(&watched, 1, 60000) != 1) {
            fprintf(stderr, "conformance-c: no completion came within a minute\n");
            exit(2);
        }
        size_t count = 0;
        polylimit_status drained =
            polylimit_completions_drain(completions, result, sizeof *result, 1, &count, message, capacity);
        if (drained != POLYLIMIT_OK) {
            return drained;
        }
        if (count == 1) {
            return result->tag == tag ? result->status : POLYLIMIT_INTERNAL;
        }
    }
    return status;
}

static polylimit_status run_completed(const polylimit_completions *completions, const polylimit_limiter *limiter,
                                      const polylimit_request *request, polylimit_result *result) {
    polylimit_status status = polylimit_completions_submit(completions, limiter, request, ++tag, result, sizeof *result,
                                                           result->message, sizeof result->message);
    return await(completions, status, result);
}

polylimit_status face_together(const struct face *face, const polylimit_limiter *limiter,
                               const polylimit_request *requests, size_t count, polylimit_decision *decisions_out,
                               char *message, size_t capacity) {
    size_t request_size = sizeof *requests, size = sizeof *decisions_out;
    uint32_t operation = requests[0].operation;
    if (!face->completions) {
        return (operation == POLYLIMIT_CHECK  ? polylimit_limiter_check_together
                : operation == POLYLIMIT_PEEK ? polylimit_limiter_peek_together
                                              : polylimit_limiter_reserve_together)(
            limiter, requests, request_size, count, decisions_out, size, message, capacity);
    }
    polylimit_status status =
        polylimit_completions_submit_together(face->completions, limiter, requests, request_size, count, ++tag,
                                              decisions_out, size, message, capacity);
    if (status != POLYLIMIT_PENDING) {
        return status;
    }
    /* There is a result for each request, or one with the error. */
    for (size_t at = 0; at < count; at++) {
        polylimit_result result = {.size = 0};
        status = await(face->completions, POLYLIMIT_PENDING, &result);
        if (status != POLYLIMIT_OK) {
            snprintf(message, capacity, "%s", result.message);
            return status;
        }
        decisions_out[at] = result.answer.decision;
    }
    return POLYLIMIT_OK;
}

polylimit_status face_decide(const struct face *face, const polylimit_limiter *limiter,
                             const polylimit_attributes *attributes, const polylimit_reservation_options *options,
                             polylimit_request_decision **decision_out, char *message, size_t capacity) {
    if (!face->completions) {
        return polylimit_limiter_decide(limiter, attributes, options, decision_out, message, capacity);
    }
    polylimit_result result = {.size = 0};
    polylimit_status status = polylimit_completions_submit_decide(face->completions, limiter, attributes, options, ++tag, decision_out,
                                                                  &result, sizeof result, message, capacity);
    if (status != POLYLIMIT_PENDING) {
        return status;
    }
    status = await(face->completions, status, &result);
    snprintf(message, capacity, "%s", result.message);
    return status;
}

polylimit_status face_change(const struct face *face, const polylimit_limiter *limiter, const polylimit_change *change,
                             char *message, size_t capacity) {
    polylimit_result result = {.size = 0};
    polylimit_status status = polylimit_completions_submit_change(face->completions, limiter, change, ++tag, &result,
                                                                  sizeof result, message, capacity);
    if (status != POLYLIMIT_PENDING) {
        return status;
    }
    status = await(face->completions, status, &result);
    snprintf(message, capacity, "%s", result.message);
    return status;
}

void face_run(const struct face *face, const polylimit_limiter *limiter, const polylimit_request *request,
              polylimit_result *result) {
    memset(result, 0, sizeof *result);
    result->status = face->completions ? run_completed(face->completions, limiter, request, result)
                                       : run_blocking(limiter, request, result);
}
