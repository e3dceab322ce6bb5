/*
 * polylimit for HTTP in C++17: what a middleware asks a guard, and how a client stays within limits and tries again. Handles
 * that free themselves, errors as exceptions; what the operations mean stands in polylimit.h.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef POLYLIMIT_HTTP_HPP
#define POLYLIMIT_HTTP_HPP

#include "polylimit.hpp"

namespace polylimit {

namespace detail {

/** POLYLIMIT_NEVER is no duration. */
[[nodiscard]] inline std::optional<std::chrono::microseconds> duration_of(std::uint64_t us) noexcept {
    return us == POLYLIMIT_NEVER ? std::nullopt : std::optional(microseconds(us));
}

/** A text for C, which refers to it. It must not have a NUL in it. */
[[nodiscard]] inline const char *text_of(const std::string &text, const char *what) {
    if (text.find('\0') != std::string::npos) {
        throw Error(POLYLIMIT_INVALID_ARGUMENT, (std::string(what) + " has a NUL in it").c_str());
    }
    return text.c_str();
}

/** A text for C, or NULL. */
[[nodiscard]] inline const char *optional_text_of(const std::optional<std::string> &text, const char *what) {
    return text ? text_of(*text, what) : nullptr;
}

/** One line of a header field for C, which refers to the text. An empty one is a line, too. */
[[nodiscard]] inline polylimit_line line_of(std::string_view text) noexcept {
    return {text.data() ? text.data() : "", text.size()};
}

/** Lines of header fields for C; they refer to the texts. */
[[nodiscard]] inline std::vector<polylimit_line> lines_of(const std::vector<std::string_view> &texts) {
    std::vector<polylimit_line> lines;
    lines.reserve(texts.size());
    for (auto text : texts) {
        lines.push_back(line_of(text));
    }
    return lines;
}

} // namespace detail

/** A header field of a response: a name, in any letter case, and a value. */
using Field = std::pair<std::string_view, std::string_view>;

namespace detail {

/** The cost of a request under one policy, which is never POLYLIMIT_GUARD_COST. */
[[nodiscard]] inline std::uint64_t cost_of_policy(Cost cost) {
    if (cost.units() == POLYLIMIT_GUARD_COST) {
        throw Error(POLYLIMIT_INVALID_ARGUMENT, "a request spends 0 to 10^12 units under a policy: no value is the guard's cost");
    }
    return cost.units();
}

/** Fields for C; they refer to the texts. */
[[nodiscard]] inline std::vector<polylimit_pair> pairs_of(const std::vector<Field> &fields) {
    std::vector<polylimit_pair> pairs;
    pairs.reserve(fields.size());
    for (const auto &[name, value] : fields) {
        pairs.push_back({line_of(name), line_of(value)});
    }
    return pairs;
}

} // namespace detail

/** How long a response asks its client to wait, counted from `now`; no value if it does not say. See polylimit_server_wait. */
[[nodiscard]] inline std::optional<std::chrono::microseconds>
server_wait(const std::vector<Field> &fields,
            std::chrono::system_clock::time_point now = std::chrono::system_clock::now()) {
    auto pairs = detail::pairs_of(fields);
    auto now_us = detail::whole_us(std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()), "now");
    std::uint64_t wait_us = 0;
    detail::Message message;
    message.check(polylimit_server_wait(pairs.data(), pairs.size(), now_us, &wait_us, message.start(), message.capacity()));
    return detail::duration_of(wait_us);
}

/** When the client of a limited service tries again, and when it gives up; see polylimit_backoff. */
class Backoff {
public:
    /** The defaults: 100 ms, 20 s, 5 minutes, 5 retries. */
    Backoff() {
        detail::Message message;
        message.check(polylimit_backoff_defaults(&plain_, message.start(), message.capacity()));
    }

