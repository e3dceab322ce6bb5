# frozen_string_literal: true

module Polylimit
  # Durations: seconds in Ruby, whole microseconds in the native library.
  module Span
    MICROSECONDS = 1_000_000
    # The longest span that the native library accepts.
    LONGEST = (1 << 63) - 1

    # Exact to the microsecond up to 285 years.
    def self.seconds(microseconds)
      microseconds / Float(MICROSECONDS)
    end

    # Raises Polylimit::InvalidArgument for what is no duration.
    def self.microseconds(seconds, name = 'a duration')
      unless seconds.is_a?(Numeric) && seconds.real? && !(seconds.is_a?(Float) && seconds.nan?) && seconds >= 0
        raise InvalidArgument, "#{name} is #{seconds.inspect}: allowed are seconds, 0 or more"
      end
      return LONGEST if seconds >= LONGEST / MICROSECONDS

      (seconds * MICROSECONDS).round
    end
  end
end
