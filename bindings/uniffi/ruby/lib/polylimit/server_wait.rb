# frozen_string_literal: true

module Polylimit
  # When the client of a limited service tries again: #wait(retry, server_wait), in seconds, is nil to give up. `base` is the
  # longest wait before the first retry, 0.001 to the cap (0.1 by default); `cap` is where the doubling ends, up to a day (20);
  # `max_wait` is the longest wait that a server may ask for, 0 to 366 days (300); `max_retries` is how many retries may
  # follow the first try (5).
  def self.backoff(base: nil, cap: nil, max_wait: nil, max_retries: nil)
    Backoff.new(base, cap, max_wait, max_retries)
  end

  # How many seconds a response asks its client to wait, counted from now; nil if it does not say. `headers` is a Hash of the
  # response's header fields, such as `response.headers`: names in any letter case, with a value or an Array of them. Those that
  # are read, in their order: Retry-After-Ms, Retry-After, whose date is compared with that of Date, and the policies of RateLimit
  # that have nothing left, of which the longest time counts. A malformed field is ignored, and a wait above 285 years is cut to
  # that. Without a Date, a date is compared with `now_us`, microseconds since the Unix epoch; the system's time by default.
  def self.server_wait(headers, now_us: nil)
    PolylimitNative.server_wait(Argument.header_lines(headers), now_us)
  end
end
