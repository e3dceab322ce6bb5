/*
 * Part of polylimit.hpp: the limiter, whose operations wait for the store.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef POLYLIMIT_LIMITER_HPP
#define POLYLIMIT_LIMITER_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "polylimit_report.hpp"

namespace polylimit {

/** The result of one request among several: its decision, or why there is none. */
using CheckResult = std::variant<Decision, Error>;

/** A password, and the user that it belongs to; without one, the default user. */
struct Credentials {
    std::string password;
    std::optional<std::string> username = {};
};

/** Gives the credentials of a new connection. */
using GiveCredentials = std::function<Credentials()>;

/** Decides whether requests may proceed. Any thread may use it at any time. */
class Limiter {
public:
    explicit Limiter(const std::string &url, const Options &options = {}, const ManualClock *clock = nullptr) {
        if (url.find('\0') != std::string::npos) {
            throw Error(POLYLIMIT_INVALID_ARGUMENT, "url has a NUL in it");
        }
        auto plain = detail::plain_options(options);
        detail::Message message;
        polylimit_limiter *limiter = nullptr;
        message.check(polylimit_limiter_open(url.c_str(), plain.data(), plain.size(), clock ? clock->get() : nullptr,
                                             &limiter, message.start(), message.capacity()));
        handle_.reset(limiter);
    }

    /**
     * A limiter with a function that gives user and password for each new connection to Redis: for passwords that expire. It is called
     * on a thread of its own, also again when the server refuses what it gave, and may block. The message of an exception that
     * it throws is the cause in errors of ready, in events and in the doctor. It is destroyed when no call needs it any more, which may
     * be after the limiter. See polylimit_limiter_open_with_credentials.
     */
    Limiter(const std::string &url, const Options &options, GiveCredentials credentials, const ManualClock *clock = nullptr) {
        if (!credentials) {
            throw Error(POLYLIMIT_INVALID_ARGUMENT, "credentials is an empty function");
        }
        auto give = [](polylimit_credentials *given, void *context) noexcept {
            try {
                const Credentials found = (*static_cast<GiveCredentials *>(context))();
                const char *username = found.username ? detail::c_text(*found.username, "username") : nullptr;
                const char *password = detail::c_text(found.password, "password");
                polylimit_credentials_set(given, username, password, nullptr, 0);
            } catch (const std::exception &error) {
                polylimit_credentials_fail(given, error.what());
            } catch (...) {
                polylimit_credentials_fail(given, "it has thrown what is no std::exception");
            }
        };
        auto release = [](void *context) noexcept { delete static_cast<GiveCredentials *>(context); };
        const char *plain_url = detail::c_text(url, "url");
        auto plain = detail::plain_options(options);
        detail::Message message;
        polylimit_limiter *limiter = nullptr;
        auto context = std::make_unique<GiveCredentials>(std::move(credentials));
        message.check(polylimit_limiter_open_with_credentials(plain_url, plain.data(), plain.size(),
                                                              clock ? clock->get() : nullptr, give, context.release(), release,
                                                              &limiter, message.start(), message.capacity()));
        handle_.reset(limiter);
    }

    Limiter(Limiter &&) noexcept = default;
    Limiter &operator=(Limiter &&other) noexcept {
        // The limiter is freed before the function that it may call.
        handle_ = std::move(other.handle_);
        on_degraded_ = std::move(other.on_degraded_);
        return *this;
    }

    [[nodiscard]] Decision check(std::string_view key, const Ask &ask = {}) const {
        if (ask.headroom != 0 || ask.plan != nullptr) {
            return decide(POLYLIMIT_CHECK, key, ask);
        }
        detail::Message message;
        auto decision = detail::sized<polylimit_decision>();
        message.check(polylimit_limiter_check(get(), ask.policy, key.data(), key.size(), ask.cost.units(), &decision,
                                              message.start(), message.capacity()));
        return Decision(decision);
    }
    [[nodiscard]] Decision peek(std::string_view key, const Ask &ask = {}) const {
        return decide(POLYLIMIT_PEEK, key, ask);
    }
    [[nodiscard]] Usage take(std::string_view key, const Ask &ask = {}) const { return spend(POLYLIMIT_TAKE, key, ask); }
    Usage charge(std::string_view key, const Ask &ask = {}) const { return spend(POLYLIMIT_CHARGE, key, ask); }
    Usage refund(std::string_view key, const Ask &ask = {}) const { return spend(POLYLIMIT_REFUND, key, ask); }

