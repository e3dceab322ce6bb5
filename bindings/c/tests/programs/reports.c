/* Reports as JSON: lists of keys, explanations, counters of keys, metrics. */
#include "check.h"

#include <unistd.h>

/* Whether the JSON has this part; then frees the report. */
static int has(polylimit_report *report, const char *part) {
    const char *json = polylimit_report_json(report);
    CHECK(json != NULL);
    int found = strstr(json, part) != NULL;
    if (!found) {
        fprintf(stderr, "%s\nhas no %s\n", json, part);
    }
    polylimit_report_free(report);
    return found;
}

static int count_of(const char *json, const char *part) {
    int count = 0;
    for (const char *at = strstr(json, part); at != NULL; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

/* Copies the cursor of a page; returns 0 on the last one. */
static int cursor_of(const polylimit_report *report, char *cursor, size_t capacity) {
    const char *json = polylimit_report_json(report), *start = strstr(json, "\"cursor\":");
    CHECK(start != NULL);
    start += strlen("\"cursor\":");
    if (strncmp(start, "null", 4) == 0) {
        return 0;
    }
    size_t length = strcspn(start + 1, "\"");
    CHECK(*start == '"' && length < capacity);
    memcpy(cursor, start + 1, length);
    cursor[length] = 0;
    return 1;
}

static polylimit_list_options defaults(void) {
    polylimit_list_options options = {.size = sizeof options};
    OK(polylimit_list_defaults(&options, MESSAGE));
    CHECK(options.entries == 1000 && options.examined == 100000 && options.pace_percent == 10 && options.policy == NULL);
    return options;
}

/* The reset keys of the policy `api` with a prefix, over all pages. */
static int reset_all(const polylimit_limiter *limiter, const char *prefix) {
    polylimit_list_options options = defaults();
    options.policy = "api";
    options.key_prefix = prefix;
    options.key_prefix_length = strlen(prefix);
    char cursor[256];
    int reset = 0, pages = 0;
    do {
        polylimit_report *report = NULL;
        OK(polylimit_admin_reset_listed(limiter, &options, &report, MESSAGE));
        const char *json = polylimit_report_json(report);
        CHECK(strncmp(json, "{\"reset\":", 9) == 0 && strstr(json, "\"unknown\":0") != NULL);
        reset += atoi(json + 9);
        options.cursor = cursor_of(report, cursor, sizeof cursor) ? cursor : NULL;
        polylimit_report_free(report);
        CHECK(++pages < 1000);
    } while (options.cursor != NULL);
    return reset;
}

/* Keys of a store are listed in pages and by filters, and those with a prefix are reset. */
static void list_and_reset(const polylimit_limiter *limiter) {
    enum { USERS = 120 };
    char key[200];
    for (int at = 0; at < USERS; at++) {
        snprintf(key, sizeof key, "user:%d", at);
        CHECK(check(limiter, key, 1).allowed == 1);
    }
    CHECK(check(limiter, "guest:1", 2).allowed == 1);
    polylimit_decision decision = {.size = sizeof decision};
    OK(polylimit_limiter_check(limiter, NULL, "\xff\0", 2, 1, &decision, MESSAGE));
    memset(key, 'k', sizeof key);
    OK(polylimit_limiter_check(limiter, NULL, key, sizeof key, 1, &decision, MESSAGE));

    polylimit_list_options options = defaults();
    options.policy = "api";
    options.key_prefix = "user:";
    options.key_prefix_length = 5;
    options.entries = 10;
    options.pace_percent = 100;
    char cursor[256] = "";
    polylimit_report *report = NULL;
    int listed = 0, pages = 0;
    do {
        OK(polylimit_admin_list(limiter, &options, &report, MESSAGE));
        listed += count_of(polylimit_report_json(report), "\"key\":\"user:");
        CHECK(count_of(polylimit_report_json(report), "\"policy\":\"api\"") ==
              count_of(polylimit_report_json(report), "\"used\":1,\"remaining\":1"));
        options.cursor = cursor_of(report, cursor, sizeof cursor) ? cursor : NULL;
        polylimit_report_free(report);
        pages++;
        if (pages == 1) {
            /* A cursor is for the filter of its page. */
            CHECK(options.cursor != NULL);
            options.at_least_used = 1;
            IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_list(limiter, &options, &report, MESSAGE));
            CHECK(strstr(message, "another filter") != NULL);
            options.at_least_used = 0;
        }
        CHECK(pages < 1000);
    } while (options.cursor != NULL);
    CHECK(listed >= USERS && pages > 1);

    options = defaults();
    options.at_least_used = 100;
    OK(polylimit_admin_list(limiter, &options, &report, MESSAGE));
    CHECK(count_of(polylimit_report_json(report), "\"policy\":") == 1);
    CHECK(has(report, "{\"policy\":\"api\",\"key\":\"guest:1\",\"quotas\":[{\"quota\":\"2/hour fixed_window\",\"limit\":2,"
                      "\"capacity\":2,\"used\":2,\"remaining\":0,"));
    OK(polylimit_admin_scan_top(limiter, 1, NULL, &report, MESSAGE));
    CHECK(count_of(polylimit_report_json(report), "\"policy\":") == 1);
    CHECK(has(report, "\"key\":\"guest:1\""));
    OK(polylimit_admin_list(limiter, NULL, &report, MESSAGE));
    CHECK(strstr(polylimit_report_json(report), "\"key_base64\":\"/wA=\"") != NULL);
    CHECK(has(report, "\"key_digest\":\""));

    CHECK(reset_all(limiter, "user:") == USERS);
    CHECK(check(limiter, "user:1", 2).allowed == 1 && check(limiter, "guest:1", 1).allowed == 0);
}

static void keys_are_listed_and_reset_in_each_store(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "2/hour fixed_window", NULL);
    list_and_reset(limiter);
    polylimit_limiter_free(limiter);

    char folder[] = "/tmp/polylimit-reports-XXXXXX", url[64], path[64], prefix[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(url, sizeof url, "file://%s/store?size=1MiB", folder);
    limiter = open_limiter(url, "2/hour fixed_window", NULL);
    list_and_reset(limiter);
    polylimit_limiter_free(limiter);
    snprintf(path, sizeof path, "%s/store", folder);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);

    snprintf(prefix, sizeof prefix, "reports-%ld", (long)getpid());
    polylimit_option options[] = {{"policy.api", "2/hour fixed_window"}, {"prefix", prefix}, {"deadline", "30s"}};
    OK(polylimit_limiter_open(redis_url(), options, 3, NULL, &limiter, MESSAGE));
    list_and_reset(limiter);
    polylimit_limiter_free(limiter);
}