    /** The longest wait before the first retry. */
    Backoff &base(std::chrono::microseconds base) {
        plain_.base_us = detail::whole_us(base, "base");
        return *this;
    }
    /** Where the doubling ends. */
    Backoff &cap(std::chrono::microseconds cap) {
        plain_.cap_us = detail::whole_us(cap, "cap");
        return *this;
    }
    /** The longest wait that a server may ask for. */
    Backoff &max_wait(std::chrono::microseconds max_wait) {
        plain_.max_wait_us = detail::whole_us(max_wait, "max_wait");
        return *this;
    }
    /** How many retries may follow the first try. */
    Backoff &max_retries(std::uint32_t max_retries) noexcept {
        plain_.max_retries = max_retries;
        return *this;
    }

    /**
     * How long to wait before the next try; no value to give up. `retry` is the number of retries made before, and `server_wait`
     * what the last response asked for.
     */
    [[nodiscard]] std::optional<std::chrono::microseconds>
    wait(std::uint32_t retry, std::optional<std::chrono::microseconds> server_wait = std::nullopt) const {
        std::uint64_t wait_us = 0;
        auto server_wait_us = server_wait ? detail::whole_us(*server_wait, "server_wait") : POLYLIMIT_NEVER;
        detail::Message message;
        message.check(polylimit_backoff_wait(&plain_, retry, server_wait_us, &wait_us, message.start(),
                                             message.capacity()));
        return detail::duration_of(wait_us);
    }

    [[nodiscard]] const polylimit_backoff &plain() const noexcept { return plain_; }

private:
    polylimit_backoff plain_ = detail::sized<polylimit_backoff>();
};

/** What all requests of a client share; see polylimit_throttle_new. */
class Throttle {
public:
    explicit Throttle(const Backoff &backoff = Backoff()) {
        detail::Message message;
        polylimit_throttle *throttle = nullptr;
        message.check(polylimit_throttle_new(&backoff.plain(), &throttle, message.start(), message.capacity()));
        handle_.reset(throttle);
    }

    [[nodiscard]] const polylimit_throttle *get() const noexcept { return handle_.get(); }

private:
    std::unique_ptr<polylimit_throttle, detail::Freed<polylimit_throttle_free>> handle_;
};

/** The attempts of one request of a client; see polylimit_attempts_new. */
class Attempts {
public:
    /** What to do next, one of POLYLIMIT_STEP_WAIT and the other steps, and how long to wait or the timeout of the acquire. */
    struct Step {
        std::uint32_t step;
        std::chrono::microseconds duration;
    };
    /** Why a request is refused, and after how long it would be sent; no duration if the limiter never admits it. */
    struct Refusal {
        std::string reason;
        std::optional<std::chrono::microseconds> retry_after;
    };

    /** Without a timeout only the backoff bounds the waits. */
    Attempts(const Throttle &throttle, std::string_view key, const std::string &method, bool replayable,
             std::optional<std::chrono::microseconds> timeout = std::nullopt) {
        detail::Message message;
        polylimit_attempts *attempts = nullptr;
        auto timeout_us = timeout ? detail::whole_us(*timeout, "timeout") : POLYLIMIT_NEVER;
        message.check(polylimit_attempts_new(throttle.get(), key.data(), key.size(), detail::text_of(method, "method"),
                                             replayable ? 1 : 0, timeout_us, &attempts, message.start(),
                                             message.capacity()));
        handle_.reset(attempts);
    }

    [[nodiscard]] Step step() const {
        std::uint32_t step = 0;
        std::uint64_t us = 0;
        detail::Message message;
        message.check(polylimit_attempts_step(handle_.get(), &step, &us, message.start(), message.capacity()));
        return {step, microseconds(us)};
    }

    /** Reports the decision of the limiter. */
    void acquired(const Decision &decision) const {
        detail::Message message;
        message.check(polylimit_attempts_acquired(handle_.get(), &decision.plain(), message.start(), message.capacity()));
    }

    /** Reports a response. Returns whether the client discards it and asks for the next step. */
    [[nodiscard]] bool responded(unsigned status, const std::vector<Field> &fields = {}) const {
        auto pairs = detail::pairs_of(fields);
        std::uint32_t again = 0;
        detail::Message message;
        message.check(polylimit_attempts_responded(handle_.get(), status, pairs.data(), pairs.size(), &again,
                                                   message.start(), message.capacity()));
        return again != 0;
    }

