/* A guard whose limiter has a configuration: the rules of the document decide about HTTP requests. */
#include "check.h"

#include <poll.h>
#include <unistd.h>

#define DOCUMENT                                                                                                       \
    "polylimit = 1\n"                                                                                                  \
    "[policies.login]\n"                                                                                               \
    "quotas = '2/hour fixed_window'\n"                                                                                 \
    "[policies.tokens]\n"                                                                                              \
    "quotas = '100/hour fixed_window'\n"                                                                               \
    "plans = { gold = '1000/hour fixed_window' }\n"                                                                    \
    "[policies.tried]\n"                                                                                               \
    "quotas = '1/hour fixed_window'\n"                                                                                 \
    "mode = 'shadow'\n"                                                                                                \
    "[[rules]]\n"                                                                                                      \
    "match = { method = 'POST', path = '/login' }\n"                                                                   \
    "apply = [{ policy = 'login', key = '{client}' }]\n"                                                               \
    "[[rules]]\n"                                                                                                      \
    "match = { path = '/v1/{model}' }\n"                                                                               \
    "apply = [{ policy = 'tokens', key = '{user}|{path.model}', cost = '{header.x-tokens}', missing = 'deny' }]\n"     \
    "[[rules]]\n"                                                                                                      \
    "match = { path = '/batch' }\n"                                                                                    \
    "apply = [{ policy = 'tokens', key = '{user}', cost = '{units}' }]\n"                                              \
    "[[rules]]\n"                                                                                                      \
    "match = { path = '/tried' }\n"                                                                                    \
    "apply = [{ policy = 'tried', key = '{client}' }]\n"                                                               \
    "[lists]\n"                                                                                                        \
    "deny = ['client 203.0.113.0/24', 'user mallory']\n"

static const polylimit_option BY_CONFIGURATION = {"by_configuration", "true"};

static polylimit_limiter *configured(const polylimit_clock *clock) {
    polylimit_limiter *limiter = NULL;
    polylimit_option option = {"document", DOCUMENT};
    OK(polylimit_limiter_open("memory:", &option, 1, clock, &limiter, MESSAGE));
    return limiter;
}

static polylimit_guard *guard_of(const polylimit_limiter *limiter) {
    polylimit_guard *guard = NULL;
    OK(polylimit_guard_new(limiter, &BY_CONFIGURATION, 1, &guard, MESSAGE));
    return guard;
}

static polylimit_line line(const char *text) {
    return (polylimit_line){text, text == NULL ? 0 : strlen(text)};
}

/* A request of a test: `tokens` is a header, `user`, `plan` and `units` are what the program knows. */
struct request {
    const char *method, *path, *peer, *tokens, *user, *plan, *units;
};

/* What a middleware does about a request, by this thread or, with completions, without waiting. */
struct response {
    uint32_t status;
    char fields[512];
    char body[512];
};

static void finish_step(const polylimit_guard_check *check, const polylimit_completions *completions) {
    if (completions == NULL) {
        OK(polylimit_guard_check_run(check, NULL, MESSAGE));
        return;
    }
    polylimit_status status = polylimit_guard_check_submit(check, completions, 7, MESSAGE);
    while (status == POLYLIMIT_PENDING) {
        struct pollfd readable = {.fd = polylimit_completions_fd(completions), .events = POLLIN, .revents = 0};
        CHECK(poll(&readable, 1, 60000) == 1);
        polylimit_result result;
        size_t count = 0;
        OK(polylimit_completions_drain(completions, &result, sizeof result, 1, &count, MESSAGE));
        if (count == 1) {
            status = polylimit_guard_check_submit(check, completions, 7, MESSAGE);
        }
    }
    OK(status);
}