    Usage reset(std::string_view key, const char *policy = nullptr, const char *plan = nullptr) const {
        return spend(POLYLIMIT_RESET, key, {policy, 0, 0, plan});
    }

    /**
     * Denies the requests of the key for `time` from now: 1 ms to 366 days. A key that is blocked for longer stays so; 0 forgets
     * blocks and penalties.
     */
    Usage block(std::string_view key, std::chrono::microseconds time, const char *policy = nullptr,
                const char *plan = nullptr) const {
        auto request = detail::to_plain(POLYLIMIT_BLOCK, key, {policy, 0, 0, plan});
        request.ttl_us = detail::whole_us(time, "time");
        return Usage(perform(request).answer.usage);
    }
    /** Ends the block of the key, and forgets its penalties. */
    Usage unblock(std::string_view key, const char *policy = nullptr, const char *plan = nullptr) const {
        return block(key, std::chrono::microseconds(0), policy, plan);
    }

    /** Waits until admitted, at most for `timeout`. A denial means that it would take longer. */
    [[nodiscard]] Decision acquire(std::string_view key, std::chrono::microseconds timeout, const Ask &ask = {}) const {
        auto request = detail::to_plain(POLYLIMIT_ACQUIRE, key, ask);
        request.timeout_us = detail::whole_us(timeout, "timeout");
        return Decision(perform(request).answer.decision);
    }

    /**
     * Decides as a check does and, when every quota admits the request, sets its cost aside until the reservation is committed,
     * cancelled or destroyed. A denied request has a reservation as well, which is not allowed().
     */
    [[nodiscard]] Reservation reserve(std::string_view key, const Ask &ask = {}, const ReserveOptions &options = {}) const {
        detail::Message message;
        auto plain = detail::to_plain(options, ask);
        polylimit_reservation *reservation = nullptr;
        message.check(polylimit_reservation_new(get(), ask.policy, key.data(), key.size(), ask.cost.units(), &plain,
                                                &reservation, message.start(), message.capacity()));
        return Reservation(reservation);
    }

    /** Ends the reservation with this id and charges what was spent; Usage::found says whether it was there. */
    Usage commit(std::string_view key, std::string_view id, Cost spent, const char *policy = nullptr,
                 const char *plan = nullptr) const {
        return end(POLYLIMIT_COMMIT, key, id, detail::spent(spent), policy, plan);
    }
    /** Ends the reservation with this id and charges what was reserved. */
    Usage commit_reserved(std::string_view key, std::string_view id, const char *policy = nullptr,
                          const char *plan = nullptr) const {
        return end(POLYLIMIT_COMMIT, key, id, POLYLIMIT_AS_RESERVED, policy, plan);
    }

    /** Ends the reservation with this id and spends nothing. */
    Usage cancel(std::string_view key, std::string_view id, const char *policy = nullptr,
                 const char *plan = nullptr) const {
        return end(POLYLIMIT_CANCEL, key, id, 0, policy, plan);
    }

    /** Makes the reservation with this id end `ttl` from now: 1 ms to 48 h. */
    Usage renew(std::string_view key, std::string_view id, std::chrono::microseconds ttl, const char *policy = nullptr,
                const char *plan = nullptr) const {
        return end(POLYLIMIT_RENEW, key, id, 0, policy, plan, detail::whole_us(ttl, "ttl"));
    }

    /** Checks several requests in one call. Each is decided on its own, in order; an error of one is its own result. */
    [[nodiscard]] std::vector<CheckResult> check_many(const std::vector<Request> &requests) const {
        auto plain = to_plain(requests);
        std::vector<polylimit_result> results(plain.size());
        detail::Message message;
        message.check(polylimit_limiter_check_many(get(), plain.data(), sizeof(polylimit_request), plain.size(),
                                                   results.data(), sizeof(polylimit_result), message.start(),
                                                   message.capacity()));
        std::vector<CheckResult> checked;
        checked.reserve(results.size());
        for (const auto &result : results) {
            if (result.status == POLYLIMIT_OK) {
                checked.emplace_back(Decision(result.answer.decision));
            } else {
                checked.emplace_back(Error(result.status, result.message));
            }
        }
        return checked;
    }

