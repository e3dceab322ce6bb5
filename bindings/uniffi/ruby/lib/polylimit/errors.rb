# frozen_string_literal: true

module Polylimit
  # The caller passed something that is not allowed.
  InvalidArgument = PolylimitNative::PolylimitError::InvalidArgument
  # The store could not be reached in time.
  StoreUnavailable = PolylimitNative::PolylimitError::StoreUnavailable
  # The store was reached and could not decide.
  StoreFailed = PolylimitNative::PolylimitError::StoreFailed
  # The limiter was closed.
  Closed = PolylimitNative::PolylimitError::Closed
  # A defect in polylimit itself.
  Internal = PolylimitNative::PolylimitError::Internal

  # Every error of polylimit is one of these: `rescue Polylimit::Error`.
  module Error
    CODES = {
      InvalidArgument => 'invalid_argument',
      StoreUnavailable => 'store_unavailable',
      StoreFailed => 'store_failed',
      Closed => 'closed',
      Internal => 'internal'
    }.freeze

    # The code string, the same in every language.
    def code
      CODES.fetch(self.class)
    end

    # The error of that code.
    def self.of(code, message)
      CODES.key(code).new(message)
    end
  end

  Error::CODES.each_key { |error| error.include(Error) }
end
