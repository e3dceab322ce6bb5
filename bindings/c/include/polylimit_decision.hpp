/*
 * Part of polylimit.hpp: errors, requests with their options, decisions, clocks, and reservations.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef POLYLIMIT_DECISION_HPP
#define POLYLIMIT_DECISION_HPP

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "polylimit.h"

namespace polylimit {

/** The error when no decision could be made. A denial is not an error. */
class Error : public std::runtime_error {
public:
    Error(polylimit_status status, const char *message) : std::runtime_error(message), status_(status) {}

    /** One of POLYLIMIT_INVALID_ARGUMENT to POLYLIMIT_INTERNAL. */
    [[nodiscard]] polylimit_status status() const noexcept { return status_; }

    /** The status as text, such as "invalid_argument"; the same in every language. */
    [[nodiscard]] const char *code() const noexcept {
        const char *name = polylimit_status_name(status_);
        return name ? name : "unknown";
    }

private:
    polylimit_status status_;
};

namespace detail {

/** A buffer for the message of one call. */
class Message {
public:
    char *start() noexcept { return text_; }
    static constexpr std::size_t capacity() noexcept { return sizeof text_; }

    /** Throws the error of the call, if it failed. */
    void check(polylimit_status status) const {
        if (status > 0) {
            throw Error(status, text_);
        }
    }

private:
    char text_[512] = {};
};

/** Calls `write(buffer, capacity, length_out, message)` with a buffer of the needed size. */
template <typename Write> std::string text(Write write) {
    std::string buffer(256, '\0');
    for (;;) {
        Message message;
        std::size_t length = 0;
        polylimit_status status = write(buffer.data(), buffer.size(), &length, message);
        if (status == POLYLIMIT_INVALID_ARGUMENT && length >= buffer.size()) {
            buffer.resize(length + 1);
            continue;
        }
        message.check(status);
        buffer.resize(length);
        return buffer;
    }
}

template <typename T> T sized() noexcept {
    T value = {};
    value.size = sizeof value;
    return value;
}

template <auto Free> struct Freed {
    template <typename T> void operator()(T *handle) const noexcept { Free(handle); }
};

} // namespace detail

/** The units that a request spends. The constructor throws for a negative, fractional, too large or non-finite number. */
class Cost {
public:
    template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
    Cost(Number units) : units_(checked(units)) {} // NOLINT: a cost is written as a number

    [[nodiscard]] std::uint64_t units() const noexcept { return units_; }

private:
    template <typename Number> static std::string refusal(Number units) {
        return "cost is " + std::to_string(units) + ": allowed are whole numbers of units, 0 to 10^12";
    }

    template <typename Number> static std::uint64_t checked(Number units) {
        if constexpr (std::is_floating_point_v<Number>) {
            if (!(units >= 0 && units < static_cast<Number>(18446744073709551616.0L)) || std::floor(units) != units) {
                throw Error(POLYLIMIT_INVALID_ARGUMENT, refusal(units).c_str());
            }
        } else if constexpr (std::is_signed_v<Number>) {
            if (units < 0) {
                throw Error(POLYLIMIT_INVALID_ARGUMENT, refusal(units).c_str());
            }
        }
        return static_cast<std::uint64_t>(units);
    }

    std::uint64_t units_;
};

/** Microseconds as a duration; POLYLIMIT_NEVER and values out of range become the longest duration. */
[[nodiscard]] inline std::chrono::microseconds microseconds(std::uint64_t us) noexcept {
    constexpr auto most = std::chrono::microseconds::max().count();
    return std::chrono::microseconds(us > static_cast<std::uint64_t>(most) ? most : static_cast<std::int64_t>(us));
}

/** One quota's own view of a key, after the operation, and in a decision its own verdict on the request. */
class QuotaUsage {
public:
    explicit QuotaUsage(const polylimit_quota_usage &plain) noexcept : plain_(plain) {}

