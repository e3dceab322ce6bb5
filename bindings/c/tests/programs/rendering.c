/* Texts in buffers of callers: header fields, problem documents, quotas, client addresses. */
#include "check.h"

static void header_fields_are_lines(void) {
    polylimit_clock *clock = NULL;
    OK(polylimit_clock_new(START_US, &clock, MESSAGE));
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute fixed_window; 9/hour fixed_window", clock);
    polylimit_decision allowed = check(limiter, "k", 1), denied = check(limiter, "k", 1);
    polylimit_outcome outcome = {NULL, &allowed};
    char text[512];
    size_t length = 0;
    OK(polylimit_headers_render(limiter, &outcome, 1, NULL, START_US, text, sizeof text, &length, MESSAGE));
    CHECK(strcmp(text, "ratelimit-policy: \"api:1\";q=1;w=60, \"api:2\";q=9;w=3600\r\n"
                       "ratelimit: \"api:1\";r=0;t=60, \"api:2\";r=8;t=3600\r\n") == 0);
    CHECK(length == strlen(text));
    outcome = (polylimit_outcome){"api", &denied};
    OK(polylimit_headers_render(limiter, &outcome, 1, "legacy epoch", START_US, text, sizeof text, NULL, MESSAGE));
    CHECK(strcmp(text, "x-ratelimit-limit: 1\r\nx-ratelimit-remaining: 0\r\nx-ratelimit-reset: 1700000060\r\n"
                       "retry-after: 60\r\n") == 0);
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_headers_render(limiter, &outcome, 1, "loud", 0, text, sizeof text, NULL, MESSAGE));
    denied.quota_count = 17;
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_headers_render(limiter, &outcome, 1, NULL, 0, text, sizeof text, NULL, MESSAGE));
    denied.quota_count = 2;
    denied.source = 1000;
    IS(POLYLIMIT_INVALID_ARGUMENT,
       polylimit_headers_render(limiter, &outcome, 1, NULL, 0, text, sizeof text, NULL, MESSAGE));
    polylimit_limiter_free(limiter);
    polylimit_clock_free(clock);
}

static void headers_refuse_an_invalid_decision(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "1000000000000/s; 1/m; 0/h", NULL);
    polylimit_decision decision;
    memset(&decision, 0xff, sizeof decision);
    decision.source = decision.degraded = decision.cause = 0;
    polylimit_outcome outcome = {NULL, &decision};
    char text[2048];
    uint32_t status = 0;
    for (uint32_t quotas = 1; quotas <= POLYLIMIT_MAX_QUOTAS; quotas++) {
        for (uint32_t allowed = 0; allowed < 2; allowed++) {
            decision.quota_count = quotas;
            decision.allowed = allowed;
            OK(polylimit_headers_render(limiter, &outcome, 1, "both epoch", UINT64_MAX, text, sizeof text, NULL,
                                        MESSAGE));
            OK(polylimit_problem_render(limiter, &outcome, 1, UINT64_MAX, 1, &status, text, sizeof text, NULL, MESSAGE));
            CHECK(status == (allowed ? 0 : 429));
        }
    }
    polylimit_limiter_free(limiter);
}

static void denial_has_a_problem_document(void) {
    polylimit_clock *clock = NULL;
    OK(polylimit_clock_new(START_US, &clock, MESSAGE));
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute fixed_window", clock);
    polylimit_decision allowed = check(limiter, "k", 1), denied = check(limiter, "k", 1);
    polylimit_outcome outcome = {NULL, &allowed};
    char text[512];
    uint32_t status = 1;
    OK(polylimit_problem_render(limiter, &outcome, 1, 1, 1, &status, text, sizeof text, NULL, MESSAGE));
    CHECK(status == 0 && text[0] == 0);
    outcome.decision = &denied;
    OK(polylimit_problem_render(limiter, &outcome, 1, 1, 1, &status, text, sizeof text, NULL, MESSAGE));
    CHECK(status == 429 && text[0] == '{' && strstr(text, "\"violated-policies\":[\"api\"]") != NULL);
    CHECK(strcmp(polylimit_problem_content_type(1), "application/problem+json") == 0);
    OK(polylimit_problem_render(limiter, &outcome, 1, 1, 0, &status, text, sizeof text, NULL, MESSAGE));
    CHECK(strcmp(text, "Not enough of the quota is left: retry in 60 s.\n") == 0);
    polylimit_limiter_free(limiter);
    polylimit_clock_free(clock);
}

/* No server listens at this address, and the outage policy denies. */
static void denial_during_an_outage_is_503(void) {
    polylimit_option options[] = {{"policy.api", "5/minute"}, {"outage.api", "deny"}};
    polylimit_limiter *limiter = NULL;
    OK(polylimit_limiter_open("redis://127.0.0.1:1", options, 2, NULL, &limiter, MESSAGE));
    polylimit_decision denied = check(limiter, "k", 1);
    CHECK(denied.allowed == 0 && strcmp(polylimit_source_name(denied.source), "deny") == 0);
    CHECK(strcmp(polylimit_degradation_name(denied.degraded), "unreachable") == 0);
    polylimit_outcome outcome = {NULL, &denied};
    char text[512];
    uint32_t status = 0;
    OK(polylimit_problem_render(limiter, &outcome, 1, 1, 1, &status, text, sizeof text, NULL, MESSAGE));
    CHECK(status == 503);
    IS(POLYLIMIT_STORE_UNAVAILABLE, polylimit_limiter_ready(limiter, 1000, MESSAGE));
    polylimit_limiter_free(limiter);
}

