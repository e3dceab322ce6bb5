/*
 * Part of polylimit.hpp: requests by their attributes, the decisions about them, and the status of policy documents.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef POLYLIMIT_CONFIGURATION_HPP
#define POLYLIMIT_CONFIGURATION_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "polylimit_decision.hpp"

namespace polylimit {

/** A name with its value, such as a line of a header. */
using Pair = std::pair<std::string_view, std::string_view>;

/** What a program says about a request; see polylimit_attributes. The texts have to outlive the call. */
struct RequestAttributes {
    std::string_view method = {};
    std::string_view path = {};
    std::string_view peer = {};
    /** Each line of each header, in the order in which they came. */
    std::vector<Pair> headers = {};
    /** What the program knows of the request, such as the user or the route. */
    std::vector<Pair> attributes = {};
    /** How the router reads paths: a sum of POLYLIMIT_PATHS_IGNORE_CASE and the constants after it. */
    std::uint32_t router_paths = 0;
};

/** A policy that a configuration's rules apply to a request. */
struct PolicyMatch {
    std::string policy;
    std::string key;
    std::uint64_t cost;
    std::uint32_t headroom;
};

/** The decision of one policy on a request. */
struct PolicyDecision {
    std::string policy;
    std::string key;
    std::uint64_t cost;
    std::uint32_t headroom;
    Decision decision;
    /** The id of the reservation that was made, which the caller commits or cancels; none where units were spent. */
    std::optional<std::string> reservation;
};

/** The decision on a request by its attributes. */
struct RequestDecision {
    bool allowed;
    /** Why it was denied, or admitted without the store, such as "deny_list"; NULL for no cause. */
    const char *cause;
    /** The HTTP status of a denial; 0 when allowed. */
    std::uint32_t status;
    /** The time until the request would be admitted; no value means never. */
    std::optional<std::chrono::microseconds> retry_after;
    std::vector<PolicyDecision> decisions;

    [[nodiscard]] explicit operator bool() const noexcept { return allowed; }
};

/** Which configuration is active; see polylimit_configuration. */
struct Configuration {
    std::string source;
    std::uint64_t version;
    /** Which document of Redis is active, counted from 1; 0 where the document does not come from Redis. */
    std::uint64_t document_version;
    std::string digest;
    std::chrono::system_clock::time_point applied_at;
    /** For how long the source has been unreachable; 0 when it is not. */
    std::chrono::microseconds unreachable_for;
    std::optional<std::string> error;
};

/** How a document is published. */
struct PublishOptions {
    /** The version of the document that this one replaces; none replaces whichever is there. */
    std::optional<std::uint64_t> expected_version = {};
    /** The author's name, and the reason. */
    std::string by = {};
    std::string why = {};
};

/** How the candidate of a policy compares with the effective quotas. */
struct CandidateCounts {
    std::uint64_t both_allow;
    std::uint64_t only_live_denies;
    std::uint64_t only_candidate_denies;
    std::uint64_t both_deny;
};

namespace detail {

inline polylimit_line to_line(std::string_view text) noexcept { return {text.data(), text.size()}; }

/** Attributes in the form of C; they refer to the texts of the request. */
class PlainAttributes {
public:
    explicit PlainAttributes(const RequestAttributes &request)
        : headers_(to_pairs(request.headers)), attributes_(to_pairs(request.attributes)) {
        plain_.size = sizeof plain_;
        plain_.router_paths = request.router_paths;
        plain_.method = to_line(request.method);
        plain_.path = to_line(request.path);
        plain_.peer = to_line(request.peer);
        plain_.headers = headers_.data();
        plain_.header_count = headers_.size();
        plain_.attributes = attributes_.data();
        plain_.attribute_count = attributes_.size();
    }

    PlainAttributes(const PlainAttributes &) = delete;
    PlainAttributes &operator=(const PlainAttributes &) = delete;

    [[nodiscard]] const polylimit_attributes *get() const noexcept { return &plain_; }

private:
    static std::vector<polylimit_pair> to_pairs(const std::vector<Pair> &pairs) {
        std::vector<polylimit_pair> plain;
        plain.reserve(pairs.size());
        for (const auto &[name, value] : pairs) {
            plain.push_back({to_line(name), to_line(value)});
        }
        return plain;
    }

    std::vector<polylimit_pair> headers_;
    std::vector<polylimit_pair> attributes_;
    polylimit_attributes plain_ = {};
};

using RequestDecisionHandle = std::unique_ptr<polylimit_request_decision, Freed<polylimit_request_decision_free>>;

inline RequestDecision from_plain(const polylimit_request_decision *handle) {
    Message message;
    auto outcome = sized<polylimit_request_outcome>();
    message.check(polylimit_request_decision_outcome(handle, &outcome, message.start(), message.capacity()));
    RequestDecision decision = {outcome.allowed != 0, polylimit_cause_name(outcome.cause), outcome.http_status, {}, {}};
    if (outcome.retry_after_us != POLYLIMIT_NEVER) {
        decision.retry_after = microseconds(outcome.retry_after_us);
    }
    decision.decisions.reserve(outcome.policy_count);
    for (std::size_t at = 0; at < outcome.policy_count; ++at) {
        auto made = sized<polylimit_policy_decision>();
        message.check(polylimit_request_decision_at(handle, at, &made, message.start(), message.capacity()));
        decision.decisions.push_back({made.policy, std::string(static_cast<const char *>(made.key), made.key_length),
                                      made.cost, made.headroom, Decision(made.decision), std::nullopt});
        if (made.id != nullptr) {
            decision.decisions.back().reservation.emplace(static_cast<const char *>(made.id), made.id_length);
        }
    }
    return decision;
}

inline std::optional<Configuration> from_plain(polylimit_configuration *given) {
    if (given == nullptr) {
        return std::nullopt;
    }
    std::unique_ptr<polylimit_configuration, Freed<polylimit_configuration_free>> plain(given);
    auto applied_at = std::chrono::duration_cast<std::chrono::system_clock::duration>(microseconds(plain->applied_at_us));
    Configuration configuration = {plain->source,
                                   plain->version,
                                   plain->document_version,
                                   plain->digest,
                                   std::chrono::system_clock::time_point(applied_at),
                                   microseconds(plain->unreachable_for_us),
                                   std::nullopt};
    if (plain->error != nullptr) {
        configuration.error = plain->error;
    }
    return configuration;
}

/** The room for a message on an entry or a document. */
inline constexpr std::size_t long_message = 4096;

/** A text for C, which a NUL would cut. */
inline const char *c_text(const std::string &text, const char *name) {
    if (text.find('\0') != std::string::npos) {
        throw Error(POLYLIMIT_INVALID_ARGUMENT, (std::string(name) + " has a NUL in it").c_str());
    }
    return text.c_str();
}

} // namespace detail

/** The decision on a request that was submitted; see Completions::submit_decide. */
class PendingDecision {
public:
    /** Owns a handle of C. */
    explicit PendingDecision(polylimit_request_decision *handle) noexcept : handle_(handle) {}

    /** The decision. Throws invalid_argument before its result was drained. */
    [[nodiscard]] RequestDecision get() const { return detail::from_plain(handle_.get()); }

private:
    detail::RequestDecisionHandle handle_;
};

} // namespace polylimit

#endif
