/*
 * Part of polylimit.hpp: the operations of a limiter for operators.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef POLYLIMIT_ADMIN_HPP
#define POLYLIMIT_ADMIN_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "polylimit_report.hpp"

namespace polylimit {

namespace detail {

/** Performs an operation and waits for its result. */
inline polylimit_result perform(const polylimit_limiter *limiter, const polylimit_request &request) {
    Message message;
    polylimit_result result;
    message.check(polylimit_limiter_call(limiter, &request, nullptr, &result, sizeof result, message.start(),
                                         message.capacity()));
    return result;
}

} // namespace detail

/** The operations of a limiter for operators; see Limiter::admin. */
class Admin {
public:
    /** Refers to a handle of C. */
    explicit Admin(const polylimit_limiter *limiter) noexcept : limiter_(limiter) {}

    /**
     * Denies the requests of the key for `time` from now: 1 ms to 366 days. A key that is blocked for longer stays so; 0 forgets
     * blocks and penalties.
     */
    Usage block(std::string_view key, std::chrono::microseconds time, const char *policy = nullptr,
                const char *plan = nullptr) const {
        auto request = detail::to_plain(POLYLIMIT_BLOCK, key, {policy, 0, 0, plan});
        request.ttl_us = detail::whole_us(time, "time");
        return Usage(detail::perform(limiter_, request).answer.usage);
    }
    /** Ends the block of the key, and forgets its penalties. */
    Usage unblock(std::string_view key, const char *policy = nullptr, const char *plan = nullptr) const {
        return block(key, std::chrono::microseconds(0), policy, plan);
    }

    /** A page of the keys that the store has, as JSON; its `cursor` leads to the next one. See polylimit_admin_list. */
    [[nodiscard]] std::string list(const ListOptions &options = {}) const {
        auto plain = detail::to_plain(options);
        return detail::report([&](polylimit_report **report, detail::Message &message) {
            return polylimit_admin_list(limiter_, &plain, report, message.start(), message.capacity());
        });
    }

    /** The `most` keys of which the most is used, as JSON; see polylimit_admin_scan_top. */
    [[nodiscard]] std::string scan_top(std::uint64_t most, const ListOptions &options = {}) const {
        auto plain = detail::to_plain(options);
        return detail::report([&](polylimit_report **report, detail::Message &message) {
            return polylimit_admin_scan_top(limiter_, most, &plain, report, message.start(), message.capacity());
        });
    }

    /** Resets the keys of a page, and returns how many, as JSON; see polylimit_admin_reset_listed. */
    std::string reset_listed(const ListOptions &options = {}) const {
        auto plain = detail::to_plain(options);
        return detail::report([&](polylimit_report **report, detail::Message &message) {
            return polylimit_admin_reset_listed(limiter_, &plain, report, message.start(), message.capacity());
        });
    }

    /** Why a check would be admitted or denied now, as JSON; see polylimit_admin_explain. */
    [[nodiscard]] std::string explain(std::string_view key, const Ask &ask = {}) const {
        auto request = detail::to_plain(POLYLIMIT_PEEK, key, ask);
        return detail::report([&](polylimit_report **report, detail::Message &message) {
            return polylimit_admin_explain(limiter_, &request, report, message.start(), message.capacity());
        });
    }

    /** Why the configuration would admit or deny a request, as JSON; see polylimit_admin_explain_request. */
    [[nodiscard]] std::string explain_request(const RequestAttributes &request) const {
        detail::PlainAttributes attributes(request);
        return detail::report([&](polylimit_report **report, detail::Message &message) {
            return polylimit_admin_explain_request(limiter_, attributes.get(), report, message.start(), message.capacity());
        });
    }

    /** The keys that were denied and admitted most often in this process, as JSON; see polylimit_admin_top_keys. */
    [[nodiscard]] std::string top_keys(std::uint64_t most) const {
        return detail::report([&](polylimit_report **report, detail::Message &message) {
            return polylimit_admin_top_keys(limiter_, most, report, message.start(), message.capacity());
        });
    }

    /** The findings of the doctor, one on a line. */
    [[nodiscard]] std::string doctor() const {
        return detail::text([&](char *buffer, std::size_t capacity, std::size_t *length, detail::Message &message) {
            return polylimit_admin_doctor(limiter_, buffer, capacity, length, message.start(), message.capacity());
        });
    }