    /**
     * Checks requests that belong together, such as one client under several policies: all are admitted, or nothing is spent.
     * Throws the first error. See polylimit_limiter_check_together.
     */
    [[nodiscard]] std::vector<Decision> check_together(const std::vector<Request> &requests) const {
        auto plain = to_plain(requests);
        std::vector<polylimit_decision> decisions(plain.size());
        detail::Message message;
        message.check(polylimit_limiter_check_together(get(), plain.data(), sizeof(polylimit_request), plain.size(),
                                                       decisions.data(), sizeof(polylimit_decision), message.start(),
                                                       message.capacity()));
        return std::vector<Decision>(decisions.begin(), decisions.end());
    }

    /** Waits until the store answers; throws store_unavailable after `timeout`. */
    void ready(std::chrono::microseconds timeout) const {
        detail::Message message;
        message.check(polylimit_limiter_ready(get(), detail::whole_us(timeout, "timeout"), message.start(), message.capacity()));
    }

    /**
     * Decides about a request by the configuration: its lists, its rules and their policies. Policies with a quota of concurrent
     * reservations reserve, under the id and for the ttl of `options`.
     */
    [[nodiscard]] RequestDecision decide(const RequestAttributes &request, const ReserveOptions &options = {}) const {
        detail::Message message;
        detail::PlainAttributes attributes(request);
        auto plain = detail::to_plain(options, {});
        polylimit_request_decision *decision = nullptr;
        message.check(polylimit_limiter_decide(get(), attributes.get(), &plain, &decision, message.start(),
                                               message.capacity()));
        return PendingDecision(decision).get();
    }

    /** The policies that the configuration's rules apply to a request. */
    [[nodiscard]] std::vector<PolicyMatch> matching(const RequestAttributes &request) const {
        detail::Message message;
        detail::PlainAttributes attributes(request);
        polylimit_matches *made = nullptr;
        message.check(
            polylimit_limiter_matching(get(), attributes.get(), &made, message.start(), message.capacity()));
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

    /** Which configuration is in force; no value for a limiter that has none. */
    [[nodiscard]] std::optional<Configuration> configuration() const {
        detail::Message message;
        polylimit_configuration *configuration = nullptr;
        message.check(polylimit_limiter_configuration(get(), &configuration, message.start(), message.capacity()));
        return detail::from_plain(configuration);
    }

    /** Replaces the document that the program has given; see polylimit_limiter_set_document. */
    Configuration set_document(const std::string &document) const {
        std::string told(detail::long_message, '\0');
        polylimit_configuration *configuration = nullptr;
        polylimit_status status = polylimit_limiter_set_document(get(), detail::c_text(document, "document"),
                                                                 &configuration, told.data(), told.size());
        if (status != POLYLIMIT_OK) {
            throw Error(status, told.c_str());
        }
        return *detail::from_plain(configuration);
    }

    /** Sets an entry; `value` is a JSON object. See polylimit_limiter_set_entry. */
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

    /** Publishes a document to the source `store`, and waits until it is in force here. */
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

    /** Waits until this version of the configuration, or a later one, is in force; throws store_unavailable after `timeout`. */
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
        message.check(
            polylimit_limiter_candidate_counts(get(), policy, &counts, message.start(), message.capacity()));
        if (counts.has_candidate == 0) {
            return std::nullopt;
        }
        return CandidateCounts{counts.both_allow, counts.only_live_denies, counts.only_candidate_denies,
                               counts.both_deny};
    }

    void set_policy(const char *name, const char *quotas) const {
        detail::Message message;
        message.check(polylimit_limiter_set_policy(get(), name, quotas, message.start(), message.capacity()));
    }

    /** The quotas of a policy as text; NULL is the only policy. Throws invalid_argument when there is no such policy. */
    [[nodiscard]] std::string policy(const char *name = nullptr) const {
        return detail::text([&](char *buffer, std::size_t capacity, std::size_t *length, detail::Message &message) {
            return polylimit_limiter_policy(get(), name, buffer, capacity, length, message.start(),
                                            message.capacity());
        });
    }

    /** Authenticates new connections with another password; `username` may be NULL. */
    void set_credentials(const char *username, const char *password) const {
        detail::Message message;
        message.check(polylimit_limiter_set_credentials(get(), username, password, message.start(),
                                                        message.capacity()));
    }

    /**
     * The name of the policy that decides requests which name `policy` (NULL is the only one), for use in requests. Quotas
     * have a budget of their own in each `scope`. Throws invalid_argument where a request would: call it at the start.
     */
    [[nodiscard]] std::string policy_for(const char *policy = nullptr, const char *scope = nullptr) const {
        return detail::text([&](char *buffer, std::size_t capacity, std::size_t *length, detail::Message &message) {
            return polylimit_limiter_policy_for(get(), policy, scope, buffer, capacity, length, message.start(),
                                                message.capacity());
        });
    }

