# frozen_string_literal: true

module Polylimit
  # Checks the options of the middleware when it is built, so that a mistake does not fail requests.
  module RackOptions
    OPERATIONS = %i[check_together refund policy policy_for].freeze
    POLICY = "a policy's name or quotas, or a list of at least one of them"
    # The options of Rails' rate_limit and their replacements. The library knows those of rack-attack and others.
    RAILS = {
      'to' => 'policy, with quotas such as 100/minute', 'within' => 'policy, whose quotas name the period, such as 100/15m',
      'by' => 'key', 'with' => 'on_denied, which makes the response', 'store' => 'limiter', 'name' => 'scope',
      'only' => 'skip', 'except' => 'skip'
    }.freeze

    module_function

    def limiter(given)
      return given if OPERATIONS.all? { |operation| given.respond_to?(operation) }

      raise InvalidArgument, "limiter is #{Argument.described(given)}: allowed is a Polylimit::Limiter, or what its " \
                             '#asynchronous gives'
    end

    # The names of the policies. Refuses what would limit nothing, or spend twice.
    def policies(limiter, given, scope)
      return [limiter.policy_for(nil, scope: scope).name] if given.nil?

      texts = Array(given)
      raise InvalidArgument, "policy is an empty list: allowed is #{POLICY}" if texts.empty?

      names = texts.map { |text| name(limiter, text, scope) }
      twice = names.index.with_index { |name, at| names.index(name) < at }
      raise InvalidArgument, "policy #{texts[twice].to_s.inspect} is given twice: once is enough" if twice

      names
    end

    def name(limiter, text, scope)
      raise InvalidArgument, "policy is nil: allowed is #{POLICY}" if text.nil?

      limiter.policy_for(text, scope: scope).name
    end

    def callable(name, given)
      return given if given.nil? || given.respond_to?(:call)

      raise InvalidArgument, "#{name} is of the class #{given.class}: allowed is what can be called, such as a lambda"
    end

    # Units, or what is called with the env.
    def cost(given)
      return given if given.nil? || given.respond_to?(:call)

      # The library knows what is allowed. In memory it needs no store for that.
      any = Limiter.new(policies: { any: '1/hour' })
      any.peek('', cost: given)
      any.close
      given
    end

    def rules(given)
      return given || ClientAddressRules.new([]) if given.nil? || given.is_a?(ClientAddressRules)

      raise InvalidArgument, "client_address is of the class #{given.class}: allowed are Polylimit::ClientAddressRules"
    end

    # Refuses options that are not known.
    def refuse(unknown)
      name = unknown.keys.first&.to_s
      return if name.nil?

      known = RAILS[name]&.then { |ours| "use #{ours}" } || PolylimitNative.suggestion(name)
      raise InvalidArgument, "unknown keyword: #{name}: #{known || "allowed are #{KEYWORDS.join(', ')}"}"
    end

    KEYWORDS = %w[
      limiter policy scope key cost count skip on_denied on_outage headers reset_form client_address
    ].freeze
  end
  private_constant :RackOptions
end
