#include "test.h"

static uint32_t requests, asks_for;
static polylimit_pair retry_after;

static polylimit_pair field(const char *name, const char *value) {
    return (polylimit_pair){{name, strlen(name)}, {value, strlen(value)}};
}

/* Answers the first requests by 429. */
static response other(void *unused) {
    (void)unused;
    requests += 1;
    return requests <= asks_for ? (response){429, &retry_after, 1} : (response){200, NULL, 0};
}

int main(void) {
    polylimit_limiter *limiter = NULL;
    polylimit_throttle *throttle = NULL;
    bool sent = false;
    CHECK(!open_limiter(getenv("REDIS_URL"), &limiter, &throttle, message));
    retry_after = field("retry-after", "1");
    asks_for = 1;
    CHECK(!get(limiter, throttle, other, NULL, &sent, message));
    CHECK(sent && requests == 2);
    /* A wait of an hour is that of the caller: the response is returned, and the next request is not sent. */
    retry_after = field("retry-after", "3600");
    asks_for = 3;
    CHECK(!get(limiter, throttle, other, NULL, &sent, message));
    CHECK(sent && requests == 3);
    CHECK(!get(limiter, throttle, other, NULL, &sent, message));
    CHECK(!sent && requests == 3 && strstr(message, "the server asked for a wait of"));
    polylimit_throttle_free(throttle);
    polylimit_limiter_free(limiter);
    return 0;
}
