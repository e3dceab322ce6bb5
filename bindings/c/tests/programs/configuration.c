/* Limits from a configuration: documents, entries, requests by their attributes. */
#include "check.h"

#include <poll.h>
#include <unistd.h>

#define DOCUMENT                                                                                                       \
    "polylimit = 1\n"                                                                                                  \
    "[policies.api]\n"                                                                                                 \
    "quotas = '3/minute fixed_window'\n"                                                                               \
    "plans = { gold = '5/minute fixed_window' }\n"                                                                     \
    "[policies.slots]\n"                                                                                               \
    "quotas = '1 concurrent'\n"                                                                                        \
    "[[rules]]\n"                                                                                                      \
    "match = { path = '/slow' }\n"                                                                                     \
    "apply = [{ policy = 'slots', key = 'all' }, { policy = 'api', key = '{user}' }]\n"                                \
    "[[rules]]\n"                                                                                                      \
    "match = { path = '/v1/{name}' }\n"                                                                                \
    "apply = [{ policy = 'api', key = '{user}', cost = '{cost}', headroom = 20, missing = 'deny' }]\n"                 \
    "[lists]\n"                                                                                                        \
    "deny = ['client 203.0.113.0/24']\n"

static polylimit_limiter *configured(const char *document, const polylimit_clock *clock) {
    polylimit_limiter *limiter = NULL;
    polylimit_option option = {"document", document};
    OK(polylimit_limiter_open("memory:", &option, 1, clock, &limiter, MESSAGE));
    return limiter;
}

#define LINE(text) {text, sizeof(text) - 1}

/* A request of alice, with a header and two attributes. */
static polylimit_attributes request_of(const char *path) {
    static const polylimit_pair pairs[] = {
        {LINE("X-Trace"), LINE("1")}, {LINE("user"), LINE("alice")}, {LINE("cost"), LINE("2")}};
    polylimit_attributes attributes = {.size = sizeof attributes, .method = LINE("GET"), .peer = LINE("192.0.2.1")};
    attributes.path = (polylimit_line){path, strlen(path)};
    attributes.headers = pairs;
    attributes.header_count = 1;
    attributes.attributes = pairs + 1;
    attributes.attribute_count = 2;
    return attributes;
}

static void document_is_replaced_and_a_bad_one_is_not_taken(void) {
    polylimit_limiter *limiter = configured(DOCUMENT, NULL);
    polylimit_configuration *status = NULL;
    OK(polylimit_admin_configuration(limiter, &status, MESSAGE));
    CHECK(status != NULL && strcmp(status->source, "document") == 0 && strlen(status->digest) == 64);
    CHECK(status->error == NULL && status->unreachable_for_us == 0 && status->applied_at_us > 0);
    uint64_t version = status->version;
    polylimit_configuration_free(status);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_set_document(limiter, "polylimit = 1\npolicy = 2\n", NULL, MESSAGE));
    CHECK(strncmp(message, "line 2, column 1: ", 18) == 0 && strstr(message, "policy") != NULL);
    OK(polylimit_admin_set_document(limiter, "{\"polylimit\": 1, \"policies\": {\"api\": {\"quotas\": \"9/s\"}}}", &status, MESSAGE));
    CHECK(status->version > version);
    OK(polylimit_admin_wait_for_version(limiter, status->version, 0, NULL, MESSAGE));
    IS(POLYLIMIT_STORE_UNAVAILABLE, polylimit_admin_wait_for_version(limiter, status->version + 1, 0, NULL, MESSAGE));
    polylimit_configuration_free(status);
    CHECK(check(limiter, "k", 1).remaining == 8);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_publish(limiter, DOCUMENT, NULL, "ann", NULL, NULL, MESSAGE));
    polylimit_limiter_free(limiter);

    limiter = open_limiter("memory:", "1/s", NULL);
    OK(polylimit_admin_configuration(limiter, &status, MESSAGE));
    CHECK(status == NULL);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_set_entry(limiter, "deny user alice", NULL, NULL, MESSAGE));
    polylimit_configuration_free(NULL);
    polylimit_limiter_free(limiter);
    polylimit_option bad = {"document", "polylimit = 2"};
    limiter = NULL;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_open("memory:", &bad, 1, NULL, &limiter, MESSAGE));
    CHECK(limiter == NULL && strncmp(message, "line 1, ", 8) == 0);
}