    /** No value if the request is not refused. */
    [[nodiscard]] std::optional<Refusal> refusal() const {
        std::uint64_t retry_after_us = 0;
        auto reason =
            detail::text([&](char *buffer, std::size_t capacity, std::size_t *length, detail::Message &message) {
                return polylimit_attempts_refusal(handle_.get(), &retry_after_us, buffer, capacity, length,
                                                  message.start(), message.capacity());
            });
        if (reason.empty()) {
            return std::nullopt;
        }
        return Refusal{std::move(reason), detail::duration_of(retry_after_us)};
    }

private:
    std::unique_ptr<polylimit_attempts, detail::Freed<polylimit_attempts_free>> handle_;
};

/** What a middleware knows about a request; see polylimit_request_facts. */
struct RequestFacts {
    /** No value when the request has no key, and when the guard has key parts. Has to outlive the call, as all views here. */
    std::optional<std::string_view> key = {};
    /** The values of the guard's key parts, in their order; no value for a missing one. */
    std::vector<std::optional<std::string_view>> key_values = {};
    /** The client's address, as polylimit_address_rules_key writes it. */
    std::optional<std::string> address = {};
    /** The framework's name of the route, the same in every process. */
    std::optional<std::string> route = {};
    /** Policies of this request in place of the guard's; with none of them it is not limited. */
    std::optional<std::vector<std::string>> policies = {};
    /** What the request spends in place of the guard's cost. */
    std::optional<Cost> cost = {};
    /** What it spends under each policy, in their order; no value, and a policy beyond the end, is the guard's cost for it. */
    std::vector<std::optional<Cost>> costs = {};
    /** The request itself, for a guard with the option `by_configuration`; nothing else is given then. */
    std::optional<RequestAttributes> attributes = {};
};

/** A limit on the requests of a framework; see polylimit_guard_new for the options. */
class Guard {
public:
    explicit Guard(const Limiter &limiter, const Options &options = {}) {
        auto plain = detail::plain_options(options);
        detail::Message message;
        polylimit_guard *guard = nullptr;
        message.check(polylimit_guard_new(limiter.get(), plain.data(), plain.size(), &guard, message.start(),
                                          message.capacity()));
        handle_.reset(guard);
    }

    /** Whether a request with this method is limited; a preflight has a `requested_method`. See polylimit_guard_applies_to. */
    [[nodiscard]] bool applies_to(const std::string &method,
                                  const std::optional<std::string> &requested_method = std::nullopt) const noexcept {
        return polylimit_guard_applies_to(handle_.get(), method.c_str(),
                                          requested_method ? requested_method->c_str() : nullptr) != 0;
    }

    /** The fields by which a page of this origin may read a denial, as GuardCheck::fields; see polylimit_guard_cors_fields. */
    [[nodiscard]] std::string cors_fields(const std::optional<std::string> &origin) const {
        const char *from = detail::optional_text_of(origin, "origin");
        return detail::text([&](char *buffer, std::size_t capacity, std::size_t *length, detail::Message &message) {
            return polylimit_guard_cors_fields(get(), from, buffer, capacity, length, message.start(), message.capacity());
        });
    }

    [[nodiscard]] const polylimit_guard *get() const noexcept { return handle_.get(); }

private:
    std::unique_ptr<polylimit_guard, detail::Freed<polylimit_guard_free>> handle_;
};

/** A guard's decision about one request, with the steps of polylimit_guard_check_new. */
class GuardCheck {
public:
    /** An outage: the error of the store, or no value when an outage policy has decided. */
    struct Outage {
        std::optional<Error> cause;
    };
    /** The response to a request that does not proceed: its status, the fields of its body, an empty line and the body. */
    struct Response {
        unsigned status;
        std::string text;
    };

