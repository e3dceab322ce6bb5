/*
 * polylimit decides whether requests may proceed: exactly, in integers, with the same meaning in every store and language.
 *
 * The conventions (ownership, threads, fork, errors, texts, growth of structs) stand in README.md, which is installed as
 * share/doc/polylimit/README.md.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef POLYLIMIT_H
#define POLYLIMIT_H

/* Made by cbindgen of the Rust sources: do not edit. */

#include <stddef.h>
#include <stdint.h>

/**
 * The bytes of a result's message, the NUL at its end included.
 */
#define POLYLIMIT_MESSAGE_SIZE 240

/**
 * The most quotas of one policy.
 */
#define POLYLIMIT_MAX_QUOTAS 16

/**
 * Stands for a wait that never ends: the cost exceeds what a quota can ever admit.
 */
#define POLYLIMIT_NEVER UINT64_MAX

/**
 * A bucket of `burst` tokens that is refilled continuously (GCRA), or `step` tokens at a time.
 */
#define POLYLIMIT_TOKEN_BUCKET 1

/**
 * A queue of `burst` places that drains at the rate; an admitted request is told how long to wait.
 */
#define POLYLIMIT_LEAKY_BUCKET 2

/**
 * A counter that starts anew every period.
 */
#define POLYLIMIT_FIXED_WINDOW 3

/**
 * Counters of sub-windows, the oldest of which slides out in proportion.
 */
#define POLYLIMIT_SLIDING_WINDOW 4

/**
 * The time of every admitted unit.
 */
#define POLYLIMIT_SLIDING_LOG 5

/**
 * Decides, and spends the cost from every quota of the policy when all admit it.
 */
#define POLYLIMIT_CHECK 1

/**
 * The decision that a check would give now; leaves no trace.
 */
#define POLYLIMIT_PEEK 2

/**
 * Spends as much of the cost as every quota admits.
 */
#define POLYLIMIT_TAKE 3

/**
 * Spends the cost whether it fits or not, up to 8 times the capacity.
 */
#define POLYLIMIT_CHARGE 4

/**
 * Gives back up to what is used.
 */
#define POLYLIMIT_REFUND 5

/**
 * Forgets the key; the cost does not matter.
 */
#define POLYLIMIT_RESET 6

/**
 * Waits until admitted, for at most `timeout_us`.
 */
#define POLYLIMIT_ACQUIRE 7

/**
 * Waits until the store answers, for at most `timeout_us`; policy, key and cost do not matter.
 */
#define POLYLIMIT_READY 8

/**
 * It did what it was asked to.
 */
#define POLYLIMIT_OK 0

/**
 * Only of polylimit_completions_submit: the answer comes by polylimit_completions_drain.
 */
#define POLYLIMIT_PENDING -1

/**
 * The caller passed something that is not allowed; the same call fails again.
 */
#define POLYLIMIT_INVALID_ARGUMENT 1

/**
 * The store could not be reached in time; trying again later may succeed.
 */
#define POLYLIMIT_STORE_UNAVAILABLE 2

/**
 * The store was reached and could not decide.
 */
#define POLYLIMIT_STORE_FAILED 3

/**
 * The limiter was closed.
 */
#define POLYLIMIT_CLOSED 4

/**
 * A defect in polylimit itself.
 */
#define POLYLIMIT_INTERNAL 5

/**
 * The number in the name of the shared library that goes with this header. It changes when programs that were built
 * with an older header cannot use the library any more.
 */
#define POLYLIMIT_ABI_VERSION 0

/**
 * The version of this header. Programs compare with POLYLIMIT_VERSION what was added since; polylimit_version() is the
 * library that is running.
 */
#define POLYLIMIT_VERSION_MAJOR 0

/**
 * See POLYLIMIT_VERSION_MAJOR.
 */
#define POLYLIMIT_VERSION_MINOR 1

/**
 * See POLYLIMIT_VERSION_MAJOR.
 */
#define POLYLIMIT_VERSION_PATCH 0

/**
 * The version of this header as one number that grows: major * 1000000 + minor * 1000 + patch.
 */
#define POLYLIMIT_VERSION (((POLYLIMIT_VERSION_MAJOR * 1000000) + (POLYLIMIT_VERSION_MINOR * 1000)) + POLYLIMIT_VERSION_PATCH)

/**
 * Who is trusted to say for whom a request was forwarded, and how much of an address is counted as one client. Any thread
 * may use it at any time.
 */
typedef struct polylimit_address_rules polylimit_address_rules;

/**
 * A clock for tests: it stands still until it is set or advanced, and it may go back. Any thread may use it at any time.
 */
typedef struct polylimit_clock polylimit_clock;