static void plan_and_override_decide_about_a_key(void) {
    polylimit_limiter *limiter = configured(DOCUMENT, NULL);
    polylimit_request request = ask(POLYLIMIT_PEEK, "k", 1);
    request.policy = "api";
    request.plan = "gold";
    polylimit_result result;
    OK(polylimit_limiter_call(limiter, &request, NULL, &result, sizeof result, MESSAGE));
    CHECK(result.answer.decision.remaining == 5);
    polylimit_configuration *status = NULL;
    const char *numbers = "{\"numbers\": \"8/minute fixed_window\", \"by\": \"ann\"}";
    OK(polylimit_admin_set_entry(limiter, "override api k", numbers, &status, MESSAGE));
    CHECK(status != NULL && status->version > 0);
    polylimit_configuration_free(status);
    OK(polylimit_limiter_call(limiter, &request, NULL, &result, sizeof result, MESSAGE));
    CHECK(result.answer.decision.remaining == 8);
    OK(polylimit_admin_delete_entry(limiter, "override api k", NULL, MESSAGE));
    request.plan = NULL;
    OK(polylimit_limiter_call(limiter, &request, NULL, &result, sizeof result, MESSAGE));
    CHECK(result.answer.decision.remaining == 3);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_set_entry(limiter, "block api k", "{}", NULL, MESSAGE));
    polylimit_candidate_counts counts = {.size = sizeof counts};
    OK(polylimit_admin_candidate_counts(limiter, "api", &counts, MESSAGE));
    CHECK(counts.has_candidate == 0 && counts.both_allow == 0);
    polylimit_limiter_free(limiter);
}

static void rules_find_the_policies_of_a_request(void) {
    polylimit_limiter *limiter = configured(DOCUMENT, NULL);
    polylimit_attributes request = request_of("/v1/a?b=c");
    polylimit_matches *matches = NULL;
    OK(polylimit_admin_matching(limiter, &request, &matches, MESSAGE));
    CHECK(polylimit_matches_count(matches) == 1);
    polylimit_match found = {.size = sizeof found};
    OK(polylimit_matches_at(matches, 0, &found, MESSAGE));
    CHECK(strcmp(found.policy, "api") == 0 && found.key_length == 5 && memcmp(found.key, "alice", 5) == 0);
    CHECK(found.cost == 2 && found.headroom == 20);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_matches_at(matches, 1, &found, MESSAGE));
    polylimit_matches_free(matches);
    polylimit_matches_free(NULL);
    CHECK(polylimit_matches_count(NULL) == 0);
    /* The router reads paths in its own way, and the target has an authority. */
    static const struct {
        const char *path;
        uint32_t router;
        size_t matches;
    } readings[] = {{"http://h/v1/a", 0, 1}, {"/V1/a", 0, 0}, {"/V1/a", POLYLIMIT_PATHS_IGNORE_CASE, 1},
                    {"/v1;x=1/a", POLYLIMIT_PATHS_DROP_PARAMETERS, 1}, {"/v1;x=1/a", POLYLIMIT_PATHS_IGNORE_CASE, 0},
                    {"/x/..%2fv1/a", 0, 1}, {"/x/..%2fv1/a", POLYLIMIT_PATHS_EVERY_READING, 1}};
    for (size_t at = 0; at < sizeof readings / sizeof *readings; at++) {
        request = request_of(readings[at].path);
        request.router_paths = readings[at].router;
        OK(polylimit_admin_matching(limiter, &request, &matches, MESSAGE));
        CHECK(polylimit_matches_count(matches) == readings[at].matches);
        polylimit_matches_free(matches);
    }
    polylimit_pair pair = {LINE("user"), LINE("\xff")};
    request = request_of("/slow");
    request.attributes = &pair;
    request.attribute_count = 1;
    OK(polylimit_admin_matching(limiter, &request, &matches, MESSAGE));
    OK(polylimit_matches_at(matches, 1, &found, MESSAGE));
    CHECK(found.key_length == 1 && memcmp(found.key, "\xff", 1) == 0);
    polylimit_matches_free(matches);
    pair.name.start = "\xff\xff\xff";
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_matching(limiter, &request, &matches, MESSAGE));
    pair.name.start = NULL;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_matching(limiter, &request, &matches, MESSAGE));
    request.size = 8;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_matching(limiter, &request, &matches, MESSAGE));
    polylimit_limiter_free(limiter);
}

