/* Events of a limiter: its server is suspended and resumed, and its doctor has findings. */
#include "server.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

/* All events so far, one on a line. It is read under the lock, or when no event can arrive. */
struct events {
    pthread_mutex_t lock;
    int count;
    char text[4096];
};

static void record_event(const polylimit_degraded_event *event, void *context) {
    struct events *events = context;
    CHECK(pthread_mutex_lock(&events->lock) == 0);
    size_t used = strlen(events->text);
    snprintf(events->text + used, sizeof events->text - used, "%s|%s|%d|%d|%s|%s|%s\n", event->kind,
             event->reason != NULL ? event->reason : "-", event->lasted_us > 0, event->decisions >= 10, event->severity,
             event->subject != NULL ? event->subject : "-", event->message);
    events->count++;
    CHECK(pthread_mutex_unlock(&events->lock) == 0);
}

static int count(struct events *events) {
    CHECK(pthread_mutex_lock(&events->lock) == 0);
    int count = events->count;
    CHECK(pthread_mutex_unlock(&events->lock) == 0);
    return count;
}

/* Whether a line starts with one of two texts. */
static const char *begins(const char *line, const char *one, const char *other) {
    CHECK(strncmp(line, one, strlen(one)) == 0 || strncmp(line, other, strlen(other)) == 0);
    const char *end = strchr(line, '\n');
    CHECK(end != NULL);
    return end + 1;
}

static polylimit_limiter *open_with(const char *deadline, const char *doctor_after, struct events *events) {
    polylimit_option options[] = {
        {"policy.api", "1000000/hour"}, {"deadline", deadline}, {"doctor_after", doctor_after}};
    polylimit_limiter *limiter = NULL;
    OK(polylimit_limiter_open(bare_url(), options, 3, NULL, &limiter, MESSAGE));
    OK(polylimit_limiter_set_on_degraded(limiter, record_event, events, MESSAGE));
    return limiter;
}

static void until(const polylimit_limiter *limiter, struct events *events, int wanted) {
    for (int tries = 0; count(events) < wanted; tries++) {
        CHECK(tries < 2000);
        check(limiter, "a key that nobody sees", 1);
        usleep(10000);
    }
}

static void outage_raises_an_event_when_it_begins_and_when_it_ends(void) {
    struct events events = {.lock = PTHREAD_MUTEX_INITIALIZER};
    polylimit_limiter *limiter = open_with("500ms", "0", &events);
    pid_t pid = server();
    CHECK(strcmp(polylimit_source_name(check(limiter, "k", 1).source), "store") == 0 && count(&events) == 0);
    CHECK(kill(pid, SIGSTOP) == 0);
    for (int at = 0; at < 10; at++) {
        CHECK(strcmp(polylimit_source_name(check(limiter, "k", 1).source), "fallback") == 0);
    }
    CHECK(kill(pid, SIGCONT) == 0);
    CHECK(count(&events) == 1);
    until(limiter, &events, 2);
    polylimit_limiter_free(limiter);
    const char *rest = begins(events.text, "started|timeout|0|0|problem|-|the limiter decides without its store",
                              "started|unreachable|0|0|problem|-|the limiter decides without its store");
    rest = begins(rest, "ended|timeout|1|1|fine|-|the limiter decides with its store again",
                  "ended|unreachable|1|1|fine|-|the limiter decides with its store again");
    CHECK(*rest == 0 && strstr(events.text, "nobody") == NULL && strstr(events.text, ", prefix ") != NULL);
}

static void finding_of_the_doctor_raises_an_event(void) {
    struct events events = {.lock = PTHREAD_MUTEX_INITIALIZER};
    char command[512];
    snprintf(command, sizeof command,
             "redis-cli -u %s config set maxmemory 1gb maxmemory-policy allkeys-lru >/dev/null", bare_url());
    CHECK(system(command) == 0);
    polylimit_limiter *limiter = open_with("10s", "1ms", &events);
    until(limiter, &events, 1);
    polylimit_limiter_free(limiter);
    const char *finding = "finding|-|0|0|problem|memory|";
    const char *rest = begins(events.text, finding, finding);
    CHECK(*rest == 0 && strstr(events.text, "allkeys-lru") != NULL);
}

static void new_function_replaces_the_previous_one(void) {
    struct events first = {.lock = PTHREAD_MUTEX_INITIALIZER}, second = {.lock = PTHREAD_MUTEX_INITIALIZER};
    polylimit_option options[] = {{"policy.api", "5/minute"}, {"max_keys", "1"}};
    for (int way = 0; way < 3; way++) {
        polylimit_limiter *limiter = NULL;
        OK(polylimit_limiter_open("memory:", options, 2, NULL, &limiter, MESSAGE));
        OK(polylimit_limiter_set_on_degraded(limiter, record_event, &first, MESSAGE));
        if (way > 0) {
            OK(polylimit_limiter_set_on_degraded(limiter, way == 1 ? record_event : NULL, &second, MESSAGE));
        }
        check(limiter, "one", 1);
        check(limiter, "another", 1);
        polylimit_limiter_free(limiter);
    }
    CHECK(count(&first) == 1 && count(&second) == 1 && strcmp(first.text, second.text) == 0);
    CHECK(strncmp(first.text, "started|store_full|", 19) == 0);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_set_on_degraded(NULL, record_event, NULL, MESSAGE));
}

int main(void) {
    const struct test tests[] = {
        {"outage_raises_an_event_when_it_begins_and_when_it_ends", outage_raises_an_event_when_it_begins_and_when_it_ends},
        {"finding_of_the_doctor_raises_an_event", finding_of_the_doctor_raises_an_event},
        {"new_function_replaces_the_previous_one", new_function_replaces_the_previous_one},
    };
    RUN(tests);
}