/**
 * Operations that were submitted and are not drained yet, of any number of limiters. Any thread may use it at any time.
 * It belongs to the process that opened it: a child that was forked opens its own, and may only free this one.
 */
typedef struct polylimit_completions polylimit_completions;

/**
 * Decides whether requests may proceed. Any thread may use it at any time, until it is freed; so may a child that was
 * forked, which then makes connections of its own.
 */
typedef struct polylimit_limiter polylimit_limiter;

/**
 * What became of a call: 0 when it did what it was asked to, -1 when its answer is still to come, otherwise why it could
 * not. A denial is no failure: it is a decision.
 */
typedef int32_t polylimit_status;

/**
 * One quota's own view of a key, after the operation.
 */
typedef struct polylimit_quota_usage {
    /**
     * The quota's limit, in units per period.
     */
    uint64_t limit;
    /**
     * Whole units that this quota would still admit right now.
     */
    uint64_t remaining;
    /**
     * How long until nothing counts as used under this quota if nothing else arrives, in microseconds.
     */
    uint64_t reset_after_us;
} polylimit_quota_usage;

/**
 * The answer to a check, a peek or an acquire. A request that is not allowed must not proceed.
 */
typedef struct polylimit_decision {
    /**
     * sizeof(polylimit_decision), set by the caller.
     */
    uint32_t size;
    /**
     * 1 when every quota admits the request, otherwise 0.
     */
    uint32_t allowed;
    /**
     * Where the answer came from: 0 is the store; see polylimit_source_name.
     */
    uint32_t source;
    /**
     * Why this is not what a healthy store would have answered for this key alone: 0 when it is; see
     * polylimit_degradation_name.
     */
    uint32_t degraded;
    /**
     * Whole units that can still be spent right now, after this decision: the least over the quotas.
     */
    uint64_t remaining;
    /**
     * How long until the same request, alone, would be admitted, in microseconds: exactly then. 0 when allowed,
     * POLYLIMIT_NEVER when never; every other wait is below 2^63.
     */
    uint64_t retry_after_us;
    /**
     * How long until nothing counts as used any more if nothing else arrives, in microseconds: the longest over the
     * quotas.
     */
    uint64_t reset_after_us;
    /**
     * How long this admitted request has to wait for its turn, in microseconds: leaky bucket only, otherwise 0.
     */
    uint64_t delay_us;
    /**
     * How many of `quotas` there are: as many as the policy has.
     */
    uint32_t quota_count;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * Each quota's own view, in the policy's order; only the first `quota_count` are written.
     */
    struct polylimit_quota_usage quotas[POLYLIMIT_MAX_QUOTAS];
} polylimit_decision;

/**
 * The answer to a take, a charge, a refund or a reset: what is left after it.
 */
typedef struct polylimit_usage {
    /**
     * sizeof(polylimit_usage), set by the caller.
     */
    uint32_t size;
    /**
     * Where the answer came from: 0 is the store; see polylimit_source_name.
     */
    uint32_t source;
    /**
     * Why this is not what a healthy store would have answered for this key alone: 0 when it is; see
     * polylimit_degradation_name.
     */
    uint32_t degraded;
    /**
     * How many of `quotas` there are: as many as the policy has.
     */
    uint32_t quota_count;
    /**
     * Whole units that can still be spent right now: the least over the quotas.
     */
    uint64_t remaining;
    /**
     * How long until nothing counts as used any more if nothing else arrives, in microseconds: the longest over the
     * quotas.
     */
    uint64_t reset_after_us;
    /**
     * The units that a take has spent from every quota, from 0 to its cost; 0 for every other operation.
     */
    uint64_t taken;
    /**
     * Each quota's own view, in the policy's order; only the first `quota_count` are written.
     */
    struct polylimit_quota_usage quotas[POLYLIMIT_MAX_QUOTAS];
} polylimit_usage;

/**
 * One operation on one key.
 */
typedef struct polylimit_request {
    /**
     * sizeof(polylimit_request), set by the caller.
     */
    uint32_t size;
    /**
     * One of POLYLIMIT_CHECK to POLYLIMIT_READY.
     */
    uint32_t operation;
    /**
     * The name of a policy of the limiter, or quotas as text such as "100/minute; 1000/hour"; NULL where the limiter has
     * one policy. Ends with a NUL.
     */
    const char *policy;
    /**
     * Whom or what the policy is applied to: any bytes. May be NULL when there are none.
     */
    const void *key;
    /**
     * How many bytes the key has: 0 to 1 MiB.
     */
    size_t key_length;
    /**
     * The units that the request spends: 0 to 10^12. A cost of 0 is always allowed and leaves no trace.
     */
    uint64_t cost;
    /**
     * How long to wait at most, in microseconds; only of POLYLIMIT_ACQUIRE and POLYLIMIT_READY.
     */
    uint64_t timeout_us;
} polylimit_request;