static polylimit_request_outcome outcome_of(const polylimit_request_decision *decision) {
    polylimit_request_outcome outcome = {.size = sizeof outcome};
    OK(polylimit_request_decision_outcome(decision, &outcome, MESSAGE));
    return outcome;
}

static polylimit_request_outcome decided(const polylimit_limiter *limiter, const polylimit_attributes *request) {
    polylimit_request_decision *decision = NULL;
    OK(polylimit_limiter_decide(limiter, request, NULL, &decision, MESSAGE));
    polylimit_request_outcome outcome = outcome_of(decision);
    polylimit_request_decision_free(decision);
    return outcome;
}

static void request_is_decided_by_its_attributes(void) {
    polylimit_limiter *limiter = configured(DOCUMENT, NULL);
    polylimit_attributes request = request_of("/slow");
    polylimit_reservation_options options = {.size = sizeof options};
    OK(polylimit_reservation_defaults(&options, MESSAGE));
    options.id = "one";
    options.id_length = 3;
    polylimit_request_decision *decision = NULL;
    OK(polylimit_limiter_decide(limiter, &request, &options, &decision, MESSAGE));
    polylimit_request_outcome outcome = outcome_of(decision);
    CHECK(outcome.allowed == 1 && outcome.cause == 0 && outcome.http_status == 0 && outcome.policy_count == 2);
    polylimit_policy_decision made = {.size = sizeof made};
    OK(polylimit_request_decision_at(decision, 0, &made, MESSAGE));
    CHECK(strcmp(made.policy, "slots") == 0 && made.key_length == 3 && made.id_length == 3 && memcmp(made.id, "one", 3) == 0);
    OK(polylimit_request_decision_at(decision, 1, &made, MESSAGE));
    CHECK(strcmp(made.policy, "api") == 0 && made.id == NULL && made.decision.remaining == 2 && made.cost == 1);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_request_decision_at(decision, 2, &made, MESSAGE));
    polylimit_request_decision_free(decision);

    outcome = decided(limiter, &request);
    CHECK(outcome.allowed == 0 && outcome.http_status == 429 && strcmp(polylimit_cause_name(outcome.cause), "concurrency") == 0);
    polylimit_usage usage = {.size = sizeof usage};
    OK(polylimit_limiter_cancel(limiter, "slots", "all", 3, "one", 3, &usage, MESSAGE));
    CHECK(usage.found == 1);
    options.id = "job";
    options.remember_us = 60000000;
    for (uint32_t run = 0; run < 2; run++) {
        OK(polylimit_limiter_reset(limiter, "api", "alice", 5, &usage, MESSAGE));
        OK(polylimit_limiter_decide(limiter, &request, &options, &decision, MESSAGE));
        CHECK(outcome_of(decision).allowed == 1);
        polylimit_request_decision_free(decision);
        OK(polylimit_limiter_commit(limiter, "slots", "all", 3, "job", 3, POLYLIMIT_AS_RESERVED, &usage, MESSAGE));
        CHECK(usage.found == 1 && usage.repeated == run);
    }
    options.timeout_us = 1000;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_decide(limiter, &request, &options, &decision, MESSAGE));
    request = request_of("/v1/a");
    /* The cost without the user. */
    request.attributes += 1;
    request.attribute_count = 1;
    outcome = decided(limiter, &request);
    CHECK(outcome.allowed == 0 && outcome.http_status == 400 && outcome.retry_after_us == POLYLIMIT_NEVER);
    request = request_of("/v1/a");
    request.peer = (polylimit_line)LINE("203.0.113.9");
    outcome = decided(limiter, &request);
    CHECK(outcome.http_status == 403 && outcome.policy_count == 0);
    CHECK(strcmp(polylimit_cause_name(outcome.cause), "deny_list") == 0);
    request = request_of("/elsewhere");
    outcome = decided(limiter, &request);
    CHECK(outcome.allowed == 1 && outcome.policy_count == 0 && outcome.retry_after_us == 0);
    polylimit_request_decision_free(NULL);
    polylimit_limiter_free(limiter);
}

