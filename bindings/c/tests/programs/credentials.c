/* Credentials that a function gives: they change, fail, block and are released. */
#include "server.h"

#include <pthread.h>
#include <stdarg.h>
#include <unistd.h>

/* Runs a command of redis-cli on the server for tests. */
static void redis(const char *format, ...) {
    char command[512];
    int length = snprintf(command, sizeof command, "redis-cli -u %s ", bare_url());
    va_list words;
    va_start(words, format);
    length += vsnprintf(command + length, sizeof command - (size_t)length, format, words);
    va_end(words);
    length += snprintf(command + length, sizeof command - (size_t)length, " >/dev/null 2>&1");
    CHECK((size_t)length < sizeof command && system(command) == 0);
}

/* What the function gives, and what it has noticed. */
struct given {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const char *username, *password, *failure;
    int is_blocked, is_silent;
    int calls, running, released;
};

#define GIVEN(...) {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, __VA_ARGS__}

static void give(polylimit_credentials *credentials, void *context) {
    struct given *given = context;
    char message[512] = "", password[32] = "";
    CHECK(pthread_mutex_lock(&given->lock) == 0);
    CHECK(given->released == 0 && given->running == 0);
    given->calls++;
    given->running = 1;
    while (given->is_blocked) {
        CHECK(pthread_cond_wait(&given->changed, &given->lock) == 0);
    }
    if (given->failure != NULL) {
        polylimit_credentials_fail(credentials, given->failure);
    } else if (!given->is_silent && given->password == NULL) {
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_credentials_set(credentials, given->username, NULL, MESSAGE));
        CHECK(strcmp(message, "password is NULL") == 0);
    } else if (!given->is_silent) {
        snprintf(password, sizeof password, "%s", given->password);
        OK(polylimit_credentials_set(credentials, given->username, password, MESSAGE));
        memset(password, '#', sizeof password);
    }
    given->running = 0;
    CHECK(pthread_mutex_unlock(&given->lock) == 0);
}

static void release(void *context) {
    struct given *given = context;
    CHECK(pthread_mutex_lock(&given->lock) == 0);
    CHECK(given->running == 0);
    given->released++;
    CHECK(pthread_mutex_unlock(&given->lock) == 0);
}

static void set(struct given *given, const char *password, int is_blocked) {
    CHECK(pthread_mutex_lock(&given->lock) == 0);
    given->password = password;
    given->is_blocked = is_blocked;
    CHECK(pthread_cond_broadcast(&given->changed) == 0);
    CHECK(pthread_mutex_unlock(&given->lock) == 0);
}

static int read_count(struct given *given, const int *count) {
    CHECK(pthread_mutex_lock(&given->lock) == 0);
    int read = *count;
    CHECK(pthread_mutex_unlock(&given->lock) == 0);
    return read;
}

static int released(struct given *given) { return read_count(given, &given->released); }

static polylimit_limiter *open_with(struct given *given, const char *deadline, const char *first_connect_max) {
    polylimit_option options[] = {{"policy.api", "1000000/hour"}, {"deadline", deadline},  {"doctor_after", "0"},
                                  {"outage", "deny"},             {"first_connect_max", first_connect_max}};
    polylimit_limiter *limiter = NULL;
    OK(polylimit_limiter_open_with_credentials(bare_url(), options, 5, NULL, give, given, release, &limiter, MESSAGE));
    return limiter;
}

/* Whether the store decides; nothing else than a lost connection may be why it does not. */
static int is_by_store(const polylimit_limiter *limiter) {
    polylimit_decision decision = check(limiter, "k", 1);
    const char *degraded = polylimit_degradation_name(decision.degraded);
    CHECK(degraded == NULL || strcmp(degraded, "auth") != 0);
    return strcmp(polylimit_source_name(decision.source), "store") == 0;
}

static void free_and_wait(polylimit_limiter *limiter, struct given *given) {
    polylimit_limiter_free(limiter);
    for (int tries = 0; released(given) == 0; tries++) {
        CHECK(tries < 3000);
        usleep(10000);
    }
    CHECK(released(given) == 1);
}

static void changed_password_is_used_without_a_refused_decision(void) {
    const char *passwords[] = {"one", "two", "three", "four"};
    struct given given = GIVEN(.username = "limits", .password = passwords[0]);
    redis("acl setuser limits reset on '>%s' '~*' '&*' +@all", passwords[0]);
    polylimit_limiter *limiter = open_with(&given, "5s", "5s");
    CHECK(is_by_store(limiter));
    for (int at = 1; at < 4; at++) {
        redis("acl setuser limits '>%s'", passwords[at]);
        set(&given, passwords[at], 0);
        redis("acl setuser limits '<%s'", passwords[at - 1]);
        redis("client kill user limits");
        for (int tries = 0; !is_by_store(limiter); tries++) {
            CHECK(tries < 2000);
            usleep(10000);
        }
        for (int decisions = 0; decisions < 50; decisions++) {
            CHECK(is_by_store(limiter));
        }
    }
    CHECK(read_count(&given, &given.calls) >= 4 && released(&given) == 0);
    free_and_wait(limiter, &given);
}