    /** The header fields of a response, each as "name: value\r\n". `style` and `reset_form` are as in polylimit.h. */
    [[nodiscard]] std::string headers(const Decision &decision, const char *policy = nullptr,
                                      const char *style = nullptr, const char *reset_form = nullptr) const {
        auto now = std::chrono::system_clock::now().time_since_epoch();
        auto now_us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
        polylimit_outcome outcome = {policy, &decision.plain()};
        return detail::text([&](char *buffer, std::size_t capacity, std::size_t *length, detail::Message &message) {
            return polylimit_headers_render(get(), &outcome, 1, style, reset_form, static_cast<std::uint64_t>(now_us),
                                            buffer, capacity, length, message.start(), message.capacity());
        });
    }

    /** The HTTP status and the body of the response to a denied request; no value when no outcome is a denial. */
    [[nodiscard]] std::optional<std::pair<unsigned, std::string>>
    problem(const Decision &decision, const Ask &ask = {}, bool json = true) const {
        polylimit_outcome outcome = {ask.policy, &decision.plain()};
        std::uint32_t status = 0;
        std::string body =
            detail::text([&](char *buffer, std::size_t capacity, std::size_t *length, detail::Message &message) {
                return polylimit_problem_render(get(), &outcome, 1, ask.cost.units(), json ? 1 : 0, &status, buffer,
                                                capacity, length, message.start(), message.capacity());
            });
        if (status == 0) {
            return std::nullopt;
        }
        return std::make_pair(static_cast<unsigned>(status), std::move(body));
    }

    /** The counters of the limiter by name, since it was opened. */
    [[nodiscard]] std::map<std::string, std::uint64_t> stats() const {
        std::vector<polylimit_stat> counters;
        std::size_t count = 0;
        do {
            counters.resize(count);
            detail::Message message;
            message.check(polylimit_limiter_stats(get(), counters.data(), counters.size(), &count, message.start(),
                                                  message.capacity()));
        } while (count > counters.size());
        std::map<std::string, std::uint64_t> stats;
        for (const auto &counter : counters) {
            stats.emplace(counter.name, counter.value);
        }
        return stats;
    }

    /** The metrics as text; `format` is "prometheus" or "openmetrics". See polylimit_limiter_metrics_text. */
    [[nodiscard]] std::string metrics_text(const char *format) const {
        return detail::text([&](char *buffer, std::size_t capacity, std::size_t *length, detail::Message &message) {
            return polylimit_limiter_metrics_text(get(), format, buffer, capacity, length, message.start(),
                                                  message.capacity());
        });
    }

    /** The metrics as values, in JSON; see polylimit_limiter_metrics. */
    [[nodiscard]] std::string metrics() const {
        return detail::report([&](polylimit_report **report, detail::Message &message) {
            return polylimit_limiter_metrics(get(), report, message.start(), message.capacity());
        });
    }

    /** A page of the keys that the store has, as JSON; its `cursor` leads to the next one. See polylimit_limiter_list. */
    [[nodiscard]] std::string list(const ListOptions &options = {}) const {
        auto plain = detail::to_plain(options);
        return detail::report([&](polylimit_report **report, detail::Message &message) {
            return polylimit_limiter_list(get(), &plain, report, message.start(), message.capacity());
        });
    }

    /** The `most` keys of which the most is used, as JSON; see polylimit_limiter_scan_top. */
    [[nodiscard]] std::string scan_top(std::uint64_t most, const ListOptions &options = {}) const {
        auto plain = detail::to_plain(options);
        return detail::report([&](polylimit_report **report, detail::Message &message) {
            return polylimit_limiter_scan_top(get(), most, &plain, report, message.start(), message.capacity());
        });
    }

    /** Resets the keys of a page, and tells how many, as JSON; see polylimit_limiter_reset_listed. */
    std::string reset_listed(const ListOptions &options = {}) const {
        auto plain = detail::to_plain(options);
        return detail::report([&](polylimit_report **report, detail::Message &message) {
            return polylimit_limiter_reset_listed(get(), &plain, report, message.start(), message.capacity());
        });
    }

    /** Why a check would be admitted or denied now, as JSON; see polylimit_limiter_explain. */
    [[nodiscard]] std::string explain(std::string_view key, const Ask &ask = {}) const {
        auto request = detail::to_plain(POLYLIMIT_PEEK, key, ask);
        return detail::report([&](polylimit_report **report, detail::Message &message) {
            return polylimit_limiter_explain(get(), &request, report, message.start(), message.capacity());
        });
    }

