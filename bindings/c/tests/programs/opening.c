/* Thousands of limiters are opened, used and freed; no thread, descriptor or memory may remain. */
#include "check.h"

#include <dirent.h>
#include <unistd.h>

static long entries(const char *path) {
    long count = 0;
    DIR *directory = opendir(path);
    CHECK(directory != NULL);
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

static long resident_kib(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void open_and_free(const char *url, int times) {
    for (int at = 0; at < times; at++) {
        polylimit_limiter *limiter = open_limiter(url, "5/minute", NULL);
        polylimit_completions *completions = NULL;
        OK(polylimit_completions_open(&completions, MESSAGE));
        polylimit_request request = ask(POLYLIMIT_CHECK, "k", 1);
        polylimit_result result;
        polylimit_status status = polylimit_completions_submit(completions, limiter, &request, 1, &result,
                                                               sizeof result, MESSAGE);
        CHECK(status == POLYLIMIT_OK || status == POLYLIMIT_PENDING);
        if (at % 2 == 0) {
            check(limiter, "k", 1);
        }
        polylimit_completions_free(completions);
        polylimit_limiter_free(limiter);
    }
}

/* Threads of a freed limiter end a moment later. */
static long settled(const char *path, long wanted) {
    long count = entries(path);
    for (int tries = 0; count > wanted && tries < 5000; tries++) {
        usleep(2000);
        count = entries(path);
    }
    return count;
}

static void check_that_nothing_leaks_on(const char *url, int times) {
    open_and_free(url, times / 10);
    long threads = settled("/proc/self/task", 3), descriptors = settled("/proc/self/fd", 5);
    long before_kib = resident_kib();
    open_and_free(url, times);
    CHECK(settled("/proc/self/task", threads) <= threads);
    CHECK(settled("/proc/self/fd", descriptors) <= descriptors);
    long grown_kib = resident_kib() - before_kib;
    fprintf(stderr, "%d limiters: %ld KiB more ", times, grown_kib);
    /* The allowance is less than the size of the handles, and covers memory that the allocator keeps. */
    CHECK(grown_kib < 4096);
}

static void opening_ten_thousand_memory_limiters_leaks_nothing(void) { check_that_nothing_leaks_on("memory:", 10000); }

static void opening_ten_thousand_local_limiters_leaks_nothing(void) {
    char path[64], url[96];
    snprintf(path, sizeof path, "/tmp/polylimit-c-opening-%d", (int)getpid());
    snprintf(url, sizeof url, "file://%s?size=1MiB", path);
    check_that_nothing_leaks_on(url, 10000);
    CHECK(unlink(path) == 0);
}

static void opening_a_thousand_redis_limiters_leaks_nothing(void) { check_that_nothing_leaks_on(redis_url(), 1000); }

int main(void) {
    static const struct test tests[] = {
        {"opening ten thousand memory limiters leaks nothing", opening_ten_thousand_memory_limiters_leaks_nothing},
        {"opening ten thousand local limiters leaks nothing", opening_ten_thousand_local_limiters_leaks_nothing},
        {"opening a thousand redis limiters leaks nothing", opening_a_thousand_redis_limiters_leaks_nothing},
    };
    RUN(tests);
}