    [[nodiscard]] std::uint64_t limit() const noexcept { return plain_.limit; }
    [[nodiscard]] std::uint64_t remaining() const noexcept { return plain_.remaining; }
    [[nodiscard]] std::chrono::microseconds reset_after() const noexcept { return microseconds(plain_.reset_after_us); }
    /** Units of the quota's excess that are in use: above 0 once use is beyond the limit. */
    [[nodiscard]] std::uint64_t over() const noexcept { return plain_.over; }
    /** Whether this quota admits the request; if not, it has denied it. True where no quota was asked, and in a usage. */
    [[nodiscard]] bool allowed() const noexcept { return plain_.allowed != 0; }
    /** The time until this quota would admit the same request: 0 when it admits it; no value means never. */
    [[nodiscard]] std::optional<std::chrono::microseconds> retry_after() const noexcept {
        if (plain_.retry_after_us == POLYLIMIT_NEVER) {
            return std::nullopt;
        }
        return microseconds(plain_.retry_after_us);
    }
    [[nodiscard]] const polylimit_quota_usage &plain() const noexcept { return plain_; }

private:
    polylimit_quota_usage plain_;
};

/** The answer to a check, a peek, an acquire or a reserve. */
class Decision {
public:
    explicit Decision(const polylimit_decision &plain) noexcept : plain_(plain) {}

    [[nodiscard]] bool allowed() const noexcept { return plain_.allowed != 0; }
    [[nodiscard]] explicit operator bool() const noexcept { return allowed(); }
    [[nodiscard]] std::uint64_t remaining() const noexcept { return plain_.remaining; }
    /** The time until the same request would be admitted; no value means never. */
    [[nodiscard]] std::optional<std::chrono::microseconds> retry_after() const noexcept {
        if (plain_.retry_after_us == POLYLIMIT_NEVER) {
            return std::nullopt;
        }
        return microseconds(plain_.retry_after_us);
    }
    [[nodiscard]] std::chrono::microseconds reset_after() const noexcept { return microseconds(plain_.reset_after_us); }
    [[nodiscard]] std::chrono::microseconds delay() const noexcept { return microseconds(plain_.delay_us); }
    /** Units of an excess that are in use, the most over the quotas: above 0 once use is beyond a quota's limit. */
    [[nodiscard]] std::uint64_t over() const noexcept { return plain_.over; }
    /** Why the request was denied, or was admitted without the store, such as "quota"; NULL for no cause. */
    [[nodiscard]] const char *cause() const noexcept { return polylimit_cause_name(plain_.cause); }
    /** Whether this request's units were the first beyond a quota's limit. */
    [[nodiscard]] bool crossed() const noexcept { return plain_.crossed != 0; }
    /** Whether the pool of an elastic policy admitted the request; then nothing was spent in the policy itself. */
    [[nodiscard]] bool elastic() const noexcept { return plain_.elastic != 0; }
    /** Whether the request would have been denied if its policy were not in shadow; retry_after() is that of the denial. */
    [[nodiscard]] bool shadowed() const noexcept { return plain_.shadowed != 0; }
    /** Where the answer came from, such as "store". */
    [[nodiscard]] const char *source() const noexcept { return polylimit_source_name(plain_.source); }
    /** Why a healthy store might have answered otherwise; NULL when the answer is exact. */
    [[nodiscard]] const char *degraded() const noexcept { return polylimit_degradation_name(plain_.degraded); }
    /** Each quota's own view, in the policy's order. */
    [[nodiscard]] std::vector<QuotaUsage> quotas() const { return {plain_.quotas, plain_.quotas + plain_.quota_count}; }
    [[nodiscard]] const polylimit_decision &plain() const noexcept { return plain_; }

private:
    polylimit_decision plain_;
};

/** The answer to a take, a charge, a refund, a reset, a commit, a cancel, a renew or a block. */
class Usage {
public:
    explicit Usage(const polylimit_usage &plain) noexcept : plain_(plain) {}

