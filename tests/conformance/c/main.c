/*
 * Runs a file of conformance cases through the C interface, and prints how many cases agree.
 *
 * Usage: run FILE STORE, where STORE is "memory" or the URL of a store.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cases.h"
#include "face.h"
#include "policies.h"
#include "together.h"

#define QUOTAS_SIZE 4096

/* A case that runs: its limiter, its clock and its key. */
struct run {
    const struct face *face;
    const char *store;
    const char *case_name;
    polylimit_clock *clock;
    polylimit_limiter *limiter;
    char key[128];
    char message[512];
};

static void report(const struct run *run, int at, const char *what) {
    printf("%s %s: case \"%s\", operation %d: %s\n", run->face->name, run->store, run->case_name, at, what);
}

static bool refused(const struct run *run, int at) {
    char what[600];
    snprintf(what, sizeof what, "refused: %s", run->message);
    report(run, at, what);
    return false;
}

static polylimit_request request(const struct run *run, uint32_t operation, uint64_t cost) {
    polylimit_request request = {.size = sizeof request, .operation = operation, .cost = cost};
    request.key = run->key;
    request.key_length = strlen(run->key);
    return request;
}

static bool open_case(struct run *run, const cJSON *item) {
    char quotas[QUOTAS_SIZE];
    if (!cases_quotas(cJSON_GetObjectItemCaseSensitive(item, "quotas"), quotas, sizeof quotas, run->message,
                      sizeof run->message)) {
        return false;
    }
    /* What the store does not answer must not look as if it did. */
    polylimit_option options[] = {{"policy.case", quotas}, {"outage.case", "deny"}};
    const char *url = strcmp(run->store, "memory") == 0 ? "memory:" : run->store;
    size_t count = strncmp(url, "redis", 5) == 0 ? 2 : 1;
    return polylimit_clock_new(0, &run->clock, run->message, sizeof run->message) == POLYLIMIT_OK &&
           polylimit_limiter_open(url, options, count, run->clock, &run->limiter, run->message, sizeof run->message) ==
               POLYLIMIT_OK;
}

static bool change(struct run *run, const cJSON *operation) {
    char quotas[QUOTAS_SIZE];
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(operation, "quotas");
    if (!given) {
        cases_die("a change without quotas", run->case_name);
    }
    return cases_quotas(given, quotas, sizeof quotas, run->message, sizeof run->message) &&
           polylimit_limiter_set_policy(run->limiter, "case", quotas, run->message, sizeof run->message) ==
               POLYLIMIT_OK;
}

static bool step(struct run *run, const cJSON *operation, int at) {
    uint64_t at_us = 0, cost = 1;
    cases_number(operation, "at_us", &at_us);
    cases_number(operation, "cost", &cost);
    if (polylimit_clock_set(run->clock, at_us, run->message, sizeof run->message) != POLYLIMIT_OK) {
        return refused(run, at);
    }
    uint32_t number = cases_operation(operation);
    if (number == 0) {
        return change(run, operation) || refused(run, at);
    }
    polylimit_request asked = request(run, number, cost);
    const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(operation, "id"));
    asked.id = id ? id : "";
    asked.id_length = id ? strlen(id) : 0;
    cases_number(operation, "ttl_us", &asked.ttl_us);
    cases_number(operation, "remember_us", &asked.remember_us);
    polylimit_result result;
    face_run(run->face, run->limiter, &asked, &result);
    if (result.status != POLYLIMIT_OK) {
        memcpy(run->message, result.message, sizeof result.message);
        return refused(run, at);
    }
    cJSON *nothing = cJSON_CreateObject();
    const cJSON *expected = cJSON_GetObjectItemCaseSensitive(operation, "expect");
    expected = expected ? expected : nothing;
    cJSON *got = cases_answer(number, &result, expected);
    bool agrees = cJSON_Compare(got, expected, true);
    if (!agrees) {
        char *got_text = cJSON_PrintUnformatted(got);
        char *expected_text = cJSON_PrintUnformatted(expected);
        report(run, at, "it differs");
        printf("  expected %s\n  got      %s\n", expected_text, got_text);
        free(got_text);
        free(expected_text);
    }
    cJSON_Delete(got);
    cJSON_Delete(nothing);
    return agrees;
}

/* Whether all operations of a case agree. It ends at the first difference: the operations after it build on it. */
static bool run_case(struct run *run, const cJSON *item) {
    bool agrees = open_case(run, item) || refused(run, 0);
    if (run->limiter) {
        const cJSON *operation;
        int at = 0;
        cJSON_ArrayForEach(operation, cJSON_GetObjectItemCaseSensitive(item, "ops")) {
            agrees = agrees && step(run, operation, at);
            at += agrees;
        }
        /* A manual clock's keys do not expire. */
        polylimit_request reset = request(run, POLYLIMIT_RESET, 0);
        polylimit_result result;
        face_run(run->face, run->limiter, &reset, &result);
        if (result.status != POLYLIMIT_OK) {
            memcpy(run->message, result.message, sizeof result.message);
            agrees = refused(run, at);
        }
    }
    polylimit_limiter_free(run->limiter);
    polylimit_clock_free(run->clock);
    return agrees;
}

static bool run_file(const cJSON *cases, uint64_t format, const struct face *face, const char *store) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int agreed = 0, number = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, cases) {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "name"));
        struct run run = {.face = face, .store = store, .case_name = name ? name : "?"};
        /* A store that outlives this process has never seen such a key. */
        snprintf(run.key, sizeof run.key, "%s %lld.%09ld %d", face->name, (long long)now.tv_sec, now.tv_nsec,
                 number++);
        if (cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(item, "ops")) == 0) {
            cases_die("it has no operations", run.case_name);
        }
        agreed += format == 5   ? together_run(item, face, store, number)
                  : format == 3 ? policies_run(item, face, store, number)
                                : run_case(&run, item);
    }
    if (number == 0) {
        cases_die("it has no case", "the file");
    }
    printf("%s %s: %d of %d cases agree\n", face->name, store, agreed, number);
    return agreed == number;
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: run FILE STORE\n");
        return 2;
    }
    cJSON *json = cases_read(arguments[1]);
    const cJSON *cases = cJSON_GetObjectItemCaseSensitive(json, "cases");
    struct face blocking = {.name = "c", .completions = NULL};
    struct face completed = {.name = "c (completions)", .completions = NULL};
    char message[256];
    if (polylimit_completions_open(&completed.completions, message, sizeof message) != POLYLIMIT_OK) {
        cases_die(message, "completions");
    }
    uint64_t format = 0;
    cases_number(json, "format", &format);
    bool agrees = run_file(cases, format, &blocking, arguments[2]);
    agrees = run_file(cases, format, &completed, arguments[2]) && agrees;
    polylimit_completions_free(completed.completions);
    cJSON_Delete(json);
    return agrees ? 0 : 1;
}