/**
 * What an operation answers.
 */
typedef union polylimit_answer {
    /**
     * Of a check, a peek and an acquire.
     */
    struct polylimit_decision decision;
    /**
     * Of a take, a charge, a refund and a reset.
     */
    struct polylimit_usage usage;
} polylimit_answer;

/**
 * The result of one operation.
 */
typedef struct polylimit_result {
    /**
     * sizeof(polylimit_result), set by the library.
     */
    uint32_t size;
    /**
     * POLYLIMIT_OK: `answer` holds the answer. Otherwise why there is none, and `message` says more.
     */
    polylimit_status status;
    /**
     * The tag that the operation was submitted with; in a batch the place of its request, from 0 up.
     */
    uint64_t tag;
    /**
     * 0.
     */
    uint64_t reserved[4];
    /**
     * What went wrong, with a NUL at its end; empty when nothing did.
     */
    char message[POLYLIMIT_MESSAGE_SIZE];
    /**
     * What the operation answers; nothing of it is written when there is no answer, nor for POLYLIMIT_READY.
     */
    union polylimit_answer answer;
} polylimit_result;

/**
 * One setting of a limiter: a name and a text, both ended by a NUL.
 *
 * - `policy.<name>`: the quotas of a policy, such as "10/second; 1000/hour". Policies stand in the order in which they are
 *   given. Without any, requests give their quotas themselves.
 * - `outage.<name>`: what that policy answers while the store cannot be asked: "fallback", "allow" or "deny". Redis only.
 * - `lease.<name>`: that busy keys of that policy are leased: "auto", the most units, or units and a time ("100/500ms").
 *   Redis only.
 * - any option of the store, such as `deadline` ("20ms"), `outage` ("deny") or `max_keys` ("100000").
 */
typedef struct polylimit_option {
    /**
     * What is set.
     */
    const char *name;
    /**
     * The value, as text.
     */
    const char *value;
} polylimit_option;

/**
 * One line of a header field: any bytes.
 */
typedef struct polylimit_line {
    /**
     * Where it starts; may be NULL when it is empty.
     */
    const char *start;
    /**
     * How many bytes it has.
     */
    size_t length;
} polylimit_line;

/**
 * What a limiter tells its operators. Nothing in it outlasts the call that it is passed to. Fields may be added at the end.
 */
typedef struct polylimit_degraded_event {
    /**
     * "started": decisions are made without the store; "ended": the store has decided everything for 3 seconds again;
     * "finding": the doctor, which looks once in the background, sees why limits cannot always be held.
     */
    const char *kind;
    /**
     * Why the first decision was made without the store, such as "timeout"; NULL for a finding.
     */
    const char *reason;
    /**
     * Microseconds from the first decision that was made without the store to the last one; 0 unless it has ended.
     */
    uint64_t lasted_us;
    /**
     * How many decisions were made without the store; 0 unless it has ended.
     */
    uint64_t decisions;
    /**
     * How much it matters: "fine" when it is over, otherwise "advice" or "problem".
     */
    const char *severity;
    /**
     * What the doctor looked at, such as "memory"; NULL unless it is a finding.
     */
    const char *subject;
    /**
     * A sentence for a log. It holds no key, password or URL.
     */
    const char *message;
} polylimit_degraded_event;

/**
 * A function that is told events, with the context that it was set with.
 */
typedef void (*polylimit_on_degraded)(const struct polylimit_degraded_event *event, void *context);

/**
 * A policy, and what it decided about a request.
 */
typedef struct polylimit_outcome {
    /**
     * As in polylimit_request.
     */
    const char *policy;
    /**
     * What the limiter decided.
     */
    const struct polylimit_decision *decision;
} polylimit_outcome;

/**
 * At most `limit` units per period, counted by an algorithm.
 */
typedef struct polylimit_quota {
    /**
     * sizeof(polylimit_quota), set by the caller.
     */
    uint32_t size;
    /**
     * POLYLIMIT_TOKEN_BUCKET to POLYLIMIT_SLIDING_LOG; 0 is that which a quota has unless told otherwise.
     */
    uint32_t algorithm;
    /**
     * Units per period: 0 to 10^12.
     */
    uint64_t limit;
    /**
     * The period in microseconds: 1 ms to 366 days.
     */
    uint64_t period_us;
    /**
     * The two buckets only: the most units that can be spent at once, 1 to 10^12; 0 where it is not given.
     */
    uint64_t burst;
    /**
     * Token bucket only: how many tokens it gets at a time; 0 when it is refilled continuously.
     */
    uint64_t step;
    /**
     * Sliding window only: how many sub-windows there are, 1 to 60; 0 where it is not given.
     */
    uint32_t buckets;
    /**
     * Fixed window only: 1 when windows start at multiples of the period since the Unix epoch.
     */
    uint8_t aligned;
    /**
     * 1 when denied requests are charged too.
     */
    uint8_t count_denied;
    /**
     * 0.
     */
    uint16_t reserved;
} polylimit_quota;

