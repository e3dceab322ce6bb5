/* Many threads use one limiter and one completions. */
#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 8 };

/* Under Valgrind, which takes many times as long, a quarter of the calls still meets every moment that they can. */
static int quarter(int count) { return getenv("UNDER_VALGRIND") ? count / 4 : count; }
static int each(void) { return quarter(2000); }
static unsigned long limit(void) { return (unsigned long)quarter(5000); }
static const char *quotas(void) { return getenv("UNDER_VALGRIND") ? "1250/day fixed_window" : "5000/day fixed_window"; }

struct shared {
    polylimit_limiter *limiter;
    polylimit_completions *completions;
    unsigned long admitted[THREADS];
};

struct thread {
    struct shared *shared;
    int number;
    pthread_t id;
};

static void run_threads(struct shared *shared, void *(*work)(void *), int count) {
    struct thread threads[THREADS];
    for (int at = 0; at < count; at++) {
        threads[at] = (struct thread){.shared = shared, .number = at};
        CHECK(pthread_create(&threads[at].id, NULL, work, &threads[at]) == 0);
    }
    for (int at = 0; at < count; at++) {
        CHECK(pthread_join(threads[at].id, NULL) == 0);
    }
}

static unsigned long total(const struct shared *shared) {
    unsigned long sum = 0;
    for (int at = 0; at < THREADS; at++) {
        sum += shared->admitted[at];
    }
    return sum;
}

/*
 * Counts what the store decided. Valgrind runs one thread at a time: on a busy machine the one that holds a lock of the local
 * store may wait for longer than a second, so that others are answered without the store. Otherwise none is.
 */
static void *check_many_times(void *argument) {
    struct thread *thread = argument;
    for (int at = 0; at < each(); at++) {
        polylimit_decision decision = check(thread->shared->limiter, "k", 1);
        CHECK(!decision.degraded || getenv("UNDER_VALGRIND"));
        thread->shared->admitted[thread->number] += !decision.degraded && decision.allowed;
    }
    return NULL;
}

static void admits_exactly_the_limit_on(const char *url) {
    struct shared shared = {.limiter = open_limiter(url, quotas(), NULL)};
    run_threads(&shared, check_many_times, THREADS);
    CHECK(total(&shared) == limit());
    polylimit_limiter_free(shared.limiter);
}

static void exactly_the_limit_is_admitted_on_memory(void) { admits_exactly_the_limit_on("memory:"); }

static void exactly_the_limit_is_admitted_on_local(void) {
    char path[64], url[96];
    snprintf(path, sizeof path, "/tmp/polylimit-c-threads-%d", (int)getpid());
    snprintf(url, sizeof url, "file://%s?size=1MiB", path);
    admits_exactly_the_limit_on(url);
    CHECK(unlink(path) == 0);
}

static void exactly_the_limit_is_admitted_on_redis(void) { admits_exactly_the_limit_on(redis_url()); }

/* Submits operations and drains results, from several threads at once. */
static void *submit_and_drain(void *argument) {
    struct thread *thread = argument;
    struct shared *shared = thread->shared;
    polylimit_result results[16], result;
    char message[512] = "";
    for (int at = 0; at < each(); at++) {
        polylimit_request request = ask(POLYLIMIT_CHECK, "completed", 1);
        polylimit_status status =
            polylimit_completions_submit(shared->completions, shared->limiter, &request, (uint64_t)at, &result,
                                         sizeof result, MESSAGE);
        CHECK(status == POLYLIMIT_PENDING || status == POLYLIMIT_OK);
        if (status == POLYLIMIT_OK) {
            shared->admitted[thread->number] += result.answer.decision.allowed;
        }
        size_t count = 0;
        if (at % 32 == 31) {
            OK(polylimit_completions_drain(shared->completions, results, sizeof *results, 16, &count, MESSAGE));
        }
        for (size_t drained = 0; drained < count; drained++) {
            CHECK(results[drained].status == POLYLIMIT_OK);
            shared->admitted[thread->number] += results[drained].answer.decision.allowed;
        }
    }
    return NULL;
}

static void threads_share_completions(void) {
    char url[256];
    snprintf(url, sizeof url, "%s%smax_in_flight=100000", redis_url(), strchr(redis_url(), '?') ? "&" : "?");
    struct shared shared = {.limiter = open_limiter(url, quotas(), NULL)};
    OK(polylimit_completions_open(&shared.completions, MESSAGE));
    run_threads(&shared, submit_and_drain, THREADS);
    while (polylimit_completions_pending(shared.completions) > 0) {
        struct pollfd watched = {.fd = polylimit_completions_fd(shared.completions), .events = POLLIN, .revents = 0};
        CHECK(poll(&watched, 1, 30000) == 1);
        polylimit_result results[16];
        size_t count = 0;
        OK(polylimit_completions_drain(shared.completions, results, sizeof *results, 16, &count, MESSAGE));
        for (size_t at = 0; at < count; at++) {
            CHECK(results[at].status == POLYLIMIT_OK);
            shared.admitted[0] += results[at].answer.decision.allowed;
        }
    }
    CHECK(total(&shared) == limit());
    polylimit_completions_free(shared.completions);
    polylimit_limiter_free(shared.limiter);
}

/* One thread closes the limiter; in the others POLYLIMIT_CLOSED is the only error. */
static void *use_until_closed(void *argument) {
    struct thread *thread = argument;
    char message[512] = "";
    polylimit_decision decision = {.size = sizeof decision};
    for (;;) {
        polylimit_status status =
            polylimit_limiter_check(thread->shared->limiter, NULL, "k", 1, 1, &decision, MESSAGE);
        if (status == POLYLIMIT_CLOSED) {
            return NULL;
        }
        CHECK(status == POLYLIMIT_OK);
        if (thread->number == 0 && ++thread->shared->admitted[0] == (unsigned long)each()) {
            polylimit_limiter_close(thread->shared->limiter);
        }
        if (thread->number == 1) {
            polylimit_status changed =
                polylimit_limiter_set_policy(thread->shared->limiter, "api", "7/minute", MESSAGE);
            CHECK(changed == POLYLIMIT_OK || changed == POLYLIMIT_CLOSED);
        }
    }
}

static void close_and_set_policy_are_safe_during_use(void) {
    struct shared shared = {.limiter = open_limiter("memory:", "5000/day", NULL)};
    run_threads(&shared, use_until_closed, THREADS);
    polylimit_limiter_free(shared.limiter);
}

int main(void) {
    static const struct test tests[] = {
        {"exactly the limit is admitted on memory", exactly_the_limit_is_admitted_on_memory},
        {"exactly the limit is admitted on local", exactly_the_limit_is_admitted_on_local},
        {"exactly the limit is admitted on redis", exactly_the_limit_is_admitted_on_redis},
        {"threads share completions", threads_share_completions},
        {"close and set policy are safe during use", close_and_set_policy_are_safe_during_use},
    };
    RUN(tests);
}