static polylimit_status drained(const polylimit_completions *completions, polylimit_status status, uint64_t tag) {
    polylimit_result result;
    size_t count = 0;
    while (status == POLYLIMIT_PENDING) {
        struct pollfd watched = {.fd = polylimit_completions_fd(completions), .events = POLLIN, .revents = 0};
        CHECK(poll(&watched, 1, 60000) == 1);
        OK(polylimit_completions_drain(completions, &result, sizeof result, 1, &count, MESSAGE));
        if (count == 1) {
            CHECK(result.tag == tag);
            status = result.status;
            snprintf(message, sizeof message, "%s", result.message);
        }
    }
    return status;
}

static void redis_has_documents_and_entries(void) {
    char prefix[64];
    snprintf(prefix, sizeof prefix, "configuration-%ld", (long)getpid());
    polylimit_option options[] = {{"configuration", "store"}, {"prefix", prefix}, {"deadline", "30s"}};
    polylimit_limiter *limiter = NULL;
    polylimit_completions *completions = NULL;
    OK(polylimit_completions_open(&completions, MESSAGE));
    OK(polylimit_limiter_open(redis_url(), options, 3, NULL, &limiter, MESSAGE));
    polylimit_configuration *status = NULL;
    OK(polylimit_admin_publish(limiter, DOCUMENT, NULL, "ann", "the first", &status, MESSAGE));
    CHECK(strcmp(status->source, "store") == 0 && status->version > 0 && strlen(status->digest) == 64);
    uint64_t version = status->version, unexpected = 99;
    polylimit_configuration_free(status);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_publish(limiter, DOCUMENT, &unexpected, NULL, NULL, NULL, MESSAGE));
    CHECK(strstr(message, "99") != NULL);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_publish(limiter, "polylimit = 1", NULL, NULL, NULL, NULL, MESSAGE));
    CHECK(strstr(message, "it may be incomplete") != NULL);
    polylimit_result result;
    polylimit_change change = {.size = sizeof change, .operation = POLYLIMIT_SET_ENTRY, .entry = "deny user alice"};
    OK(drained(completions,
               polylimit_completions_submit_change(completions, limiter, &change, 5, &result, sizeof result, MESSAGE), 5));
    OK(polylimit_admin_wait_for_version(limiter, version + 1, 30000000, &status, MESSAGE));
    uint64_t document_version = status->document_version;
    CHECK(document_version == 1 && status->version > version);
    polylimit_configuration_free(status);
    OK(polylimit_admin_publish(limiter, DOCUMENT, &document_version, NULL, NULL, NULL, MESSAGE));
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_publish(limiter, DOCUMENT, &document_version, NULL, NULL, NULL, MESSAGE));
    polylimit_attributes request = request_of("/slow");
    polylimit_request_decision *decision = NULL;
    OK(drained(completions,
               polylimit_completions_submit_decide(completions, limiter, &request, NULL, 6, &decision, &result, sizeof result,
                                                   MESSAGE),
               6));
    CHECK(outcome_of(decision).http_status == 403);
    polylimit_request_decision_free(decision);
    OK(polylimit_admin_delete_entry(limiter, "deny user alice", NULL, MESSAGE));
    polylimit_status pending =
        polylimit_completions_submit_decide(completions, limiter, &request, NULL, 7, &decision, &result, sizeof result, MESSAGE);
    polylimit_request_outcome early = {.size = sizeof early};
    if (pending == POLYLIMIT_PENDING) {
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_request_decision_outcome(decision, &early, MESSAGE));
    }
    OK(drained(completions, pending, 7));
    CHECK(outcome_of(decision).allowed == 1 && outcome_of(decision).policy_count == 2);
    polylimit_request_decision_free(decision);
    uint32_t stopped = 1;
    change = (polylimit_change){.size = sizeof change, .operation = POLYLIMIT_WAIT_FOR_VERSION, .version = version + 100};
    change.timeout_us = 60000000;
    IS(POLYLIMIT_PENDING, polylimit_admin_change(limiter, &change, &stopped, NULL, MESSAGE));
    change.operation = 5;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_change(limiter, &change, NULL, NULL, MESSAGE));
    polylimit_completions_free(completions);
    polylimit_limiter_free(limiter);
}

