/* A program that forks: children use the limiters of their parent, and so does the parent. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Under Valgrind, which takes many times as long, as many children as use up the budget. */
static int children(void) { return getenv("UNDER_VALGRIND") ? 16 : 40; }
enum { EACH = 25 };

/* Under ASan a child looks for leaks: what it leaves alone because it is its parent's is none. Only where its parent has no
   other thread: what the stack of one refers to counts as lost in a child. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
static void check_leaks(void) { CHECK(__lsan_do_recoverable_leak_check() == 0); }
#else
static void check_leaks(void) {}
#endif

static void nothing(void) {}

static atomic_int ended;

static void *keep_using(void *argument) {
    while (!atomic_load(&ended)) {
        check(argument, "parent", 1);
    }
    return NULL;
}

/* Each child spends from the shared budget, and returns the number of its admitted requests as its exit status. */
static unsigned long fork_children(polylimit_limiter *limiter, void (*check_freed)(void)) {
    unsigned long admitted = 0;
    for (int at = 0; at < children(); at++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            /* A child that hangs is killed, so that the test fails instead of hanging. */
            alarm(60);
            int own = 0;
            for (int times = 0; times < EACH; times++) {
                own += (int)check(limiter, "k", 1).allowed;
            }
            polylimit_limiter_free(limiter);
            check_freed();
            _exit(own);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status));
        admitted += (unsigned long)WEXITSTATUS(status);
    }
    return admitted;
}

static void children_share_the_budget_of(const char *url) {
    polylimit_limiter *limiter = open_limiter(url, "300/day fixed_window", NULL);
    CHECK(check(limiter, "k", 1).allowed == 1);
    pthread_t thread;
    atomic_store(&ended, 0);
    CHECK(pthread_create(&thread, NULL, keep_using, limiter) == 0);
    unsigned long admitted = fork_children(limiter, nothing);
    CHECK(admitted == 299);
    atomic_store(&ended, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(check(limiter, "k", 1).allowed == 0 && check(limiter, "after", 1).allowed == 1);
    polylimit_limiter_free(limiter);
}

static void children_share_redis(void) { children_share_the_budget_of(redis_url()); }

static void children_share_a_local_store(void) {
    char path[64], url[96];
    snprintf(path, sizeof path, "/tmp/polylimit-c-forking-%d", (int)getpid());
    snprintf(url, sizeof url, "file://%s?size=1MiB", path);
    children_share_the_budget_of(url);
    CHECK(unlink(path) == 0);
}

static void children_have_their_own_memory_store(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "10/day fixed_window", NULL);
    CHECK(fork_children(limiter, check_leaks) == (unsigned long)children() * 10);
    CHECK(check(limiter, "k", 10).allowed == 1);
    polylimit_limiter_free(limiter);
}

static void completions_are_refused_in_a_child(void) {
    polylimit_clock *clock = NULL;
    OK(polylimit_clock_new(START_US, &clock, MESSAGE));
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute fixed_window", clock);
    polylimit_completions *completions = NULL;
    OK(polylimit_completions_open(&completions, MESSAGE));
    polylimit_request acquire = ask(POLYLIMIT_ACQUIRE, "k", 1);
    acquire.timeout_us = 3600000000;
    polylimit_result result;
    IS(POLYLIMIT_OK,
       polylimit_completions_submit(completions, limiter, &acquire, 1, &result, sizeof result, MESSAGE));
    IS(POLYLIMIT_PENDING,
       polylimit_completions_submit(completions, limiter, &acquire, 2, &result, sizeof result, MESSAGE));
    OK(polylimit_clock_advance(clock, 60000000, MESSAGE));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        size_t count = 0;
        IS(POLYLIMIT_INTERNAL,
           polylimit_completions_drain(completions, &result, sizeof result, 1, &count, MESSAGE));
        CHECK(strstr(message, "open others") != NULL && polylimit_completions_pending(completions) == 0);
        polylimit_completions *own = NULL;
        OK(polylimit_completions_open(&own, MESSAGE));
        polylimit_request request = ask(POLYLIMIT_CHECK, "other", 1);
        IS(POLYLIMIT_OK, polylimit_completions_submit(own, limiter, &request, 3, &result, sizeof result, MESSAGE));
        polylimit_completions_free(completions);
        polylimit_completions_free(own);
        polylimit_limiter_free(limiter);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    size_t count = 0;
    while (count == 0) {
        OK(polylimit_completions_drain(completions, &result, sizeof result, 1, &count, MESSAGE));
    }
    CHECK(result.tag == 2 && result.answer.decision.allowed == 1);
    polylimit_completions_free(completions);
    polylimit_limiter_free(limiter);
    polylimit_clock_free(clock);
}

int main(void) {
    static const struct test tests[] = {
        {"children share redis", children_share_redis},
        {"children share a local store", children_share_a_local_store},
        {"children have their own memory store", children_have_their_own_memory_store},
        {"completions are refused in a child", completions_are_refused_in_a_child},
    };
    RUN(tests);
}