static void password_alone_is_that_of_the_default_user(void) {
    struct given given = GIVEN(.password = "word");
    redis("config set requirepass word");
    polylimit_limiter *limiter = open_with(&given, "5s", "5s");
    CHECK(is_by_store(limiter));
    redis("-a word config set requirepass \"''\"");
    free_and_wait(limiter, &given);
}

static void failure_of_the_function_is_the_cause(void) {
    struct given failing[] = {
        GIVEN(.failure = "the token service is away"),
        GIVEN(.username = "limits"),
        GIVEN(.is_silent = 1),
    };
    const char *causes[] = {"gives no password: the token service is away", "gives no password: password is NULL",
                            "gives no password: it has given nothing"};
    for (size_t at = 0; at < 3; at++) {
        polylimit_limiter *limiter = open_with(&failing[at], "5s", "5s");
        polylimit_decision decision = check(limiter, "k", 1);
        CHECK(strcmp(polylimit_source_name(decision.source), "deny") == 0);
        CHECK(strcmp(polylimit_degradation_name(decision.degraded), "auth") == 0);
        char found[4096];
        IS(POLYLIMIT_STORE_UNAVAILABLE, polylimit_limiter_ready(limiter, 30000000, MESSAGE));
        CHECK(strstr(message, "function credentials") != NULL && strstr(message, causes[at]) != NULL);
        OK(polylimit_admin_doctor(limiter, found, sizeof found, NULL, MESSAGE));
        CHECK(strncmp(found, "problem: ", 9) == 0 && strstr(found, causes[at]) != NULL);
        free_and_wait(limiter, &failing[at]);
    }
}

static void function_that_blocks_delays_no_decision_and_no_free(void) {
    redis("acl setuser limits reset on '>four' '~*' '&*' +@all");
    for (int is_answered = 0; is_answered < 2; is_answered++) {
        struct given given = GIVEN(.username = "limits", .password = "four", .is_blocked = 1);
        polylimit_limiter *limiter = open_with(&given, "50ms", "0");
        for (int decisions = 0; decisions < 5; decisions++) {
            CHECK(strcmp(polylimit_source_name(check(limiter, "k", 1).source), "deny") == 0);
        }
        if (is_answered) {
            set(&given, "four", 0);
            for (int tries = 0; strcmp(polylimit_source_name(check(limiter, "k", 1).source), "store") != 0; tries++) {
                CHECK(tries < 2000);
                usleep(10000);
            }
            free_and_wait(limiter, &given);
        } else {
            /* The call outlives the limiter, and the context the call. */
            polylimit_limiter_free(limiter);
            CHECK(released(&given) == 0);
            set(&given, "four", 0);
            free_and_wait(NULL, &given);
        }
    }
}

static void function_is_released_where_it_is_not_called(void) {
    struct given given = GIVEN(.password = "word");
    polylimit_option options[] = {{"policy.api", "1/s"}};
    polylimit_limiter *limiter = NULL;
    OK(polylimit_limiter_open_with_credentials("memory:", options, 1, NULL, give, &given, release, &limiter, MESSAGE));
    check(limiter, "k", 1);
    free_and_wait(limiter, &given);
    CHECK(read_count(&given, &given.calls) == 0);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_open_with_credentials("nowhere", options, 1, NULL, give, &given,
                                                                          release, &limiter, MESSAGE));
    CHECK(released(&given) == 2);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_open_with_credentials("memory:", options, 1, NULL, NULL, &given,
                                                                          release, &limiter, MESSAGE));
    CHECK(strcmp(message, "give_credentials is NULL") == 0 && released(&given) == 3);
    OK(polylimit_limiter_open_with_credentials("memory:", options, 1, NULL, give, NULL, NULL, &limiter, MESSAGE));
    polylimit_limiter_free(limiter);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_credentials_set(NULL, NULL, "word", MESSAGE));
    polylimit_credentials_fail(NULL, NULL);
}

int main(void) {
    const struct test tests[] = {
        {"changed_password_is_used_without_a_refused_decision", changed_password_is_used_without_a_refused_decision},
        {"password_alone_is_that_of_the_default_user", password_alone_is_that_of_the_default_user},
        {"failure_of_the_function_is_the_cause", failure_of_the_function_is_the_cause},
        {"function_that_blocks_delays_no_decision_and_no_free", function_that_blocks_delays_no_decision_and_no_free},
        {"function_is_released_where_it_is_not_called", function_is_released_where_it_is_not_called},
    };
    RUN(tests);
}