    /** The policies that the configuration's rules apply to a request. */
    [[nodiscard]] std::vector<PolicyMatch> matching(const RequestAttributes &request) const {
        detail::Message message;
        detail::PlainAttributes attributes(request);
        polylimit_matches *made = nullptr;
        message.check(polylimit_admin_matching(limiter_, attributes.get(), &made, message.start(), message.capacity()));
        std::unique_ptr<polylimit_matches, detail::Freed<polylimit_matches_free>> matches(made);
        std::vector<PolicyMatch> found;
        found.reserve(polylimit_matches_count(made));
        for (std::size_t at = 0; at < polylimit_matches_count(made); ++at) {
            auto plain = detail::sized<polylimit_match>();
            message.check(polylimit_matches_at(made, at, &plain, message.start(), message.capacity()));
            found.push_back({plain.policy, std::string(static_cast<const char *>(plain.key), plain.key_length), plain.cost,
                             plain.headroom});
        }
        return found;
    }

    /** Which configuration is active; no value for a limiter that has none. */
    [[nodiscard]] std::optional<Configuration> configuration() const {
        detail::Message message;
        polylimit_configuration *configuration = nullptr;
        message.check(polylimit_admin_configuration(limiter_, &configuration, message.start(), message.capacity()));
        return detail::from_plain(configuration);
    }

    /** Replaces the document that the program has given; see polylimit_admin_set_document. */
    Configuration set_document(const std::string &document) const {
        std::string message(detail::long_message, '\0');
        polylimit_configuration *configuration = nullptr;
        polylimit_status status = polylimit_admin_set_document(limiter_, detail::c_text(document, "document"),
                                                               &configuration, message.data(), message.size());
        if (status != POLYLIMIT_OK) {
            throw Error(status, message.c_str());
        }
        return *detail::from_plain(configuration);
    }

    /** Sets an entry; `value` is a JSON object. See polylimit_admin_set_entry. */
    Configuration set_entry(const std::string &entry, const std::string &value = "{}") const {
        auto change = detail::sized<polylimit_change>();
        change.operation = POLYLIMIT_SET_ENTRY;
        change.entry = detail::c_text(entry, "entry");
        change.value = detail::c_text(value, "value");
        return perform(change);
    }

    /** Deletes an entry; one that is not there is no error. */
    Configuration delete_entry(const std::string &entry) const {
        auto change = detail::sized<polylimit_change>();
        change.operation = POLYLIMIT_DELETE_ENTRY;
        change.entry = detail::c_text(entry, "entry");
        return perform(change);
    }

    /** Publishes a document to the source `store`, and waits until it is active here. */
    Configuration publish(const std::string &document, const PublishOptions &options = {}) const {
        auto change = detail::sized<polylimit_change>();
        change.operation = POLYLIMIT_PUBLISH;
        change.document = detail::c_text(document, "document");
        change.by = detail::c_text(options.by, "by");
        change.why = detail::c_text(options.why, "why");
        change.has_version = options.expected_version ? 1 : 0;
        change.version = options.expected_version.value_or(0);
        return perform(change);
    }

    /** Waits until this version of the configuration, or a later one, is active; throws store_unavailable after `timeout`. */
    Configuration wait_for_version(std::uint64_t version, std::chrono::microseconds timeout) const {
        auto change = detail::sized<polylimit_change>();
        change.operation = POLYLIMIT_WAIT_FOR_VERSION;
        change.version = version;
        change.timeout_us = detail::whole_us(timeout, "timeout");
        return perform(change);
    }

    /** How the candidate of a policy has compared with its quotas in this process; no value without a candidate. */
    [[nodiscard]] std::optional<CandidateCounts> candidate_counts(const char *policy) const {
        detail::Message message;
        auto counts = detail::sized<polylimit_candidate_counts>();
        message.check(polylimit_admin_candidate_counts(limiter_, policy, &counts, message.start(), message.capacity()));
        if (counts.has_candidate == 0) {
            return std::nullopt;
        }
        return CandidateCounts{counts.both_allow, counts.only_live_denies, counts.only_candidate_denies,
                               counts.both_deny};
    }

    /** Authenticates new connections with another password; `username` may be NULL. */
    void set_credentials(const char *username, const char *password) const {
        detail::Message message;
        message.check(polylimit_admin_set_credentials(limiter_, username, password, message.start(), message.capacity()));
    }

private:
    Configuration perform(const polylimit_change &change) const {
        std::string message(detail::long_message, '\0');
        polylimit_configuration *configuration = nullptr;
        polylimit_status status =
            polylimit_admin_change(limiter_, &change, nullptr, &configuration, message.data(), message.size());
        if (status != POLYLIMIT_OK) {
            throw Error(status, message.c_str());
        }
        return *detail::from_plain(configuration);
    }

    const polylimit_limiter *limiter_;
};

} // namespace polylimit

#endif