static void written(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void limiter_starts_from_the_copy_of_a_file(void) {
    char folder[] = "/tmp/polylimit-copy-XXXXXX", path[64], copy[64], source[80];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/limits.toml", folder);
    snprintf(copy, sizeof copy, "%s/copy", folder);
    snprintf(source, sizeof source, "file:%s", path);
    written(path, DOCUMENT);
    polylimit_option options[] = {{"configuration", source}, {"copy", copy}};
    polylimit_limiter *limiter = NULL;
    OK(polylimit_limiter_open("memory:", options, 2, NULL, &limiter, MESSAGE));
    for (int tries = 0; access(copy, F_OK) != 0; tries++) {
        CHECK(tries < 60000);
        usleep(1000);
    }
    polylimit_limiter_free(limiter);
    CHECK(unlink(path) == 0);
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_limiter_open("memory:", options, 1, NULL, &limiter, MESSAGE));
    OK(polylimit_limiter_open("memory:", options, 2, NULL, &limiter, MESSAGE));
    polylimit_attributes request = request_of("/slow");
    CHECK(decided(limiter, &request).policy_count == 2);
    polylimit_limiter_free(limiter);
    CHECK(unlink(copy) == 0 && rmdir(folder) == 0);
}

static void null_is_refused(void) {
    polylimit_limiter *limiter = configured(DOCUMENT, NULL);
    polylimit_attributes request = request_of("/slow");
    polylimit_matches *matches = NULL;
    polylimit_request_decision *decision = NULL;
    polylimit_configuration *status = NULL;
    polylimit_candidate_counts counts = {.size = sizeof counts};
    polylimit_change change = {.size = sizeof change, .operation = POLYLIMIT_SET_ENTRY};
    polylimit_request_outcome outcome = {.size = sizeof outcome};
#define REFUSED(call) IS(POLYLIMIT_INVALID_ARGUMENT, call)
    REFUSED(polylimit_admin_configuration(NULL, &status, MESSAGE));
    REFUSED(polylimit_admin_configuration(limiter, NULL, MESSAGE));
    REFUSED(polylimit_admin_set_document(limiter, NULL, NULL, MESSAGE));
    REFUSED(polylimit_admin_set_document(NULL, DOCUMENT, NULL, MESSAGE));
    REFUSED(polylimit_admin_set_entry(limiter, NULL, NULL, NULL, MESSAGE));
    REFUSED(polylimit_admin_delete_entry(limiter, NULL, NULL, MESSAGE));
    REFUSED(polylimit_admin_publish(limiter, NULL, NULL, NULL, NULL, NULL, MESSAGE));
    REFUSED(polylimit_admin_change(limiter, &change, NULL, NULL, MESSAGE));
    REFUSED(polylimit_admin_change(limiter, NULL, NULL, NULL, MESSAGE));
    REFUSED(polylimit_admin_change(NULL, &change, NULL, NULL, MESSAGE));
    REFUSED(polylimit_admin_matching(NULL, &request, &matches, MESSAGE));
    REFUSED(polylimit_admin_matching(limiter, NULL, &matches, MESSAGE));
    REFUSED(polylimit_admin_matching(limiter, &request, NULL, MESSAGE));
    REFUSED(polylimit_limiter_decide(limiter, NULL, NULL, &decision, MESSAGE));
    REFUSED(polylimit_limiter_decide(limiter, &request, NULL, NULL, MESSAGE));
    REFUSED(polylimit_request_decision_outcome(NULL, &outcome, MESSAGE));
    REFUSED(polylimit_request_decision_at(NULL, 0, NULL, MESSAGE));
    REFUSED(polylimit_admin_candidate_counts(limiter, NULL, &counts, MESSAGE));
    REFUSED(polylimit_admin_candidate_counts(limiter, "api", NULL, MESSAGE));
    polylimit_limiter_close(limiter);
    IS(POLYLIMIT_CLOSED, polylimit_limiter_decide(limiter, &request, NULL, &decision, MESSAGE));
    polylimit_limiter_free(limiter);
}

int main(void) {
    static const struct test tests[] = {
        {"document is replaced and a bad one is not taken", document_is_replaced_and_a_bad_one_is_not_taken},
        {"plan and override decide about a key", plan_and_override_decide_about_a_key},
        {"rules find the policies of a request", rules_find_the_policies_of_a_request},
        {"request is decided by its attributes", request_is_decided_by_its_attributes},
        {"Redis has documents and entries", redis_has_documents_and_entries},
        {"limiter starts from the copy of a file", limiter_starts_from_the_copy_of_a_file},
        {"NULL is refused", null_is_refused},
    };
    RUN(tests);
}
