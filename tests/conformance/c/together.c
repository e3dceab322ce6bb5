#include "together.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_POLICIES 8
#define MOST_CHARGES 32
#define QUOTAS_SIZE 4096

#define MESSAGE run->message, sizeof run->message

struct run {
    const struct face *face;
    polylimit_clock *clock;
    polylimit_limiter *limiter;
    char prefix[128];
    char message[512];
    /* The keys of the requests of an operation. */
    char keys[MOST_CHARGES][256];
};

static const cJSON *field(const cJSON *object, const char *name) { return cJSON_GetObjectItemCaseSensitive(object, name); }

static const char *text(const cJSON *object, const char *name, const char *otherwise) {
    const char *given = cJSON_GetStringValue(field(object, name));
    return given ? given : otherwise;
}

static bool is(const cJSON *operation, const char *op) { return strcmp(text(operation, "op", ""), op) == 0; }

static bool open_case(struct run *run, const cJSON *item, const char *store) {
    static char quotas[MOST_POLICIES][QUOTAS_SIZE];
    char names[2 * MOST_POLICIES][80];
    polylimit_option options[2 * MOST_POLICIES];
    bool is_redis = strncmp(store, "redis", 5) == 0;
    size_t policies = 0, count = 0;
    const cJSON *policy;
    cJSON_ArrayForEach(policy, field(item, "policies")) {
        if (policies == MOST_POLICIES) {
            cases_die("it has too many policies", text(item, "name", "?"));
        }
        if (!cases_quotas(policy, quotas[policies], QUOTAS_SIZE, MESSAGE)) {
            return false;
        }
        snprintf(names[count], sizeof names[count], "policy.%s", policy->string);
        options[count] = (polylimit_option){names[count], quotas[policies++]};
        count++;
        /* What the store does not answer must not look as if it did. */
        if (is_redis) {
            snprintf(names[count], sizeof names[count], "outage.%s", policy->string);
            options[count] = (polylimit_option){names[count], "deny"};
            count++;
        }
    }
    const char *url = strcmp(store, "memory") == 0 ? "memory:" : store;
    return polylimit_clock_new(0, &run->clock, MESSAGE) == POLYLIMIT_OK &&
           polylimit_limiter_open(url, options, count, run->clock, &run->limiter, MESSAGE) == POLYLIMIT_OK;
}

/* A request about a key; `asked` has its policy, its key and its cost. */
static polylimit_request request(struct run *run, uint32_t operation, const cJSON *asked, int at) {
    polylimit_request request = {.size = sizeof request, .operation = operation, .cost = 1};
    cases_number(asked, "cost", &request.cost);
    snprintf(run->keys[at], sizeof run->keys[at], "%s %s", run->prefix, text(asked, "key", ""));
    request.policy = text(asked, "policy", NULL);
    request.key = run->keys[at];
    request.key_length = strlen(run->keys[at]);
    return request;
}

static cJSON *of_one(uint32_t operation, const polylimit_result *result) {
    cJSON *answer = cases_answer(operation, result, NULL);
    cJSON_DeleteItemFromObjectCaseSensitive(answer, "delay_us");
    return answer;
}

/* What the requests of an operation get together. NULL with a message in `run` when they are refused. */
static cJSON *of_request(struct run *run, const cJSON *operation) {
    uint32_t number = is(operation, "check_all")  ? POLYLIMIT_CHECK
                      : is(operation, "peek_all") ? POLYLIMIT_PEEK
                                                  : POLYLIMIT_RESERVE;
    const cJSON *charges = field(operation, "charges"), *charge;
    const char *id = text(operation, "id", "");
    polylimit_request requests[MOST_CHARGES];
    polylimit_decision decisions[MOST_CHARGES];
    int count = 0;
    cJSON_ArrayForEach(charge, charges) {
        if (count == MOST_CHARGES) {
            cases_die("it has too many charges", "an operation");
        }
        requests[count] = request(run, number, charge, count);
        requests[count].id = id;
        requests[count].id_length = strlen(id);
        cases_number(operation, "ttl_us", &requests[count].ttl_us);
        count++;
    }
    if (face_together(run->face, run->limiter, requests, (size_t)count, decisions, MESSAGE) != POLYLIMIT_OK) {
        return NULL;
    }
    cJSON *answer = cJSON_CreateObject(), *each = cJSON_CreateArray();
    bool allowed = true;
    uint64_t longest = 0;
    for (int at = 0; at < count; at++) {
        polylimit_result one = {.status = POLYLIMIT_OK};
        one.answer.decision = decisions[at];
        cJSON_AddItemToArray(each, of_one(number, &one));
        allowed = allowed && decisions[at].allowed != 0;
        /* POLYLIMIT_NEVER is the largest number. */
        longest = decisions[at].retry_after_us > longest ? decisions[at].retry_after_us : longest;
    }
    cJSON_AddBoolToObject(answer, "allowed", allowed);
    if (longest == POLYLIMIT_NEVER) {
        cJSON_AddNullToObject(answer, "retry_after_us");
    } else {
        cJSON_AddNumberToObject(answer, "retry_after_us", (double)longest);
    }
    cJSON_AddItemToObject(answer, "decisions", each);
    return answer;
}