static struct response respond(const polylimit_guard *guard, const polylimit_completions *completions, struct request request) {
    polylimit_pair header = {line("X-Tokens"), line(request.tokens)}, pairs[3];
    size_t count = 0;
    const char *known[][2] = {{"user", request.user}, {"plan", request.plan}, {"units", request.units}};
    for (size_t at = 0; at < sizeof known / sizeof *known; at++) {
        if (known[at][1] != NULL) {
            pairs[count++] = (polylimit_pair){line(known[at][0]), line(known[at][1])};
        }
    }
    polylimit_attributes attributes = {.size = sizeof attributes, .method = line(request.method), .path = line(request.path)};
    attributes.peer = line(request.peer == NULL ? "192.0.2.1" : request.peer);
    attributes.headers = &header;
    attributes.header_count = request.tokens != NULL;
    attributes.attributes = pairs;
    attributes.attribute_count = count;
    polylimit_request_facts facts = {.size = sizeof facts, .attributes = &attributes};
    polylimit_guard_check *check = NULL;
    OK(polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    finish_step(check, completions);
    uint32_t admitted = 2;
    OK(polylimit_guard_check_conclude(check, POLYLIMIT_OUTAGE_LEAVE, &admitted, MESSAGE));
    finish_step(check, completions);
    struct response response = {.status = 200};
    OK(polylimit_guard_check_fields(check, response.fields, sizeof response.fields, NULL, MESSAGE));
    if (admitted == 1) {
        OK(polylimit_guard_check_finish(check, 1, MESSAGE));
        finish_step(check, completions);
    } else {
        OK(polylimit_guard_check_response(check, "text/plain", &response.status, response.body, sizeof response.body, NULL,
                                          MESSAGE));
    }
    polylimit_guard_check_free(check);
    return response;
}

static uint32_t status_of(const polylimit_guard *guard, struct request request) {
    return respond(guard, NULL, request).status;
}

static void rule_is_found_by_method_and_path(void) {
    polylimit_clock *clock = NULL;
    OK(polylimit_clock_new(START_US, &clock, MESSAGE));
    polylimit_limiter *limiter = configured(clock);
    polylimit_guard *guard = guard_of(limiter);
    struct request login = {.method = "POST", .path = "/login?next=%2F"};
    struct response first = respond(guard, NULL, login);
    CHECK(first.status == 200);
    CHECK(strcmp(first.fields, "ratelimit-policy: \"login\";q=2;w=3600\r\nratelimit: \"login\";r=1;t=3600\r\n") == 0);
    CHECK(status_of(guard, login) == 200);
    struct response denied = respond(guard, NULL, login);
    CHECK(denied.status == 429 && strstr(denied.fields, "retry-after: 3600\r\n") != NULL);
    CHECK(strstr(denied.body, "retry in 3600 s") != NULL);
    login.peer = "192.0.2.2";
    CHECK(status_of(guard, login) == 200);
    struct request form = {.method = "GET", .path = "/login"};
    for (int at = 0; at < 3; at++) {
        struct response unlimited = respond(guard, NULL, form);
        CHECK(unlimited.status == 200 && unlimited.fields[0] == 0);
    }
    OK(polylimit_clock_advance(clock, 3600000000, MESSAGE));
    login.peer = NULL;
    CHECK(status_of(guard, login) == 200);
    polylimit_guard_free(guard);
    polylimit_limiter_free(limiter);
    polylimit_clock_free(clock);
}

static void cost_is_that_of_a_header_or_an_attribute(void) {
    polylimit_limiter *limiter = configured(NULL);
    polylimit_guard *guard = guard_of(limiter);
    struct request asked = {.method = "GET", .path = "/v1/large", .tokens = "60", .user = "alice"};
    struct response first = respond(guard, NULL, asked);
    CHECK(first.status == 200 && strstr(first.fields, "ratelimit: \"tokens\";r=40;") != NULL);
    CHECK(status_of(guard, asked) == 429);
    asked.tokens = "40";
    CHECK(status_of(guard, asked) == 200);
    /* What a plan, another model and another user may spend. */
    asked.plan = "gold";
    CHECK(strstr(respond(guard, NULL, asked).fields, "\"tokens\";r=860;") != NULL);
    asked.plan = NULL;
    asked.path = "/v1/small";
    CHECK(strstr(respond(guard, NULL, asked).fields, "\"tokens\";r=60;") != NULL);
    struct request batch = {.method = "GET", .path = "/batch", .user = "bob", .units = "99"};
    CHECK(strstr(respond(guard, NULL, batch).fields, "\"tokens\";r=1;") != NULL && status_of(guard, batch) == 429);
    static const char *const wrong[] = {NULL, "", "many", "-1", "1000000000001"};
    for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++) {
        asked.tokens = batch.units = wrong[at];
        struct response refused = respond(guard, NULL, asked);
        CHECK(refused.status == 400 && refused.fields[0] == 0 && status_of(guard, batch) == 400);
    }
    polylimit_guard_free(guard);
    polylimit_limiter_free(limiter);
}

