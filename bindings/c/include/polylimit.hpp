/*
 * polylimit for C++17: handles that free themselves, errors as exceptions, times as std::chrono. Only this header and
 * libpolylimit are needed; what the operations mean stands in polylimit.h.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef POLYLIMIT_HPP
#define POLYLIMIT_HPP

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
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
    template <typename Number> static std::uint64_t checked(Number units) {
        if constexpr (std::is_floating_point_v<Number>) {
            if (!(units >= 0 && units < static_cast<Number>(18446744073709551616.0L)) || std::floor(units) != units) {
                throw Error(POLYLIMIT_INVALID_ARGUMENT, "cost is no whole number from 0 up to 10^12 units");
            }
        } else if constexpr (std::is_signed_v<Number>) {
            if (units < 0) {
                throw Error(POLYLIMIT_INVALID_ARGUMENT, "cost is negative: allowed is 0 to 10^12 units");
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
    [[nodiscard]] std::chrono::microseconds reset_after() const noexcept { return microseconds(plain_.reset_after_us); }
    [[nodiscard]] const char *source() const noexcept { return polylimit_source_name(plain_.source); }
    [[nodiscard]] const char *degraded() const noexcept { return polylimit_degradation_name(plain_.degraded); }
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
    /** The plan of the key, whose quotas decide where the policy has a plan of that name; may be NULL. */
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
};

/** The id and the time of a reservation, for an operation by its id, or the time of a block. They have to outlive the call. */
struct ReservationTerms {
    std::string_view id = {};
    std::chrono::microseconds ttl = {};
};

namespace detail {

inline std::uint64_t whole_us(std::chrono::microseconds duration) noexcept {
    return static_cast<std::uint64_t>(duration.count() < 0 ? 0 : duration.count());
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
    plain.timeout_us = whole_us(options.timeout);
    plain.headroom = ask.headroom;
    plain.plan = ask.plan;
    if (options.ttl) {
        plain.ttl_us = whole_us(*options.ttl);
    }
    if (options.max_age) {
        plain.max_age_us = whole_us(*options.max_age);
    }
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

/** A name with its value, such as a line of a header. */
using Pair = std::pair<std::string_view, std::string_view>;

/** What a program says about a request; see polylimit_attributes. The texts have to outlive the call. */
struct RequestAttributes {
    std::string_view method = {};
    std::string_view path = {};
    std::string_view peer = {};
    /** Each line of each header, in the order in which they came. */
    std::vector<Pair> headers = {};
    /** What the program knows of the request, such as the user. */
    std::vector<Pair> attributes = {};
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

/** Which configuration is in force; see polylimit_configuration. */
struct Configuration {
    std::string source;
    std::uint64_t version;
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
    /** Who publishes it, and the reason. */
    std::string by = {};
    std::string why = {};
};

/** How the candidate of a policy compares with the numbers in force. */
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

/** The result of one request among several: its decision, or why there is none. */
using CheckResult = std::variant<Decision, Error>;

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
        if (time.count() < 0) {
            throw Error(POLYLIMIT_INVALID_ARGUMENT, "a block lasts a negative time: allowed are 0, or 1 ms to 366 days");
        }
        auto request = detail::to_plain(POLYLIMIT_BLOCK, key, {policy, 0, 0, plan});
        request.ttl_us = detail::whole_us(time);
        return Usage(perform(request).answer.usage);
    }
    /** Ends the block of the key, and forgets its penalties. */
    Usage unblock(std::string_view key, const char *policy = nullptr, const char *plan = nullptr) const {
        return block(key, std::chrono::microseconds(0), policy, plan);
    }

    /** Waits until admitted, at most for `timeout`. A denial means that it would take longer. */
    [[nodiscard]] Decision acquire(std::string_view key, std::chrono::microseconds timeout, const Ask &ask = {}) const {
        auto request = detail::to_plain(POLYLIMIT_ACQUIRE, key, ask);
        request.timeout_us = detail::whole_us(timeout);
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
        return end(POLYLIMIT_RENEW, key, id, 0, policy, plan, detail::whole_us(ttl));
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
        auto timeout_us = static_cast<std::uint64_t>(timeout.count() < 0 ? 0 : timeout.count());
        message.check(polylimit_limiter_ready(get(), timeout_us, message.start(), message.capacity()));
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
        change.timeout_us = detail::whole_us(timeout);
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
        request.timeout_us = detail::whole_us(timeout);
        request.id = terms.id.data();
        request.id_length = terms.id.size();
        request.ttl_us = detail::whole_us(terms.ttl);
        detail::Message message;
        polylimit_result result;
        polylimit_status status = polylimit_completions_submit(get(), limiter.get(), &request, tag, &result,
                                                               sizeof result, message.start(), message.capacity());
        message.check(status);
        return known(status, result);
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