/* What an operation gets. NULL with a message in `run` when it is refused. */
static cJSON *answer_of(struct run *run, const cJSON *operation) {
    if (field(operation, "charges")) {
        return of_request(run, operation);
    }
    uint32_t number = cases_operation(operation);
    polylimit_request asked = request(run, number, operation, 0);
    polylimit_result result;
    face_run(run->face, run->limiter, &asked, &result);
    if (result.status != POLYLIMIT_OK) {
        memcpy(run->message, result.message, sizeof result.message);
        return NULL;
    }
    cJSON *answer = of_one(number, &result);
    if (!field(field(operation, "expect"), "retry_after_us")) {
        cJSON_DeleteItemFromObjectCaseSensitive(answer, "retry_after_us");
    }
    return answer;
}

static bool step(struct run *run, const cJSON *operation) {
    uint64_t at_us = 0;
    cases_number(operation, "at_us", &at_us);
    if (polylimit_clock_set(run->clock, at_us, MESSAGE) != POLYLIMIT_OK) {
        return false;
    }
    cJSON *got = answer_of(run, operation);
    if (!got) {
        return false;
    }
    const cJSON *expected = field(operation, "expect");
    bool agrees = cJSON_Compare(got, expected, true);
    if (!agrees) {
        char *got_text = cJSON_PrintUnformatted(got), *expected_text = cJSON_PrintUnformatted(expected);
        snprintf(MESSAGE, "it differs");
        printf("  expected %s\n  got      %s\n", expected_text, got_text);
        free(got_text);
        free(expected_text);
    }
    cJSON_Delete(got);
    return agrees;
}

/* A manual clock's keys do not expire. */
static bool reset(struct run *run, const cJSON *asked) {
    polylimit_request reset = request(run, POLYLIMIT_RESET, asked, 0);
    polylimit_result result;
    face_run(run->face, run->limiter, &reset, &result);
    if (result.status != POLYLIMIT_OK) {
        memcpy(run->message, result.message, sizeof result.message);
    }
    return result.status == POLYLIMIT_OK;
}

bool together_run(const cJSON *item, const struct face *face, const char *store, int number) {
    struct run run = {.face = face, .clock = NULL, .limiter = NULL, .message = ""};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    /* A store that outlives this process has never seen such a key. */
    snprintf(run.prefix, sizeof run.prefix, "%s %lld.%09ld %d", face->name, (long long)now.tv_sec, now.tv_nsec, number);
    bool agrees = open_case(&run, item, store);
    const cJSON *ops = field(item, "ops"), *operation, *charge;
    int at = 0;
    if (agrees) {
        cJSON_ArrayForEach(operation, ops) {
            agrees = agrees && step(&run, operation);
            at += agrees;
        }
        cJSON_ArrayForEach(operation, ops) {
            cJSON_ArrayForEach(charge, field(operation, "charges")) { agrees = agrees && reset(&run, charge); }
            agrees = agrees && (field(operation, "charges") || reset(&run, operation));
        }
    }
    if (!agrees) {
        printf("%s %s: case \"%s\", operation %d: %s\n", face->name, store, text(item, "name", "?"), at, run.message);
    }
    polylimit_limiter_free(run.limiter);
    polylimit_clock_free(run.clock);
    return agrees;
}
