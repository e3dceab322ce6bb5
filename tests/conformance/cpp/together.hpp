/* Cases of format 5: requests over several policies. */
#ifndef TOGETHER_HPP
#define TOGETHER_HPP

#include <algorithm>
#include <set>
#include <vector>

#include "policies.hpp"

namespace together {

using policies::Json;
using policies::field;
using policies::number;
using policies::text;

/** What a case expects of the answer about one key; an answer of an outage policy has nothing of it. */
template <typename Answer> Json of_one(const Answer &made) {
    Json json(cJSON_CreateObject());
    std::string source = made.source();
    if (source == "fallback" || source == "allow" || source == "deny") {
        return json;
    }
    policies::add(json.get(), "remaining", made.remaining());
    policies::add(json.get(), "reset_after_us", made.reset_after());
    if constexpr (std::is_same_v<Answer, polylimit::Decision>) {
        cJSON_AddBoolToObject(json.get(), "allowed", made.allowed());
        policies::add(json.get(), "retry_after_us", made.retry_after());
    }
    return json;
}

inline Json of_request(const std::vector<polylimit::Decision> &decisions) {
    Json json(cJSON_CreateObject());
    cJSON *each = cJSON_AddArrayToObject(json.get(), "decisions");
    bool allowed = true;
    std::optional<std::chrono::microseconds> longest(0);
    for (const auto &decision : decisions) {
        cJSON_AddItemToArray(each, of_one(decision).release());
        allowed = allowed && decision.allowed();
        auto wait = decision.retry_after();
        longest = longest && wait ? std::optional(std::max(*longest, *wait)) : std::nullopt;
    }
    cJSON_AddBoolToObject(json.get(), "allowed", allowed);
    policies::add(json.get(), "retry_after_us", longest);
    return json;
}

template <typename Face>
Json answer(Face &face, const polylimit::Limiter &limiter, const cJSON *item, const std::string &prefix) {
    std::string op = text(item, "op", "");
    if (const cJSON *charges = field(item, "charges")) {
        std::vector<std::string> keys;
        const cJSON *charge;
        cJSON_ArrayForEach(charge, charges) { keys.push_back(prefix + " " + text(charge, "key", "")); }
        std::vector<polylimit::Request> requests;
        cJSON_ArrayForEach(charge, charges) {
            requests.push_back({keys[requests.size()], {text(charge, "policy", nullptr), number(charge, "cost", 1)}});
        }
        std::uint32_t operation = op == "check_all"  ? POLYLIMIT_CHECK
                                  : op == "peek_all" ? POLYLIMIT_PEEK
                                                     : POLYLIMIT_RESERVE;
        polylimit::ReservationTerms terms;
        terms.id = text(item, "id", "");
        terms.ttl = std::chrono::microseconds(number(item, "ttl_us", 0));
        return of_request(face.together(limiter, operation, requests, terms));
    }
    auto key = prefix + " " + text(item, "key", "");
    const char *policy = text(item, "policy", nullptr);
    polylimit::Ask ask{policy, number(item, "cost", 1)};
    Json json = op == "check"    ? of_one(limiter.check(key, ask))
                : op == "peek"   ? of_one(limiter.peek(key, ask))
                : op == "charge" ? of_one(limiter.charge(key, ask))
                : op == "refund" ? of_one(limiter.refund(key, ask))
                                 : of_one(limiter.reset(key, policy));
    if (!field(field(item, "expect"), "retry_after_us")) {
        cJSON_DeleteItemFromObjectCaseSensitive(json.get(), "retry_after_us");
    }
    return json;
}

/** Runs the operations of a case up to the first difference: the operations after it build on it. */
template <typename Face>
bool agrees(Face &face, const polylimit::Limiter &limiter, polylimit::ManualClock &clock, const cJSON *ops,
            const std::string &prefix, const std::string &about) {
    int at = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, ops) {
        clock.set(number(item, "at_us", 0));
        Json got = answer(face, limiter, item, prefix);
        if (!cJSON_Compare(got.get(), field(item, "expect"), true)) {
            std::printf("%s, operation %d: it differs\n  expected %s\n  got      %s\n", about.c_str(), at,
                        policies::printed(field(item, "expect")).c_str(), policies::printed(got.get()).c_str());
            return false;
        }
        ++at;
    }
    return true;
}

template <typename Face>
bool run_case(Face &face, const std::string &store, const cJSON *item, const std::string &prefix,
              std::string (*quotas)(const cJSON *)) {
    auto about = std::string(Face::name) + " " + store + ": case \"" + text(item, "name", "?") + '"';
    try {
        polylimit::ManualClock clock(0);
        polylimit::Options options;
        const cJSON *policy;
        cJSON_ArrayForEach(policy, field(item, "policies")) {
            options.emplace_back(std::string("policy.") + policy->string, quotas(policy));
            // What the store does not answer must not look as if it did.
            if (store.rfind("redis", 0) == 0) {
                options.emplace_back(std::string("outage.") + policy->string, "deny");
            }
        }
        polylimit::Limiter limiter(store == "memory" ? "memory:" : store, options, &clock);
        const cJSON *ops = field(item, "ops");
        bool same = agrees(face, limiter, clock, ops, prefix, about);
        // The keys of a limiter with a manual clock do not expire.
        std::set<std::pair<std::string, std::string>> seen;
        const cJSON *operation, *charge;
        cJSON_ArrayForEach(operation, ops) {
            cJSON_ArrayForEach(charge, field(operation, "charges")) {
                seen.emplace(text(charge, "policy", ""), text(charge, "key", ""));
            }
            if (!field(operation, "charges")) {
                seen.emplace(text(operation, "policy", ""), text(operation, "key", ""));
            }
        }
        for (const auto &[name, key] : seen) {
            limiter.reset(prefix + " " + key, name.c_str());
        }
        return same;
    } catch (const polylimit::Error &error) {
        std::printf("%s: refused: %s\n", about.c_str(), error.what());
        return false;
    }
}

} // namespace together

#endif
