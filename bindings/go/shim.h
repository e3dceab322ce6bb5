// What cgo cannot do by itself: pass a request whose fields point at Go memory, and texts that have no NUL at their end.
#ifndef POLYLIMIT_GO_SHIM_H
#define POLYLIMIT_GO_SHIM_H

#include <polylimit.h>
#include <stdlib.h>
#include <string.h>

#if POLYLIMIT_ABI_VERSION != 0
#error "this Go module is written for another polylimit.h"
#endif

// The policy of most requests has a short name, which is copied to the stack.
#define POLYLIMIT_GO_SHORT 128

// Submits an operation. The message of a failure goes to the result.
static inline polylimit_status polylimit_go_submit(const polylimit_completions *completions,
                                                   const polylimit_limiter *limiter, uint32_t operation,
                                                   const char *policy, size_t policy_length, const char *key,
                                                   size_t key_length, uint64_t cost, uint64_t timeout_us, uint64_t tag,
                                                   polylimit_result *result) {
    char stack[POLYLIMIT_GO_SHORT];
    char *text = NULL;
    if (policy_length > 0) {
        text = policy_length < sizeof stack ? stack : malloc(policy_length + 1);
        if (text == NULL) {
            return POLYLIMIT_INTERNAL;
        }
        memcpy(text, policy, policy_length);
        text[policy_length] = 0;
    }
    polylimit_request request;
    request.size = sizeof request;
    request.operation = operation;
    request.policy = text;
    request.key = key;
    request.key_length = key_length;
    request.cost = cost;
    request.timeout_us = timeout_us;
    polylimit_status status = polylimit_completions_submit(completions, limiter, &request, tag, result, sizeof *result,
                                                           result->message, sizeof result->message);
    if (text != NULL && text != stack) {
        free(text);
    }
    return status;
}

#endif