/**
 * One counter of a limiter.
 */
typedef struct polylimit_stat {
    /**
     * What is counted. Not to be freed.
     */
    const char *name;
    /**
     * How many there were since the limiter was opened.
     */
    uint64_t value;
} polylimit_stat;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Decides, and spends the cost from every quota of the policy when all admit it.
 *
 * `policy` is the name of a policy of the limiter, or quotas as text such as "100/minute; 1000/hour"; NULL where the
 * limiter has one policy. The key is any `key_length` bytes, up to 1 MiB. `cost` is 0 to 10^12 units; 0 is always
 * allowed and leaves no trace. All operations fail with POLYLIMIT_INVALID_ARGUMENT when one of these is not so, and
 * with POLYLIMIT_CLOSED after polylimit_limiter_close.
 */
polylimit_status polylimit_limiter_check(const struct polylimit_limiter *limiter,
                                         const char *policy,
                                         const void *key,
                                         size_t key_length,
                                         uint64_t cost,
                                         struct polylimit_decision *decision_out,
                                         char *error_buffer,
                                         size_t error_capacity);

/**
 * The decision that a check would give now; leaves no trace. See polylimit_limiter_check.
 */
polylimit_status polylimit_limiter_peek(const struct polylimit_limiter *limiter,
                                        const char *policy,
                                        const void *key,
                                        size_t key_length,
                                        uint64_t cost,
                                        struct polylimit_decision *decision_out,
                                        char *error_buffer,
                                        size_t error_capacity);

/**
 * Waits until the request is admitted and, in a leaky bucket, until its turn has come; at most `timeout_us`
 * microseconds. When that cannot be met it says so at once: then the decision is a denial, and nothing was spent. See
 * polylimit_limiter_check.
 */
polylimit_status polylimit_limiter_acquire(const struct polylimit_limiter *limiter,
                                           const char *policy,
                                           const void *key,
                                           size_t key_length,
                                           uint64_t cost,
                                           uint64_t timeout_us,
                                           struct polylimit_decision *decision_out,
                                           char *error_buffer,
                                           size_t error_capacity);

/**
 * Spends as much of the cost as every quota admits, from 0 to the cost, and says how much it took. See
 * polylimit_limiter_check.
 */
polylimit_status polylimit_limiter_take(const struct polylimit_limiter *limiter,
                                        const char *policy,
                                        const void *key,
                                        size_t key_length,
                                        uint64_t cost,
                                        struct polylimit_usage *usage_out,
                                        char *error_buffer,
                                        size_t error_capacity);

/**
 * Spends the cost whether it fits or not, for a cost that is learnt afterwards; use saturates at 8 times each quota's
 * capacity. See polylimit_limiter_check.
 */
polylimit_status polylimit_limiter_charge(const struct polylimit_limiter *limiter,
                                          const char *policy,
                                          const void *key,
                                          size_t key_length,
                                          uint64_t cost,
                                          struct polylimit_usage *usage_out,
                                          char *error_buffer,
                                          size_t error_capacity);

/**
 * Gives back up to what is used, the newest first. See polylimit_limiter_check.
 */
polylimit_status polylimit_limiter_refund(const struct polylimit_limiter *limiter,
                                          const char *policy,
                                          const void *key,
                                          size_t key_length,
                                          uint64_t cost,
                                          struct polylimit_usage *usage_out,
                                          char *error_buffer,
                                          size_t error_capacity);

/**
 * Forgets the key under its policy. See polylimit_limiter_check.
 */
polylimit_status polylimit_limiter_reset(const struct polylimit_limiter *limiter,
                                         const char *policy,
                                         const void *key,
                                         size_t key_length,
                                         struct polylimit_usage *usage_out,
                                         char *error_buffer,
                                         size_t error_capacity);

/**
 * Checks `count` requests in one call, of one or more policies. Each is decided on its own, in order, and has its own
 * result; the operation of each is POLYLIMIT_CHECK. `request_size` and `result_size` are the sizes of one element:
 * sizeof(polylimit_request) and sizeof(polylimit_result).
 */
