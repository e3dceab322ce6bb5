/*
 * Runs a file of conformance cases through the C++ interface, and prints how many cases agree.
 *
 * Usage: run FILE STORE, where STORE is "memory" or the URL of a store.
 */
#include <polylimit.hpp>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <poll.h>
#include <string>

#include "cases.h"
#include "policies.hpp"
#include "together.hpp"

namespace {

struct Deleted {
    void operator()(cJSON *json) const noexcept { cJSON_Delete(json); }
};
using Json = std::unique_ptr<cJSON, Deleted>;

const cJSON *field(const cJSON *object, const char *name) { return cJSON_GetObjectItemCaseSensitive(object, name); }

std::uint64_t number(const cJSON *object, const char *name, std::uint64_t otherwise) {
    cases_number(object, name, &otherwise);
    return otherwise;
}

std::string quotas(const cJSON *list) {
    char text[4096], message[512];
    if (!cases_quotas(list, text, sizeof text, message, sizeof message)) {
        throw polylimit::Error(POLYLIMIT_INVALID_ARGUMENT, message);
    }
    return text;
}

/** An answer of an outage policy is left out, so that it differs from every expectation. */
bool is_of_store(const char *source) {
    std::string name = source;
    return name != "fallback" && name != "allow" && name != "deny";
}

Json to_json(const polylimit::Decision &decision) {
    Json json(cJSON_CreateObject());
    if (!is_of_store(decision.source())) {
        return json;
    }
    auto add = [&](const char *name, double value) { cJSON_AddNumberToObject(json.get(), name, value); };
    cJSON_AddBoolToObject(json.get(), "allowed", decision.allowed());
    add("remaining", static_cast<double>(decision.remaining()));
    if (auto retry_after = decision.retry_after()) {
        add("retry_after_us", static_cast<double>(retry_after->count()));
    } else {
        cJSON_AddNullToObject(json.get(), "retry_after_us");
    }
    add("reset_after_us", static_cast<double>(decision.reset_after().count()));
    add("delay_us", static_cast<double>(decision.delay().count()));
    add("over", static_cast<double>(decision.over()));
    return json;
}

Json to_json(const polylimit::Usage &usage, std::uint32_t operation) {
    Json json(cJSON_CreateObject());
    if (!is_of_store(usage.source())) {
        return json;
    }
    auto add = [&](const char *name, double value) { cJSON_AddNumberToObject(json.get(), name, value); };
    add("remaining", static_cast<double>(usage.remaining()));
    add("reset_after_us", static_cast<double>(usage.reset_after().count()));
    if (operation == POLYLIMIT_TAKE) {
        add("taken", static_cast<double>(usage.taken()));
    }
    if (operation == POLYLIMIT_COMMIT || operation == POLYLIMIT_CANCEL || operation == POLYLIMIT_RENEW) {
        cJSON_AddBoolToObject(json.get(), "found", usage.found());
        cJSON_AddBoolToObject(json.get(), "repeated", usage.repeated());
    }
    return json;
}

/** The operations by calls that wait. */
struct Blocking {
    static constexpr const char *name = "c++";
    static constexpr int number = 0;

    policies::Json operate(const polylimit::Limiter &limiter, std::uint32_t operation, const std::string &key,
                           const polylimit::Ask &ask, const polylimit::ReservationTerms &terms) {
        polylimit::ReserveOptions options;
        switch (operation) {
        case POLYLIMIT_CHECK:
            return policies::to_json(limiter.check(key, ask));
        case POLYLIMIT_PEEK:
            return policies::to_json(limiter.peek(key, ask));
        case POLYLIMIT_TAKE:
            return policies::to_json(limiter.take(key, ask));
        case POLYLIMIT_CHARGE:
            return policies::to_json(limiter.charge(key, ask));
        case POLYLIMIT_REFUND:
            return policies::to_json(limiter.refund(key, ask));
        case POLYLIMIT_RESERVE: {
            options.id = terms.id;
            options.ttl = terms.ttl;
            options.remember = terms.remember;
            options.max_age = std::chrono::microseconds(0);
            auto reservation = limiter.reserve(key, ask, options);
            // It stays as the case leaves it.
            reservation.detach();
            return policies::to_json(reservation.decision());
        }
        case POLYLIMIT_COMMIT:
            return policies::to_json(limiter.commit(key, terms.id, ask.cost, ask.policy, ask.plan));
        case POLYLIMIT_CANCEL:
            return policies::to_json(limiter.cancel(key, terms.id, ask.policy, ask.plan));
        case POLYLIMIT_RENEW:
            return policies::to_json(limiter.renew(key, terms.id, terms.ttl, ask.policy, ask.plan));
        case POLYLIMIT_BLOCK:
            return policies::to_json(limiter.admin().block(key, terms.ttl, ask.policy, ask.plan));
        default:
            return policies::to_json(limiter.reset(key, ask.policy, ask.plan));
        }
    }

