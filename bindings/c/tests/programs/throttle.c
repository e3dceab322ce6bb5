/* Waits of servers, backoffs, and the steps of a throttled request. The cases of all languages run through Go, which calls these. */
#include "check.h"

static polylimit_line line(const char *text) { return (polylimit_line){text, strlen(text)}; }

static polylimit_pair field(const char *name, const char *value) { return (polylimit_pair){line(name), line(value)}; }

static uint64_t server_wait(const char *retry_after, const char *rate_limit, uint64_t now_us) {
    polylimit_pair fields[2];
    size_t count = 0;
    if (retry_after) {
        fields[count++] = field("Retry-After", retry_after);
    }
    if (rate_limit) {
        fields[count++] = field("RateLimit", rate_limit);
    }
    uint64_t wait_us = 1;
    OK(polylimit_server_wait(fields, count, now_us, &wait_us, MESSAGE));
    return wait_us;
}

static void waits_of_servers_are_read(void) {
    IS(2000000, server_wait("2", "\"a\";r=0;t=30", START_US));
    IS(30000000, server_wait("soon", "\"a\";r=0;t=30", START_US));
    IS(1500000, server_wait("Sun, 06 Nov 1994 08:49:37 GMT", NULL, 784111777000000 - 1500000));
    IS(9007199254000000, server_wait("18446744073709551616", NULL, START_US));
    IS(POLYLIMIT_NEVER, server_wait(NULL, NULL, START_US));
    IS(POLYLIMIT_NEVER, server_wait("", "nonsense", START_US));
    uint64_t wait_us;
    polylimit_pair skewed[] = {field("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
                               field("retry-after", "Sun, 06 Nov 1994 08:49:39 GMT")};
    OK(polylimit_server_wait(skewed, 2, START_US, &wait_us, MESSAGE));
    IS(2000000, wait_us);
    polylimit_pair exact[] = {field("retry-after", "1"), field("retry-after-ms", "120")};
    OK(polylimit_server_wait(exact, 2, START_US, &wait_us, MESSAGE));
    IS(120000, wait_us);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_server_wait(NULL, 1, START_US, &wait_us, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_server_wait(NULL, 0, START_US, NULL, MESSAGE));
}

static polylimit_backoff defaults(void) {
    polylimit_backoff backoff = {.size = sizeof backoff};
    OK(polylimit_backoff_defaults(&backoff, MESSAGE));
    return backoff;
}

static void backoff_waits_and_gives_up(void) {
    polylimit_backoff backoff = defaults();
    uint64_t wait_us = 1;
    OK(polylimit_backoff_wait(&backoff, 0, POLYLIMIT_NEVER, &wait_us, MESSAGE));
    CHECK(wait_us <= 100000);
    OK(polylimit_backoff_wait(&backoff, 1, 2000000, &wait_us, MESSAGE));
    CHECK(wait_us >= 2000000 && wait_us <= 2200000);
    OK(polylimit_backoff_wait(&backoff, backoff.max_retries, 0, &wait_us, MESSAGE));
    CHECK(wait_us == POLYLIMIT_NEVER);
    backoff.base_us = 0;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_backoff_wait(&backoff, 0, 0, &wait_us, MESSAGE));
    CHECK(strcmp(message, "base is 0ns; allowed are 1 ms to the cap, which is 20s") == 0);
    backoff.size = 4;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_backoff_wait(&backoff, 0, 0, &wait_us, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_backoff_defaults(NULL, MESSAGE));
}

static uint32_t step(const polylimit_attempts *attempts, uint64_t *us) {
    uint32_t next = 0;
    OK(polylimit_attempts_step(attempts, &next, us, MESSAGE));
    return next;
}

static polylimit_attempts *start(const polylimit_throttle *throttle, uint64_t timeout_us) {
    polylimit_attempts *attempts = NULL;
    OK(polylimit_attempts_new(throttle, "host", 4, "GET", 1, timeout_us, &attempts, MESSAGE));
    return attempts;
}