polylimit_status polylimit_limiter_check_many(const struct polylimit_limiter *limiter,
                                              const struct polylimit_request *requests,
                                              size_t request_size,
                                              size_t count,
                                              struct polylimit_result *results_out,
                                              size_t result_size,
                                              char *error_buffer,
                                              size_t error_capacity);

/**
 * Checks `count` requests that belong together, such as one client under several policies: all are admitted, or nothing is
 * spent. When one is denied or fails, what the others have spent is given back, and their decisions show what is left; the
 * first error of any is that of the call. The operation of each is POLYLIMIT_CHECK. `request_size` and `decision_size` are the
 * sizes of one element: sizeof(polylimit_request) and sizeof(polylimit_decision).
 */
polylimit_status polylimit_limiter_check_together(const struct polylimit_limiter *limiter,
                                                  const struct polylimit_request *requests,
                                                  size_t request_size,
                                                  size_t count,
                                                  struct polylimit_decision *decisions_out,
                                                  size_t decision_size,
                                                  char *error_buffer,
                                                  size_t error_capacity);

/**
 * Does an operation and waits on this thread, until it is answered or another thread sets `*stopped` to another number than
 * 0; NULL waits to the end. `result_size` is sizeof(polylimit_result).
 *
 * POLYLIMIT_OK: the answer is in `result_out`. POLYLIMIT_PENDING: it was stopped, within 5 ms of that: an acquire leaves its
 * queue, and units that the store has spent for it are refunded, in Redis in the background; of anything else it stays unknown
 * whether it was applied. What is stopped from the start is answered if the
 * answer is known at once, and otherwise nothing of it was done.
 */
polylimit_status polylimit_limiter_call(const struct polylimit_limiter *limiter,
                                        const struct polylimit_request *request,
                                        const uint32_t *stopped,
                                        struct polylimit_result *result_out,
                                        size_t result_size,
                                        char *error_buffer,
                                        size_t error_capacity);

/**
 * Makes rules of `option_count` settings, by these names:
 *
 * - `trust`, any number of times: an address, a network ("10.0.0.0/8"), "loopback", "link-local" or "private", whose
 *   proxies are believed.
 * - `header`: the one header that those proxies write, "x-forwarded-for" or "forwarded".
 * - `ipv4_prefix` (0 to 32) and `ipv6_prefix` (0 to 128): how many bits of an address are counted as one client.
 *
 * Without settings nobody is trusted, and the peer is the client. Freed by polylimit_address_rules_free.
 */
polylimit_status polylimit_address_rules_new(const struct polylimit_option *options,
                                             size_t option_count,
                                             struct polylimit_address_rules **rules_out,
                                             char *error_buffer,
                                             size_t error_capacity);

/**
 * The name of the header field whose lines polylimit_address_rules_key needs; NULL when it needs none. It lives as long as the
 * rules.
 */
const char *polylimit_address_rules_header(const struct polylimit_address_rules *rules);

/**
 * Writes what to limit a client by: one text for all addresses that are counted together, such as "203.0.113.7" or
 * "2001:db8:1:2::/64".
 *
 * `peer` is the address of the other end of the socket, where a port, brackets and a zone are left out; for a Unix socket
 * "127.0.0.1". Text that is no address counts as "unknown", whatever it is, and no line is read then. `lines` are the
 * `line_count` lines of the header that the rules name, in the order in which they came. The length without the NUL goes
 * to `length_out`, which may be NULL, also when the buffer is too small for it; 64 bytes are always enough.
 */
polylimit_status polylimit_address_rules_key(const struct polylimit_address_rules *rules,
                                             const char *peer,
                                             const struct polylimit_line *lines,
                                             size_t line_count,
                                             char *buffer,
                                             size_t capacity,
                                             size_t *length_out,
                                             char *error_buffer,
                                             size_t error_capacity);

/**
 * Frees rules. NULL is allowed.
 */
void polylimit_address_rules_free(struct polylimit_address_rules *rules);

/**
 * Makes a clock that shows `now_us` microseconds since the Unix epoch, at most 2^53 - 1. Freed by polylimit_clock_free.
 */
polylimit_status polylimit_clock_new(uint64_t now_us,
                                     struct polylimit_clock **clock_out,
                                     char *error_buffer,
                                     size_t error_capacity);

/**
 * The time that a clock shows, in microseconds since the Unix epoch; 0 when it is NULL.
 */
uint64_t polylimit_clock_now_us(const struct polylimit_clock *clock);

/**
 * Sets the time, in microseconds since the Unix epoch, at most 2^53 - 1; it may go back.
 */