static void budget_out_of_bounds_is_refused(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute", NULL);
    polylimit_report *report = NULL;
    polylimit_list_options options = defaults();
    const uint32_t paces[] = {0, 101, 256, UINT32_MAX};
    for (size_t at = 0; at < 4; at++) {
        options.pace_percent = paces[at];
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_list(limiter, &options, &report, MESSAGE));
        CHECK(strstr(message, "allowed is 1 to 100") != NULL);
    }
    options = defaults();
    options.entries = 0;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_reset_listed(limiter, &options, &report, MESSAGE));
    CHECK(strcmp(message, "entries of a list is 0: allowed is 1 or more") == 0);
    options = defaults();
    options.examined = 0;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_scan_top(limiter, 1, &options, &report, MESSAGE));
    options = defaults();
    options.at_least_used = 256;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_list(limiter, &options, &report, MESSAGE));
    options = defaults();
    options.cursor = "nonsense";
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_list(limiter, &options, &report, MESSAGE));
    CHECK(strstr(message, "cursor cannot be read") != NULL && report == NULL);
    polylimit_limiter_free(limiter);
}

static void denied_key_is_explained(void) {
    polylimit_clock *clock = NULL;
    OK(polylimit_clock_new(START_US, &clock, MESSAGE));
    polylimit_limiter *limiter = open_limiter("memory:", "100/minute token_bucket; 20/hour fixed_window", clock);
    CHECK(check(limiter, "user:42", 20).allowed == 1);
    polylimit_report *report = NULL;
    polylimit_request request = ask(POLYLIMIT_PEEK, "user:42", 1);
    OK(polylimit_admin_explain(limiter, &request, &report, MESSAGE));
    const char *json = polylimit_report_json(report);
    CHECK(strstr(json, "\"allowed\":false,\"cause\":\"quota\",\"retry_after_us\":3600000000") != NULL);
    CHECK(strstr(json, "\"admits\":true,\"retry_after_us\":0") != NULL);
    CHECK(strstr(json, "\"admits\":false,\"retry_after_us\":3600000000") != NULL);
    CHECK(has(report, "\"words\":\"debt 20 of 100, repays 1.67/s\""));
    /* It charges nothing, and takes the cost and the headroom into account. */
    request = ask(POLYLIMIT_PEEK, "other", 19);
    request.headroom = 10;
    OK(polylimit_admin_explain(limiter, &request, &report, MESSAGE));
    CHECK(has(report, "\"cost\":19,\"headroom\":10,\"allowed\":false"));
    CHECK(check(limiter, "other", 20).allowed == 1);
    request.policy = "nobody";
    report = NULL;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_explain(limiter, &request, &report, MESSAGE));
    CHECK(report == NULL && strstr(message, "nobody") != NULL);
    polylimit_limiter_free(limiter);
    polylimit_clock_free(clock);
}