static void lists_and_missing_keys_ask_no_store(void) {
    polylimit_limiter *limiter = configured(NULL);
    polylimit_guard *guard = guard_of(limiter);
    struct request listed[] = {
        {.method = "GET", .path = "/", .peer = "203.0.113.9"},
        {.method = "POST", .path = "/login", .peer = "203.0.113.9:4711"},
        {.method = "GET", .path = "/v1/large", .tokens = "1", .user = "mallory"},
    };
    for (size_t at = 0; at < sizeof listed / sizeof *listed; at++) {
        struct response denied = respond(guard, NULL, listed[at]);
        CHECK(denied.status == 403 && denied.fields[0] == 0 && denied.body[0] != 0);
    }
    struct request missing_user = {.method = "GET", .path = "/v1/large", .tokens = "1"};
    struct response missing = respond(guard, NULL, missing_user);
    CHECK(missing.status == 400 && missing.fields[0] == 0);
    /* A policy in shadow denies nothing, and no field shows it. */
    struct request tried = {.method = "GET", .path = "/tried"};
    for (int at = 0; at < 3; at++) {
        struct response admitted = respond(guard, NULL, tried);
        CHECK(admitted.status == 200 && admitted.fields[0] == 0);
    }
    polylimit_guard_free(guard);
    polylimit_limiter_free(limiter);
}

static void document_changes_while_the_guard_is_used(void) {
    polylimit_limiter *limiter = configured(NULL);
    polylimit_guard *guard = guard_of(limiter);
    struct request login = {.method = "POST", .path = "/login"};
    CHECK(status_of(guard, login) == 200 && status_of(guard, login) == 200 && status_of(guard, login) == 429);
    char larger[sizeof DOCUMENT];
    memcpy(larger, DOCUMENT, sizeof larger);
    *strstr(larger, "2/hour") = '4';
    OK(polylimit_admin_set_document(limiter, larger, NULL, MESSAGE));
    /* What was used stays used. */
    CHECK(strstr(respond(guard, NULL, login).fields, "\"login\";r=1;") != NULL);
    OK(polylimit_admin_set_entry(limiter, "deny client 192.0.2.0/24", NULL, NULL, MESSAGE));
    CHECK(status_of(guard, login) == 403);
    OK(polylimit_admin_delete_entry(limiter, "deny client 192.0.2.0/24", NULL, MESSAGE));
    /* A bad document changes nothing. */
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_admin_set_document(limiter, "polylimit = 1\nrule = 2\n", NULL, MESSAGE));
    CHECK(status_of(guard, login) == 200 && status_of(guard, login) == 429);
    OK(polylimit_admin_set_document(limiter, "polylimit = 1\nenabled = false\n", NULL, MESSAGE));
    struct response unlimited = respond(guard, NULL, login);
    CHECK(unlimited.status == 200 && unlimited.fields[0] == 0);
    polylimit_guard_free(guard);
    polylimit_limiter_free(limiter);
}

