/* Thousands of limiters opened, used and freed leave nothing behind: no thread, no descriptor, no memory. */
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

/* Threads of a limiter that was freed end by themselves, soon. */
static long settled(const char *path, long wanted) {
    long count = entries(path);
    for (int tries = 0; count > wanted && tries < 5000; tries++) {
        usleep(2000);
        count = entries(path);
    }
    return count;
}

static void nothing_grows_on(const char *url, int times) {
    open_and_free(url, times / 10);
    long threads = settled("/proc/self/task", 3), descriptors = settled("/proc/self/fd", 5);
    long before_kib = resident_kib();
    open_and_free(url, times);
    CHECK(settled("/proc/self/task", threads) <= threads);
    CHECK(settled("/proc/self/fd", descriptors) <= descriptors);
    long grown_kib = resident_kib() - before_kib;
    fprintf(stderr, "%d limiters: %ld KiB more ", times, grown_kib);
    /* Less than a byte for every byte that a handle has: what remains is the allocator's. */
    CHECK(grown_kib < 4096);
}

static void ten_thousand_on_memory(void) { nothing_grows_on("memory:", 10000); }

static void ten_thousand_on_local(void) {
    char path[64], url[96];
    snprintf(path, sizeof path, "/tmp/polylimit-c-opening-%d", (int)getpid());
    snprintf(url, sizeof url, "file://%s?size=1MiB", path);
    nothing_grows_on(url, 10000);
    CHECK(unlink(path) == 0);
}

static void a_thousand_on_redis(void) { nothing_grows_on(redis_url(), 1000); }

int main(void) {
    static const struct test tests[] = {
        {"ten thousand on memory", ten_thousand_on_memory},
        {"ten thousand on local", ten_thousand_on_local},
        {"a thousand on redis", a_thousand_on_redis},
    };
    RUN(tests);
}
