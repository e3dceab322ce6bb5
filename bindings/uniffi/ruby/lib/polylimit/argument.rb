# frozen_string_literal: true

module Polylimit
  # Checks and conversions of arguments for the native library.
  module Argument
    # The integers that the native library accepts. It checks their bounds itself.
    RANGE = (-(1 << 63)..((1 << 63) - 1)).freeze

    module_function

    def units(name, value)
      return value if value.nil? || (value.is_a?(Integer) && RANGE.cover?(value))

      raise InvalidArgument, "#{name} is #{value.inspect}: allowed are whole numbers of units, 0 to 10^12"
    end

    # A cost; nil is none.
    def cost(value)
      return units('cost', value) unless value.nil?

      raise InvalidArgument, 'cost is nil: allowed are whole numbers of units, 0 to 10^12; leave it out for 1'
    end

    # A headroom, whose bounds the native library checks.
    def percent(value)
      return value if value.is_a?(Integer) && value.between?(-(1 << 31), (1 << 31) - 1)

      raise InvalidArgument, "headroom is #{value.inspect}: allowed are whole numbers of percent, 0 to 99"
    end

    def text(name, value)
      return value if value.nil?

      text = value.to_s.encode(Encoding::UTF_8) if value.is_a?(String) || value.is_a?(Symbol)
      return text if text&.valid_encoding?

      raise InvalidArgument, "#{name} is #{value.inspect}: allowed is text in UTF-8"
    rescue EncodingError
      raise InvalidArgument, "#{name} is #{value.inspect}: allowed is text in UTF-8"
    end

    # The values of each header field of a response.
    def header_lines(headers)
      unless headers.respond_to?(:to_hash)
        raise InvalidArgument, "headers is of class #{headers.class}: allowed is a Hash of names and values"
      end

      headers.to_hash.to_h do |name, values|
        [name.to_s, Array(values).map { |value| text("headers[#{name.inspect}]", value) }]
      end
    end

    # Whole numbers are their decimal digits, so that 42 and "42" are one key.
    def key(value)
      return value if value.is_a?(String)
      return value.to_s if value.is_a?(Integer)

      raise InvalidArgument, "key is #{described(value)}: allowed are strings and whole numbers"
    end

    # The bytes of a reservation's id.
    def id(value)
      return value if value.is_a?(String)

      raise InvalidArgument, "the id of a reservation is #{described(value)}: allowed is a string of 1 to 64 bytes"
    end

    # Omits the value: keys may be secrets.
    def described(value)
      value.nil? ? 'nil' : "of the class #{value.class}"
    end

    # Policies by their names, each with its quotas as text or a hash of :quotas, :outage and :lease.
    def policies(given)
      return given.map { |name, one| policy(name, one) } if given.is_a?(Hash)

      raise InvalidArgument,
            "policies is #{given.inspect}: allowed is a hash of quotas by names, such as { api: '100/minute' }"
    end

    POLICY_PARTS = %i[quotas outage lease].freeze

    def policy(name, given)
      parts = given.is_a?(Hash) ? given.transform_keys(&:to_sym) : { quotas: given }
      unknown = parts.keys - POLICY_PARTS
      unless unknown.empty? && parts[:quotas]
        raise InvalidArgument, "policy #{name.inspect} is #{given.inspect}: allowed are quotas such as '100/minute', " \
                               'or a hash of :quotas and, where they matter, :outage and :lease'
      end
      parts = parts.to_h { |part, value| [part, text("policy #{name.inspect}: #{part}", value)] }
      Policy.new(name: name(name), **parts)
    end

    def name(value)
      text('a name of a policy', value) || raise(InvalidArgument, 'a name of a policy is nil: allowed is text in UTF-8')
    end

    def clock(value)
      return value if value.nil? || value.is_a?(ManualClock)

      raise InvalidArgument, "clock is of the class #{value.class}: allowed is a Polylimit::ManualClock"
    end

    # Refuses what is not one of several requests.
    def one_of_several(request)
      unless request.is_a?(Hash)
        raise InvalidArgument, "a request is #{described(request)}: allowed is a hash of :key and, where they matter, " \
                               ':policy, :cost, :headroom and :plan'
      end
    end

    def requests(several)
      return several if several.is_a?(Array)

      raise InvalidArgument, "requests is #{described(several)}: allowed is an array of hashes"
    end

    # Text that no error shows: a secret may be in it.
    def secret(name, value)
      raise InvalidArgument, "#{name} is #{described(value)}: allowed is text in UTF-8" unless value.is_a?(String)

      text = value.encode(Encoding::UTF_8)
      return text if text.valid_encoding?

      raise InvalidArgument, "#{name} is not in UTF-8"
    rescue EncodingError
      raise InvalidArgument, "#{name} is not in UTF-8"
    end

    # An option's value as text: numbers are seconds where the option is a duration.
    def option(name, value)
      row = OPTIONS[name.to_s]
      return seconds(name, value, row.allowed) if row&.kind == 'duration' && value.is_a?(Numeric)

      secret("option #{name}", value.to_s)
    end

    # A duration as text, in which errors show the number of the caller.
    def seconds(name, value, allowed)
      time_us = Span.microseconds(value, name)
      raise InvalidArgument, "#{name} is #{value} s: allowed is #{allowed}" if time_us == Span::LONGEST

      value.is_a?(Integer) ? "#{value}s" : "#{time_us}us"
    end

    OPTIONS = PolylimitNative.store_options.to_h { |row| [row.name, row] }.freeze
  end
end
