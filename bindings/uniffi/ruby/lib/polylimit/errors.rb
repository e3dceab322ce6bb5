# frozen_string_literal: true

module Polylimit
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
