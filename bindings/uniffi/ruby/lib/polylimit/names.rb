# frozen_string_literal: true

# Classes that the generated sources reopen, so that callers see them in the module Polylimit.
module Polylimit
  # An argument is not allowed.
  class InvalidArgument < StandardError; end
  # The store could not be reached in time.
  class StoreUnavailable < StandardError; end
  # The store was reached and could not decide.
  class StoreFailed < StandardError; end
  # The limiter was closed.
  class Closed < StandardError; end
  # A defect in polylimit itself.
  class Internal < StandardError; end

  # Among them: ManualClock, a clock for tests, which stands still until it is set or advanced (#now_us, #set in
  # microseconds, #advance in seconds); ClientAddressRules, networks of proxies that are trusted to name the client of a
  # forwarded request: `new(trust, header, ipv4_prefix, ipv6_prefix)`; Backoff, which says when the client of a limited service
  # tries again: `new(base, cap, max_wait, max_retries)`, and #wait(retry, server_wait), both in seconds; DegradedEvent, what a limiter reports to operators (#kind, #reason,
  # #lasted in seconds, #decisions, #severity, #finding, #message).
  GENERATED = %i[
    AttemptStep Attempts Backoff CandidateCounts ClientAddressRules DegradedEvent ErrorRow Finding ManualClock Policy QuotaNumbers Settings
    StoreOption Throttle
  ].to_h { |name| [name, const_set(name, Class.new)] }.freeze
  private_constant :GENERATED, :ErrorRow, :QuotaNumbers, :Settings, :AttemptStep, :Attempts, :Throttle

  # Gives the generated module these classes.
  def self.name_classes(generated)
    GENERATED.each { |name, known| generated.const_set(name, known) }
    generated.const_set(:InternalError, Internal)
  end
  private_class_method :name_classes
end

# The native library, as it is generated.
module PolylimitNative
  Polylimit.send(:name_classes, self)
end
