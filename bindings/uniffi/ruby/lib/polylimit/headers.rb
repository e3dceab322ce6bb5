# frozen_string_literal: true

module Polylimit
  # Outcomes as arguments of direct calls: bindings/uniffi/src/direct/headers.rs has the layout.
  module OutcomeBytes
    FIELDS = 18
    PROBLEM = 19

    module_function

    def of(outcomes)
      all = outcomes.is_a?(Array) ? outcomes : [outcomes]
      all.inject([all.size].pack('L<')) { |bytes, outcome| bytes << one(outcome) }
    end

    # Text, or what stands for nil.
    def text(text)
      [text ? text.bytesize : Direct::NONE, text].pack('L<a*')
    end

    def one(outcome)
      unless outcome.is_a?(Outcome) && outcome.policy.is_a?(Policy) && outcome.decision.is_a?(Decision)
        raise InvalidArgument, "an outcome is #{Argument.described(outcome)}: allowed is a Polylimit::Outcome of a Policy, such as " \
                               'from Limiter#policy_for, and a Decision'
      end
      text(outcome.policy.name) << text(outcome.policy.quotas) << outcome.decision.bytes
    end
  end
  private_constant :OutcomeBytes

  # The header fields of the response to a request that a program has decided itself. Middlewares set them themselves.
  #
  #   decision = limiter.check('user:42', policy: 'api')
  #   headers.merge!(Polylimit.header_fields(Polylimit::Outcome.new(limiter.policy_for('api'), decision)))
  #
  # @param outcomes [Outcome, Array<Outcome>] of one policy, or of several that were applied to the request; their names differ
  # @param headers [String, Symbol, nil] words in any order, separated by spaces; nil is "ietf seconds": "ietf" (`ratelimit-policy` and
  #   `ratelimit`), "legacy" (`x-ratelimit-*`), "both" or "none"; whether `x-ratelimit-reset` is in "seconds" from now or since the
  #   "epoch"; and other names of fields, such as "ratelimit=x-quota", where an empty name turns a field off. A denial has `retry-after`
  #   in any case, unless the request can never be admitted
  # @return [Hash{String => String}] values by names in lower case
  # @raise [InvalidArgument] for what is no outcome, and for an option that is not allowed
  def self.header_fields(outcomes, headers: nil)
    arguments = OutcomeBytes.of(outcomes) << OutcomeBytes.text(Argument.text('headers', headers))
    AnswerReader.expect(OutcomeBytes::FIELDS, Direct.call_now(0, :fields, arguments)).fields
  end

  # The response to a request that a program has decided itself. Its header fields besides those of the problem are those of
  # `header_fields`.
  # @param outcomes [Outcome, Array<Outcome>] as in `header_fields`
  # @param cost [Integer, nil] the units that the request asked for, 0 to 10^12; nil is 1
  # @param accept [String, nil] the request's `accept` field, by which the body is a problem document (RFC 9457) or text
  # @return [Problem, nil] nil when no decision is a denial
  # @raise [InvalidArgument] for what is no outcome, and for a negative cost
  def self.problem_of(outcomes, cost: nil, accept: nil)
    units = Argument.units('cost', cost)
    arguments = OutcomeBytes.of(outcomes) << [units ? 1 : 0, units || 0].pack('Cq<') << OutcomeBytes.text(Argument.text('accept', accept))
    bytes = Direct.call_now(0, :problem, arguments).force_encoding(Encoding::UTF_8).freeze
    reader = AnswerReader.expect(OutcomeBytes::PROBLEM, bytes)
    reader.length.zero? ? nil : Problem.new(bytes, reader.at)
  end
end
