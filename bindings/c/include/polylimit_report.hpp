/*
 * Part of polylimit.hpp: reports as JSON, and what lists of keys are asked.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef POLYLIMIT_REPORT_HPP
#define POLYLIMIT_REPORT_HPP

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "polylimit_configuration.hpp"

namespace polylimit {

/** Which keys a list has, and when a page ends; what is not set has the library's default. See polylimit_list_options. */
struct ListOptions {
    /** Only keys of the policy with this name, or with these quotas. */
    std::optional<std::string> policy = {};
    /** Only keys that begin with these bytes. */
    std::string key_prefix = {};
    /** Only keys of which at least this much is used, in percent: 0 to 255. */
    std::uint32_t at_least_used = 0;
    /** Where the list goes on: the `cursor` of the page before. */
    std::optional<std::string> cursor = {};
    /** The page ends once it has this many keys, 1 or more. */
    std::optional<std::uint64_t> entries = {};
    /** The page ends once the store has examined this many keys, 1 or more. */
    std::optional<std::uint64_t> examined = {};
    /** The share of one server's time that a list in Redis may take, in percent: 1 to 100. */
    std::optional<std::uint32_t> pace_percent = {};
};

/** A report as JSON; see polylimit_report. */
class Report {
public:
    /** Owns a handle of C. */
    explicit Report(polylimit_report *handle) noexcept : handle_(handle) {}

    /** The JSON; no value before its result was drained. It is valid as long as the report. */
    [[nodiscard]] std::optional<std::string_view> json() const noexcept {
        const char *json = polylimit_report_json(handle_.get());
        return json == nullptr ? std::nullopt : std::optional<std::string_view>(json);
    }

private:
    std::unique_ptr<polylimit_report, detail::Freed<polylimit_report_free>> handle_;
};

namespace detail {

/** The options in the form of C; they refer to the texts of the options. */
inline polylimit_list_options to_plain(const ListOptions &options) {
    Message message;
    auto plain = sized<polylimit_list_options>();
    message.check(polylimit_list_defaults(&plain, message.start(), message.capacity()));
    plain.at_least_used = options.at_least_used;
    plain.policy = options.policy ? c_text(*options.policy, "policy") : nullptr;
    plain.key_prefix = options.key_prefix.data();
    plain.key_prefix_length = options.key_prefix.size();
    plain.cursor = options.cursor ? c_text(*options.cursor, "cursor") : nullptr;
    plain.entries = options.entries.value_or(plain.entries);
    plain.examined = options.examined.value_or(plain.examined);
    plain.pace_percent = options.pace_percent.value_or(plain.pace_percent);
    return plain;
}

/** Calls `make(report_out, message)` and returns the JSON of the report. */
template <typename Make> std::string report(Make make) {
    Message message;
    polylimit_report *made = nullptr;
    message.check(make(&made, message));
    Report owned(made);
    return std::string(owned.json().value_or(""));
}

} // namespace detail

} // namespace polylimit

#endif
