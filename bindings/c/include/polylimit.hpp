/*
 * polylimit for C++17: handles that free themselves, errors as exceptions, times as std::chrono. Only this header,
 * with those that it includes, and libpolylimit are needed; what the operations mean stands in polylimit.h.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef POLYLIMIT_HPP
#define POLYLIMIT_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "polylimit_limiter.hpp"

namespace polylimit {

/** Operations that were submitted and are not drained yet; see polylimit_completions. */
class Completions {
public:
    Completions() {
        detail::Message message;
        polylimit_completions *completions = nullptr;
        message.check(polylimit_completions_open(&completions, message.start(), message.capacity()));
        handle_.reset(completions);
    }

    /** The file descriptor to watch: readable when results can be drained. */
    [[nodiscard]] int fd() const noexcept { return polylimit_completions_fd(get()); }
    [[nodiscard]] std::size_t pending() const noexcept { return polylimit_completions_pending(get()); }

    /**
     * Starts an operation (POLYLIMIT_CHECK to POLYLIMIT_BLOCK). Returns its result if it is available at once. `terms` are for
     * POLYLIMIT_RESERVE to POLYLIMIT_BLOCK.
     */
    [[nodiscard]] std::optional<polylimit_result>
    submit(const Limiter &limiter, std::uint32_t operation, std::string_view key, std::uint64_t tag,
           const Ask &ask = {}, std::chrono::microseconds timeout = {}, const ReservationTerms &terms = {}) const {
        auto request = detail::to_plain(operation, key, ask);
        request.timeout_us = detail::whole_us(timeout, "timeout");
        request.id = terms.id.data();
        request.id_length = terms.id.size();
        request.ttl_us = detail::whole_us(terms.ttl, "ttl");
        request.remember_us = detail::whole_us(terms.remember, "remember");
        detail::Message message;
        polylimit_result result;
        polylimit_status status = polylimit_completions_submit(get(), limiter.get(), &request, tag, &result,
                                                               sizeof result, message.start(), message.capacity());
        message.check(status);
        return known(status, result);
    }

    /**
     * Decides requests that belong together without waiting: by POLYLIMIT_CHECK, POLYLIMIT_PEEK, or POLYLIMIT_RESERVE under `terms`.
     * Returns the decisions if they are available at once. Otherwise drain has a result with this tag for each of them, in the order of
     * the requests, or one with the error.
     */
    [[nodiscard]] std::optional<std::vector<Decision>>
    submit_together(const Limiter &limiter, std::uint32_t operation, const std::vector<Request> &requests,
                    std::uint64_t tag, const ReservationTerms &terms = {}) const {
        auto plain = detail::to_plain(operation, requests, terms);
        std::vector<polylimit_decision> decisions(plain.size());
        detail::Message message;
        polylimit_status status = polylimit_completions_submit_together(
            get(), limiter.get(), plain.data(), sizeof(polylimit_request), plain.size(), tag, decisions.data(),
            sizeof(polylimit_decision), message.start(), message.capacity());
        message.check(status);
        if (status == POLYLIMIT_PENDING) {
            return std::nullopt;
        }
        return std::vector<Decision>(decisions.begin(), decisions.end());
    }

    /** Decides about a request without waiting: the decision, and its result if that is available at once. */
    [[nodiscard]] std::pair<PendingDecision, std::optional<polylimit_result>>
    submit_decide(const Limiter &limiter, const RequestAttributes &request, std::uint64_t tag,
                  const ReserveOptions &options = {}) const {
        detail::Message message;
        detail::PlainAttributes attributes(request);
        auto plain = detail::to_plain(options, {});
        polylimit_request_decision *decision = nullptr;
        polylimit_result result;
        polylimit_status status =
            polylimit_completions_submit_decide(get(), limiter.get(), attributes.get(), &plain, tag, &decision, &result,
                                                sizeof result, message.start(), message.capacity());
        message.check(status);
        return {PendingDecision(decision), known(status, result)};
    }

    /** Asks about keys without waiting: the report, and its result if that is available at once. It has no JSON before. */
    [[nodiscard]] std::pair<Report, std::optional<polylimit_result>>
    submit_query(const Limiter &limiter, const polylimit_query &query, std::uint64_t tag) const {
        detail::Message message;
        polylimit_report *report = nullptr;
        polylimit_result result;
        polylimit_status status = polylimit_completions_submit_query(get(), limiter.get(), &query, tag, &report, &result,
                                                                     sizeof result, message.start(), message.capacity());
        message.check(status);
        return {Report(report), known(status, result)};
    }

    /** Reserves without waiting: the reservation, and its result if that is available at once. It has no decision before. */
    [[nodiscard]] std::pair<Reservation, std::optional<polylimit_result>>
    submit_reserve(const Limiter &limiter, std::string_view key, std::uint64_t tag, const Ask &ask = {},
                   const ReserveOptions &options = {}) const {
        detail::Message message;
        auto plain = detail::to_plain(options, ask);
        polylimit_reservation *reservation = nullptr;
        polylimit_result result;
        polylimit_status status = polylimit_reservation_submit(
            get(), limiter.get(), ask.policy, key.data(), key.size(), ask.cost.units(), &plain, tag, &reservation,
            &result, sizeof result, message.start(), message.capacity());
        message.check(status);
        return {Reservation(reservation), known(status, result)};
    }

    /** Commits what was spent without waiting. Returns the result if it is available at once. */
    std::optional<polylimit_result> submit_commit(Reservation &reservation, Cost spent, std::uint64_t tag) const {
        detail::Message message;
        polylimit_result result;
        polylimit_status status =
            polylimit_reservation_submit_commit(get(), reservation.get(), detail::spent(spent), tag, &result,
                                                sizeof result, message.start(), message.capacity());
        message.check(status);
        return known(status, result);
    }

    /** Cancels a reservation without waiting. Returns the result if it is available at once. */
    std::optional<polylimit_result> submit_cancel(Reservation &reservation, std::uint64_t tag) const {
        detail::Message message;
        polylimit_result result;
        polylimit_status status = polylimit_reservation_submit_cancel(get(), reservation.get(), tag, &result,
                                                                      sizeof result, message.start(), message.capacity());
        message.check(status);
        return known(status, result);
    }

    /** Calls `each` with every result that has arrived. */
    template <typename Each> void drain(Each each) const {
        std::vector<polylimit_result> results(64);
        std::size_t count = 0;
        do {
            detail::Message message;
            message.check(polylimit_completions_drain(get(), results.data(), sizeof results[0], results.size(), &count,
                                                      message.start(), message.capacity()));
            for (std::size_t at = 0; at < count; ++at) {
                each(static_cast<const polylimit_result &>(results[at]));
            }
        } while (count == results.size());
    }

    /** Cancels a pending operation. Returns whether there was one. */
    bool cancel(std::uint64_t tag) const {
        detail::Message message;
        std::uint32_t cancelled = 0;
        message.check(polylimit_completions_cancel(get(), tag, &cancelled, message.start(), message.capacity()));
        return cancelled != 0;
    }

    [[nodiscard]] const polylimit_completions *get() const noexcept { return handle_.get(); }

private:
    static std::optional<polylimit_result> known(polylimit_status status, const polylimit_result &result) {
        return status == POLYLIMIT_PENDING ? std::nullopt : std::optional<polylimit_result>(result);
    }

    std::unique_ptr<polylimit_completions, detail::Freed<polylimit_completions_free>> handle_;
};

} // namespace polylimit

#endif