static void quota_has_numbers_and_text(void) {
    polylimit_quota quota = {.size = sizeof quota};
    OK(polylimit_quota_parse("50/day token_bucket burst=200 step=50", &quota, MESSAGE));
    CHECK(quota.algorithm == POLYLIMIT_TOKEN_BUCKET && quota.limit == 50 && quota.period_us == 86400000000);
    CHECK(quota.burst == 200 && quota.step == 50 && quota.buckets == 0 && quota.aligned == 0);
    char text[128];
    size_t length = 0;
    OK(polylimit_quota_text(&quota, text, sizeof text, &length, MESSAGE));
    CHECK(strcmp(text, "50/day token_bucket burst=200 step=50") == 0);
    OK(polylimit_quota_parse("7/m fixed_window aligned count_denied", &quota, MESSAGE));
    CHECK(quota.aligned == 1 && quota.count_denied == 1 && quota.burst == 0);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_quota_parse("7/fortnight", &quota, MESSAGE));
    CHECK(strstr(message, "month, quarter or year") != NULL);
    quota = (polylimit_quota){.size = sizeof quota, .algorithm = 6, .limit = 1, .period_us = 1000000};
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_quota_text(&quota, text, sizeof text, &length, MESSAGE));
    quota.algorithm = 0;
    quota.aligned = 2;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_quota_text(&quota, text, sizeof text, &length, MESSAGE));
    quota.aligned = 0;
    OK(polylimit_quota_text(&quota, text, sizeof text, &length, MESSAGE));
    CHECK(strcmp(text, "1/second") == 0);
}

static void client_is_found_behind_trusted_proxies(void) {
    polylimit_option options[] = {{"trust", "10.0.0.0/8"}, {"trust", "loopback"}, {"header", "x-forwarded-for"}};
    polylimit_address_rules *rules = NULL;
    OK(polylimit_address_rules_new(options, 3, &rules, MESSAGE));
    CHECK(strcmp(polylimit_address_rules_header(rules), "x-forwarded-for") == 0);
    polylimit_line lines[] = {{"198.51.100.1", 12}, {"203.0.113.7, 10.0.0.2", 21}};
    char key[64];
    size_t length = 0;
    OK(polylimit_address_rules_key(rules, "10.0.0.1", lines, 2, key, sizeof key, &length, MESSAGE));
    CHECK(strcmp(key, "203.0.113.7") == 0);
    OK(polylimit_address_rules_key(rules, "192.0.2.9", lines, 2, key, sizeof key, &length, MESSAGE));
    CHECK(strcmp(key, "192.0.2.9") == 0);
    OK(polylimit_address_rules_key(rules, "2001:db8:1:2:3::4", NULL, 0, key, sizeof key, &length, MESSAGE));
    CHECK(strcmp(key, "2001:db8:1:2::/64") == 0);
    OK(polylimit_address_rules_key(rules, "10.0.0.1:80", lines, 2, key, sizeof key, &length, MESSAGE));
    CHECK(strcmp(key, "203.0.113.7") == 0);
    OK(polylimit_address_rules_key(rules, "\xff", lines, 2, key, sizeof key, &length, MESSAGE));
    CHECK(strcmp(key, "unknown") == 0);
    OK(polylimit_address_rules_key(rules, "made up", lines, 2, key, sizeof key, &length, MESSAGE));
    CHECK(strcmp(key, "unknown") == 0);
    polylimit_address_rules_free(rules);
    polylimit_option wrong[] = {{"ipv4_prefix", "33"}, {"header", "via"}, {"trust", "everybody"}, {"colour", "red"}};
    for (size_t at = 0; at < 4; at++) {
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_address_rules_new(&wrong[at], 1, &rules, MESSAGE));
    }
    OK(polylimit_address_rules_new(NULL, 0, &rules, MESSAGE));
    CHECK(polylimit_address_rules_header(rules) == NULL);
    polylimit_address_rules_free(rules);
}

static void doctor_and_stats_report(void) {
    polylimit_limiter *limiter = open_limiter("memory:", "1/minute", NULL);
    char text[64];
    size_t length = 1;
    OK(polylimit_admin_doctor(limiter, text, sizeof text, &length, MESSAGE));
    CHECK(length == 0 && text[0] == 0);
    size_t count = 0, again = 0;
    OK(polylimit_limiter_stats(limiter, NULL, 0, &count, MESSAGE));
    CHECK(count > 0 && count < 64);
    polylimit_stat stats[64];
    OK(polylimit_limiter_stats(limiter, stats, 64, &again, MESSAGE));
    CHECK(again == count);
    for (size_t at = 0; at < count; at++) {
        CHECK(strlen(stats[at].name) > 0);
    }
    OK(polylimit_limiter_ready(limiter, 0, MESSAGE));
    polylimit_limiter_free(limiter);
}

int main(void) {
    static const struct test tests[] = {
        {"header fields are lines", header_fields_are_lines},
        {"headers refuse an invalid decision", headers_refuse_an_invalid_decision},
        {"denial has a problem document", denial_has_a_problem_document},
        {"denial during an outage is 503", denial_during_an_outage_is_503},
        {"quota has numbers and text", quota_has_numbers_and_text},
        {"client is found behind trusted proxies", client_is_found_behind_trusted_proxies},
        {"doctor and stats report", doctor_and_stats_report},
    };
    RUN(tests);
}
