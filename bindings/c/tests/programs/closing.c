/*
 * Closing a limiter ends the operations that wait for a suspended server, long before their deadline. A thread that is cancelled while it
 * waits ends after its call.
 */
#include "server.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

/* ASan takes the end of a cancelled thread for an overflow of its stack (its own frame, in UnsetAlternateSignalStack). */
#if defined(__SANITIZE_ADDRESS__)
enum { WAITING = 4, CANCELLED = 0 };
#else
enum { WAITING = 4, CANCELLED = 2 };
#endif

static atomic_int ended;

/* Half of the threads check; the others run polylimit_limiter_call with a stop flag that is never set. */
struct waiter {
    const polylimit_limiter *limiter;
    int calls;
    polylimit_status status;
};

static void *run_blocking_operation(void *argument) {
    struct waiter *waiter = argument;
    char message[512] = "";
    if (waiter->calls) {
        polylimit_request request = ask(POLYLIMIT_CHECK, "k", 1);
        polylimit_result result;
        waiter->status =
            polylimit_limiter_call(waiter->limiter, &request, NULL, &result, sizeof result, MESSAGE);
    } else {
        polylimit_decision decision = {.size = sizeof decision};
        waiter->status = polylimit_limiter_check(waiter->limiter, NULL, "k", 1, 1, &decision, MESSAGE);
    }
    atomic_fetch_add(&ended, 1);
    pthread_testcancel();
    return NULL;
}

static time_t seconds(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return now.tv_sec;
}

static void close_ends_operations_that_wait_for_a_stopped_server(void) {
    polylimit_option options[] = {{"policy.api", "1000000/hour"}, {"deadline", "20s"}, {"doctor_after", "0"}};
    polylimit_limiter *limiter = NULL;
    OK(polylimit_limiter_open(bare_url(), options, 3, NULL, &limiter, MESSAGE));
    CHECK(strcmp(polylimit_source_name(check(limiter, "k", 1).source), "store") == 0);
    polylimit_completions *completions = NULL;
    OK(polylimit_completions_open(&completions, MESSAGE));
    pid_t pid = server();
    CHECK(kill(pid, SIGSTOP) == 0);

    pthread_t threads[WAITING];
    struct waiter waiters[WAITING];
    for (int at = 0; at < WAITING; at++) {
        waiters[at] = (struct waiter){limiter, at % 2, POLYLIMIT_OK};
        CHECK(pthread_create(&threads[at], NULL, run_blocking_operation, &waiters[at]) == 0);
    }
    polylimit_request request = ask(POLYLIMIT_CHECK, "k", 1);
    polylimit_result result;
    IS(POLYLIMIT_PENDING,
       polylimit_completions_submit(completions, limiter, &request, 7, &result, sizeof result, MESSAGE));
    usleep(300000);
    for (int at = 0; at < CANCELLED; at++) {
        CHECK(pthread_cancel(threads[at]) == 0);
    }
    usleep(200000);
    CHECK(atomic_load(&ended) == 0 && polylimit_completions_pending(completions) == 1);

    time_t began = seconds();
    polylimit_limiter_close(limiter);
    for (int at = 0; at < WAITING; at++) {
        void *result = NULL;
        CHECK(pthread_join(threads[at], &result) == 0);
        CHECK(result == (at < CANCELLED ? PTHREAD_CANCELED : NULL));
    }
    size_t count = 0;
    struct pollfd readable = {.fd = polylimit_completions_fd(completions), .events = POLLIN};
    while (count == 0 && seconds() - began < 10) {
        CHECK(poll(&readable, 1, 1000) >= 0);
        OK(polylimit_completions_drain(completions, &result, sizeof result, 1, &count, MESSAGE));
    }
    time_t took = seconds() - began;
    CHECK(kill(pid, SIGCONT) == 0);
    CHECK(took < 10);
    for (int at = 0; at < WAITING; at++) {
        IS(POLYLIMIT_CLOSED, waiters[at].status);
    }
    CHECK(count == 1 && result.tag == 7);
    IS(POLYLIMIT_CLOSED, result.status);
    polylimit_completions_free(completions);
    polylimit_limiter_free(limiter);
}

int main(void) {
    static const struct test tests[] = {
        {"close ends operations that wait for a stopped server", close_ends_operations_that_wait_for_a_stopped_server},
    };
    RUN(tests);
}
