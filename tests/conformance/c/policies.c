#include "policies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Monday 2026-09-21, from which the times of the cases count. */
#define START_US 1789948800000000

#define MESSAGE run->message, sizeof run->message

struct run {
    const struct face *face;
    polylimit_clock *clock;
    polylimit_limiter *limiter;
    polylimit_status status;
    char message[4096];
};

static const cJSON *field(const cJSON *object, const char *name) { return cJSON_GetObjectItemCaseSensitive(object, name); }

static const char *text(const cJSON *object, const char *name, const char *otherwise) {
    const char *given = cJSON_GetStringValue(field(object, name));
    return given ? given : otherwise;
}

static uint64_t number(const cJSON *object, const char *name, uint64_t otherwise) {
    cases_number(object, name, &otherwise);
    return otherwise;
}

static void add_number(cJSON *object, const char *name, uint64_t value) { cJSON_AddNumberToObject(object, name, (double)value); }

/* A wait; POLYLIMIT_NEVER is null. */
static void add_wait(cJSON *object, const char *name, uint64_t wait_us) {
    wait_us == POLYLIMIT_NEVER ? (void)cJSON_AddNullToObject(object, name) : add_number(object, name, wait_us);
}

static void add_cause(cJSON *object, uint32_t cause) {
    const char *name = polylimit_cause_name(cause);
    name ? (void)cJSON_AddStringToObject(object, "cause", name) : (void)cJSON_AddNullToObject(object, "cause");
}

static void add_bytes(cJSON *object, const char *name, const void *start, size_t length) {
    char *copy = calloc(length + 1, 1);
    if (!copy) {
        cases_die("there is no memory", name);
    }
    if (length > 0) {
        memcpy(copy, start, length);
    }
    cJSON_AddStringToObject(object, name, copy);
    free(copy);
}

/* Whether everything that is expected is there and equal; `about` is part of the message. */
static bool agrees(const cJSON *expected, const cJSON *got) {
    if (cJSON_IsArray(expected)) {
        bool same = cJSON_IsArray(got) && cJSON_GetArraySize(got) == cJSON_GetArraySize(expected);
        for (int at = 0; same && at < cJSON_GetArraySize(expected); at++) {
            same = agrees(cJSON_GetArrayItem(expected, at), cJSON_GetArrayItem(got, at));
        }
        return same;
    }
    if (!cJSON_IsObject(expected)) {
        return cJSON_Compare(expected, got, true);
    }
    const cJSON *item;
    cJSON_ArrayForEach(item, expected) {
        const cJSON *found = field(got, item->string);
        if (strcmp(item->string, "about") == 0) {
            if (!cJSON_IsString(found) || !strstr(found->valuestring, item->valuestring)) {
                return false;
            }
        } else if (!found || !agrees(item, found)) {
            return false;
        }
    }
    return true;
}

static void add_decision(cJSON *answer, const polylimit_decision *decision) {
    cJSON_AddBoolToObject(answer, "allowed", decision->allowed != 0);
    add_number(answer, "remaining", decision->remaining);
    add_wait(answer, "retry_after_us", decision->retry_after_us);
    add_number(answer, "reset_after_us", decision->reset_after_us);
    add_number(answer, "delay_us", decision->delay_us);
    add_number(answer, "over", decision->over);
    cJSON_AddBoolToObject(answer, "crossed", decision->crossed != 0);
    cJSON_AddBoolToObject(answer, "elastic", decision->elastic != 0);
    cJSON_AddBoolToObject(answer, "shadowed", decision->shadowed != 0);
    add_cause(answer, decision->cause);
}

static cJSON *operate(struct run *run, const cJSON *operation, uint32_t operation_number) {
    polylimit_request request = {.size = sizeof request, .operation = operation_number};
    const char *key = text(operation, "key", "k"), *id = text(operation, "id", "");
    request.policy = text(operation, "policy", "p");
    request.key = key;
    request.key_length = strlen(key);
    request.cost = number(operation, "cost", 1);
    request.headroom = (uint32_t)number(operation, "headroom", 0);
    request.plan = text(operation, "plan", NULL);
    request.id = id;
    request.id_length = strlen(id);
    request.ttl_us = number(operation, "ttl_us", number(operation, "for_us", 0));
    polylimit_result result;
    face_run(run->face, run->limiter, &request, &result);
    run->status = result.status;
    if (result.status != POLYLIMIT_OK) {
        memcpy(run->message, result.message, sizeof result.message);
        return NULL;
    }
    cJSON *answer = cases_answer(operation_number, &result, NULL);
    bool decides = cJSON_HasObjectItem(answer, "allowed");
    if (decides) {
        cJSON_Delete(answer);
        answer = cJSON_CreateObject();
        add_decision(answer, &result.answer.decision);
    }
    return answer;
}

