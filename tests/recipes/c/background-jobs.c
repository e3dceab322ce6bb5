#include "test.h"

static polylimit_limiter *limiter;
static bool second_ran, third_ran, other_ran;

static bool tried(const char *tenant, void (*job)(void *), uint64_t timeout_us) {
    bool ran = false;
    CHECK(!run(limiter, tenant, job, NULL, timeout_us, &ran, message));
    return ran;
}

static void nothing(void *unused) { (void)unused; }

static void second(void *unused) {
    (void)unused;
    third_ran = tried("acme", nothing, 0);
    other_ran = tried("globex", nothing, 0);
}

static void first(void *unused) {
    (void)unused;
    second_ran = tried("acme", second, 0);
}

int main(void) {
    CHECK(!open_limiter(getenv("REDIS_URL"), &limiter, message));
    CHECK(tried("acme", first, 0));
    CHECK(second_ran && !third_ran && other_ran);
    /* Slots come back in the background. */
    CHECK(tried("acme", nothing, 60000000));
    polylimit_limiter_free(limiter);
    return 0;
}