    [[nodiscard]] std::uint64_t remaining() const noexcept { return plain_.remaining; }
    [[nodiscard]] std::uint64_t taken() const noexcept { return plain_.taken; }
    /** Whether a commit, a cancel or a renew has found the reservation; true for every other operation. */
    [[nodiscard]] bool found() const noexcept { return plain_.found != 0; }
    /** Whether this was a commit of an id that was committed before and is remembered, so that nothing was charged. */
    [[nodiscard]] bool repeated() const noexcept { return plain_.repeated != 0; }
    [[nodiscard]] std::chrono::microseconds reset_after() const noexcept { return microseconds(plain_.reset_after_us); }
    [[nodiscard]] const char *source() const noexcept { return polylimit_source_name(plain_.source); }
    [[nodiscard]] const char *degraded() const noexcept { return polylimit_degradation_name(plain_.degraded); }
    /** Each quota's own view, in the policy's order. */
    [[nodiscard]] std::vector<QuotaUsage> quotas() const { return {plain_.quotas, plain_.quotas + plain_.quota_count}; }
    [[nodiscard]] const polylimit_usage &plain() const noexcept { return plain_; }

private:
    polylimit_usage plain_;
};

/** A clock for tests; see polylimit_clock. */
class ManualClock {
public:
    explicit ManualClock(std::uint64_t now_us) {
        detail::Message message;
        polylimit_clock *clock = nullptr;
        message.check(polylimit_clock_new(now_us, &clock, message.start(), message.capacity()));
        handle_.reset(clock);
    }

    [[nodiscard]] std::uint64_t now_us() const noexcept { return polylimit_clock_now_us(handle_.get()); }

    void set(std::uint64_t now_us) {
        detail::Message message;
        message.check(polylimit_clock_set(handle_.get(), now_us, message.start(), message.capacity()));
    }

    void advance(std::chrono::microseconds by) {
        if (by.count() < 0) {
            throw Error(POLYLIMIT_INVALID_ARGUMENT, "a manual clock advances forward: set it to go back");
        }
        detail::Message message;
        auto by_us = static_cast<std::uint64_t>(by.count());
        message.check(polylimit_clock_advance(handle_.get(), by_us, message.start(), message.capacity()));
    }

    [[nodiscard]] const polylimit_clock *get() const noexcept { return handle_.get(); }

private:
    std::unique_ptr<polylimit_clock, detail::Freed<polylimit_clock_free>> handle_;
};

/** Names and texts, such as {"policy.api", "100/minute"}; see polylimit_option. */
using Options = std::vector<std::pair<std::string, std::string>>;

namespace detail {

/** Options for C; they refer to the texts. */
[[nodiscard]] inline std::vector<polylimit_option> plain_options(const Options &options) {
    std::vector<polylimit_option> plain;
    plain.reserve(options.size());
    for (const auto &[name, value] : options) {
        if (name.find('\0') != std::string::npos || value.find('\0') != std::string::npos) {
            throw Error(POLYLIMIT_INVALID_ARGUMENT, "an option has a NUL in it");
        }
        plain.push_back({name.c_str(), value.c_str()});
    }
    return plain;
}

} // namespace detail

/** The options of a request. */
struct Ask {
    /** A policy's name, or quotas as text; may be NULL when the limiter has one policy. */
    const char *policy = nullptr;
    Cost cost = 1;
    /** The percent of each quota's capacity that a check, a peek or a reserve leaves for others: 0 to 99. */
    std::uint32_t headroom = 0;
    /** The plan of the key, whose quotas decide where the policy has it; a calendar may follow, as in "gold from=15"; may be NULL. */
    const char *plan = nullptr;
};