static cJSON *told(struct run *run) {
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddBoolToObject(answer, "ok", run->status == POLYLIMIT_OK);
    if (run->status != POLYLIMIT_OK) {
        unsigned long line = 0;
        if (sscanf(run->message, "line %lu", &line) == 1) {
            add_number(answer, "line", line);
        }
        cJSON_AddStringToObject(answer, "about", run->message);
    }
    return answer;
}

static cJSON *configure(struct run *run, const cJSON *operation) {
    const char *given = text(operation, "text", NULL);
    char *printed = given ? NULL : cJSON_PrintUnformatted(field(operation, "document"));
    run->status = polylimit_admin_set_document(run->limiter, given ? given : printed, NULL, MESSAGE);
    free(printed);
    return told(run);
}

static cJSON *change_entry(struct run *run, const cJSON *operation) {
    const char *set = text(operation, "set", NULL);
    char *value = cJSON_PrintUnformatted(field(operation, "value"));
    if (run->face->completions) {
        polylimit_change change = {.size = sizeof change, .operation = set ? POLYLIMIT_SET_ENTRY : POLYLIMIT_DELETE_ENTRY};
        change.entry = set ? set : text(operation, "delete", "");
        change.value = value;
        run->status = face_change(run->face, run->limiter, &change, MESSAGE);
    } else if (set) {
        run->status = polylimit_admin_set_entry(run->limiter, set, value, NULL, MESSAGE);
    } else {
        run->status = polylimit_admin_delete_entry(run->limiter, text(operation, "delete", ""), NULL, MESSAGE);
    }
    free(value);
    return told(run);
}

/* The texts of a request in the form of C. */
struct request {
    polylimit_attributes attributes;
    polylimit_pair pairs[64];
};

static polylimit_line line(const char *given) {
    return (polylimit_line){.start = given, .length = given ? strlen(given) : 0};
}

static void read_request(const cJSON *given, struct request *request) {
    *request = (struct request){.attributes = {.size = sizeof request->attributes}};
    polylimit_attributes *attributes = &request->attributes;
    attributes->method = line(text(given, "method", NULL));
    attributes->path = line(text(given, "path", NULL));
    attributes->peer = line(text(given, "peer", NULL));
    attributes->headers = request->pairs;
    size_t count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, field(given, "headers")) {
        const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(item, 0));
        const char *value = cJSON_GetStringValue(cJSON_GetArrayItem(item, 1));
        request->pairs[count++] = (polylimit_pair){line(name), line(value)};
    }
    attributes->header_count = count;
    attributes->attributes = request->pairs + count;
    cJSON_ArrayForEach(item, field(given, "attributes")) {
        request->pairs[count++] = (polylimit_pair){line(item->string), line(item->valuestring)};
    }
    attributes->attribute_count = count - attributes->header_count;
}

static cJSON *match(struct run *run, const cJSON *operation) {
    struct request request;
    read_request(field(operation, "request"), &request);
    polylimit_matches *matches = NULL;
    run->status = polylimit_admin_matching(run->limiter, &request.attributes, &matches, MESSAGE);
    if (run->status != POLYLIMIT_OK) {
        return NULL;
    }
    cJSON *answer = cJSON_CreateArray();
    for (size_t at = 0; at < polylimit_matches_count(matches); at++) {
        polylimit_match found = {.size = sizeof found};
        if (polylimit_matches_at(matches, at, &found, MESSAGE) != POLYLIMIT_OK) {
            cases_die(run->message, "a match");
        }
        cJSON *shown = cJSON_CreateObject();
        cJSON_AddStringToObject(shown, "policy", found.policy);
        add_bytes(shown, "key", found.key, found.key_length);
        add_number(shown, "cost", found.cost);
        add_number(shown, "headroom", found.headroom);
        cJSON_AddItemToArray(answer, shown);
    }
    polylimit_matches_free(matches);
    return answer;
}

static cJSON *decide(struct run *run, const cJSON *operation) {
    struct request request;
    read_request(field(operation, "request"), &request);
    polylimit_reservation_options options = {.size = sizeof options};
    if (polylimit_reservation_defaults(&options, MESSAGE) != POLYLIMIT_OK) {
        cases_die(run->message, "options");
    }
    const char *id = text(operation, "id", NULL);
    if (id) {
        options.id = id;
        options.id_length = strlen(id);
        options.ttl_us = number(operation, "ttl_us", 0);
    }
    polylimit_request_decision *decision = NULL;
    run->status = face_decide(run->face, run->limiter, &request.attributes, &options, &decision, MESSAGE);
    if (run->status != POLYLIMIT_OK) {
        polylimit_request_decision_free(decision);
        return NULL;
    }
    polylimit_request_outcome outcome = {.size = sizeof outcome};
    if (polylimit_request_decision_outcome(decision, &outcome, MESSAGE) != POLYLIMIT_OK) {
        cases_die(run->message, "a decision");
    }
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddBoolToObject(answer, "allowed", outcome.allowed != 0);
    add_cause(answer, outcome.cause);
    outcome.http_status == 0 ? (void)cJSON_AddNullToObject(answer, "status") : add_number(answer, "status", outcome.http_status);
    add_wait(answer, "retry_after_us", outcome.retry_after_us);
    cJSON *decisions = cJSON_AddArrayToObject(answer, "decisions");
    for (size_t at = 0; at < outcome.policy_count; at++) {
        polylimit_policy_decision made = {.size = sizeof made};
        if (polylimit_request_decision_at(decision, at, &made, MESSAGE) != POLYLIMIT_OK) {
            cases_die(run->message, "a policy's decision");
        }
        cJSON *shown = cJSON_CreateObject();
        cJSON_AddStringToObject(shown, "policy", made.policy);
        add_bytes(shown, "key", made.key, made.key_length);
        add_decision(shown, &made.decision);
        cJSON_AddItemToArray(decisions, shown);
    }
    polylimit_request_decision_free(decision);
    return answer;
}

