# frozen_string_literal: true

module Polylimit
  # What a caller passes, as what the native library takes.
  module Argument
    # What the native library can be told; it says itself what it allows of that.
    RANGE = (-(1 << 63)..((1 << 63) - 1)).freeze

    module_function

    def units(name, value)
      return value if value.nil? || (value.is_a?(Integer) && RANGE.cover?(value))

      raise InvalidArgument, "#{name} is #{value.inspect}: allowed are whole numbers of units, 0 to 10^12"
    end

    def text(name, value)
      return value if value.nil?

      text = value.to_s.encode(Encoding::UTF_8) if value.is_a?(String) || value.is_a?(Symbol)
      return text if text&.valid_encoding?

      raise InvalidArgument, "#{name} is #{value.inspect}: allowed is text in UTF-8"
    rescue EncodingError
      raise InvalidArgument, "#{name} is #{value.inspect}: allowed is text in UTF-8"
    end

    def key(value)
      return value.b if value.is_a?(String)

      raise InvalidArgument, "key is #{value.class}: allowed are strings"
    end

    def request(key, policy, cost)
      PolylimitNative::Request.new(
        key: key(key), policy: text('policy', policy), cost: units('cost', cost)
      )
    end

    # An option's value as text: numbers are seconds where the option is a duration.
    def option(name, value)
      row = OPTIONS[name.to_s]
      return Span.microseconds(value).to_s << 'us' if row&.kind == 'duration' && value.is_a?(Numeric)

      value.to_s
    end

    OPTIONS = PolylimitNative.store_options.to_h { |row| [row.name, row] }.freeze
  end
end
