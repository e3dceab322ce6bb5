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

// A request of Go: its texts have no NUL at their end.
typedef struct polylimit_go_asked {
    const char *policy, *key, *plan;
    size_t policy_length, key_length, plan_length;
    uint64_t cost;
    uint32_t headroom;
} polylimit_go_asked;

// A request of C, and room for its texts.
typedef struct polylimit_go_plain {
    polylimit_request request;
    char *long_texts;
    char texts[POLYLIMIT_GO_SHORT];
} polylimit_go_plain;

// Makes a request whose policy and plan end with a NUL: in its own room, or in memory that polylimit_go_release frees.
static inline int polylimit_go_request(polylimit_go_plain *plain, uint32_t operation, polylimit_go_asked asked) {
    polylimit_request *request = &plain->request;
    request->size = sizeof *request;
    request->operation = operation;
    request->policy = NULL;
    request->key = asked.key;
    request->key_length = asked.key_length;
    request->cost = asked.cost;
    request->timeout_us = 0;
    request->plan = NULL;
    request->headroom = asked.headroom;
    request->reserved = 0;
    plain->long_texts = NULL;
    char *end = plain->texts;
    if (asked.policy_length + asked.plan_length + 2 > POLYLIMIT_GO_SHORT) {
        end = plain->long_texts = malloc(asked.policy_length + asked.plan_length + 2);
        if (end == NULL) {
            return 0;
        }
    }
    if (asked.policy_length > 0) {
        memcpy(end, asked.policy, asked.policy_length);
        end[asked.policy_length] = 0;
        request->policy = end;
        end += asked.policy_length + 1;
    }
    if (asked.plan_length > 0) {
        memcpy(end, asked.plan, asked.plan_length);
        end[asked.plan_length] = 0;
        request->plan = end;
    }
    return 1;
}

static inline void polylimit_go_release(const polylimit_go_plain *plain) { free(plain->long_texts); }

// Submits an operation. An error message is written to the result.
static inline polylimit_status polylimit_go_submit(const polylimit_completions *completions,
                                                   const polylimit_limiter *limiter, uint32_t operation,
                                                   polylimit_go_asked asked, uint64_t timeout_us, uint64_t tag,
                                                   polylimit_result *result) {
    polylimit_go_plain plain;
    if (!polylimit_go_request(&plain, operation, asked)) {
        return POLYLIMIT_INTERNAL;
    }
    plain.request.timeout_us = timeout_us;
    polylimit_status status = polylimit_completions_submit(completions, limiter, &plain.request, tag, result, sizeof *result,
                                                           result->message, sizeof result->message);
    polylimit_go_release(&plain);
    return status;
}

// Submits an operation on a reservation by its id, or a block. An error message is written to the result.
static inline polylimit_status polylimit_go_submit_by_id(const polylimit_completions *completions,
                                                         const polylimit_limiter *limiter, uint32_t operation,
                                                         polylimit_go_asked asked, const char *id, size_t id_length,
                                                         uint64_t ttl_us, uint64_t tag, polylimit_result *result) {
    polylimit_go_plain plain;
    if (!polylimit_go_request(&plain, operation, asked)) {
        return POLYLIMIT_INTERNAL;
    }
    plain.request.id = id;
    plain.request.id_length = id_length;
    plain.request.ttl_us = ttl_us;
    polylimit_status status = polylimit_completions_submit(completions, limiter, &plain.request, tag, result, sizeof *result,
                                                           result->message, sizeof result->message);
    polylimit_go_release(&plain);
    return status;
}

// Submits a reserve with a handle. An error message is written to the result.
static inline polylimit_status polylimit_go_reserve(const polylimit_completions *completions,
                                                    const polylimit_limiter *limiter, polylimit_go_asked asked,
                                                    const polylimit_reservation_options *given, const char *id,
                                                    size_t id_length, uint64_t tag, polylimit_reservation **reservation,
                                                    polylimit_result *result) {
    polylimit_go_plain plain;
    polylimit_reservation_options options = *given;
    if (!polylimit_go_request(&plain, POLYLIMIT_RESERVE, asked)) {
        return POLYLIMIT_INTERNAL;
    }
    options.id = id;
    options.id_length = id_length;
    options.plan = plain.request.plan;
    options.headroom = asked.headroom;
    polylimit_status status = polylimit_reservation_submit(completions, limiter, plain.request.policy, asked.key,
                                                           asked.key_length, asked.cost, &options, tag, reservation, result,
                                                           sizeof *result, result->message, sizeof result->message);
    polylimit_go_release(&plain);
    return status;
}

