# frozen_string_literal: true

module Polylimit
  # The options of lists as arguments of direct calls: bindings/uniffi/src/direct/reports.rs has the layout.
  module ListOptions
    module_function

    def bytes(policy: nil, key_prefix: nil, at_least_used: nil, entries: nil, examined: nil, pace_percent: nil, cursor: nil)
      texts = [text('policy', policy), key_prefix && Argument.key(key_prefix), text('cursor', cursor)]
      numbers = { at_least_used: at_least_used, entries: entries, examined: examined, pace_percent: pace_percent }
      texts.map { |text| text ? [text.bytesize, text].pack('L<a*') : Attributes::NONE }.join <<
        numbers.map { |name, given| given.nil? ? [0, 0].pack('Cq<') : "\1".b << number(name, given) }.join
    end

    # A whole number, whose bounds the core checks.
    def number(name, value)
      return [value].pack('q<') if value.is_a?(Integer) && Argument::RANGE.cover?(value)

      raise InvalidArgument, "#{name} is #{value.inspect}: allowed are whole numbers"
    end

    def text(name, value)
      Argument.text(name, value)
    end
  end
  private_constant :ListOptions
end