    polylimit::RequestDecision decide(const polylimit::Limiter &limiter, const polylimit::RequestAttributes &request,
                                      const polylimit::ReserveOptions &options) {
        return limiter.decide(request, options);
    }

    std::vector<polylimit::Decision> together(const polylimit::Limiter &limiter, std::uint32_t operation,
                                              const std::vector<polylimit::Request> &requests,
                                              const polylimit::ReservationTerms &terms) {
        if (operation == POLYLIMIT_CHECK) {
            return limiter.check_together(requests);
        }
        if (operation == POLYLIMIT_PEEK) {
            return limiter.peek_together(requests);
        }
        polylimit::ReserveOptions options;
        options.id = terms.id;
        options.ttl = terms.ttl;
        return limiter.reserve_together(requests, options).decisions;
    }

    Json run(const polylimit::Limiter &limiter, std::uint32_t operation, const std::string &key, std::uint64_t cost,
             const polylimit::ReservationTerms &terms) {
        polylimit::Ask ask{nullptr, cost};
        polylimit::ReserveOptions options;
        switch (operation) {
        case POLYLIMIT_CHECK:
            return to_json(limiter.check(key, ask));
        case POLYLIMIT_PEEK:
            return to_json(limiter.peek(key, ask));
        case POLYLIMIT_TAKE:
            return to_json(limiter.take(key, ask), operation);
        case POLYLIMIT_CHARGE:
            return to_json(limiter.charge(key, ask), operation);
        case POLYLIMIT_REFUND:
            return to_json(limiter.refund(key, ask), operation);
        case POLYLIMIT_RESERVE: {
            options.id = terms.id;
            options.ttl = terms.ttl;
            options.remember = terms.remember;
            options.max_age = std::chrono::microseconds(0);
            auto reservation = limiter.reserve(key, ask, options);
            // It stays as the case leaves it.
            reservation.detach();
            return to_json(reservation.decision());
        }
        case POLYLIMIT_COMMIT:
            return to_json(limiter.commit(key, terms.id, cost), operation);
        case POLYLIMIT_CANCEL:
            return to_json(limiter.cancel(key, terms.id), operation);
        case POLYLIMIT_RENEW:
            return to_json(limiter.renew(key, terms.id, terms.ttl), operation);
        default:
            return to_json(limiter.reset(key), operation);
        }
    }
};

/** The operations by completions. */
struct Completed {
    static constexpr const char *name = "c++ (completions)";
    static constexpr int number = 1;

    policies::Json operate(const polylimit::Limiter &limiter, std::uint32_t operation, const std::string &key,
                           const polylimit::Ask &ask, const polylimit::ReservationTerms &terms) {
        auto result = await(completions.submit(limiter, operation, key, ++tag, ask, {}, terms));
        if (operation == POLYLIMIT_CHECK || operation == POLYLIMIT_PEEK || operation == POLYLIMIT_RESERVE) {
            return policies::to_json(polylimit::Decision(result.answer.decision));
        }
        return policies::to_json(polylimit::Usage(result.answer.usage));
    }

    polylimit::RequestDecision decide(const polylimit::Limiter &limiter, const polylimit::RequestAttributes &request,
                                      const polylimit::ReserveOptions &options) {
        auto [decision, result] = completions.submit_decide(limiter, request, ++tag, options);
        await(result);
        return decision.get();
    }

    std::vector<polylimit::Decision> together(const polylimit::Limiter &limiter, std::uint32_t operation,
                                              const std::vector<polylimit::Request> &requests,
                                              const polylimit::ReservationTerms &terms) {
        if (auto known = completions.submit_together(limiter, operation, requests, ++tag, terms)) {
            return *known;
        }
        std::vector<polylimit::Decision> decisions;
        while (decisions.size() < requests.size()) {
            wait();
            completions.drain([&](const polylimit_result &arrived) {
                if (arrived.status != POLYLIMIT_OK) {
                    throw polylimit::Error(arrived.status, arrived.message);
                }
                decisions.emplace_back(arrived.answer.decision);
            });
        }
        return decisions;
    }

    Json run(const polylimit::Limiter &limiter, std::uint32_t operation, const std::string &key, std::uint64_t cost,
             const polylimit::ReservationTerms &terms) {
        auto result = await(completions.submit(limiter, operation, key, ++tag, {nullptr, cost}, {}, terms));
        if (operation == POLYLIMIT_CHECK || operation == POLYLIMIT_PEEK || operation == POLYLIMIT_RESERVE) {
            return to_json(polylimit::Decision(result.answer.decision));
        }
        return to_json(polylimit::Usage(result.answer.usage), operation);
    }

