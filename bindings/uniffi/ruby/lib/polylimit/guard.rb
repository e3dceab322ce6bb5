# frozen_string_literal: true

module Polylimit
  # A request that does not proceed: its decisions, the default response, and the header fields.
  Denial = Struct.new(:rate_limit, :problem, :fields)
  # A request that the store did not decide: the decisions of the outage policy, or the error.
  Outage = Struct.new(:rate_limit, :error)

  # A limit on the requests of a web framework, for the middleware of the framework.
  #
  # Options: `limiter`; `policy`, a name, quotas such as "100/minute" or a list of them, none twice, decided together (the
  # only policy by default), or called with the request to return them: nil or [] does not limit the request;
  # `scope`, text of 1 to 256 bytes: quotas without a name have a budget of their own there (they share one with all that name
  # none); `key`, called with the request, gives a string or a whole number, or is one KeyPart or a list of them (the client's
  # address); `missing_key`, how a request without a key counts: "address", "share" or "refuse"; `cost`, units or called with
  # the request (1); `count`, called with request, status and headers, says whether a response counts (every one does; an
  # application that raises counts as one that answers 500; the fields of a response that does not count show what is left
  # after the refund); `spent`, called with request, status and headers when a response is done or its client has gone, returns the
  # units that the request has spent, 0 to 10^12, or nil for its cost: then the cost is reserved until that time and not checked, as
  # it is under policies with a quota of concurrency in any case; or text that says where the response reports them, such as
  # "usage:total" or "header:x-tokens"; or a hash of both by policies of the list, of which only these are reserved; `ttl`, seconds that a reservation lasts after its last renewal (30);
  # `max_age`, seconds for which it is renewed (3,600); `wait`, seconds for which a request that would be denied may be held on its thread, 0 to
  # 60, until it would be admitted (0), and `max_waiting`, how many may be held at the same time, 1 to 1,000,000 (100); `skip`, called with the request, lets requests through undecided; `methods`, the only ones that are
  # limited, where GET covers HEAD unless `separate_head` separates them, also under quotas without a name;
  # `count_preflights`, whether preflights of CORS are limited; `cors_origins`, one or a list of the origins whose pages may read a denial,
  # such as "https://app.example", or "*"; `dry_run`, whether it never denies; `status` and `message` of a request over its limit; `on_denied`, called with
  # request and Denial, answers in place of the problem document unless it returns nil; `on_outage`, called with request and
  # Outage, returns :admit or :deny, or else leaves the decision to the outage policy; it cannot admit what the store has
  # denied; without a `policy`, a limiter with a configuration decides by its rules, and `attributes`, called with the request, returns a hash
  # of what else they are about; `headers`, as in Polylimit.header_fields; `client_address`, ClientAddressRules. A mistake in them raises InvalidArgument.
  class Guard
    # No parts of the key, no lines of proxies' headers, no policies, no route, no costs of single policies.
    NOTHING_ELSE = "#{"\0" * 13}\xFF\xFF\xFF\xFF#{"\0" * 4}".b.freeze
    private_constant :NOTHING_ELSE

    # `facts` is made with the parts of the key and the name of the proxies' header or nil, and reads from a request its
    # `peer`, `method`, `accept`, `origin`, the `requested_method` of a preflight, the `parts` of its key, the `forwarded` lines, and the
    # `handler`, which has a budget of its own under quotas without a name.
    def initialize(facts, limiter:, policy: nil, scope: nil, key: nil, missing_key: nil, cost: nil, count: nil, skip: nil,
                   methods: nil, dry_run: false, spent: nil, ttl: nil, max_age: nil, wait: nil, max_waiting: nil, status: nil, message: nil, on_denied: nil, on_outage: nil, headers: nil,
                   client_address: nil, attributes: nil, separate_head: false, count_preflights: false,
                   cors_origins: nil, **unknown)
      GuardOptions.refuse(unknown, Guard.options)
      @policies, @key, @cost = [policy, key, cost].map { |given| given if GuardOptions.function?(given) }
      @count, @skip, @on_denied, @on_outage, @attributes =
        { count: count, skip: skip, on_denied: on_denied, on_outage: on_outage, attributes: attributes }.map { |name, given| GuardOptions.function(name, given) }
      @spent, spent_by = GuardOptions.spent(spent)
      @costs, fixed_costs = GuardOptions.costs_by_policy(cost)
      native = GuardOptions.native(
        limiter: limiter, policy: policy, scope: scope, key: key, missing_key: missing_key, cost: cost, methods: methods,
        dry_run: dry_run, status: status, message: message, headers: headers,
        client_address: client_address, hears_outages: !on_outage.nil?, spent: @spent, spent_by: spent_by, ttl: ttl, max_age: max_age,
        wait: wait, max_waiting: max_waiting,
        separate_head: separate_head, count_preflights: count_preflights, cors_origins: cors_origins,
        costs: fixed_costs, costs_per_request: @costs.keys
      )
      @native = limiter.guard(native)
      @address = @native.address
      @is_by_configuration = @native.is_by_configuration
      GuardOptions.refuse_beside_configuration(@is_by_configuration, attributes, key: key, cost: cost, scope: scope)
      @reads_responses = @is_by_configuration || !(spent_by.nil? || spent_by.empty?)
      @has_methods = !native.methods.empty?
      @has_origins = !native.cors_origins.empty?
      parts = @native.key_parts
      @facts = facts.new(parts, client_address&.header)
      @is_per_route = @native.is_per_route
      @has_parts = !parts.empty? || !client_address.nil?
    end

    # The names of the options.
    def self.options
      instance_method(:initialize).parameters.filter_map { |kind, name| name if %i[keyreq key].include?(kind) }
    end

    # The check of a request, within the one of the guard around this one; nil for a request that is not limited.
    def decide(request, outer)
      return if skips?(request)

      policies = @policies && Array(@policies.call(request)).map { |text| Argument.text('policy', text).to_s }
      return if policies&.empty?

      check = GuardCheck.new(self, facts(request, policies))
      check.decide(@address, outer)
      overrule(request, check) if check.outage?
      Events.deliver
      check
    end

    # Whether the limit depends on the method of a request: it is for some methods only, or has the rules of a document.
    def by_method?
      @has_methods || @is_by_configuration
    end

    # The fields by which a page of another origin may read a denial.
    def cors_fields(request)
      @has_origins ? @native.cors_fields(@facts.origin(request)) : {}
    end

    # The response that the program makes in place of the default one, or nil.
    def response(request, check)
      @on_denied&.call(request, Denial.new(check.rate_limit, check.problem, check.fields.dup))
    end

    # The fields and the Problem of a denial, which begin at this offset. A client that goes on gets the same ones for a second, and
    # they are read once.
    def denial(bytes, at)
      text = bytes.byteslice(at, bytes.bytesize)
      known = @denial
      return known.last if known && known.first == text

      reader = AnswerReader.new(bytes, at)
      @denial = [text, [reader.fields.freeze, Problem.new(bytes, reader.at)].freeze].freeze
      @denial.last
    end

    # Ends a check when there is a response. Returns the fields where they have changed, or nil.
    def finish(request, check, is_nested, status, headers)
      return unless @count || is_nested || check.kept?

      counts = @count ? @count.call(request, status, headers) : true
      fields = check.finish(counts)
      Events.deliver
      fields
    end

    # Whether the responses of requests may report what was spent.
    def reads_responses?
      @reads_responses
    end

    # Ends a check that holds reservations, when its response is done or its client has gone.
    def done(request, check, status, headers)
      return unless check.holds?

      spent = ->(function, name) { Argument.units(name, function&.call(request, status, headers)) }
      return check.end_with(spent.call(@spent, 'spent')) unless @spent.is_a?(Hash)

      check.end_each(@spent.to_h { |policy, function| [policy, spent.call(function, "spent for policy #{policy.inspect}")] })
    ensure
      # Where the program cannot say what was spent, it is the cost.
      check.close
    end

    private

    # A limit on all methods has every request but preflights.
    def skips?(request)
      method = @facts.method(request)
      ((@has_methods || method == 'OPTIONS') && !applies_to?(method, @facts.requested_method(request))) || @skip&.call(request)
    end

    def applies_to?(method, requested)
      arguments = [method.bytesize, method, requested ? requested.bytesize : Direct::NONE, requested].pack('L<a*L<a*')
      Direct.call_now(@address, :applies_to, arguments).getbyte(0) == 1
    end

    def overrule(request, check)
      limits = RateLimit.new(check).tap(&:outcomes) unless check.error
      check.overrule(@on_outage.call(request, Outage.new(limits, check.error)))
    end

    # What is known about a request: bindings/uniffi/src/direct/guard.rs has the layout.
    def facts(request, policies)
      handler = @facts.handler(request) if @is_per_route
      is_plain = !(@has_parts || policies || handler) && @costs.empty?
      rest = is_plain ? NOTHING_ELSE : rest(request, policies, handler)
      rest += Attributes.bytes(@facts.attributes(request, @attributes&.call(request))) if @is_by_configuration
      key = @key&.call(request)
      key = Argument.key(key) unless key.nil?
      # An empty key is the one of all requests for which the program knows none.
      key = nil if key && key.empty?
      cost = Argument.units('cost', @cost.call(request)) if @cost
      peer = @facts.peer(request)
      accept = @facts.accept(request)
      [
        @address, cost ? 1 : 0, cost || 0, key ? key.bytesize : Direct::NONE, key, peer.bytesize, peer,
        accept ? accept.bytesize : Direct::NONE, accept, rest
      ].pack('Q<Cq<L<a*L<a*L<a*a*')
    end

    def rest(request, policies, handler)
      list(@facts.parts(request)) << list(@facts.forwarded(request)) << (policies ? 1 : 0) << list(policies || []) <<
        [handler ? handler.bytesize : Direct::NONE, handler].pack('L<a*') << costs(request)
    end

    # The costs of single policies. The core refuses a request that has none where a function returns nil.
    def costs(request)
      costs = @costs.transform_values { |cost| cost.call(request) }.compact
      costs.inject([costs.size].pack('L<')) do |bytes, (policy, units)|
        bytes << [policy.bytesize, policy, Argument.units("cost for policy #{policy.inspect}", units)].pack('L<a*q<')
      end
    end

    def list(texts)
      texts.inject([texts.size].pack('L<')) do |bytes, text|
        bytes << [text ? text.bytesize : Direct::NONE, text].pack('L<a*')
      end
    end
  end
  private_constant :Guard
end