// Attributes of a request whose texts have no NUL at their end, and room for most of its pairs.
typedef struct polylimit_go_attributes {
    polylimit_attributes plain;
    polylimit_pair *many;
    polylimit_pair room[32];
} polylimit_go_attributes;

static inline polylimit_line polylimit_go_next(const char **texts, const size_t **lengths) {
    polylimit_line line = {*texts, **lengths};
    *texts += line.length;
    *lengths += 1;
    return line;
}

// Reads method, path, peer, headers and attributes from one text, in which they stand one after the other: first each name, then
// its value. polylimit_go_release_attributes frees them.
static inline int polylimit_go_read(polylimit_go_attributes *read, const char *texts, const size_t *lengths,
                                    size_t header_count, size_t attribute_count) {
    size_t count = header_count + attribute_count;
    polylimit_pair *pairs = read->room;
    memset(&read->plain, 0, sizeof read->plain);
    read->plain.size = sizeof read->plain;
    read->many = NULL;
    if (count > sizeof read->room / sizeof *read->room) {
        pairs = read->many = malloc(count * sizeof *pairs);
        if (pairs == NULL) {
            return 0;
        }
    }
    read->plain.method = polylimit_go_next(&texts, &lengths);
    read->plain.path = polylimit_go_next(&texts, &lengths);
    read->plain.peer = polylimit_go_next(&texts, &lengths);
    read->plain.router_paths = (uint32_t)*lengths++;
    for (size_t at = 0; at < count; at++) {
        pairs[at].name = polylimit_go_next(&texts, &lengths);
        pairs[at].value = polylimit_go_next(&texts, &lengths);
    }
    read->plain.headers = pairs;
    read->plain.header_count = header_count;
    read->plain.attributes = pairs + header_count;
    read->plain.attribute_count = attribute_count;
    return 1;
}

static inline void polylimit_go_release_attributes(const polylimit_go_attributes *read) { free(read->many); }

// Finds the policies that apply to a request.
static inline polylimit_status polylimit_go_matching(const polylimit_limiter *limiter, const char *texts, const size_t *lengths,
                                                     size_t header_count, size_t attribute_count, polylimit_matches **matches,
                                                     char *message, size_t capacity) {
    polylimit_go_attributes read;
    if (!polylimit_go_read(&read, texts, lengths, header_count, attribute_count)) {
        return POLYLIMIT_INTERNAL;
    }
    polylimit_status status = polylimit_admin_matching(limiter, &read.plain, matches, message, capacity);
    polylimit_go_release_attributes(&read);
    return status;
}

// Submits the decision on a request. An error message is written to the result.
static inline polylimit_status polylimit_go_decide(const polylimit_completions *completions, const polylimit_limiter *limiter,
                                                   const char *texts, const size_t *lengths, size_t header_count,
                                                   size_t attribute_count, const polylimit_reservation_options *given,
                                                   const char *id, size_t id_length, uint64_t tag,
                                                   polylimit_request_decision **decision, polylimit_result *result) {
    polylimit_go_attributes read;
    polylimit_reservation_options options = *given;
    options.id = id;
    options.id_length = id_length;
    if (!polylimit_go_read(&read, texts, lengths, header_count, attribute_count)) {
        return POLYLIMIT_INTERNAL;
    }
    polylimit_status status = polylimit_completions_submit_decide(completions, limiter, &read.plain, &options, tag, decision,
                                                                  result, sizeof *result, result->message,
                                                                  sizeof result->message);
    polylimit_go_release_attributes(&read);
    return status;
}

// Submits an explanation of a key. An error message is written to the result.
static inline polylimit_status polylimit_go_explain(const polylimit_completions *completions, const polylimit_limiter *limiter,
                                                    polylimit_go_asked asked, uint64_t tag, polylimit_report **report,
                                                    polylimit_result *result) {
    polylimit_go_plain plain;
    polylimit_query query = {0};
    if (!polylimit_go_request(&plain, POLYLIMIT_PEEK, asked)) {
        return POLYLIMIT_INTERNAL;
    }
    query.size = sizeof query;
    query.operation = POLYLIMIT_EXPLAIN;
    query.request = &plain.request;
    polylimit_status status = polylimit_completions_submit_query(completions, limiter, &query, tag, report, result, sizeof *result,
                                                                 result->message, sizeof result->message);
    polylimit_go_release(&plain);
    return status;
}

