# frozen_string_literal: true

module Polylimit
  # Checks the options of the middleware when it is built, so that a mistake does not fail requests.
  module RackOptions
    POLICY = "a policy's name or quotas, or a list of at least one of them"
    # The options of Rails' rate_limit and their replacements. The library knows those of rack-attack and others.
    RAILS = {
      'to' => 'policy, with quotas such as 100/minute', 'within' => 'policy, whose quotas name the period, such as 100/15m',
      'by' => 'key', 'with' => 'on_denied, which makes the response', 'store' => 'limiter', 'name' => 'scope',
      'only' => 'skip', 'except' => 'skip'
    }.freeze

    module_function

    def limiter(given)
      return given if given.is_a?(Limiter) || given.is_a?(Asynchronous)

      raise InvalidArgument, "limiter is #{Argument.described(given)}: allowed is a Polylimit::Limiter, or what its " \
                             '#asynchronous gives'
    end

    # The policies as text; nil for the limiter's only one.
    def policies(given)
      return if given.nil?

      Array(given).map do |text|
        Argument.text('policy', text) || raise(InvalidArgument, "policy is nil: allowed is #{POLICY}")
      end
    end

    # The parts of the key as text.
    def key_parts(given)
      parts = Array(given)
      return parts.map(&:to_s) if parts.all? { |part| part.is_a?(String) || part.is_a?(Symbol) }

      raise InvalidArgument, "key is of the class #{given.class}: allowed is what can be called, such as a lambda, or " \
                             'key parts such as Polylimit::KeyPart.user, one or a list'
    end

    # The names of methods in upper case; nil for all.
    def methods(given)
      given && Array(given).map { |name| Argument.text('methods', name).to_s.upcase }
    end

    def status(given)
      return given if given.nil? || (given.is_a?(Integer) && given.between?(0, 999))

      raise InvalidArgument, "status is #{given.inspect}: allowed is 400 to 599"
    end

    def flag(name, given)
      return given if [true, false].include?(given)

      raise InvalidArgument, "#{name} is #{given.inspect}: allowed are true and false"
    end

    def header_names(given)
      return {} if given.nil?
      raise InvalidArgument, "header_names is #{Argument.described(given)}: allowed is a hash" unless given.is_a?(Hash)

      given.to_h { |field, name| [field, name].map { |text| Argument.text('header_names', text).to_s } }
    end

    def callable(name, given)
      return given if given.nil? || given.respond_to?(:call)

      raise InvalidArgument, "#{name} is of the class #{given.class}: allowed is what can be called, such as a lambda"
    end

    def rules(given)
      return given if given.nil? || given.is_a?(ClientAddressRules)

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
      limiter policy scope key missing_key cost count skip methods dry_run status message on_denied on_outage headers
      header_names reset_form client_address
    ].freeze
  end
  private_constant :RackOptions
end
