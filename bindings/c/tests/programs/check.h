/* Shared by the test programs: a check that ends the program, and a table of tests that counts how many passed. */
#ifndef CHECK_H
#define CHECK_H

#include <polylimit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Checks the status of a call; on failure it prints the message. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        polylimit_status status_ = (call);                                                                             \
        if (status_ != POLYLIMIT_OK) {                                                                                 \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, polylimit_status_name(status_), message);           \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define IS(expected, call) CHECK((call) == (expected))

/* The last two arguments of every call that can fail. */
#define MESSAGE message, sizeof message
static char message[512];

#define START_US 1700000000000000

struct test {
    const char *name;
    void (*run)(void);
};

static inline int run_tests(const struct test *tests, size_t count) {
    for (size_t at = 0; at < count; at++) {
        printf("test %s ... ", tests[at].name);
        fflush(stdout);
        tests[at].run();
        printf("ok\n");
    }
    printf("test result: ok. %zu passed; 0 failed;\n", count);
    return 0;
}

#define RUN(tests) return run_tests(tests, sizeof(tests) / sizeof *(tests))

static inline polylimit_limiter *open_limiter(const char *url, const char *quotas, const polylimit_clock *clock) {
    char message[512] = "";
    polylimit_limiter *limiter = NULL;
    polylimit_option option = {"policy.api", quotas};
    OK(polylimit_limiter_open(url, &option, 1, clock, &limiter, MESSAGE));
    CHECK(limiter != NULL);
    return limiter;
}

static inline polylimit_decision check(const polylimit_limiter *limiter, const char *key, uint64_t cost) {
    char message[512] = "";
    polylimit_decision decision = {.size = sizeof decision};
    OK(polylimit_limiter_check(limiter, NULL, key, strlen(key), cost, &decision, MESSAGE));
    return decision;
}

static inline polylimit_request ask(uint32_t operation, const char *key, uint64_t cost) {
    polylimit_request request = {.size = sizeof request, .operation = operation, .key = key, .cost = cost};
    request.key_length = strlen(key);
    return request;
}

/* The URL of the Redis server for tests, from the environment. */
static inline const char *redis_url(void) {
    const char *url = getenv("REDIS_URL");
    CHECK(url != NULL);
    return url;
}

#endif