// Submits an explanation of a request. An error message is written to the result.
static inline polylimit_status polylimit_go_explain_request(const polylimit_completions *completions,
                                                            const polylimit_limiter *limiter, const char *texts,
                                                            const size_t *lengths, size_t header_count, size_t attribute_count,
                                                            uint64_t tag, polylimit_report **report, polylimit_result *result) {
    polylimit_go_attributes read;
    polylimit_query query = {0};
    if (!polylimit_go_read(&read, texts, lengths, header_count, attribute_count)) {
        return POLYLIMIT_INTERNAL;
    }
    query.size = sizeof query;
    query.operation = POLYLIMIT_EXPLAIN_REQUEST;
    query.attributes = &read.plain;
    polylimit_status status = polylimit_completions_submit_query(completions, limiter, &query, tag, report, result, sizeof *result,
                                                                 result->message, sizeof result->message);
    polylimit_go_release_attributes(&read);
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
                                                    const polylimit_decision *decision, const char *headers,
                                                    size_t headers_length, uint64_t now_us, char *buffer,
                                                    size_t capacity, size_t *length, char *message,
                                                    size_t message_capacity) {
    char policy_text[POLYLIMIT_GO_SHORT], headers_text[POLYLIMIT_GO_SHORT];
    const char *headers_or_null;
    polylimit_outcome outcome = {NULL, decision};
    if (!polylimit_go_text(policy_text, sizeof policy_text, policy, policy_length, &outcome.policy) ||
        !polylimit_go_text(headers_text, sizeof headers_text, headers, headers_length, &headers_or_null)) {
        return POLYLIMIT_PENDING;
    }
    return polylimit_headers_render(limiter, &outcome, 1, headers_or_null, now_us, buffer, capacity, length, message,
                                    message_capacity);
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
static inline polylimit_status polylimit_go_call(const polylimit_limiter *limiter, uint32_t operation, polylimit_go_asked asked,
                                                 const uint32_t *stopped, polylimit_result *result) {
    polylimit_go_plain plain;
    if (!polylimit_go_request(&plain, operation, asked)) {
        return POLYLIMIT_INTERNAL;
    }
    polylimit_status status = polylimit_limiter_call(limiter, &plain.request, stopped, result, sizeof *result,
                                                     result->message, sizeof result->message);
    polylimit_go_release(&plain);
    return status;
}

// How far the check of a guard has come: the store has to decide, the program is asked about an outage, or units are refunded.
#define POLYLIMIT_GO_ASKED 1
#define POLYLIMIT_GO_OUTAGE 2
#define POLYLIMIT_GO_REFUNDED 3

// One request's check, and what the last call has read of it.
typedef struct polylimit_go_guard_call {
    polylimit_guard_check *check;
    uint32_t stage, admitted, holds;
    polylimit_status cause;
    // Whether there is a decision, and that of the guard's first policy.
    uint32_t has_decision;
    polylimit_decision decision;
    // The length of the fields, which may exceed their room.
    size_t length;
    char fields[512];
} polylimit_go_guard_call;

static inline polylimit_status polylimit_go_guard_fields(polylimit_go_guard_call *call, char *message, size_t capacity) {
    polylimit_status status = polylimit_guard_check_fields(call->check, call->fields, sizeof call->fields, &call->length,
                                                           message, capacity);
    return call->length >= sizeof call->fields ? POLYLIMIT_OK : status;
}

// Takes the check from its stage to the end. POLYLIMIT_PENDING: the stage says what the caller does before it calls again.
static inline polylimit_status polylimit_go_guard_conclude(polylimit_go_guard_call *call, uint32_t on_outage, char *message,
                                                           size_t capacity) {
    static const uint32_t stopped = 1;
    polylimit_status status = POLYLIMIT_OK;
    if (call->stage == POLYLIMIT_GO_ASKED) {
        call->stage = POLYLIMIT_GO_OUTAGE;
        if (polylimit_guard_check_outage(call->check, &call->cause, message, capacity)) {
            return POLYLIMIT_PENDING;
        }
    }
    if (call->stage == POLYLIMIT_GO_OUTAGE) {
        status = polylimit_guard_check_conclude(call->check, on_outage, &call->admitted, message, capacity);
        call->stage = POLYLIMIT_GO_REFUNDED;
        if (status == POLYLIMIT_OK) {
            status = polylimit_guard_check_run(call->check, &stopped, message, capacity);
        }
        if (status != POLYLIMIT_OK) {
            return status;
        }
    }
    char policy[POLYLIMIT_GO_SHORT];
    call->holds = polylimit_guard_check_holds(call->check);
    call->decision.size = sizeof call->decision;
    // It fails when there is none.
    call->has_decision = polylimit_guard_check_outcome(call->check, 0, 0, &call->decision, policy, sizeof policy, NULL, NULL,
                                                       0) == POLYLIMIT_OK;
    return polylimit_go_guard_fields(call, message, capacity);
}

// Copies a text and a NUL to the end of a buffer.
static inline char *polylimit_go_append(char **end, const char *text, size_t length) {
    char *copied = *end;
    if (length > 0) {
        memcpy(copied, text, length);
    }
    copied[length] = 0;
    *end += length + 1;
    return copied;
}

// Starts a check, and takes it to its end if the store decides at once; see polylimit_go_guard_conclude. Without rules the peer is the
// address itself. Key values and policies are the lengths of pieces of a text; a value of length 0 is missing.
static inline polylimit_status polylimit_go_guard_start(
    polylimit_go_guard_call *call, const polylimit_guard *guard, const polylimit_guard_check *earlier,
    const polylimit_address_rules *rules, const char *peer, size_t peer_length, const char *line, size_t line_length,
    size_t line_count, const char *key, size_t key_length, const char *values, const size_t *value_lengths,
    size_t value_count, uint32_t has_cost, uint64_t cost, const uint64_t *costs, size_t cost_count, const char *route,
    size_t route_length, uint32_t has_policies, const char *policies, const size_t *policy_lengths, size_t policy_count,
    char *message, size_t capacity) {
    static const uint32_t stopped = 1;
    char address[POLYLIMIT_GO_SHORT];
    polylimit_request_facts facts = {0};
    polylimit_status status = POLYLIMIT_OK;
    call->check = NULL;
    call->stage = POLYLIMIT_GO_ASKED;
    facts.size = sizeof facts;
    facts.has_cost = has_cost;
    facts.cost = cost;
    facts.costs = costs;
    facts.cost_count = cost_count;
    facts.key = key_length > 0 ? key : NULL;
    facts.key_length = key_length;
    facts.key_value_count = value_count;
    facts.policy_count = policy_count;
    if (rules != NULL) {
        status = polylimit_go_address_key(rules, peer, peer_length, line, line_length, line_count, address, sizeof address,
                                          NULL, message, capacity);
        facts.address = address;
    } else if (!polylimit_go_text(address, sizeof address, peer, peer_length, &facts.address)) {
        status = POLYLIMIT_INTERNAL;
    }
    if (status != POLYLIMIT_OK) {
        return status;
    }
    // Arrays and texts are on the stack, or in one allocation where they are long.
    union {
        polylimit_line line;
        const char *text;
        char bytes[512];
    } room;
    size_t needed = value_count * sizeof(polylimit_line) + (policy_count + 1) * sizeof(char *) + route_length + 1;
    for (size_t at = 0; at < policy_count; at++) {
        needed += policy_lengths[at] + 1;
    }
    char *memory = needed > sizeof room ? malloc(needed) : room.bytes;
    if (memory == NULL) {
        return POLYLIMIT_INTERNAL;
    }
    polylimit_line *lines = (polylimit_line *)(void *)memory;
    for (size_t at = 0; at < value_count; at++) {
        lines[at].start = value_lengths[at] > 0 ? values : NULL;
        lines[at].length = value_lengths[at];
        values += value_lengths[at];
    }
    facts.key_values = lines;
    const char **texts = (const char **)(void *)(lines + value_count);
    char *end = (char *)(texts + policy_count + 1);
    for (size_t at = 0; at < policy_count; at++) {
        texts[at] = polylimit_go_append(&end, policies, policy_lengths[at]);
        policies += policy_lengths[at];
    }
    facts.policies = has_policies ? texts : NULL;
    facts.route = route_length > 0 ? polylimit_go_append(&end, route, route_length) : NULL;
    status = polylimit_guard_check_new(guard, earlier, &facts, &call->check, message, capacity);
    if (memory != room.bytes) {
        free(memory);
    }
    if (status == POLYLIMIT_OK) {
        status = polylimit_guard_check_run(call->check, &stopped, message, capacity);
    }
    return status == POLYLIMIT_OK ? polylimit_go_guard_conclude(call, POLYLIMIT_OUTAGE_LEAVE, message, capacity) : status;
}

// Starts a check by the configuration, and takes it to its end if the store decides at once; see polylimit_go_guard_conclude.
static inline polylimit_status polylimit_go_guard_start_configured(polylimit_go_guard_call *call, const polylimit_guard *guard,
                                                                   const polylimit_guard_check *earlier, const char *texts,
                                                                   const size_t *lengths, size_t header_count,
                                                                   size_t attribute_count, char *message, size_t capacity) {
    static const uint32_t stopped = 1;
    polylimit_go_attributes read;
    polylimit_request_facts facts = {0};
    call->check = NULL;
    call->stage = POLYLIMIT_GO_ASKED;
    if (!polylimit_go_read(&read, texts, lengths, header_count, attribute_count)) {
        return POLYLIMIT_INTERNAL;
    }
    facts.size = sizeof facts;
    facts.attributes = &read.plain;
    polylimit_status status = polylimit_guard_check_new(guard, earlier, &facts, &call->check, message, capacity);
    polylimit_go_release_attributes(&read);
    if (status == POLYLIMIT_OK) {
        status = polylimit_guard_check_run(call->check, &stopped, message, capacity);
    }
    return status == POLYLIMIT_OK ? polylimit_go_guard_conclude(call, POLYLIMIT_OUTAGE_LEAVE, message, capacity) : status;
}

// Finishes a check. POLYLIMIT_PENDING: the caller has the refunds made, and calls again.
static inline polylimit_status polylimit_go_guard_finish(polylimit_go_guard_call *call, uint32_t counts) {
    static const uint32_t stopped = 1;
    char message[POLYLIMIT_GO_SHORT];
    polylimit_status status = polylimit_guard_check_finish(call->check, counts, message, sizeof message);
    if (status == POLYLIMIT_OK) {
        status = polylimit_guard_check_run(call->check, &stopped, message, sizeof message);
    }
    return status == POLYLIMIT_OK ? polylimit_go_guard_fields(call, message, sizeof message) : status;
}

// Ends what a check holds, with the units of all policies or, with a count, of each. POLYLIMIT_PENDING: the caller has the calls made.
static inline polylimit_status polylimit_go_guard_end(const polylimit_guard_check *check, const uint64_t *spent, size_t count,
                                                      uint64_t spent_by_all, char *message, size_t capacity) {
    static const uint32_t stopped = 1;
    polylimit_status ended = count > 0 ? polylimit_guard_check_end_each(check, spent, count, 0, message, capacity)
                                       : polylimit_guard_check_end(check, spent_by_all, 0, message, capacity);
    polylimit_status status = polylimit_guard_check_run(check, &stopped, NULL, 0);
    return status == POLYLIMIT_OK ? ended : status;
}

// Finishes a check whose response counts unless it was finished before, and frees it. POLYLIMIT_PENDING: the caller has the calls made,
// which a check that was concluded may have, and frees it.
static inline polylimit_status polylimit_go_guard_close(polylimit_guard_check *check, uint32_t is_concluded,
                                                        uint32_t is_finished) {
    static const uint32_t stopped = 1;
    if (!is_finished) {
        polylimit_guard_check_finish(check, 1, NULL, 0);
    }
    if (is_concluded && polylimit_guard_check_run(check, &stopped, NULL, 0) == POLYLIMIT_PENDING) {
        return POLYLIMIT_PENDING;
    }
    polylimit_guard_check_free(check);
    return POLYLIMIT_OK;
}

// Has Go give the credentials of a connection.
extern void polylimitGoGiveCredentials(polylimit_credentials *credentials, uint64_t number);

static inline void polylimit_go_give_credentials(polylimit_credentials *credentials, void *number) {
    polylimitGoGiveCredentials(credentials, (uint64_t)(uintptr_t)number);
}

// Opens a limiter whose credentials are those of the function of Go with this number, unless it is 0.
static inline polylimit_status polylimit_go_open(const char *url, const polylimit_option *options, size_t option_count,
                                                 const polylimit_clock *clock, uint64_t credentials, polylimit_limiter **limiter,
                                                 char *message, size_t capacity) {
    if (credentials == 0) {
        return polylimit_limiter_open(url, options, option_count, clock, limiter, message, capacity);
    }
    return polylimit_limiter_open_with_credentials(url, options, option_count, clock, polylimit_go_give_credentials,
                                                   (void *)(uintptr_t)credentials, NULL, limiter, message, capacity);
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