#define LINE(text) {text, sizeof(text) - 1}

static void request_is_explained_by_the_configuration(void) {
    polylimit_limiter *limiter = NULL;
    polylimit_option option = {"document",
                               "polylimit = 1\n"
                               "policies.api.quotas = '1/hour fixed_window'\n"
                               "lists.deny = ['user mallory']\n"
                               "[[rules]]\n"
                               "match = { path = '/v1/{*rest}' }\n"
                               "apply = [{ policy = 'api', key = '{user}' }]\n"};
    OK(polylimit_limiter_open("memory:", &option, 1, NULL, &limiter, MESSAGE));
    polylimit_pair user = {LINE("user"), LINE("alice")};
    polylimit_attributes request = {.size = sizeof request, .method = LINE("GET"), .path = LINE("/v1/a")};
    request.attributes = &user;
    request.attribute_count = 1;
    polylimit_report *report = NULL;
    OK(polylimit_admin_explain_request(limiter, &request, &report, MESSAGE));
    CHECK(has(report, "{\"allowed\":true,\"cause\":null,\"retry_after_us\":0,\"list_entry\":null,\"policies\":[{\"policy\":\"api\","
                      "\"key\":\"alice\""));
    CHECK(check(limiter, "alice", 1).allowed == 1);
    OK(polylimit_admin_explain_request(limiter, &request, &report, MESSAGE));
    CHECK(strstr(polylimit_report_json(report), "\"rule\":1") != NULL);
    CHECK(has(report, "\"words\":\"1 of 1 in this window"));
    user.value = (polylimit_line)LINE("mallory");
    OK(polylimit_admin_explain_request(limiter, &request, &report, MESSAGE));
    CHECK(has(report, "\"cause\":\"deny_list\",\"retry_after_us\":null,\"list_entry\":{\"entry\":\"deny user mallory\""));
    polylimit_limiter_free(limiter);
    limiter = open_limiter("memory:", "1/minute", NULL);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_explain_request(limiter, &request, &report, MESSAGE));
    polylimit_limiter_free(limiter);
}

static void keys_that_are_denied_most_are_counted(void) {
    polylimit_limiter *limiter = NULL;
    polylimit_option options[] = {{"policy.api", "2/minute"}, {"observe_keys", "256"}};
    OK(polylimit_limiter_open("memory:", options, 2, NULL, &limiter, MESSAGE));
    for (int at = 0; at < 10000; at++) {
        check(limiter, "user:42", 1);
    }
    polylimit_report *report = NULL;
    OK(polylimit_admin_top_keys(limiter, 10, &report, MESSAGE));
    CHECK(strstr(polylimit_report_json(report), "\"counters\":256") != NULL);
    CHECK(has(report, "{\"denied\":[{\"policy\":\"api\",\"key\":\"user:42\",\"count\":"));
    OK(polylimit_admin_top_keys(limiter, 0, &report, MESSAGE));
    CHECK(has(report, "{\"denied\":[],\"admitted\":[],"));
    polylimit_limiter_free(limiter);
    options[1].value = "65537";
    limiter = NULL;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_open("memory:", options, 2, NULL, &limiter, MESSAGE));
    CHECK(limiter == NULL && strstr(message, "observe_keys") != NULL);
}

