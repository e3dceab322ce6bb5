/* Cases of format 3: a document, and operations of a limiter that has its limits from it. */
#ifndef POLICIES_HPP
#define POLICIES_HPP

#include <polylimit.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <unistd.h>

#include "cases.h"

namespace policies {

/** Monday 2026-09-21, from which the times of the cases count. */
constexpr std::uint64_t start_us = 1789948800000000;

struct Deleted {
    void operator()(cJSON *json) const noexcept { cJSON_Delete(json); }
    void operator()(char *text) const noexcept { std::free(text); }
};
using Json = std::unique_ptr<cJSON, Deleted>;

inline const cJSON *field(const cJSON *object, const char *name) { return cJSON_GetObjectItemCaseSensitive(object, name); }

inline const char *text(const cJSON *object, const char *name, const char *otherwise) {
    const char *given = cJSON_GetStringValue(field(object, name));
    return given ? given : otherwise;
}

inline std::uint64_t number(const cJSON *object, const char *name, std::uint64_t otherwise) {
    cases_number(object, name, &otherwise);
    return otherwise;
}

inline std::string printed(const cJSON *json) {
    std::unique_ptr<char, Deleted> text(cJSON_PrintUnformatted(json));
    return text ? text.get() : "";
}

inline void add(cJSON *object, const char *name, std::uint64_t value) {
    cJSON_AddNumberToObject(object, name, static_cast<double>(value));
}

inline void add(cJSON *object, const char *name, std::chrono::microseconds value) {
    add(object, name, static_cast<std::uint64_t>(value.count()));
}

inline void add(cJSON *object, const char *name, std::optional<std::chrono::microseconds> wait) {
    wait ? add(object, name, *wait) : static_cast<void>(cJSON_AddNullToObject(object, name));
}

inline void add(cJSON *object, const char *name, const char *value) {
    value ? cJSON_AddStringToObject(object, name, value) : cJSON_AddNullToObject(object, name);
}

/** Whether everything that is expected is there and equal; `about` is part of the message. */
inline bool agrees(const cJSON *expected, const cJSON *got) {
    if (cJSON_IsArray(expected)) {
        bool same = cJSON_IsArray(got) && cJSON_GetArraySize(got) == cJSON_GetArraySize(expected);
        for (int at = 0; same && at < cJSON_GetArraySize(expected); ++at) {
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
        if (std::string(item->string) == "about") {
            if (!cJSON_IsString(found) || std::string(found->valuestring).find(item->valuestring) == std::string::npos) {
                return false;
            }
        } else if (!found || !agrees(item, found)) {
            return false;
        }
    }
    return true;
}

inline void add_decision(cJSON *answer, const polylimit::Decision &decision) {
    cJSON_AddBoolToObject(answer, "allowed", decision.allowed());
    add(answer, "remaining", decision.remaining());
    add(answer, "retry_after_us", decision.retry_after());
    add(answer, "reset_after_us", decision.reset_after());
    add(answer, "delay_us", decision.delay());
    add(answer, "over", decision.over());
    cJSON_AddBoolToObject(answer, "crossed", decision.crossed());
    cJSON_AddBoolToObject(answer, "elastic", decision.elastic());
    cJSON_AddBoolToObject(answer, "shadowed", decision.shadowed());
    add(answer, "cause", decision.cause());
}

inline Json to_json(const polylimit::Decision &decision) {
    Json answer(cJSON_CreateObject());
    add_decision(answer.get(), decision);
    return answer;
}

inline Json to_json(const polylimit::Usage &usage) {
    Json answer(cJSON_CreateObject());
    add(answer.get(), "remaining", usage.remaining());
    add(answer.get(), "reset_after_us", usage.reset_after());
    add(answer.get(), "taken", usage.taken());
    cJSON_AddBoolToObject(answer.get(), "found", usage.found());
    return answer;
}

inline polylimit::RequestAttributes read_request(const cJSON *given) {
    polylimit::RequestAttributes request{text(given, "method", ""), text(given, "path", ""), text(given, "peer", ""), {}, {}};
    const cJSON *item;
    cJSON_ArrayForEach(item, field(given, "headers")) {
        request.headers.emplace_back(cJSON_GetArrayItem(item, 0)->valuestring, cJSON_GetArrayItem(item, 1)->valuestring);
    }
    cJSON_ArrayForEach(item, field(given, "attributes")) { request.attributes.emplace_back(item->string, item->valuestring); }
    return request;
}

inline Json to_json(const polylimit::RequestDecision &decided) {
    Json answer(cJSON_CreateObject());
    cJSON_AddBoolToObject(answer.get(), "allowed", decided.allowed);
    add(answer.get(), "cause", decided.cause);
    decided.status == 0 ? static_cast<void>(cJSON_AddNullToObject(answer.get(), "status"))
                        : add(answer.get(), "status", std::uint64_t{decided.status});
    add(answer.get(), "retry_after_us", decided.retry_after);
    cJSON *decisions = cJSON_AddArrayToObject(answer.get(), "decisions");
    for (const auto &made : decided.decisions) {
        cJSON *shown = cJSON_CreateObject();
        add(shown, "policy", made.policy.c_str());
        add(shown, "key", made.key.c_str());
        add_decision(shown, made.decision);
        cJSON_AddItemToArray(decisions, shown);
    }
    return answer;
}

inline Json to_json(const std::vector<polylimit::PolicyMatch> &matches) {
    Json answer(cJSON_CreateArray());
    for (const auto &found : matches) {
        cJSON *shown = cJSON_CreateObject();
        add(shown, "policy", found.policy.c_str());
        add(shown, "key", found.key.c_str());
        add(shown, "cost", found.cost);
        add(shown, "headroom", std::uint64_t{found.headroom});
        cJSON_AddItemToArray(answer.get(), shown);
    }
    return answer;
}

/** Whether a change was made; otherwise the line and the message of its error. */
template <typename Change> Json outcome(Change change) {
    Json answer(cJSON_CreateObject());
    try {
        change();
        cJSON_AddTrueToObject(answer.get(), "ok");
    } catch (const polylimit::Error &error) {
        cJSON_AddFalseToObject(answer.get(), "ok");
        unsigned long line = 0;
        if (std::sscanf(error.what(), "line %lu", &line) == 1) {
            add(answer.get(), "line", std::uint64_t{line});
        }
        add(answer.get(), "about", error.what());
    }
    return answer;
}

/** A case that runs by one face. */
template <typename Face> class Run {
public:
    Run(Face &face, const polylimit::Limiter &limiter) : face_(face), limiter_(limiter) {}

    Json answer(const cJSON *operation) {
        std::string name = text(operation, "op", "");
        if (name == "configuration") {
            const char *given = text(operation, "text", nullptr);
            std::string document = given ? given : printed(field(operation, "document"));
            return outcome([&] { limiter_.admin().set_document(document); });
        }
        if (name == "entry") {
            const char *set = text(operation, "set", nullptr);
            return outcome([&] {
                set ? limiter_.admin().set_entry(set, printed(field(operation, "value")))
                    : limiter_.admin().delete_entry(text(operation, "delete", ""));
            });
        }
        if (name == "match") {
            return to_json(limiter_.admin().matching(read_request(field(operation, "request"))));
        }
        if (name == "decide") {
            polylimit::ReserveOptions options;
            if (const char *id = text(operation, "id", nullptr)) {
                options.id = id;
                options.ttl = std::chrono::microseconds(number(operation, "ttl_us", 0));
            }
            return to_json(face_.decide(limiter_, read_request(field(operation, "request")), options));
        }
        if (name == "candidate") {
            auto found = limiter_.admin().candidate_counts(text(operation, "policy", "p"));
            auto counts = found.value_or(polylimit::CandidateCounts{});
            Json answer(cJSON_CreateObject());
            add(answer.get(), "both_allow", counts.both_allow);
            add(answer.get(), "only_live_denies", counts.only_live_denies);
            add(answer.get(), "only_candidate_denies", counts.only_candidate_denies);
            add(answer.get(), "both_deny", counts.both_deny);
            return answer;
        }
        polylimit::Ask ask{text(operation, "policy", "p"), number(operation, "cost", 1),
                           static_cast<std::uint32_t>(number(operation, "headroom", 0)), text(operation, "plan", nullptr)};
        auto time_us = number(operation, "ttl_us", number(operation, "for_us", 0));
        polylimit::ReservationTerms terms{text(operation, "id", ""), std::chrono::microseconds(time_us)};
        return face_.operate(limiter_, cases_operation(operation), text(operation, "key", "k"), ask, terms);
    }

private:
    Face &face_;
    const polylimit::Limiter &limiter_;
};

/** Whether a case agrees; `number` keeps what it stores apart from every other case. */
template <typename Face> bool run_case(Face &face, const std::string &store, const cJSON *item, int case_number) {
    std::string about = std::string(Face::name) + " " + store + ": case \"" + text(item, "name", "?") + '"';
    std::string prefix = "case-cpp-" + std::to_string(getpid()) + "-" + std::to_string(Face::number) + "-" +
                         std::to_string(case_number);
    polylimit::Options options = {{"document", printed(field(item, "document"))}};
    std::string url = store == "memory" ? "memory:" : store;
    std::string file;
    if (store.rfind("redis", 0) == 0) {
        options.emplace_back("prefix", prefix);
    } else if (store.rfind("local:", 0) == 0) {
        // A file of its own, because a case starts without states.
        file = "/tmp/" + prefix;
        url = "file://" + file + "?size=1MiB";
    }
    bool agree = true;
    try {
        polylimit::ManualClock clock(start_us);
        polylimit::Limiter limiter(url, options, &clock);
        Run<Face> run(face, limiter);
        int at = 0;
        const cJSON *operation;
        cJSON_ArrayForEach(operation, field(item, "ops")) {
            clock.set(start_us + number(operation, "t_us", 0));
            Json got;
            try {
                got = run.answer(operation);
            } catch (const polylimit::Error &error) {
                got.reset(cJSON_CreateObject());
                add(got.get(), "error", error.code());
                add(got.get(), "message", error.what());
            }
            // The operations after a difference build on it.
            agree = agrees(field(operation, "expect"), got.get());
            if (!agree) {
                std::printf("%s, operation %d: it differs\n  %s\n  got      %s\n", about.c_str(), at,
                            printed(operation).c_str(), printed(got.get()).c_str());
                break;
            }
            ++at;
        }
    } catch (const polylimit::Error &error) {
        std::printf("%s: refused: %s\n", about.c_str(), error.what());
        agree = false;
    }
    if (!file.empty()) {
        unlink(file.c_str());
    }
    return agree;
}

} // namespace policies

#endif
