#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void cases_die(const char *what, const char *about) {
    fprintf(stderr, "conformance-c: %s: %s\n", about, what);
    exit(2);
}

cJSON *cases_read(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        cases_die("it cannot be opened", path);
    }
    size_t length = 0, capacity = 1 << 16;
    char *text = malloc(capacity);
    while (text) {
        size_t read = fread(text + length, 1, capacity - length - 1, file);
        length += read;
        if (read == 0) {
            break;
        }
        if (capacity - length < 2) {
            capacity *= 2;
            text = realloc(text, capacity);
        }
    }
    if (!text || ferror(file)) {
        cases_die("it cannot be read", path);
    }
    fclose(file);
    text[length] = 0;
    cJSON *json = cJSON_Parse(text);
    free(text);
    uint64_t format = 0;
    if (!json || !cases_number(json, "format", &format)) {
        cases_die("it is no file of cases", path);
    }
    if (format < 1 || format > 5) {
        cases_die("its format is not known: this runner reads formats 1 to 5", path);
    }
    return json;
}

bool cases_number(const cJSON *object, const char *name, uint64_t *number_out) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!item) {
        return false;
    }
    /* Every number of a case is exact in a double. */
    double number = cJSON_GetNumberValue(item);
    if (!(number >= 0 && number <= 9007199254740992.0) || (double)(uint64_t)number != number) {
        cases_die("it is no whole number", name);
    }
    *number_out = (uint64_t)number;
    return true;
}

static uint32_t algorithm(const cJSON *quota) {
    static const char *const names[] = {"token_bucket", "leaky_bucket", "fixed_window", "sliding_window",
                                        "sliding_log",  "concurrency"};
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(quota, "algorithm"));
    for (uint32_t at = 0; name && at < 6; at++) {
        if (strcmp(names[at], name) == 0) {
            return at + 1;
        }
    }
    cases_die("it is not known", name ? name : "algorithm");
}

bool cases_quotas(const cJSON *quotas, char *text, size_t capacity, char *message, size_t message_capacity) {
    const cJSON *item;
    size_t end = 0;
    text[0] = 0;
    cJSON_ArrayForEach(item, quotas) {
        polylimit_quota quota = {.size = sizeof quota, .algorithm = algorithm(item)};
        uint64_t buckets = 0;
        cases_number(item, "limit", &quota.limit);
        cases_number(item, "period_us", &quota.period_us);
        cases_number(item, "burst", &quota.burst);
        cases_number(item, "step", &quota.step);
        cases_number(item, "buckets", &buckets);
        cases_number(item, "excess", &quota.excess);
        quota.buckets = (uint32_t)buckets;
        quota.aligned = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(item, "aligned"));
        quota.count_denied = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(item, "count_denied"));
        if (end > 0) {
            end += (size_t)snprintf(text + end, capacity - end, "; ");
        }
        /* A quota by the calendar has its text. */
        const char *written = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "text"));
        if (written) {
            end += (size_t)snprintf(text + end, capacity - end, "%s", written);
            continue;
        }
        size_t length = 0;
        if (polylimit_quota_text(&quota, text + end, capacity - end, &length, message, message_capacity) !=
            POLYLIMIT_OK) {
            return false;
        }
        end += length;
    }
    return true;
}

uint32_t cases_operation(const cJSON *operation) {
    static const struct {
        const char *name;
        uint32_t number;
    } known[] = {
        {"change", 0},
        {"check", POLYLIMIT_CHECK},
        {"peek", POLYLIMIT_PEEK},
        {"take", POLYLIMIT_TAKE},
        {"charge", POLYLIMIT_CHARGE},
        {"refund", POLYLIMIT_REFUND},
        {"reset", POLYLIMIT_RESET},
        {"reserve", POLYLIMIT_RESERVE},
        {"commit", POLYLIMIT_COMMIT},
        {"cancel", POLYLIMIT_CANCEL},
        {"renew", POLYLIMIT_RENEW},
        {"block", POLYLIMIT_BLOCK},
    };
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(operation, "op"));
    for (size_t at = 0; name && at < sizeof known / sizeof *known; at++) {
        if (strcmp(known[at].name, name) == 0) {
            return known[at].number;
        }
    }
    cases_die("it is not known", name ? name : "op");
}

static void add_number(cJSON *object, const char *name, uint64_t number) {
    cJSON_AddNumberToObject(object, name, (double)number);
}

cJSON *cases_answer(uint32_t operation, const polylimit_result *result, const cJSON *expected) {
    const polylimit_decision *decision = &result->answer.decision;
    const polylimit_usage *usage = &result->answer.usage;
    cJSON *answer = cJSON_CreateObject();
    bool decides = operation == POLYLIMIT_CHECK || operation == POLYLIMIT_PEEK || operation == POLYLIMIT_RESERVE;
    const char *source = polylimit_source_name(decides ? decision->source : usage->source);
    /* What an outage policy answered must not look as if the store did. */
    if (strcmp(source, "fallback") == 0 || strcmp(source, "allow") == 0 || strcmp(source, "deny") == 0) {
        return answer;
    }
    if (decides) {
        cJSON_AddBoolToObject(answer, "allowed", decision->allowed != 0);
        add_number(answer, "remaining", decision->remaining);
        if (decision->retry_after_us == POLYLIMIT_NEVER) {
            cJSON_AddNullToObject(answer, "retry_after_us");
        } else {
            add_number(answer, "retry_after_us", decision->retry_after_us);
        }
        add_number(answer, "reset_after_us", decision->reset_after_us);
        add_number(answer, "delay_us", decision->delay_us);
        /* Only cases of format 2 expect the units of an excess. */
        if (expected && cJSON_HasObjectItem(expected, "over")) {
            add_number(answer, "over", decision->over);
        }
        return answer;
    }
    add_number(answer, "remaining", usage->remaining);
    add_number(answer, "reset_after_us", usage->reset_after_us);
    if (operation == POLYLIMIT_TAKE) {
        add_number(answer, "taken", usage->taken);
    }
    if (operation == POLYLIMIT_COMMIT || operation == POLYLIMIT_CANCEL || operation == POLYLIMIT_RENEW) {
        cJSON_AddBoolToObject(answer, "found", usage->found != 0);
        /* Only cases of commits that are remembered expect whether they are repeated. */
        if (expected && cJSON_HasObjectItem(expected, "repeated")) {
            cJSON_AddBoolToObject(answer, "repeated", usage->repeated != 0);
        }
    }
    return answer;
}