/* The example of docs/listing.md, line by line. */
static void example_of_the_listing_page(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "100/minute token_bucket; 20/hour", NULL);
    CHECK(check(limiter, "user:42", 20).allowed == 1);
    polylimit_request request = {.size = sizeof request, .key = "user:42", .key_length = 7, .cost = 1};
    polylimit_report *report = NULL;
    if (polylimit_admin_explain(limiter, &request, &report, message, sizeof message) == POLYLIMIT_OK) {
        printf("%s\n", polylimit_report_json(report));
        polylimit_report_free(report);
    }

    polylimit_list_options options = {.size = sizeof options};
    polylimit_list_defaults(&options, message, sizeof message);
    options.policy = "api";
    options.at_least_used = 80;
    if (polylimit_admin_list(limiter, &options, &report, message, sizeof message) == POLYLIMIT_OK) {
        printf("%s\n", polylimit_report_json(report));
        polylimit_report_free(report);
    }
    OK(polylimit_admin_list(limiter, &options, &report, MESSAGE));
    CHECK(has(report, "{\"policy\":\"api\",\"key\":\"user:42\""));
    polylimit_limiter_free(limiter);
}

/* The example of docs/metrics.md, line by line. */
static void example_of_the_metrics_page(void) {
    char message[256], body[16384];
    polylimit_limiter *limiter = NULL;
    polylimit_option option = {"policy.api", "100/minute; 1000/hour"};
    polylimit_decision decision = {.size = sizeof decision};
    polylimit_limiter_open("memory:", &option, 1, NULL, &limiter, message, sizeof message);
    polylimit_limiter_check(limiter, "api", "user:42", 7, 1, &decision, message, sizeof message);

    /* What GET /metrics responds with. */
    size_t length = 0;
    if (polylimit_limiter_metrics_text(limiter, "openmetrics", body, sizeof body, &length, message, sizeof message)) {
        fprintf(stderr, "%s\n", message);
    }

    /* The same as values, in JSON. */
    polylimit_report *families = NULL;
    polylimit_limiter_metrics(limiter, &families, message, sizeof message);
    printf("%s\n", polylimit_report_json(families));

    CHECK(length == strlen(body) && strstr(body, "{policy=\"api\",result=\"allowed\",source=\"store\"} 1\n") != NULL);
    CHECK(has(families, "{\"labels\":{\"policy\":\"api\",\"result\":\"allowed\",\"source\":\"store\"},\"value\":1}"));
    polylimit_limiter_free(limiter);
}

static void metrics_are_text_and_values(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "2/minute", NULL);
    for (int at = 0; at < 3; at++) {
        check(limiter, "k", 1);
    }
    char text[16384];
    size_t length = 0;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_metrics_text(limiter, "prometheus", text, 10, &length, MESSAGE));
    size_t needed = length;
    CHECK(needed > 10 && needed < sizeof text);
    OK(polylimit_limiter_metrics_text(limiter, "prometheus", text, sizeof text, &length, MESSAGE));
    CHECK(length == needed && strlen(text) == length);
    CHECK(strstr(text, "\npolylimit_decisions_total{policy=\"api\",result=\"denied\",source=\"store\"} 1\n") != NULL);
    CHECK(strstr(text, "# TYPE polylimit_decisions_total counter\n") != NULL && strstr(text, "# EOF") == NULL);
    OK(polylimit_limiter_metrics_text(limiter, "openmetrics", text, sizeof text, &length, MESSAGE));
    CHECK(strcmp(text + length - 6, "# EOF\n") == 0);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_metrics_text(limiter, "graphite", text, sizeof text, &length, MESSAGE));
    CHECK(strstr(message, "graphite") != NULL && strstr(message, "prometheus, openmetrics") != NULL);
    polylimit_report *report = NULL;
    OK(polylimit_limiter_metrics(limiter, &report, MESSAGE));
    CHECK(strncmp(polylimit_report_json(report), "[{\"name\":\"polylimit_", 20) == 0);
    CHECK(has(report, "\"kind\":\"histogram\",\"samples\":[]"));
    polylimit_limiter_free(limiter);
}

