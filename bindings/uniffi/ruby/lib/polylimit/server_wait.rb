# frozen_string_literal: true

module Polylimit
  # When the client of a limited service tries again: #wait(retry, server_wait), in seconds, is nil to give up. `base` is the
  # longest wait before the first retry, 0.001 to the cap (0.1 by default); `cap` is where the doubling ends, up to a day (20);
  # `max_wait` is the longest wait that a server may ask for, 0 to 366 days (300); `max_retries` is how many retries may
  # follow the first try (5).
  def self.backoff(base: nil, cap: nil, max_wait: nil, max_retries: nil)
    Backoff.new(base, cap, max_wait, max_retries)
  end

  # How many seconds a response asks its client to wait, counted from now; nil if it does not say. `retry_after` is the value of the
  # field Retry-After, seconds or a date; it has precedence where it is well-formed. Otherwise the values of all lines of
  # RateLimit decide: the longest time of the policies that have nothing left. A malformed field is ignored, and a wait above
  # 285 years is cut to that. A date is compared with `now_us`, microseconds since the Unix epoch; the system's time by default.
  def self.server_wait(retry_after = nil, rate_limit = [], now_us: nil)
    lines = Array(rate_limit).map { |line| Argument.text('rate_limit', line) }
    PolylimitNative.server_wait(Argument.text('retry_after', retry_after), lines, now_us)
  end
end