    /** Why the configuration would admit or deny a request, as JSON; see polylimit_limiter_explain_request. */
    [[nodiscard]] std::string explain_request(const RequestAttributes &request) const {
        detail::PlainAttributes attributes(request);
        return detail::report([&](polylimit_report **report, detail::Message &message) {
            return polylimit_limiter_explain_request(get(), attributes.get(), report, message.start(),
                                                     message.capacity());
        });
    }

    /** The keys that were denied and admitted most often in this process, as JSON; see polylimit_limiter_top_keys. */
    [[nodiscard]] std::string top_keys(std::uint64_t most) const {
        return detail::report([&](polylimit_report **report, detail::Message &message) {
            return polylimit_limiter_top_keys(get(), most, report, message.start(), message.capacity());
        });
    }

    /** The findings of the doctor, one on a line. */
    [[nodiscard]] std::string doctor() const {
        return detail::text([&](char *buffer, std::size_t capacity, std::size_t *length, detail::Message &message) {
            return polylimit_limiter_doctor(get(), buffer, capacity, length, message.start(), message.capacity());
        });
    }

    /**
     * Calls a function with every event, in place of the one before; an empty one has none called. It is called on the thread
     * that notices, and must not block. What it throws is dropped. See polylimit_limiter_set_on_degraded.
     */
    void on_degraded(std::function<void(const polylimit_degraded_event &)> hook) {
        detail::Message message;
        auto next = std::make_unique<std::function<void(const polylimit_degraded_event &)>>(std::move(hook));
        auto call = [](const polylimit_degraded_event *event, void *context) noexcept {
            try {
                (*static_cast<std::function<void(const polylimit_degraded_event &)> *>(context))(*event);
            } catch (...) {
                // An exception of the function must not reach the caller of a decision.
            }
        };
        message.check(polylimit_limiter_set_on_degraded(get(), *next ? static_cast<polylimit_on_degraded>(call) : nullptr,
                                                        next.get(), message.start(), message.capacity()));
        // The previous function is not called from here on.
        on_degraded_.swap(next);
    }

    /** Closes the limiter: later operations throw closed. */
    void close() const noexcept { polylimit_limiter_close(get()); }

    [[nodiscard]] const polylimit_limiter *get() const noexcept { return handle_.get(); }

private:
    static std::vector<polylimit_request> to_plain(const std::vector<Request> &requests) {
        std::vector<polylimit_request> plain;
        plain.reserve(requests.size());
        for (const auto &[key, ask] : requests) {
            plain.push_back(detail::to_plain(POLYLIMIT_CHECK, key, ask));
        }
        return plain;
    }

    polylimit_result perform(const polylimit_request &request) const {
        detail::Message message;
        polylimit_result result;
        message.check(polylimit_limiter_call(get(), &request, nullptr, &result, sizeof result, message.start(),
                                             message.capacity()));
        return result;
    }

    Configuration perform(const polylimit_change &change) const {
        std::string told(detail::long_message, '\0');
        polylimit_configuration *configuration = nullptr;
        polylimit_status status =
            polylimit_limiter_change(get(), &change, nullptr, &configuration, told.data(), told.size());
        if (status != POLYLIMIT_OK) {
            throw Error(status, told.c_str());
        }
        return *detail::from_plain(configuration);
    }

    Decision decide(std::uint32_t operation, std::string_view key, const Ask &ask) const {
        return Decision(perform(detail::to_plain(operation, key, ask)).answer.decision);
    }

    Usage spend(std::uint32_t operation, std::string_view key, const Ask &ask) const {
        return Usage(perform(detail::to_plain(operation, key, ask)).answer.usage);
    }

    /** Ends or renews the reservation with this id. */
    Usage end(std::uint32_t operation, std::string_view key, std::string_view id, std::uint64_t spent, const char *policy,
              const char *plan, std::uint64_t ttl_us = 0) const {
        auto request = detail::to_plain(operation, key, {policy, spent, 0, plan});
        request.id = id.data();
        request.id_length = id.size();
        request.ttl_us = ttl_us;
        return Usage(perform(request).answer.usage);
    }

    /** Must outlive the handle, which may call it. */
    std::unique_ptr<std::function<void(const polylimit_degraded_event &)>> on_degraded_;
    std::unique_ptr<polylimit_limiter, detail::Freed<polylimit_limiter_free>> handle_;
};

} // namespace polylimit

#endif
