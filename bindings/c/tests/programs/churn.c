/* Opens, uses and closes limiters, and holds no more threads, descriptors and memory afterwards: churn [COUNT]. */
#include "check.h"

#include <dirent.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Memory that the allocator may retain. */
enum { RETAINED_BYTES = 8 << 20, DEFAULT_COUNT = 500, PATIENCE_MS = 10000 };

static long count = DEFAULT_COUNT;

static long entries(const char *folder) {
    DIR *opened = opendir(folder);
    CHECK(opened != NULL);
    long found = 0;
    while (readdir(opened) != NULL) {
        found++;
    }
    closedir(opened);
    return found;
}

static long resident_bytes(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0, resident = 0;
    CHECK(file != NULL && fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

static void use(long times, const char *url) {
    for (long at = 0; at < times; at++) {
        polylimit_option options[] = {{"policy.api", "1000000/hour"}};
        polylimit_limiter *limiter = NULL;
        OK(polylimit_limiter_open(url, options, 1, NULL, &limiter, MESSAGE));
        CHECK(check(limiter, "churn", 1).allowed);
        polylimit_limiter_free(limiter);
    }
}

static void churn(const char *url) {
    use(20, url);
    long threads = entries("/proc/self/task"), files = entries("/proc/self/fd"), bytes = resident_bytes();
    use(count, url);
    /* Threads and connections of the last one end in the background. */
    for (long waited = 0; entries("/proc/self/task") > threads || entries("/proc/self/fd") > files; waited++) {
        CHECK(waited < PATIENCE_MS);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    CHECK(resident_bytes() <= bytes + RETAINED_BYTES);
}

static void closed_limiters_of_memory_leave_nothing(void) { churn("memory:"); }

static void closed_limiters_of_redis_leave_nothing(void) { churn(redis_url()); }

int main(int arguments, char **argument) {
    count = arguments > 1 ? atol(argument[1]) : DEFAULT_COUNT;
    static const struct test tests[] = {
        {"closed limiters of memory leave nothing", closed_limiters_of_memory_leave_nothing},
        {"closed limiters of Redis leave nothing", closed_limiters_of_redis_leave_nothing},
    };
    RUN(tests);
}
