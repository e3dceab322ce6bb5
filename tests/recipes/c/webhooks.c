#include "test.h"

static uint32_t requests;

/* The first delivery fails. */
static bool post(void *unused) {
    (void)unused;
    requests += 1;
    return requests > 1;
}

int main(void) {
    polylimit_limiter *limiter = NULL;
    polylimit_usage usage = {.size = sizeof usage};
    const uint64_t expected[] = {60000000, 0, 0};
    const char host[] = "busy.example";
    uint64_t again_us = 1;
    CHECK(!open_limiter(getenv("REDIS_URL"), &limiter, message));
    for (size_t number = 0; number < 3; number++) {
        CHECK(!deliver(limiter, host, post, NULL, &again_us, message));
        CHECK(again_us == expected[number]);
    }
    CHECK(!polylimit_limiter_charge(limiter, "webhook", host, strlen(host), 80, &usage, message, sizeof message));
    CHECK(!deliver(limiter, host, post, NULL, &again_us, message));
    CHECK(again_us > 10000000 && requests == 3);
    polylimit_limiter_free(limiter);
    return 0;
}