    /** `earlier` is any check of another guard on the same request. */
    GuardCheck(const Guard &guard, const RequestFacts &facts, const GuardCheck *earlier = nullptr) {
        auto plain = detail::sized<polylimit_request_facts>();
        plain.has_cost = facts.cost ? 1 : 0;
        plain.cost = facts.cost ? facts.cost->units() : 0;
        plain.key = facts.key ? detail::line_of(*facts.key).start : nullptr;
        plain.key_length = facts.key ? facts.key->size() : 0;
        std::vector<polylimit_line> values;
        for (const auto &value : facts.key_values) {
            values.push_back(value ? detail::line_of(*value) : polylimit_line{});
        }
        plain.key_values = values.data();
        plain.key_value_count = values.size();
        plain.address = detail::optional_text_of(facts.address, "address");
        plain.route = detail::optional_text_of(facts.route, "route");
        std::vector<const char *> policies;
        if (facts.policies) {
            for (const auto &policy : *facts.policies) {
                policies.push_back(detail::text_of(policy, "policy"));
            }
            plain.policy_count = policies.size();
            // NULL would be the policies of the guard.
            policies.push_back(nullptr);
            plain.policies = policies.data();
        }
        std::vector<std::uint64_t> costs;
        for (const auto &cost : facts.costs) {
            costs.push_back(cost ? detail::cost_of_policy(*cost) : POLYLIMIT_GUARD_COST);
        }
        plain.costs = costs.data();
        plain.cost_count = costs.size();
        std::optional<detail::PlainAttributes> attributes;
        if (facts.attributes) {
            plain.attributes = attributes.emplace(*facts.attributes).get();
        }
        detail::Message message;
        polylimit_guard_check *check = nullptr;
        message.check(polylimit_guard_check_new(guard.get(), earlier ? earlier->get() : nullptr, &plain, &check,
                                                message.start(), message.capacity()));
        handle_.reset(check);
    }

    /** Has the store do what is next, on this thread. Returns whether that is done; it is, unless `stopped` points at 1. */
    bool run(const std::uint32_t *stopped = nullptr) const {
        detail::Message message;
        auto status = polylimit_guard_check_run(get(), stopped, message.start(), message.capacity());
        message.check(status);
        return status == POLYLIMIT_OK;
    }

    /** As run, without waiting: if it is not done, the completions have a result with this tag later, and submit goes on. */
    [[nodiscard]] bool submit(const Completions &completions, std::uint64_t tag) const {
        detail::Message message;
        auto status = polylimit_guard_check_submit(get(), completions.get(), tag, message.start(), message.capacity());
        message.check(status);
        return status == POLYLIMIT_OK;
    }

    /** The program waits for the decision no longer. */
    void give_up() const noexcept { polylimit_guard_check_give_up(get()); }

    /** No value when the store has decided. */
    [[nodiscard]] std::optional<Outage> outage() const {
        polylimit_status cause = POLYLIMIT_OK;
        detail::Message message;
        if (polylimit_guard_check_outage(get(), &cause, message.start(), message.capacity()) == 0) {
            return std::nullopt;
        }
        return Outage{cause == POLYLIMIT_OK ? std::nullopt : std::optional(Error(cause, message.start()))};
    }

    /** Whether the request proceeds; then run makes the refunds. Throws when no decision could be made, and not by an outage. */
    [[nodiscard]] bool conclude(std::uint32_t on_outage = POLYLIMIT_OUTAGE_LEAVE) const {
        std::uint32_t admitted = 0;
        detail::Message message;
        message.check(polylimit_guard_check_conclude(get(), on_outage, &admitted, message.start(), message.capacity()));
        return admitted != 0;
    }

    /** Ends the check when there is a response; then run makes the refunds of one that does not count. */
    void finish(bool counts = true) const {
        detail::Message message;
        message.check(polylimit_guard_check_finish(get(), counts ? 1 : 0, message.start(), message.capacity()));
    }

    /** Whether read_head has to be called with the fields of the response, because it reports what the request has spent. */
    [[nodiscard]] bool reads_response() const noexcept { return polylimit_guard_check_reads_response(get()) != 0; }

    /** Reads the fields of the response, each as "name: value\r\n". Returns whether read_body has to be called with the body. */
    [[nodiscard]] bool read_head(std::string_view fields) const {
        std::uint32_t reads_body = 0;
        detail::Message message;
        message.check(polylimit_guard_check_read_head(get(), reinterpret_cast<const std::uint8_t *>(fields.data()), fields.size(),
                                                      &reads_body, message.start(), message.capacity()));
        return reads_body != 0;
    }