/** How a reservation is made, kept and ended; what is not set has the library's default. */
struct ReserveOptions {
    /** Any 1 to 64 bytes; empty for a random id. */
    std::string id = {};
    /** How long the reservation lasts after its last renewal: 1 ms to 48 h. */
    std::optional<std::chrono::microseconds> ttl = {};
    /** The longest wait in line. */
    std::chrono::microseconds timeout = {};
    /** How long the reservation is renewed in the background; 0 never renews it. */
    std::optional<std::chrono::microseconds> max_age = {};
    /** The destructor commits what was reserved, in place of cancelling. */
    bool commit_at_end = false;
    /**
     * How long after its commit the id is remembered: 1 ms to 48 h; zero does not remember it. Meanwhile nothing more is charged for the id:
     * a repeated commit is reported as `repeated`, and a reserve asks for a slot only.
     */
    std::chrono::microseconds remember = {};
};

/** The id and the times of a reservation, for an operation by its id, or the time of a block. They have to outlive the call. */
struct ReservationTerms {
    std::string_view id = {};
    std::chrono::microseconds ttl = {};
    /** As in ReserveOptions; only for a reserve. */
    std::chrono::microseconds remember = {};
};

namespace detail {

/** A duration in the largest unit in which it is whole, such as "-5 s". */
[[nodiscard]] inline std::string text_of(std::chrono::microseconds duration) {
    auto us = duration.count();
    return us % 1000000 == 0 ? std::to_string(us / 1000000) + " s"
           : us % 1000 == 0  ? std::to_string(us / 1000) + " ms"
                             : std::to_string(us) + " us";
}

/** A duration that must not be negative. */
[[nodiscard]] inline std::uint64_t whole_us(std::chrono::microseconds duration, const char *name) {
    if (duration.count() < 0) {
        throw Error(POLYLIMIT_INVALID_ARGUMENT, (name + (" is " + text_of(duration)) + ": allowed is 0 or more").c_str());
    }
    return static_cast<std::uint64_t>(duration.count());
}

/** The units that a commit spends; the number that stands for what was reserved is none. */
inline std::uint64_t spent(Cost cost) {
    if (cost.units() == POLYLIMIT_AS_RESERVED) {
        throw Error(POLYLIMIT_INVALID_ARGUMENT, "a commit spends 0 to 10^12 units: commit_reserved commits what was reserved");
    }
    return cost.units();
}

/** The options in the form of C; the id and the plan are used only as long as `options` and `ask`. */
inline polylimit_reservation_options to_plain(const ReserveOptions &options, const Ask &ask) {
    Message message;
    auto plain = sized<polylimit_reservation_options>();
    message.check(polylimit_reservation_defaults(&plain, message.start(), message.capacity()));
    plain.commit_at_end = options.commit_at_end ? 1 : 0;
    plain.timeout_us = whole_us(options.timeout, "timeout");
    plain.headroom = ask.headroom;
    plain.plan = ask.plan;
    if (options.ttl) {
        plain.ttl_us = whole_us(*options.ttl, "ttl");
    }
    if (options.max_age) {
        plain.max_age_us = whole_us(*options.max_age, "max_age");
    }
    plain.remember_us = whole_us(options.remember, "remember");
    if (!options.id.empty()) {
        plain.id = options.id.data();
        plain.id_length = options.id.size();
    }
    return plain;
}

/** A request in the form of C; it uses the key and the texts of `ask`. */
inline polylimit_request to_plain(std::uint32_t operation, std::string_view key, const Ask &ask) {
    auto plain = sized<polylimit_request>();
    plain.operation = operation;
    plain.policy = ask.policy;
    plain.key = key.data();
    plain.key_length = key.size();
    plain.cost = ask.cost.units();
    plain.headroom = ask.headroom;
    plain.plan = ask.plan;
    return plain;
}

} // namespace detail

/**
 * Units that are set aside for their holder, renewed in the background. The destructor cancels what was not committed, also when
 * an exception leaves the scope. See polylimit_reservation.
 */
class [[nodiscard]] Reservation {
public:
    /** Owns a handle of C. */
    explicit Reservation(polylimit_reservation *handle) noexcept : handle_(handle) {}

    /** Whether every quota has admitted the request, so that its units are set aside. */
    [[nodiscard]] bool allowed() const { return decision().allowed(); }
    [[nodiscard]] explicit operator bool() const { return allowed(); }

