# frozen_string_literal: true

require_relative '../polylimit'
require_relative 'key_part'
require_relative 'rack_env'
require_relative 'rack_options'

module Polylimit
  # The decisions about a request so far.
  class RateLimit
    def initialize(check)
      @check = check
    end

    # Each policy with its newest decision, in order, as they are when this is first called.
    def outcomes
      @outcomes ||= @check.outcomes
    end

    # The first denial, or else the decision that has the least left; nil when there is none.
    def decision
      decisions = outcomes.map(&:decision)
      decisions.find { |decision| !decision.allowed } || decisions.min_by(&:remaining)
    end
  end

  # A request that does not proceed: its decisions, the default response, and the header fields.
  Denial = Struct.new(:rate_limit, :problem, :fields)
  # A request that the store did not decide: the decisions of the outage policy, or the error.
  Outage = Struct.new(:rate_limit, :error)

  # Rack middleware that limits the requests which pass through it.
  #
  #   use Polylimit::Rack, limiter: limiter, policy: 'api'
  #
  # `env['polylimit.rate_limit']` has the decisions, the response its fields; a request that does not proceed is answered by a
  # problem document or text: with 429, with 503 when the store could not be asked, with 400 when its key is missing and
  # required. Of several middlewares the outer one decides first; what it has spent is given back when an inner one denies.
  # The same policy and key are charged once a request, with the highest cost.
  #
  # Options: `limiter`; `policy`, a name, quotas such as "100/minute" or a list of them, none twice, decided together (the
  # only policy unless told otherwise), or called with the env to return them: nil or [] does not limit the request; `scope`,
  # text of 1 to 256 bytes: quotas without a name have a budget of their own there (they share one with all that name none);
  # `key`, called with the env, gives a string or a whole number, or is one KeyPart or a list of them (the client's address);
  # `missing_key`, how a request without a key counts: "address", "share" or "refuse"; `cost`, units or called with the env
  # (1); `count`, called with env, status and headers, says whether a response counts (every one does; an application that
  # raises counts as one that answers 500; the fields of a response that does not count tell what is left after the refund);
  # `skip`, called with the env, lets requests through undecided; `methods`, the only ones that are limited; `dry_run`,
  # whether it never denies; `status` and `message` of a request over its limit; `on_denied`, called with env and Denial,
  # answers in place of the problem document unless it returns nil; `on_outage`, called with env and Outage, returns :admit
  # or :deny, or else leaves the decision to the outage policy; it cannot admit what the store has denied; `headers`, one of
  # "ietf", "legacy", "both" and "none"; `header_names`, other names of fields; `reset_form`, "seconds" or "epoch";
  # `client_address`, ClientAddressRules. A mistake in them raises InvalidArgument when the middleware is made.
  class Rack
    # The name of the decisions in the env.
    RATE_LIMIT = 'polylimit.rate_limit'
    # The fields that the middlewares on a request have written, so that those of an application are told apart.
    FIELDS = 'polylimit.fields'
    CHECK = 'polylimit.check'
    OVERRULES = { admit: true, deny: false }.freeze
    private_constant :FIELDS, :CHECK, :OVERRULES

    def initialize(app, limiter:, policy: nil, scope: nil, key: nil, missing_key: nil, cost: nil, count: nil, skip: nil,
                   methods: nil, dry_run: false, status: nil, message: nil, on_denied: nil, on_outage: nil, headers: nil,
                   header_names: nil, reset_form: nil, client_address: nil, **unknown)
      RackOptions.refuse(unknown)
      @app = app
      @is_asynchronous = RackOptions.limiter(limiter).is_a?(Asynchronous)
      @policies = policy if policy.respond_to?(:call)
      @key = key if key.respond_to?(:call)
      @cost = cost if cost.respond_to?(:call)
      @count = RackOptions.callable('count', count)
      @skip = RackOptions.callable('skip', skip)
      @on_denied = RackOptions.callable('on_denied', on_denied)
      @on_outage = RackOptions.callable('on_outage', on_outage)
      @methods = RackOptions.methods(methods)
      @guard = limiter.guard(
        PolylimitNative::GuardOptions.new(
          policies: @policies ? nil : RackOptions.policies(policy), per_request: !@policies.nil?,
          scope: Argument.text('scope', scope), key_parts: @key ? [] : RackOptions.key_parts(key),
          missing_key: Argument.text('missing_key', missing_key), cost: @cost ? nil : Argument.units('cost', cost),
          headers: Argument.text('headers', headers), header_names: RackOptions.header_names(header_names),
          reset_form: Argument.text('reset_form', reset_form), status: RackOptions.status(status),
          message: Argument.text('message', message), dry_run: RackOptions.flag('dry_run', dry_run),
          hears_outages: !@on_outage.nil?, client_address: RackOptions.rules(client_address)
        )
      )
      @env = RackEnv.new(@guard.key_parts, client_address&.header)
    end

    def call(env)
      return @app.call(env) if skip?(env)

      policies = @policies && Array(@policies.call(env)).map { |text| Argument.text('policy', text) }
      return @app.call(env) if policies&.empty?

      outer = env[CHECK]
      answer = decide(env, facts(env, policies, outer))
      limits = env[RATE_LIMIT] = RateLimit.new(answer.check)
      env[FIELDS] = answer.fields
      return deny(env, Denial.new(limits, answer.problem, answer.fields)) if answer.problem

      proceed(env, answer.check, outer)
    end

    private

    def skip?(env)
      (@methods && !@methods.include?(env['REQUEST_METHOD'].to_s.upcase)) || @skip&.call(env)
    end

    def facts(env, policies, outer)
      key = @key&.call(env)
      PolylimitNative::GuardFacts.new(
        key: key.nil? ? nil : Argument.key(key), parts: @env.parts(env), peer: @env.peer(env),
        forwarded: @env.forwarded(env), cost: Argument.units('cost', @cost&.call(env)), policies: policies,
        accept: @env.accept(env), outer: outer
      )
    end

    def decide(env, facts)
      answer = native { @guard.decide(facts) }
      return answer unless answer.outage

      error = answer.outage.error_code && Error.of(answer.outage.error_code, answer.outage.error_message)
      limits = RateLimit.new(answer.check).tap(&:outcomes) unless error
      said = @on_outage.call(env, Outage.new(limits, error))
      native { answer.check.overrule(OVERRULES[said]) }
    end

    # The response of the application, with the fields of all middlewares.
    def proceed(env, check, outer)
      env[CHECK] = check
      status, headers, body = answer(env, check, outer)
      headers = env[FIELDS].merge(headers)
      left = finish(env, check, outer, status, headers)
      [status, left ? rewritten(env, headers, left) : headers, body]
    ensure
      # Requests that the application makes afterwards are not nested in this one.
      env[CHECK] = outer
    end

    # An application that raises counts as one that responds with 500.
    def answer(env, check, outer)
      @app.call(env)
    rescue StandardError
      finish(env, check, outer, 500, {})
      raise
    end

    # Gives back what the request has spent if its response does not count. Returns the fields after that; nil if they are the
    # same.
    def finish(env, check, outer, status, headers)
      return unless @count || outer

      counts = @count ? @count.call(env, status, headers) : true
      native { check.finish(counts ? true : false) }
    end

    def deny(env, denial)
      status, headers, body = @on_denied&.call(env, denial)
      return [status, denial.fields.merge(headers), body] if status

      problem = denial.problem
      [problem.status, denial.fields.merge(problem.fields), env['REQUEST_METHOD'] == 'HEAD' ? [] : [problem.body]]
    end

    # The headers with these fields in place of those before, unless the application has written others.
    def rewritten(env, headers, now)
      before = env[FIELDS]
      env[FIELDS] = now
      (now.keys | before.keys).each do |name|
        next unless headers[name] == before[name]

        now.key?(name) ? headers[name] = now[name] : headers.delete(name)
      end
      headers
    end

    # Event loops of fibers run others while a thread asks.
    def native(&call)
      answer = @is_asynchronous ? Asynchronous.on_thread(&call) : call.call
      Events.deliver
      answer
    end
  end
end
