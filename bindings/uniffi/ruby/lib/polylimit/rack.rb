# frozen_string_literal: true

require_relative '../polylimit'

module Polylimit
  # What was decided about a request: its policies with their decisions, in order.
  RateLimit = Struct.new(:outcomes) do
    # The first denial, or else the decision that has the least left.
    def decision
      decisions = outcomes.map(&:decision)
      decisions.find { |decision| !decision.allowed } || decisions.min_by(&:remaining)
    end
  end

  # A request that was denied: what was decided, what is answered unless told otherwise, and the response's fields.
  Denial = Struct.new(:rate_limit, :problem, :fields)
  # A request that the store did not decide: what was decided in its place, or the error of nobody having decided.
  Outage = Struct.new(:rate_limit, :error)

  # Rack middleware that limits the requests which pass through it.
  #
  #   use Polylimit::Rack, limiter: limiter, policy: 'api'
  #
  # `env['polylimit.rate_limit']` has the decision, the response its fields; a denied request is answered by a problem
  # document or text, with 429, or 503 when the store could not be asked.
  #
  # Options: `limiter`; `policy`, a name, quotas such as "100/minute" or a list of them, none twice, decided together (the
  # only policy unless told otherwise); `key`, called with the env (the client's address); `cost`, units or called with the env (1);
  # `count`, called with env, status and headers, says whether a response counts (every one does; an application that
  # raises counts as one that answers 500); `skip`, called with the env, lets requests through undecided; `on_denied`, called
  # with env and Denial, answers in place of the problem document unless it returns nil; `on_outage`, called with env and Outage, lets the request through when it returns :allow; `headers`, one of
  # "ietf", "legacy", "both" and "none"; `reset_form`, "seconds" or "epoch"; `client_address`, ClientAddressRules.
  class Rack
    # Where the decision stands in the env.
    RATE_LIMIT = 'polylimit.rate_limit'
    OUTCOMES = 'polylimit.outcomes'
    private_constant :OUTCOMES

    Verdict = Struct.new(:key, :cost, :rate_limit, :fields, :problem)
    private_constant :Verdict

    def initialize(app, limiter:, policy: nil, key: nil, cost: nil, count: nil, skip: nil, on_denied: nil,
                   on_outage: nil, headers: nil, reset_form: nil, client_address: nil)
      @app = app
      @limiter = limiter
      @policies = policy.nil? ? [only_policy] : several(Array(policy))
      @key = key
      @cost = cost
      @count = count
      @skip = skip
      @on_denied = on_denied
      @on_outage = on_outage
      @headers = Argument.text('headers', headers)
      @reset_form = Argument.text('reset_form', reset_form)
      @rules = client_address || ClientAddressRules.new([])
      # Refuses names that are not known as soon as they are given.
      PolylimitNative.respond([], nil, @headers, @reset_form, nil)
    end

    def call(env)
      return @app.call(env) if @skip&.call(env)

      verdict = decide(env)
      return deny(env, verdict) if verdict&.problem

      status, headers, body = answer(env, verdict)
      return [status, headers, body] unless verdict

      finish(env, verdict, status, headers)
      # Of several middlewares the innermost has decided last, and says it all.
      [status, verdict.fields.merge(headers), body]
    end

    private

    # nil when nobody could decide and the request is let through.
    def decide(env)
      key = @key ? @key.call(env) : address(env)
      cost = @cost.respond_to?(:call) ? @cost.call(env) : @cost
      decisions = @limiter.check_together(@policies.map { |policy| { key: key, policy: policy, cost: cost } })
      verdict(env, key, cost, decisions)
    rescue StoreUnavailable, StoreFailed => e
      raise unless @on_outage&.call(env, Outage.new(nil, e)) == :allow
    end

    def verdict(env, key, cost, decisions)
      outcomes = @policies.zip(decisions).map do |policy, decision|
        PolylimitNative::Outcome.new(policy: @limiter.policy(policy), decision: decision)
      end
      rate_limit = env[RATE_LIMIT] = RateLimit.new(outcomes)
      said = PolylimitNative.respond(together(env, outcomes), cost, @headers, @reset_form, env['HTTP_ACCEPT'])
      fields = said.fields.to_h { |field| [field.name, field.value] }
      through = decisions.any?(&:is_outage) && @on_outage&.call(env, Outage.new(rate_limit, nil)) == :allow
      Verdict.new(key, cost, rate_limit, fields, through ? nil : said.problem)
    end

    # The outcomes with those of other middlewares on the same request; each policy has one, the newest.
    def together(env, outcomes)
      names = outcomes.map { |outcome| outcome.policy.name }
      others = (env[OUTCOMES] || []).reject { |outcome| names.include?(outcome.policy.name) }
      env[OUTCOMES] = others + outcomes
    end

    # What fails counts as what answers 500.
    def answer(env, verdict)
      @app.call(env)
    rescue StandardError
      finish(env, verdict, 500, {}) if verdict
      raise
    end

    def deny(env, verdict)
      problem = verdict.problem
      own = @on_denied&.call(env, Denial.new(verdict.rate_limit, problem, verdict.fields))
      return own if own

      headers = { 'content-type' => problem.content_type, 'vary' => 'Accept' }
      [problem.status, verdict.fields.merge(headers), [problem.body]]
    end

    # Gives back what the request has spent if its response does not count: under every policy, also when it fails under
    # one of them.
    def finish(env, verdict, status, headers)
      return if @count.nil? || @count.call(env, status, headers)

      errors = @policies.filter_map { |policy| refund(verdict, policy) }
      # There is an answer, which must not be lost for this.
      @on_outage&.call(env, Outage.new(verdict.rate_limit, errors.first)) unless errors.empty?
    end

    # The error of its failing, if it does.
    def refund(verdict, policy)
      @limiter.refund(verdict.key, policy: policy, cost: verdict.cost)
      nil
    rescue Error => e
      e
    end

    def address(env)
      header = @rules.header
      line = header && env["HTTP_#{header.upcase.tr('-', '_')}"]
      @rules.resolve(env['REMOTE_ADDR'], line ? [line] : [])
    end

    # Refuses what would limit nothing, or spend twice.
    def several(policies)
      allowed = "a policy's name or quotas, or a list of at least one of them"
      raise InvalidArgument, "policy is an empty list: allowed is #{allowed}" if policies.empty?

      names = policies.map { |name| Argument.text('policy', name) }
      raise InvalidArgument, "policy is nil: allowed is #{allowed}" if names.include?(nil)

      twice = names.find { |name| names.count(name) > 1 }
      raise InvalidArgument, "policy #{twice.inspect} is given twice: once is enough" if twice

      names
    end

    def only_policy
      names = @limiter.policies.map(&:name)
      return names.first if names.size == 1

      raise InvalidArgument,
            "policy is missing, and this limiter has #{names.size}: name one, or quotas such as 100/minute"
    end
  end
end
