// Helpers for what cgo cannot do: pass a request whose fields point to Go memory, and texts without a NUL at their end.
#ifndef POLYLIMIT_GO_SHIM_H
#define POLYLIMIT_GO_SHIM_H

#include <inttypes.h>
#include <polylimit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if POLYLIMIT_ABI_VERSION != 0
#error "this Go module is written for another polylimit.h"
#endif

// The policy of most requests has a short name, which is copied to the stack.
#define POLYLIMIT_GO_SHORT 128

// Makes a request whose policy ends with a NUL: in the caller's short text, or in memory that polylimit_go_release frees.
static inline int polylimit_go_request(polylimit_request *request, char *text, uint32_t operation, const char *policy,
                                       size_t policy_length, const char *key, size_t key_length, uint64_t cost,
                                       uint64_t timeout_us) {
    request->size = sizeof *request;
    request->operation = operation;
    request->policy = NULL;
    request->key = key;
    request->key_length = key_length;
    request->cost = cost;
    request->timeout_us = timeout_us;
    if (policy_length > 0) {
        if (policy_length >= POLYLIMIT_GO_SHORT) {
            text = malloc(policy_length + 1);
            if (text == NULL) {
                return 0;
            }
        }
        memcpy(text, policy, policy_length);
        text[policy_length] = 0;
        request->policy = text;
    }
    return 1;
}

static inline void polylimit_go_release(const polylimit_request *request, const char *text) {
    if (request->policy != text) {
        free((char *)request->policy);
    }
}

// Submits an operation. An error message is written to the result.
static inline polylimit_status polylimit_go_submit(const polylimit_completions *completions,
                                                   const polylimit_limiter *limiter, uint32_t operation,
                                                   const char *policy, size_t policy_length, const char *key,
                                                   size_t key_length, uint64_t cost, uint64_t timeout_us, uint64_t tag,
                                                   polylimit_result *result) {
    char text[POLYLIMIT_GO_SHORT];
    polylimit_request request;
    if (!polylimit_go_request(&request, text, operation, policy, policy_length, key, key_length, cost, timeout_us)) {
        return POLYLIMIT_INTERNAL;
    }
    polylimit_status status = polylimit_completions_submit(completions, limiter, &request, tag, result, sizeof *result,
                                                           result->message, sizeof result->message);
    polylimit_go_release(&request, text);
    return status;
}

// Copies a text and appends a NUL. An empty text becomes NULL. Returns 0 if the text is too long.
static inline int polylimit_go_text(char *place, size_t capacity, const char *text, size_t length, const char **copied) {
    *copied = NULL;
    if (length == 0) {
        return 1;
    }
    if (length >= capacity) {
        return 0;
    }
    memcpy(place, text, length);
    place[length] = 0;
    *copied = place;
    return 1;
}

// Renders the header fields of one outcome. POLYLIMIT_PENDING: a text is too long for this function.
static inline polylimit_status polylimit_go_headers(const polylimit_limiter *limiter, const char *policy, size_t policy_length,
                                                    const polylimit_decision *decision, const char *style,
                                                    size_t style_length, const char *form, size_t form_length,
                                                    uint64_t now_us, char *buffer, size_t capacity, size_t *length,
                                                    char *message, size_t message_capacity) {
    char policy_text[POLYLIMIT_GO_SHORT], style_text[POLYLIMIT_GO_SHORT], form_text[POLYLIMIT_GO_SHORT];
    const char *style_or_null, *form_or_null;
    polylimit_outcome outcome = {NULL, decision};
    if (!polylimit_go_text(policy_text, sizeof policy_text, policy, policy_length, &outcome.policy) ||
        !polylimit_go_text(style_text, sizeof style_text, style, style_length, &style_or_null) ||
        !polylimit_go_text(form_text, sizeof form_text, form, form_length, &form_or_null)) {
        return POLYLIMIT_PENDING;
    }
    return polylimit_headers_render(limiter, &outcome, 1, style_or_null, form_or_null, now_us, buffer, capacity, length,
                                    message, message_capacity);
}