    /** Reads the next part of the body of the response, of any size, which is not kept. */
    void read_body(std::string_view part) const {
        detail::Message message;
        message.check(polylimit_guard_check_read_body(get(), reinterpret_cast<const std::uint8_t *>(part.data()), part.size(),
                                                      message.start(), message.capacity()));
    }

    /** Whether the check holds reservations, so that end has to be called when the response is done. */
    [[nodiscard]] bool holds() const noexcept { return polylimit_guard_check_holds(get()) != 0; }

    /**
     * Ends what the check holds, when the last byte is sent or the client has gone; then run commits what was spent, or what was
     * reserved without a value. The destructor does so in the background, as if the client had left.
     */
    void end(std::optional<Cost> spent = std::nullopt) const { end_with(spent, 0); }
    /** As end, and commits in the background. */
    void end_in_background(std::optional<Cost> spent = std::nullopt) const { end_with(spent, 1); }

    /** As end, with what was spent under each policy, in their order; no value, and a policy beyond the end, is what was reserved. */
    void end_each(const std::vector<std::optional<Cost>> &spent) const { end_each_with(spent, 0); }
    /** As end_each, and commits in the background. */
    void end_each_in_background(const std::vector<std::optional<Cost>> &spent) const { end_each_with(spent, 1); }

    /** The fields of the response for all guards of the request so far, each as "name: value\r\n". */
    [[nodiscard]] std::string fields() const {
        return detail::text([&](char *buffer, std::size_t capacity, std::size_t *length, detail::Message &message) {
            return polylimit_guard_check_fields(get(), buffer, capacity, length, message.start(), message.capacity());
        });
    }

    /** The default response to a request that does not proceed; `accept` is the field of the request. */
    [[nodiscard]] Response response(const std::optional<std::string> &accept = std::nullopt) const {
        std::uint32_t status = 0;
        const char *wanted = detail::optional_text_of(accept, "accept");
        auto text = detail::text([&](char *buffer, std::size_t capacity, std::size_t *length, detail::Message &message) {
            return polylimit_guard_check_response(get(), wanted, &status, buffer, capacity, length, message.start(),
                                                  message.capacity());
        });
        return {status, std::move(text)};
    }

    /** The policies with a decision, each with its name: those of this guard, or of all guards of the request so far. */
    [[nodiscard]] std::vector<std::pair<std::string, Decision>> outcomes(bool of_request = false) const {
        std::vector<std::pair<std::string, Decision>> outcomes;
        auto all = static_cast<std::uint32_t>(of_request ? 1 : 0);
        auto count = polylimit_guard_check_outcomes(get(), all);
        for (std::size_t at = 0; at < count; ++at) {
            auto decision = detail::sized<polylimit_decision>();
            auto policy =
                detail::text([&](char *buffer, std::size_t capacity, std::size_t *length, detail::Message &message) {
                    return polylimit_guard_check_outcome(get(), all, at, &decision, buffer, capacity, length,
                                                         message.start(), message.capacity());
                });
            outcomes.emplace_back(std::move(policy), Decision(decision));
        }
        return outcomes;
    }

    [[nodiscard]] const polylimit_guard_check *get() const noexcept { return handle_.get(); }

private:
    void end_with(std::optional<Cost> spent, std::uint32_t in_background) const {
        detail::Message message;
        auto units = spent ? detail::spent(*spent) : POLYLIMIT_AS_RESERVED;
        message.check(polylimit_guard_check_end(get(), units, in_background, message.start(), message.capacity()));
    }

    void end_each_with(const std::vector<std::optional<Cost>> &spent, std::uint32_t in_background) const {
        std::vector<std::uint64_t> units;
        for (const auto &cost : spent) {
            units.push_back(cost ? detail::spent(*cost) : POLYLIMIT_AS_RESERVED);
        }
        detail::Message message;
        message.check(polylimit_guard_check_end_each(get(), units.data(), units.size(), in_background, message.start(),
                                                     message.capacity()));
    }

    std::unique_ptr<polylimit_guard_check, detail::Freed<polylimit_guard_check_free>> handle_;
};

} // namespace polylimit

#endif