    [[nodiscard]] Decision decision() const {
        detail::Message message;
        auto decision = detail::sized<polylimit_decision>();
        message.check(polylimit_reservation_decision(get(), &decision, message.start(), message.capacity()));
        return Decision(decision);
    }

    /** The id, by which another process can end the reservation. */
    [[nodiscard]] std::string id() const {
        std::size_t length = 0;
        const void *start = polylimit_reservation_id(get(), &length);
        return std::string(static_cast<const char *>(start), length);
    }

    /** Whether the reservation is known to have ended without its holder. */
    [[nodiscard]] bool is_lost() const noexcept { return polylimit_reservation_is_lost(get()) != 0; }

    /** Ends the reservation and charges what was spent. It may be repeated after an error: nothing is charged twice. */
    Usage commit(Cost spent) { return end_with(detail::spent(spent)); }
    /** Ends the reservation and charges what was reserved. */
    Usage commit_reserved() { return end_with(POLYLIMIT_AS_RESERVED); }

    /** Ends the reservation and spends nothing. */
    Usage cancel() {
        detail::Message message;
        auto usage = detail::sized<polylimit_usage>();
        message.check(polylimit_reservation_cancel(get(), &usage, message.start(), message.capacity()));
        return Usage(usage);
    }

    /** Leaves the reservation to another holder, which ends it by the returned id. */
    std::string detach() {
        polylimit_reservation_detach(get());
        return id();
    }

    [[nodiscard]] const polylimit_reservation *get() const noexcept { return handle_.get(); }

private:
    Usage end_with(std::uint64_t spent) {
        detail::Message message;
        auto usage = detail::sized<polylimit_usage>();
        message.check(polylimit_reservation_commit(get(), spent, &usage, message.start(), message.capacity()));
        return Usage(usage);
    }

    std::unique_ptr<polylimit_reservation, detail::Freed<polylimit_reservation_free>> handle_;
};

/** A request among several: see Limiter::check_many and Limiter::check_together. Its key has to outlive the call. */
struct Request {
    std::string_view key;
    Ask ask = {};
};

/** The decisions on requests that were reserved together, and the id of their reservations. See Limiter::reserve_together. */
struct [[nodiscard]] RequestReservation {
    /** Any 1 to 64 bytes, for Limiter::commit, Limiter::cancel and Limiter::renew. */
    std::string id;
    /** The decision on each request, in their order. In a denied request, those that admit are the decisions of a peek. */
    std::vector<Decision> decisions;

    /** Whether every request is admitted, so that units are set aside or spent. */
    [[nodiscard]] bool allowed() const noexcept {
        return std::all_of(decisions.begin(), decisions.end(), [](const Decision &made) { return made.allowed(); });
    }
    [[nodiscard]] explicit operator bool() const noexcept { return allowed(); }
};

namespace detail {

/** Requests in the form of C, all with this operation; they use the keys and texts of `requests`, and the id of `terms`. */
inline std::vector<polylimit_request> to_plain(std::uint32_t operation, const std::vector<Request> &requests,
                                               const ReservationTerms &terms = {}) {
    std::vector<polylimit_request> plain;
    plain.reserve(requests.size());
    for (const auto &[key, ask] : requests) {
        auto &request = plain.emplace_back(to_plain(operation, key, ask));
        request.id = terms.id.data();
        request.id_length = terms.id.size();
        request.ttl_us = whole_us(terms.ttl, "ttl");
        request.remember_us = whole_us(terms.remember, "remember");
    }
    return plain;
}

/** A random id of a reservation. */
inline std::string random_id() {
    Message message;
    std::string id(POLYLIMIT_RESERVATION_ID_SIZE, '\0');
    std::size_t length = 0;
    message.check(polylimit_reservation_id_random(&id[0], &length, message.start(), message.capacity()));
    id.resize(length);
    return id;
}

} // namespace detail

} // namespace polylimit

#endif
