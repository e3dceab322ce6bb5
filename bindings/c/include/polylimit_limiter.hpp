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

#include "polylimit_admin.hpp"

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

    /** Waits until admitted, at most for `timeout`. A denial means that it would take longer. */
    [[nodiscard]] Decision acquire(std::string_view key, std::chrono::microseconds timeout, const Ask &ask = {}) const {
        auto request = detail::to_plain(POLYLIMIT_ACQUIRE, key, ask);
        request.timeout_us = detail::whole_us(timeout, "timeout");
        return Decision(detail::perform(get(), request).answer.decision);
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
        auto plain = detail::to_plain(POLYLIMIT_CHECK, requests);
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
        return together(polylimit_limiter_check_together, detail::to_plain(POLYLIMIT_CHECK, requests));
    }

    /** The decisions that check_together would give now; leaves no trace. */
    [[nodiscard]] std::vector<Decision> peek_together(const std::vector<Request> &requests) const {
        return together(polylimit_limiter_peek_together, detail::to_plain(POLYLIMIT_PEEK, requests));
    }

    /**
     * As check_together, but requests under a policy with a quota of concurrency are reserved by `options`; the others spend. The caller
     * ends each reservation by commit or cancel with its key, its policy and the id. They are not renewed in the background, and do not
     * wait in line: invalid_argument for a timeout. See polylimit_limiter_reserve_together.
     */
    RequestReservation reserve_together(const std::vector<Request> &requests, const ReserveOptions &options = {}) const {
        RequestReservation reserved = {options.id.empty() ? detail::random_id() : options.id, {}};
        auto terms = detail::to_plain(options, {});
        auto plain = detail::to_plain(POLYLIMIT_RESERVE, requests, {reserved.id});
        for (auto &request : plain) {
            request.ttl_us = terms.ttl_us;
            request.timeout_us = terms.timeout_us;
            request.remember_us = terms.remember_us;
        }
        reserved.decisions = together(polylimit_limiter_reserve_together, plain);
        return reserved;
    }

    /** Waits until the store answers; throws store_unavailable after `timeout`. */
    void ready(std::chrono::microseconds timeout) const {
        detail::Message message;
        message.check(polylimit_limiter_ready(get(), detail::whole_us(timeout, "timeout"), message.start(), message.capacity()));
    }

    /**
     * Decides about a request by the configuration: its lists, its rules and their policies. Policies with a quota of concurrent
     * reservations reserve, by the id, the ttl and `remember` of `options`.
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

    /** The header fields of a response, each as "name: value\r\n". `headers` are as in polylimit.h. */
    [[nodiscard]] std::string headers(const Decision &decision, const char *policy = nullptr,
                                      const char *headers = nullptr) const {
        auto now = std::chrono::system_clock::now().time_since_epoch();
        auto now_us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
        polylimit_outcome outcome = {policy, &decision.plain()};
        return detail::text([&](char *buffer, std::size_t capacity, std::size_t *length, detail::Message &message) {
            return polylimit_headers_render(get(), &outcome, 1, headers, static_cast<std::uint64_t>(now_us), buffer,
                                             capacity, length, message.start(), message.capacity());
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

    /**
     * The operations for operators: keys of the store, explanations, the policy document, lists. The object may be copied, stays
     * valid when the limiter is moved, and must not be used after the limiter is destroyed.
     */
    [[nodiscard]] Admin admin() const noexcept { return Admin(get()); }

    /** Closes the limiter: later operations throw closed. */
    void close() const noexcept { polylimit_limiter_close(get()); }

    [[nodiscard]] const polylimit_limiter *get() const noexcept { return handle_.get(); }

private:
    std::vector<Decision> together(decltype(polylimit_limiter_check_together) operation,
                                   const std::vector<polylimit_request> &requests) const {
        std::vector<polylimit_decision> decisions(requests.size());
        detail::Message message;
        message.check(operation(get(), requests.data(), sizeof(polylimit_request), requests.size(), decisions.data(),
                                sizeof(polylimit_decision), message.start(), message.capacity()));
        return std::vector<Decision>(decisions.begin(), decisions.end());
    }

    Decision decide(std::uint32_t operation, std::string_view key, const Ask &ask) const {
        return Decision(detail::perform(get(), detail::to_plain(operation, key, ask)).answer.decision);
    }

    Usage spend(std::uint32_t operation, std::string_view key, const Ask &ask) const {
        return Usage(detail::perform(get(), detail::to_plain(operation, key, ask)).answer.usage);
    }

    /** Ends or renews the reservation with this id. */
    Usage end(std::uint32_t operation, std::string_view key, std::string_view id, std::uint64_t spent, const char *policy,
              const char *plan, std::uint64_t ttl_us = 0) const {
        auto request = detail::to_plain(operation, key, {policy, spent, 0, plan});
        request.id = id.data();
        request.id_length = id.size();
        request.ttl_us = ttl_us;
        return Usage(detail::perform(get(), request).answer.usage);
    }

    /** Must outlive the handle, which may call it. */
    std::unique_ptr<std::function<void(const polylimit_degraded_event &)>> on_degraded_;
    std::unique_ptr<polylimit_limiter, detail::Freed<polylimit_limiter_free>> handle_;
};

} // namespace polylimit

#endif