static void request_is_acquired_sent_retried_and_refused(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "1/hour", NULL);
    polylimit_throttle *throttle = NULL;
    OK(polylimit_throttle_new(NULL, &throttle, MESSAGE));
    polylimit_attempts *attempts = start(throttle, POLYLIMIT_NEVER);
    uint64_t us = 0, retry_after_us = 0;
    IS(POLYLIMIT_STEP_ACQUIRE, step(attempts, &us));
    CHECK(us > 0 && us <= 300000000);
    polylimit_decision decision = check(limiter, "host", 1);
    OK(polylimit_attempts_acquired(attempts, &decision, MESSAGE));
    IS(POLYLIMIT_STEP_SEND, step(attempts, &us));
    polylimit_pair retry_after = field("retry-after", "60");
    uint32_t again = 0;
    OK(polylimit_attempts_responded(attempts, 429, &retry_after, 1, &again, MESSAGE));
    CHECK(again == 1);
    IS(POLYLIMIT_STEP_WAIT, step(attempts, &us));
    CHECK(us <= 60100001);
    char text[512];
    size_t length = 1;
    OK(polylimit_attempts_refusal(attempts, &retry_after_us, text, sizeof text, &length, MESSAGE));
    CHECK(length == 0 && retry_after_us == POLYLIMIT_NEVER);
    polylimit_attempts_free(attempts);

    attempts = start(throttle, 1000000);
    polylimit_throttle_free(throttle);
    IS(POLYLIMIT_STEP_REFUSE, step(attempts, &us));
    OK(polylimit_attempts_refusal(attempts, &retry_after_us, text, sizeof text, &length, MESSAGE));
    CHECK(strncmp(text, "the server asked for a wait of 60 s with status 429: ", 53) == 0 && length == strlen(text));
    CHECK(retry_after_us <= 60000000);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_attempts_responded(attempts, 70000, NULL, 0, &again, MESSAGE));
    polylimit_attempts_free(attempts);

    OK(polylimit_throttle_new(NULL, &throttle, MESSAGE));
    attempts = start(throttle, 1000000);
    decision = check(limiter, "host", 1);
    OK(polylimit_attempts_acquired(attempts, &decision, MESSAGE));
    IS(POLYLIMIT_STEP_REFUSE, step(attempts, &us));
    OK(polylimit_attempts_responded(attempts, 200, NULL, 0, &again, MESSAGE));
    CHECK(again == 0);
    polylimit_attempts_free(attempts);
    polylimit_throttle_free(throttle);
    polylimit_limiter_free(limiter);
}

static void mistakes_are_refused(void) {
    polylimit_backoff backoff = defaults();
    backoff.cap_us = 0;
    polylimit_throttle *throttle = NULL;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_throttle_new(&backoff, &throttle, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_throttle_new(NULL, NULL, MESSAGE));
    polylimit_attempts *attempts = NULL;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_attempts_new(NULL, "k", 1, "GET", 1, 0, &attempts, MESSAGE));
    OK(polylimit_throttle_new(NULL, &throttle, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_attempts_new(throttle, "k", 1, NULL, 1, 0, &attempts, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_attempts_new(throttle, NULL, 1, "GET", 1, 0, &attempts, MESSAGE));
    uint32_t next;
    uint64_t us;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_attempts_step(NULL, &next, &us, MESSAGE));
    polylimit_throttle_free(throttle);
    polylimit_throttle_free(NULL);
    polylimit_attempts_free(NULL);
}

int main(void) {
    static const struct test tests[] = {
        {"waits_of_servers_are_read", waits_of_servers_are_read},
        {"backoff_waits_and_gives_up", backoff_waits_and_gives_up},
        {"request_is_acquired_sent_retried_and_refused", request_is_acquired_sent_retried_and_refused},
        {"mistakes_are_refused", mistakes_are_refused},
    };
    RUN(tests);
}