polylimit_status polylimit_clock_set(const struct polylimit_clock *clock,
                                     uint64_t now_us,
                                     char *error_buffer,
                                     size_t error_capacity);

/**
 * Moves the time forward by so many microseconds.
 */
polylimit_status polylimit_clock_advance(const struct polylimit_clock *clock,
                                         uint64_t by_us,
                                         char *error_buffer,
                                         size_t error_capacity);

/**
 * Frees a clock. Limiters that were opened with it keep showing its time. NULL is allowed.
 */
void polylimit_clock_free(struct polylimit_clock *clock);

/**
 * Opens a place for finished operations. Freed by polylimit_completions_free.
 */
polylimit_status polylimit_completions_open(struct polylimit_completions **completions_out,
                                            char *error_buffer,
                                            size_t error_capacity);

/**
 * The file descriptor to watch (epoll, poll, libuv): it is readable when something can be drained. It is non-blocking,
 * closed on exec, and belongs to the completions: watch it, and neither read nor close it. -1 when they are NULL.
 */
int polylimit_completions_fd(const struct polylimit_completions *completions);

/**
 * Starts an operation, and does not wait. Nothing of the request is used after the call.
 *
 * POLYLIMIT_OK: the answer was known at once and is in `result_out`; POLYLIMIT_PENDING: it comes by
 * polylimit_completions_drain, with this tag; otherwise it failed, and nothing comes. `result_size` is
 * sizeof(polylimit_result). A limiter may be closed and freed while its operations are pending: they are drained all the
 * same.
 */
polylimit_status polylimit_completions_submit(const struct polylimit_completions *completions,
                                              const struct polylimit_limiter *limiter,
                                              const struct polylimit_request *request,
                                              uint64_t tag,
                                              struct polylimit_result *result_out,
                                              size_t result_size,
                                              char *error_buffer,
                                              size_t error_capacity);

/**
 * Starts checks of requests that belong together, and does not wait; see polylimit_limiter_check_together. Nothing of the
 * requests is used after the call.
 *
 * POLYLIMIT_OK: the decisions were known at once and are in `decisions_out`; POLYLIMIT_PENDING: they come by
 * polylimit_completions_drain, as `count` results of this tag in the order of the requests, or as one that says why there are
 * none; otherwise it failed, and nothing comes. The sizes are those of polylimit_limiter_check_together.
 */
polylimit_status polylimit_completions_submit_together(const struct polylimit_completions *completions,
                                                       const struct polylimit_limiter *limiter,
                                                       const struct polylimit_request *requests,
                                                       size_t request_size,
                                                       size_t count,
                                                       uint64_t tag,
                                                       struct polylimit_decision *decisions_out,
                                                       size_t decision_size,
                                                       char *error_buffer,
                                                       size_t error_capacity);

/**
 * Writes the results of up to `capacity` finished operations to `results_out` and their number to `count_out`. The
 * descriptor stays readable while there are more. `result_size` is sizeof(polylimit_result).
 */
polylimit_status polylimit_completions_drain(const struct polylimit_completions *completions,
                                             struct polylimit_result *results_out,
                                             size_t result_size,
                                             size_t capacity,
                                             size_t *count_out,
                                             char *error_buffer,
                                             size_t error_capacity);

/**
 * Gives up the pending operation of this tag. An acquire leaves its queue, and units that the store has spent for it are
 * refunded, in Redis in the background; of anything else it stays unknown whether it was applied.
 *
 * `given_up_out`: 1 when nothing of this tag will be drained, 0 when it has finished already, or there is none
 * of it; what has finished is still drained.
 */
polylimit_status polylimit_completions_cancel(const struct polylimit_completions *completions,
                                              uint64_t tag,
                                              uint32_t *given_up_out,
                                              char *error_buffer,
                                              size_t error_capacity);

/**
 * How many operations were submitted and are not drained yet; 0 when it is NULL.
 */
size_t polylimit_completions_pending(const struct polylimit_completions *completions);

/**
 * Frees completions and closes their descriptor: no thread may use them any more. Operations that are pending are given
 * up. NULL is allowed.
 */
void polylimit_completions_free(struct polylimit_completions *completions);

/**
 * Has a function called when the limiter begins to decide without its store, when it decides with it again, and with what its
 * doctor finds. It takes the place of the one before; NULL has none called. Set it right after opening, and nothing is missed.
 *
 * It is called on the thread that notices, which is one that uses the limiter or one of the limiter's own, never on two at
 * once, and holds up what that thread does: it must not block, throw or jump out. It may use the limiter. Once this function,
 * polylimit_limiter_close or polylimit_limiter_free has returned, the one before is called no more, so its context may be freed,
 * unless they were called by that very function.
 */