/* The example of docs/policies.md, word for word, with another store; `bindings/c/check` compares them. */
static void example_of_the_page_on_policies_decides(void) {
    polylimit_limiter *limiter = NULL, *writer = NULL;
    polylimit_guard *guard = NULL;
    polylimit_status status;
    char prefixed[512];
    snprintf(prefixed, sizeof prefixed, "%s&prefix=page-%ld", redis_url(), (long)getpid());
    polylimit_line method = line("GET"), path = line("/"), peer = line("192.0.2.1");
    polylimit_pair headers[] = {{line("X-Plan"), line("none")}};
    size_t header_count = 1;

    polylimit_option store = {"configuration", "store"}, by_configuration = {"by_configuration", "true"};
    status = polylimit_limiter_open(prefixed, &store, 1, NULL, &limiter, message, sizeof message);
    if (status == POLYLIMIT_OK) {
        status = polylimit_guard_new(limiter, &by_configuration, 1, &guard, message, sizeof message);
    }

    OK(status);
    OK(polylimit_limiter_open(prefixed, &store, 1, NULL, &writer, MESSAGE));
    OK(polylimit_admin_publish(writer, "polylimit = 1\nlists.deny = ['header.x-plan none']", NULL, NULL, NULL, NULL, MESSAGE));
    for (int left = 1; left >= 0; left--, header_count--) {
        /* For each request: polylimit_guard_check_new takes the facts, and decides. */
        polylimit_attributes attributes = {.size = sizeof attributes, .method = method, .path = path, .peer = peer};
        attributes.headers = headers;
        attributes.header_count = header_count;
        polylimit_request_facts facts = {.size = sizeof facts, .attributes = &attributes};
        polylimit_guard_check *check = NULL;
        OK(polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
        finish_step(check, NULL);
        uint32_t admitted = 2;
        OK(polylimit_guard_check_conclude(check, POLYLIMIT_OUTAGE_LEAVE, &admitted, MESSAGE));
        CHECK(admitted == (left == 0));
        polylimit_guard_check_free(check);
    }
    polylimit_guard_free(guard);
    polylimit_limiter_free(limiter);
    polylimit_limiter_free(writer);
}

/* Another process publishes; the server of this one has one thread, which waits for nothing. */
static void document_in_redis_decides_by_completions(void) {
    char prefix[64];
    snprintf(prefix, sizeof prefix, "guard-%ld", (long)getpid());
    polylimit_option options[] = {{"configuration", "store"}, {"prefix", prefix}, {"deadline", "30s"}};
    polylimit_limiter *writer = NULL, *limiter = NULL;
    polylimit_completions *completions = NULL;
    polylimit_configuration *status = NULL;
    OK(polylimit_limiter_open(redis_url(), options, 3, NULL, &writer, MESSAGE));
    OK(polylimit_admin_publish(writer, DOCUMENT, NULL, NULL, NULL, NULL, MESSAGE));
    OK(polylimit_limiter_open(redis_url(), options, 3, NULL, &limiter, MESSAGE));
    OK(polylimit_completions_open(&completions, MESSAGE));
    polylimit_guard *guard = guard_of(limiter);
    struct request login = {.method = "POST", .path = "/login"};
    static const uint32_t expected[] = {200, 200, 429};
    for (size_t at = 0; at < 3; at++) {
        CHECK(respond(guard, completions, login).status == expected[at]);
    }
    OK(polylimit_admin_set_entry(writer, "deny client 192.0.2.1", NULL, &status, MESSAGE));
    OK(polylimit_admin_wait_for_version(limiter, status->version, 30000000, NULL, MESSAGE));
    polylimit_configuration_free(status);
    CHECK(respond(guard, completions, login).status == 403);
    login.peer = "192.0.2.2";
    CHECK(strstr(respond(guard, completions, login).fields, "\"login\";r=1;") != NULL);
    polylimit_completions_free(completions);
    polylimit_guard_free(guard);
    polylimit_limiter_free(limiter);
    polylimit_limiter_free(writer);
}

static void what_does_not_go_together_is_refused(void) {
    polylimit_limiter *limiter = configured(NULL), *without = open_limiter("memory:", "5/hour", NULL);
    polylimit_guard *guard = NULL;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_new(without, &BY_CONFIGURATION, 1, &guard, MESSAGE));
    polylimit_option beside[] = {{"policy", "login"}, {"key_part", "user"}, {"cost", "2"}, {"scope", "/x"}, {"per_request", "true"}};
    for (size_t at = 0; at < sizeof beside / sizeof *beside; at++) {
        polylimit_option both[] = {BY_CONFIGURATION, beside[at]};
        IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_new(limiter, both, 2, &guard, MESSAGE));
        CHECK(guard == NULL && message[0] != 0);
    }
    polylimit_option unclear = {"by_configuration", "1"};
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_new(limiter, &unclear, 1, &guard, MESSAGE));
    guard = guard_of(limiter);
    polylimit_request_facts facts = {.size = sizeof facts, .key = "k", .key_length = 1};
    polylimit_guard_check *check = NULL;
    IS(POLYLIMIT_INVALID_ARGUMENT, polylimit_guard_check_new(guard, NULL, &facts, &check, MESSAGE));
    CHECK(check == NULL && strstr(message, "attributes") != NULL);
    polylimit_guard_free(guard);
    polylimit_limiter_free(limiter);
    polylimit_limiter_free(without);
}

int main(void) {
    static const struct test tests[] = {
        {"rule is found by method and path", rule_is_found_by_method_and_path},
        {"cost is that of a header or an attribute", cost_is_that_of_a_header_or_an_attribute},
        {"lists and missing keys ask no store", lists_and_missing_keys_ask_no_store},
        {"document changes while the guard is used", document_changes_while_the_guard_is_used},
        {"document in Redis decides by completions", document_in_redis_decides_by_completions},
        {"example of the page on policies decides", example_of_the_page_on_policies_decides},
        {"what does not go together is refused", what_does_not_go_together_is_refused},
    };
    RUN(tests);
}
