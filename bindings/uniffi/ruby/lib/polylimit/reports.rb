# frozen_string_literal: true

require 'json'

module Polylimit
  # The operations of a limiter that tell what it knows: lists of keys, explanations, counters of keys, and metrics. They return
  # hashes whose keys are symbols, with the names of the fields that docs/listing.md and docs/metrics.md describe; names that end in
  # `_us` are microseconds. A key is `:key` when it is text, `:key_base64` for other bytes, and `:key_digest` when the store has no
  # more of it.
  module Reports
    # The keys that the store has, with what is used of their quotas, a page at a time: `{ keys:, examined:, cursor: }`. A page without
    # keys may have a cursor. In Redis each call is followed by a pause; the caller can be interrupted meanwhile.
    #
    # @param policy [String, nil] only keys of this policy: its name, or its quotas as text
    # @param key_prefix [String, nil] only keys that begin with these bytes
    # @param at_least_used [Integer, nil] only keys of which so much is used, in percent, 0 to 255
    # @param entries [Integer, nil] the page ends once it has so many keys, 1 or more; nil is 1,000
    # @param examined [Integer, nil] the page ends once the store has gone over so many keys, 1 or more; nil is 100,000
    # @param pace_percent [Integer, nil] the share of a Redis server's time that a list may take, 1 to 100; nil is 10
    # @param cursor [String, nil] where the list goes on: that of the page before
    # @return [Hash]
    # @raise [Error]
    def list(**options)
      listed(:list, ListOptions.bytes(**options))
    end

    # The keys of which the most is used, so many at most, first the one of which most is. The options are those of `list` without
    # `cursor`.
    # @return [Hash]
    def scan_top(number, **options)
      listed(:scan_top, ListOptions.number('number', number) << ListOptions.bytes(**options))
    end

    # Lists a page of keys as `list` does, and resets them: `{ reset:, unknown:, examined:, cursor: }`. Keys of policies that this
    # limiter does not know stay. Keys may have been reset before an error.
    # @return [Hash]
    def reset_listed(**options)
      listed(:reset_listed, ListOptions.bytes(**options))
    end

    # Why a request would be admitted or denied now: what each quota says, in the words of its algorithm; blocks and reservations;
    # and what the configuration says about the key. It charges nothing.
    # @return [Hash]
    # @raise [StoreUnavailable] when the store does not answer: no outage policy answers in its place
    def explain(key, policy: nil, cost: 1, headroom: nil, plan: nil)
      report Direct.answer(@address, request(:explain, key, policy, other_than_one(cost), JSON_FORM, plan: plan, headroom: headroom))
    end

    # Why a request, by its attributes, would be admitted or denied by the configuration: the lists, the rules that match, and what
    # each of their policies says.
    # @param request [Hash] as in `decide`
    # @return [Hash]
    def explain_request(request)
      report Direct.call(@address, :explain_request, Attributes.bytes(request) << JSON_FORM)
    end

    # The keys that this limiter has denied and admitted most often in this process lately, so many of each at most:
    # `{ denied:, admitted:, half_life_us:, counters: }`. It needs the option `observe_keys`; without, there are none.
    # @return [Hash]
    def top_keys(number)
      report Direct.call_now(@address, :top_keys, ListOptions.number('number', number))
    end

    # What the limiter has counted, and the state of its store and its configuration: one hash for each family.
    # @return [Array<Hash>]
    def metrics
      report Direct.call_now(@address, :metrics)
    end

    # The same as text: "prometheus", whose media type is `text/plain; version=0.0.4; charset=utf-8`, or "openmetrics", whose media
    # type is `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    # @return [String]
    def metrics_text(format = 'prometheus')
      @native.metrics_text(Argument.text('format', format).to_s)
    end

    # In which form the core tells a report.
    JSON_FORM = "\0".b.freeze
    private_constant :JSON_FORM

    private

    def report(answer)
      JSON.parse(read(answer), symbolize_names: true)
    end

    # Other threads run while a store in this process goes over its keys, and a caller that waits for Redis can be interrupted.
    def listed(operation, arguments)
      buffer = Direct.filled(operation, arguments << JSON_FORM)
      length = Direct.wait(@address, buffer, buffer.size)
      report(length == Direct::HAS_TO_WAIT ? Waiting.answer(@address, buffer) : Direct.finish(buffer, length))
    end
  end
  private_constant :Reports

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