polylimit_status polylimit_limiter_set_on_degraded(const struct polylimit_limiter *limiter,
                                                   polylimit_on_degraded on_degraded,
                                                   void *context,
                                                   char *error_buffer,
                                                   size_t error_capacity);

/**
 * Writes the header fields of the response to a request, each as "name: value\r\n" with the name in lower case and a value of
 * printable ASCII.
 *
 * `outcomes` are the `outcome_count` policies that were applied to the request, with their decisions. `style` says which
 * fields are sent: "ietf" (ratelimit-policy, ratelimit), "legacy" (x-ratelimit-limit, -remaining, -reset), "both" or
 * "none"; retry-after is sent in any style. `reset_form` says how x-ratelimit-reset tells a time: in "seconds" from now, or
 * as an "epoch" time, for which `now_us` is the time in microseconds since the Unix epoch. NULL is the default of either.
 * The length without the NUL goes to `length_out`, which may be NULL, also when the buffer is too small for it.
 */
polylimit_status polylimit_headers_render(const struct polylimit_limiter *limiter,
                                          const struct polylimit_outcome *outcomes,
                                          size_t outcome_count,
                                          const char *style,
                                          const char *reset_form,
                                          uint64_t now_us,
                                          char *buffer,
                                          size_t capacity,
                                          size_t *length_out,
                                          char *error_buffer,
                                          size_t error_capacity);

/**
 * Opens a limiter on a store: "memory:", "local:<name>", "file:///path" or a URL of Redis such as
 * "redis://localhost?deadline=20ms". Connects to nothing: a store that cannot be reached may be found later.
 *
 * `options` are `option_count` settings; see polylimit_option. `clock` is NULL, or a clock for tests by which it decides
 * wherever the states are. The limiter is freed by polylimit_limiter_free.
 */
polylimit_status polylimit_limiter_open(const char *url,
                                        const struct polylimit_option *options,
                                        size_t option_count,
                                        const struct polylimit_clock *clock,
                                        struct polylimit_limiter **limiter_out,
                                        char *error_buffer,
                                        size_t error_capacity);

/**
 * Gives back what is leased and closes the connections. Operations after it, and those that still wait, end with
 * POLYLIMIT_CLOSED. It may be called again, and at any time; NULL is allowed. The limiter is still to be freed.
 */
void polylimit_limiter_close(const struct polylimit_limiter *limiter);

/**
 * Closes a limiter and frees it: no thread may use it any more. NULL is allowed.
 */
void polylimit_limiter_free(struct polylimit_limiter *limiter);

/**
 * Waits until the store answers, for at most `timeout_us` microseconds; POLYLIMIT_STORE_UNAVAILABLE when it does not.
 * Nothing needs it; a service that starts may want it.
 */
polylimit_status polylimit_limiter_ready(const struct polylimit_limiter *limiter,
                                         uint64_t timeout_us,
                                         char *error_buffer,
                                         size_t error_capacity);

/**
 * Registers a policy, or changes the quotas of the one of that name; what was used is kept by every quota whose
 * algorithm, period, step and buckets stay. `quotas` is as in polylimit_option.
 */
polylimit_status polylimit_limiter_set_policy(const struct polylimit_limiter *limiter,
                                              const char *name,
                                              const char *quotas,
                                              char *error_buffer,
                                              size_t error_capacity);

/**
 * Finds the policy by which requests that name `policy` are decided, or the only one when that is NULL, and writes its
 * name (1 to 64 bytes), which requests may use from then on. Programs call it when they start, so that mistakes are found
 * before the first request.
 *
 * Quotas as text become a policy of the limiter. In a `scope` (1 to 256 bytes, such as "/login"; NULL is none) they have a
 * budget of their own, in every store and process; a policy with a name is shared whatever the scope. Two texts whose names are
 * equal are the same policy.
 * The length without the NUL goes to `length_out`, which may be NULL, also when the buffer is too small for it.
 */
polylimit_status polylimit_limiter_policy_for(const struct polylimit_limiter *limiter,
                                              const char *policy,
                                              const char *scope,
                                              char *buffer,
                                              size_t capacity,
                                              size_t *length_out,
                                              char *error_buffer,
                                              size_t error_capacity);

/**
 * Writes the quotas of a policy, or of the only one when `name` is NULL, as text, in their canonical form and separated by
 * "; ", such as "10/second; 1000/hour".
 * The length without the NUL goes to `length_out`, which may be NULL, also when the buffer is too small for it.
 */
polylimit_status polylimit_limiter_policy(const struct polylimit_limiter *limiter,
                                          const char *name,
                                          char *buffer,
                                          size_t capacity,
                                          size_t *length_out,
                                          char *error_buffer,
                                          size_t error_capacity);

