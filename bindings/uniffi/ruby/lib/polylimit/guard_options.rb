# frozen_string_literal: true

module Polylimit
  # Checks the options of a guard when it is made, so that a mistake does not fail requests.
  module GuardOptions
    POLICY = "a policy's name or quotas, or a list of at least one of them"
    # The options of Rails' rate_limit and their replacements. The library knows those of rack-attack and others.
    RAILS = {
      'to' => 'policy, with quotas such as 100/minute', 'within' => 'policy, whose quotas name the period, such as 100/15m',
      'by' => 'key', 'with' => 'on_denied, which makes the response', 'store' => 'limiter', 'name' => 'scope',
      'only' => 'skip', 'except' => 'skip'
    }.freeze

    module_function

    # The native options, of those that are no functions.
    def native(limiter:, policy:, key:, cost:, scope:, missing_key:, methods:, dry_run:, status:, message:, headers:,
               client_address:, hears_outages:, spent:, spent_by:, ttl:, max_age:, wait:, max_waiting:,
               separate_head:, count_preflights:, cors_origins:, costs:, costs_per_request:)
      limiter(limiter)
      PolylimitNative::GuardOptions.new(
        policies: function?(policy) ? nil : policies(policy), per_request: function?(policy),
        key_parts: function?(key) ? [] : key_parts(key), cost: function?(cost) || cost.is_a?(Hash) ? nil : Argument.units('cost', cost),
        costs: costs, costs_per_request: costs_per_request,
        scope: Argument.text('scope', scope), missing_key: Argument.text('missing_key', missing_key), methods: texts('methods', methods),
        dry_run: flag('dry_run', dry_run), status: status(status), message: Argument.text('message', message),
        headers: Argument.text('headers', headers), client_address: rules(client_address), hears_outages: hears_outages,
        reserved: function?(spent), reserved_policies: spent.is_a?(Hash) ? spent.keys : [],
        spent_by: spent_by.is_a?(Hash) ? nil : spent_by, spent_by_policy: spent_by.is_a?(Hash) ? spent_by : {}, ttl: ttl, max_age: max_age, wait: wait, max_waiting: max_waiting, per_route: true,
        separate_head: flag('separate_head', separate_head), count_preflights: flag('count_preflights', count_preflights),
        cors_origins: texts('cors_origins', cors_origins)
      )
    end

    def function?(given)
      given.respond_to?(:call)
    end

    def function(name, given)
      return given if given.nil? || function?(given)

      raise InvalidArgument, "#{name} is of the class #{given.class}: allowed is what can be called, such as a lambda"
    end

    # The costs of single policies: the functions, and the units that are fixed. A cost for all policies has none.
    def costs_by_policy(given)
      return [{}, {}] unless given.is_a?(Hash)

      functions, fixed = by_policy('cost', given).partition { |_, cost| function?(cost) }.map(&:to_h)
      fixed.each { |policy, units| Argument.units("cost for policy #{policy.inspect}", required('cost', policy, units)) }
      [functions, fixed]
    end

    # What was spent, for all policies or in hashes for single ones: the functions, and the texts of what the response reports.
    def spent(given)
      return given.is_a?(String) ? [nil, Argument.text('spent', given)] : [spent_function('spent', given), nil] unless given.is_a?(Hash)

      texts, functions = by_policy('spent', given).partition { |_, one| one.is_a?(String) }.map(&:to_h)
      functions.each { |policy, one| spent_function("spent for policy #{policy.inspect}", required('spent', policy, one)) }
      [functions, texts]
    end

    def spent_function(name, given)
      return given if given.nil? || function?(given)

      raise InvalidArgument, "#{name} is of the class #{given.class}: allowed is what can be called, such as a lambda, or text such as \"usage:total\""
    end

    # What a hash has for single policies, which may be named by symbols. The core refuses policies that are not in the list.
    def by_policy(name, given)
      given.transform_keys do |policy|
        Argument.text("a policy of #{name}", policy) || raise(InvalidArgument, "a policy of #{name} is nil: allowed is text in UTF-8")
      end
    end

    def required(name, policy, given)
      given.nil? ? raise(InvalidArgument, "#{name} for policy #{policy.inspect} is nil: leave the policy out of the hash") : given
    end

    # The configuration of a limiter says what these say otherwise.
    def refuse_beside_configuration(is_by_configuration, attributes, others)
      if is_by_configuration
        name = others.compact.keys.first
        return if name.nil?

        raise InvalidArgument, "#{name} is given, and the configuration of the limiter decides: leave it out, or give a policy"
      end
      return if attributes.nil?

      raise InvalidArgument, 'attributes is given, and the limiter has no configuration, or a policy is given: leave it out'
    end

    # Refuses options that are not known.
    def refuse(unknown, allowed)
      name = unknown.keys.first&.to_s
      return if name.nil?

      known = RAILS[name]&.then { |ours| "use #{ours}" } || PolylimitNative.suggestion(name)
      raise InvalidArgument, "unknown keyword: #{name}: #{known || "allowed are #{allowed.join(', ')}"}"
    end

    def limiter(given)
      return if given.is_a?(Limiter)

      raise InvalidArgument, "limiter is #{Argument.described(given)}: allowed is a Polylimit::Limiter"
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

    def texts(name, given)
      Array(given).map { |text| Argument.text(name, text).to_s }
    end

    def status(given)
      return given if given.nil? || (given.is_a?(Integer) && given.between?(0, 999))

      raise InvalidArgument, "status is #{given.inspect}: allowed is 400 to 599"
    end

    def flag(name, given)
      return given if [true, false].include?(given)

      raise InvalidArgument, "#{name} is #{given.inspect}: allowed are true and false"
    end

    def rules(given)
      return given if given.nil? || given.is_a?(ClientAddressRules)

      raise InvalidArgument, "client_address is of the class #{given.class}: allowed are Polylimit::ClientAddressRules"
    end
  end
  private_constant :GuardOptions
end