static void null_is_refused(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute", NULL);
    polylimit_report *report = NULL;
    polylimit_query query = {.size = sizeof query, .operation = POLYLIMIT_LIST};
    polylimit_request request = ask(POLYLIMIT_PEEK, "k", 1);
    polylimit_list_options options = {.size = sizeof options};
    polylimit_completions *completions = NULL;
    polylimit_result result;
    char text[64];
    OK(polylimit_completions_open(&completions, MESSAGE));
#define REFUSED(call) IS(POLYLIMIT_INVALID_ARGUMENT, call)
    REFUSED(polylimit_list_defaults(NULL, MESSAGE));
    REFUSED(polylimit_admin_query(NULL, &query, NULL, &report, MESSAGE));
    REFUSED(polylimit_admin_query(limiter, NULL, NULL, &report, MESSAGE));
    REFUSED(polylimit_admin_query(limiter, &query, NULL, NULL, MESSAGE));
    REFUSED(polylimit_admin_list(limiter, &options, &report, MESSAGE));
    options.key_prefix_length = 1;
    REFUSED(polylimit_admin_list(limiter, &options, &report, MESSAGE));
    CHECK(strcmp(message, "key_prefix is NULL") == 0);
    options.size = 3;
    REFUSED(polylimit_admin_list(limiter, &options, &report, MESSAGE));
    REFUSED(polylimit_admin_list(NULL, NULL, &report, MESSAGE));
    REFUSED(polylimit_admin_scan_top(limiter, 1, NULL, NULL, MESSAGE));
    REFUSED(polylimit_admin_reset_listed(NULL, NULL, &report, MESSAGE));
    REFUSED(polylimit_admin_explain(limiter, NULL, &report, MESSAGE));
    REFUSED(polylimit_admin_explain_request(limiter, NULL, &report, MESSAGE));
    REFUSED(polylimit_admin_top_keys(NULL, 1, &report, MESSAGE));
    REFUSED(polylimit_admin_top_keys(limiter, 1, NULL, MESSAGE));
    REFUSED(polylimit_limiter_metrics(NULL, &report, MESSAGE));
    REFUSED(polylimit_limiter_metrics_text(limiter, NULL, text, sizeof text, NULL, MESSAGE));
    REFUSED(polylimit_limiter_metrics_text(limiter, "prometheus", NULL, 0, NULL, MESSAGE));
    REFUSED(polylimit_completions_submit_query(NULL, limiter, &query, 1, &report, &result, sizeof result, MESSAGE));
    REFUSED(polylimit_completions_submit_query(completions, limiter, &query, 1, NULL, &result, sizeof result, MESSAGE));
    query.operation = 6;
    REFUSED(polylimit_admin_query(limiter, &query, NULL, &report, MESSAGE));
    CHECK(strcmp(message, "query 6 is not known: allowed are 1 to 5") == 0);
    CHECK(report == NULL && polylimit_report_json(NULL) == NULL);
    polylimit_report_free(NULL);
    polylimit_limiter_close(limiter);
    IS(POLYLIMIT_CLOSED, polylimit_admin_list(limiter, NULL, &report, MESSAGE));
    IS(POLYLIMIT_CLOSED, polylimit_admin_explain(limiter, &request, &report, MESSAGE));
    polylimit_completions_free(completions);
    polylimit_limiter_free(limiter);
}

int main(void) {
    static const struct test tests[] = {
        {"keys are listed and reset in each store", keys_are_listed_and_reset_in_each_store},
        {"budget out of bounds is refused", budget_out_of_bounds_is_refused},
        {"denied key is explained", denied_key_is_explained},
        {"request is explained by the configuration", request_is_explained_by_the_configuration},
        {"keys that are denied most are counted", keys_that_are_denied_most_are_counted},
        {"example of the listing page", example_of_the_listing_page},
        {"example of the metrics page", example_of_the_metrics_page},
        {"metrics are text and values", metrics_are_text_and_values},
        {"NULL is refused", null_is_refused},
    };
    RUN(tests);
}