    /** Waits for the result of the last tag. */
    polylimit_result await(std::optional<polylimit_result> result) {
        while (!result) {
            wait();
            completions.drain([&](const polylimit_result &arrived) { result = arrived; });
        }
        if (result->status != POLYLIMIT_OK) {
            throw polylimit::Error(result->status, result->message);
        }
        return *result;
    }

    /** Waits until results can be drained. */
    void wait() const {
        pollfd watched = {completions.fd(), POLLIN, 0};
        if (poll(&watched, 1, 60000) != 1) {
            cases_die("no completion came within a minute", name);
        }
    }

    polylimit::Completions completions;
    std::uint64_t tag = 0;
};

std::string text(const cJSON *json) {
    std::unique_ptr<char, decltype(&free)> printed(cJSON_PrintUnformatted(json), free);
    return printed.get();
}

/** Runs the operations of a case up to the first difference: the operations after it build on it. */
template <typename Face>
bool run_operations(Face &face, const polylimit::Limiter &limiter, polylimit::ManualClock &clock, const cJSON *ops,
                    const std::string &key, const std::string &about) {
    Json nothing(cJSON_CreateObject());
    int at = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, ops) {
        clock.set(number(item, "at_us", 0));
        std::uint32_t operation = cases_operation(item);
        if (operation == 0) {
            limiter.set_policy("case", quotas(field(item, "quotas")).c_str());
        } else {
            const char *id = cJSON_GetStringValue(field(item, "id"));
            polylimit::ReservationTerms terms{id ? id : "", std::chrono::microseconds(number(item, "ttl_us", 0)),
                                              std::chrono::microseconds(number(item, "remember_us", 0))};
            Json got = face.run(limiter, operation, key, number(item, "cost", 1), terms);
            const cJSON *expected = field(item, "expect") ? field(item, "expect") : nothing.get();
            // Only cases of format 2 expect the units of an excess.
            if (!field(expected, "over")) {
                cJSON_DeleteItemFromObjectCaseSensitive(got.get(), "over");
            }
            // Only cases of commits that are remembered expect whether they are repeated.
            if (!field(expected, "repeated")) {
                cJSON_DeleteItemFromObjectCaseSensitive(got.get(), "repeated");
            }
            if (!cJSON_Compare(got.get(), expected, true)) {
                std::printf("%s, operation %d: it differs\n  expected %s\n  got      %s\n", about.c_str(), at,
                            text(expected).c_str(), text(got.get()).c_str());
                return false;
            }
        }
        ++at;
    }
    if (at == 0) {
        cases_die("it has no operations", about.c_str());
    }
    return true;
}

template <typename Face>
bool run_case(Face &face, const std::string &store, const cJSON *item, const std::string &key) {
    const char *name = cJSON_GetStringValue(field(item, "name"));
    std::string about = std::string(Face::name) + " " + store + ": case \"" + (name ? name : "?") + '"';
    try {
        polylimit::ManualClock clock(0);
        polylimit::Options options = {{"policy.case", quotas(field(item, "quotas"))}};
        if (store.rfind("redis", 0) == 0) {
            options.emplace_back("outage.case", "deny");
        }
        polylimit::Limiter limiter(store == "memory" ? "memory:" : store, options, &clock);
        bool agrees = run_operations(face, limiter, clock, field(item, "ops"), key, about);
        // The keys of a limiter with a manual clock do not expire.
        face.run(limiter, POLYLIMIT_RESET, key, 0, {});
        return agrees;
    } catch (const polylimit::Error &error) {
        std::printf("%s: refused: %s\n", about.c_str(), error.what());
        return false;
    }
}

template <typename Face> bool run_file(const cJSON *cases, std::uint64_t format, const std::string &store) {
    Face face;
    // A store that outlives this process has never seen such a key.
    auto started = std::to_string(std::chrono::system_clock::now().time_since_epoch().count());
    int agreed = 0, count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, cases) {
        std::string key = std::string(Face::name) + " " + started + " " + std::to_string(count++);
        agreed += format == 5   ? together::run_case(face, store, item, key, quotas)
                  : format == 3 ? policies::run_case(face, store, item, count)
                                : run_case(face, store, item, key);
    }
    if (count == 0) {
        cases_die("it has no case", "the file");
    }
    std::printf("%s %s: %d of %d cases agree\n", Face::name, store.c_str(), agreed, count);
    return agreed == count;
}

} // namespace

int main(int count, char **arguments) {
    if (count != 3) {
        std::fprintf(stderr, "usage: run FILE STORE\n");
        return 2;
    }
    Json json(cases_read(arguments[1]));
    const cJSON *cases = field(json.get(), "cases");
    std::uint64_t format = number(json.get(), "format", 0);
    bool agrees = run_file<Blocking>(cases, format, arguments[2]);
    agrees = run_file<Completed>(cases, format, arguments[2]) && agrees;
    return agrees ? 0 : 1;
}