static cJSON *candidate(struct run *run, const cJSON *operation) {
    polylimit_candidate_counts counts = {.size = sizeof counts};
    run->status = polylimit_admin_candidate_counts(run->limiter, text(operation, "policy", "p"), &counts, MESSAGE);
    cJSON *answer = cJSON_CreateObject();
    add_number(answer, "both_allow", counts.both_allow);
    add_number(answer, "only_live_denies", counts.only_live_denies);
    add_number(answer, "only_candidate_denies", counts.only_candidate_denies);
    add_number(answer, "both_deny", counts.both_deny);
    return answer;
}

static cJSON *answer(struct run *run, const cJSON *operation) {
    static const struct {
        const char *name;
        cJSON *(*answer)(struct run *run, const cJSON *operation);
    } known[] = {{"configuration", configure}, {"entry", change_entry}, {"match", match}, {"decide", decide}, {"candidate", candidate}};
    const char *name = text(operation, "op", "");
    for (size_t at = 0; at < sizeof known / sizeof *known; at++) {
        if (strcmp(known[at].name, name) == 0) {
            return known[at].answer(run, operation);
        }
    }
    return operate(run, operation, cases_operation(operation));
}

static bool step(struct run *run, const cJSON *operation, const char *about) {
    if (polylimit_clock_set(run->clock, START_US + number(operation, "t_us", 0), MESSAGE) != POLYLIMIT_OK) {
        cases_die(run->message, about);
    }
    cJSON *got = answer(run, operation);
    if (!got) {
        got = cJSON_CreateObject();
        cJSON_AddStringToObject(got, "error", polylimit_status_name(run->status));
        cJSON_AddStringToObject(got, "message", run->message);
    }
    bool agree = agrees(field(operation, "expect"), got);
    if (!agree) {
        char *shown = cJSON_PrintUnformatted(operation), *got_shown = cJSON_PrintUnformatted(got);
        printf("%s: it differs\n  %s\n  got      %s\n", about, shown, got_shown);
        free(shown);
        free(got_shown);
    }
    cJSON_Delete(got);
    return agree;
}

bool policies_run(const cJSON *item, const struct face *face, const char *store, int case_number) {
    struct run opened = {.face = face}, *run = &opened;
    char about[256], prefix[64], url[128], file[96] = "";
    snprintf(about, sizeof about, "%s %s: case \"%s\"", face->name, store, text(item, "name", "?"));
    snprintf(prefix, sizeof prefix, "case-c-%ld-%d-%d", (long)getpid(), face->completions != NULL, case_number);
    char *document = cJSON_PrintUnformatted(field(item, "document"));
    polylimit_option options[] = {{"document", document}, {"prefix", prefix}};
    const char *where = store;
    if (strcmp(store, "memory") == 0) {
        where = "memory:";
    } else if (strncmp(store, "local:", 6) == 0) {
        /* A file of its own, because a case starts without states. */
        snprintf(file, sizeof file, "/tmp/%s", prefix);
        snprintf(url, sizeof url, "file://%s?size=1MiB", file);
        where = url;
    }
    size_t count = strncmp(store, "redis", 5) == 0 ? 2 : 1;
    if (polylimit_clock_new(START_US, &run->clock, MESSAGE) != POLYLIMIT_OK) {
        cases_die(run->message, about);
    }
    bool agree = polylimit_limiter_open(where, options, count, run->clock, &run->limiter, MESSAGE) == POLYLIMIT_OK;
    if (!agree) {
        printf("%s: refused: %s\n", about, run->message);
    }
    int at = 0;
    const cJSON *operation;
    cJSON_ArrayForEach(operation, field(item, "ops")) {
        char here[300];
        snprintf(here, sizeof here, "%s, operation %d", about, at++);
        /* The operations after a difference build on it. */
        agree = agree && step(run, operation, here);
    }
    polylimit_limiter_free(run->limiter);
    polylimit_clock_free(run->clock);
    free(document);
    if (*file) {
        unlink(file);
    }
    return agree;
}