/**
 * Authenticates new connections with another password from now on, and with another user name unless that is NULL.
 */
polylimit_status polylimit_limiter_set_credentials(const struct polylimit_limiter *limiter,
                                                   const char *username,
                                                   const char *password,
                                                   char *error_buffer,
                                                   size_t error_capacity);

/**
 * The name of a status, such as "invalid_argument"; NULL when there is none of that number. Not to be freed.
 */
const char *polylimit_status_name(polylimit_status status);

/**
 * The name of a decision's or a usage's `source`, such as "store"; NULL when there is none of that number. Not to be
 * freed. Further sources may come, so compare names with those that you know.
 */
const char *polylimit_source_name(uint32_t source);

/**
 * The name of a decision's or a usage's `degraded`, such as "timeout"; NULL for 0, which is not degraded, and when there
 * is none of that number. Not to be freed.
 */
const char *polylimit_degradation_name(uint32_t degraded);

/**
 * Writes the body of the response to a denied request: a problem document (RFC 9457, application/problem+json) when `json`
 * is not 0, otherwise a line of text (text/plain; charset=utf-8).
 *
 * The HTTP status goes to `http_status_out`: 429 (Too Many Requests), 503 (Service Unavailable) when the denial comes from
 * an outage of the store, and 0 when nothing was denied; then the text is empty. `outcomes` are as in
 * polylimit_headers_render, and `cost` is the number of units that the request asked for. The length without the NUL goes
 * to `length_out`, which may be NULL, also when the buffer is too small for it.
 */
polylimit_status polylimit_problem_render(const struct polylimit_limiter *limiter,
                                          const struct polylimit_outcome *outcomes,
                                          size_t outcome_count,
                                          uint64_t cost,
                                          uint32_t json,
                                          uint32_t *http_status_out,
                                          char *buffer,
                                          size_t capacity,
                                          size_t *length_out,
                                          char *error_buffer,
                                          size_t error_capacity);

/**
 * The `json` of polylimit_problem_render for a client that sent this `Accept` field: 0 when it prefers text (RFC 9110, section
 * 12.5.1), otherwise 1; 1 also for NULL, which is no such field.
 */
uint32_t polylimit_problem_json_for(const char *accept);

/**
 * The content type of what polylimit_problem_render writes, for the same `json`. Never NULL; not to be freed.
 */
const char *polylimit_problem_content_type(uint32_t json);

/**
 * Reads one quota from its text form, such as "10/s token_bucket burst=20". A text that is none is
 * POLYLIMIT_INVALID_ARGUMENT, with what was read, where, and what is allowed.
 */
polylimit_status polylimit_quota_parse(const char *quota,
                                       struct polylimit_quota *quota_out,
                                       char *error_buffer,
                                       size_t error_capacity);

/**
 * Writes a quota in its canonical text form; a quota that is out of bounds is POLYLIMIT_INVALID_ARGUMENT. The length
 * without the NUL goes to `length_out`, which may be NULL, also when the buffer is too small for it.
 */
polylimit_status polylimit_quota_text(const struct polylimit_quota *quota,
                                      char *buffer,
                                      size_t capacity,
                                      size_t *length_out,
                                      char *error_buffer,
                                      size_t error_capacity);

/**
 * Looks at the store with the eyes of an operator, and writes each finding as a line "severity: subject: message\n"; the
 * severity is fine, advice or problem. It makes a decision on a key of its own and forgets it. Stores without a server
 * have no findings. The length without the NUL goes to `length_out`, which may be NULL, also when the buffer is too small
 * for it.
 */
polylimit_status polylimit_limiter_doctor(const struct polylimit_limiter *limiter,
                                          char *buffer,
                                          size_t capacity,
                                          size_t *length_out,
                                          char *error_buffer,
                                          size_t error_capacity);

/**
 * Writes up to `capacity` counters to `stats_out`, and to `count_out` how many there are altogether. Their order and names
 * stay the same while a program runs; `stats_out` may be NULL when `capacity` is 0.
 */
polylimit_status polylimit_limiter_stats(const struct polylimit_limiter *limiter,
                                         struct polylimit_stat *stats_out,
                                         size_t capacity,
                                         size_t *count_out,
                                         char *error_buffer,
                                         size_t error_capacity);

/**
 * The version of the library that is running, such as "0.1.0". Never NULL; not to be freed.
 */
const char *polylimit_version(void);

/**
 * The POLYLIMIT_ABI_VERSION of the library that is running; programs that load it by hand compare it with theirs.
 */
uint32_t polylimit_abi_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* POLYLIMIT_H */