// Finds the key of a client with at most one line of the forwarding header. POLYLIMIT_PENDING: the peer is too long for this
// function.
static inline polylimit_status polylimit_go_address_key(const polylimit_address_rules *rules, const char *peer,
                                                        size_t peer_length, const char *line, size_t line_length,
                                                        size_t line_count, char *buffer, size_t capacity, size_t *length,
                                                        char *message, size_t message_capacity) {
    char peer_text[POLYLIMIT_GO_SHORT];
    const char *peer_or_null;
    polylimit_line lines[1] = {{line, line_length}};
    if (!polylimit_go_text(peer_text, sizeof peer_text, peer, peer_length, &peer_or_null)) {
        return POLYLIMIT_PENDING;
    }
    if (peer_or_null == NULL) {
        peer_or_null = "";
    }
    return polylimit_address_rules_key(rules, peer_or_null, lines, line_count, buffer, capacity, length, message,
                                       message_capacity);
}

// Runs an operation and waits for it until it is stopped. An error message is written to the result.
static inline polylimit_status polylimit_go_call(const polylimit_limiter *limiter, uint32_t operation, const char *policy,
                                                 size_t policy_length, const char *key, size_t key_length, uint64_t cost,
                                                 const uint32_t *stopped, polylimit_result *result) {
    char text[POLYLIMIT_GO_SHORT];
    polylimit_request request;
    if (!polylimit_go_request(&request, text, operation, policy, policy_length, key, key_length, cost, 0)) {
        return POLYLIMIT_INTERNAL;
    }
    polylimit_status status = polylimit_limiter_call(limiter, &request, stopped, result, sizeof *result, result->message,
                                                     sizeof result->message);
    polylimit_go_release(&request, text);
    return status;
}

// The pipe for the events of a limiter, and the number of the limiter.
typedef struct polylimit_go_subscription {
    int write;
    uint64_t number;
} polylimit_go_subscription;

static inline polylimit_go_subscription *polylimit_go_subscription_new(int write, uint64_t number) {
    polylimit_go_subscription *subscription = malloc(sizeof *subscription);
    if (subscription != NULL) {
        subscription->write = write;
        subscription->number = number;
    }
    return subscription;
}

// Writes a line of less than 1024 bytes, which a pipe takes in one piece. If the pipe is full, the line is lost.
static inline void polylimit_go_write(int end, const char *line, int length) {
    if (length > 0 && length < 1024) {
        ssize_t written = write(end, line, (size_t)length);
        (void)written;
    }
}

// Writes the last line of a limiter, and frees the subscription.
static inline void polylimit_go_subscription_end(polylimit_go_subscription *subscription) {
    if (subscription != NULL) {
        char line[32];
        polylimit_go_write(subscription->write, line, snprintf(line, sizeof line, "%" PRIu64 "\n", subscription->number));
        free(subscription);
    }
}

// Writes an event as a line.
static inline void polylimit_go_write_event(const polylimit_degraded_event *event, void *context) {
    const polylimit_go_subscription *subscription = context;
    if (subscription == NULL) {
        return;
    }
    char line[1024];
    int length = snprintf(line, sizeof line, "%" PRIu64 "\x1f%s\x1f%s\x1f%" PRIu64 "\x1f%" PRIu64 "\x1f%s\x1f%s\x1f%s\n",
                          subscription->number, event->kind, event->reason != NULL ? event->reason : "", event->lasted_us,
                          event->decisions, event->severity, event->subject != NULL ? event->subject : "", event->message);
    polylimit_go_write(subscription->write, line, length);
}

// Sets the function that writes the events of a limiter.
static inline polylimit_status polylimit_go_subscribe(const polylimit_limiter *limiter, polylimit_go_subscription *subscription,
                                                 char *message, size_t capacity) {
    return polylimit_limiter_set_on_degraded(limiter, polylimit_go_write_event, subscription, message, capacity);
}

#endif
