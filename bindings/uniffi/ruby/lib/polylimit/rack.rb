# frozen_string_literal: true

require_relative '../polylimit'
require_relative 'rack_options'
require_relative 'spending'

module Polylimit
  # The decisions about a request, with their policies, in order.
  RateLimit = Struct.new(:outcomes) do
    # The first denial, or else the decision that has the least left.
    def decision
      decisions = outcomes.map(&:decision)
      decisions.find { |decision| !decision.allowed } || decisions.min_by(&:remaining)
    end
  end

  # A denied request: its decisions, the default response, and the header fields.
  Denial = Struct.new(:rate_limit, :problem, :fields)
  # A request that the store did not decide: the decisions of the outage policy, or the error.
  Outage = Struct.new(:rate_limit, :error)

  # Rack middleware that limits the requests which pass through it.
  #
  #   use Polylimit::Rack, limiter: limiter, policy: 'api'
  #
  # `env['polylimit.rate_limit']` has the decision, the response its fields; a denied request is answered by a problem
  # document or text, with 429, or 503 when the store could not be asked. Of several middlewares the outer one decides first;
  # what it has spent is given back when an inner one denies or cannot decide.
  #
  # The same policy and key are charged once a request, by the outermost middleware of the same limiter.
  #
  # Options: `limiter`; `policy`, a name, quotas such as "100/minute" or a list of them, none twice, decided together (the
  # only policy unless told otherwise); `scope`, text of 1 to 256 bytes: quotas without a name have a budget of their own
  # there (they share one with all that name none); `key`, called with the env, gives a string or a whole number (the
  # client's address, also where it gives nil); `cost`, units or called with the env (1);
  # `count`, called with env, status and headers, says whether a response counts (every one does; an application that
  # raises counts as one that answers 500; the fields of a response that does not count tell what is left after the refund); `skip`, called with the env, lets requests through undecided; `on_denied`, called
  # with env and Denial, answers in place of the problem document unless it returns nil; `on_outage`, called with env and
  # Outage, lets the request through when it returns :allow, unless the store itself has denied it under another policy;
  # `headers`, one of "ietf", "legacy", "both" and "none"; `reset_form`, "seconds" or "epoch"; `client_address`,
  # ClientAddressRules. A mistake in them raises InvalidArgument when the middleware is made.
  class Rack
    # The name of the decision in the env.
    RATE_LIMIT = 'polylimit.rate_limit'
    OUTCOMES = 'polylimit.outcomes'
    # The fields that the middlewares on a request have written, so that those of an application are told apart.
    FIELDS = 'polylimit.fields'
    SPENDING = 'polylimit.spending'
    # The peer of a Unix socket.
    THIS_HOST = '127.0.0.1'
    private_constant :OUTCOMES, :FIELDS, :SPENDING, :THIS_HOST

    # `spending` is nil when nothing was spent.
    Verdict = Struct.new(:rate_limit, :fields, :problem, :spending)
    private_constant :Verdict

    def initialize(app, limiter:, policy: nil, scope: nil, key: nil, cost: nil, count: nil, skip: nil, on_denied: nil,
                   on_outage: nil, headers: nil, reset_form: nil, client_address: nil, **unknown)
      RackOptions.refuse(unknown)
      @app = app
      @limiter = RackOptions.limiter(limiter)
      @policies = RackOptions.policies(limiter, policy, scope)
      @key = RackOptions.callable('key', key)
      @cost = RackOptions.cost(cost)
      @count = RackOptions.callable('count', count)
      @skip = RackOptions.callable('skip', skip)
      @on_denied = RackOptions.callable('on_denied', on_denied)
      @on_outage = RackOptions.callable('on_outage', on_outage)
      @headers = Argument.text('headers', headers)
      @reset_form = Argument.text('reset_form', reset_form)
      @rules = RackOptions.rules(client_address)
      # Refuses names that are not known as soon as they are given.
      PolylimitNative.respond([], nil, @headers, @reset_form, nil)
    end

    def call(env)
      return @app.call(env) if @skip&.call(env)

      before = env[SPENDING]
      begin
        limit(env)
      ensure
        # Requests that the application makes afterwards are not nested in this one.
        env[SPENDING] = before
      end
    end

    private

    def limit(env)
      verdict = decide(env)
      return deny(env, verdict) if verdict&.problem

      status, headers, body = answer(env, verdict)
      return [status, headers, body] unless verdict

      left = finish(env, verdict, status, headers)
      # Of several middlewares the innermost has decided last, and says it all.
      headers = verdict.fields.merge(headers)
      [status, left.empty? ? headers : rewritten(env, headers, left), body]
    end

    # Refunds the units of outer middlewares when the decision fails.
    def decide(env)
      check(env)
    rescue StandardError
      env[SPENDING]&.refund_all
      raise
    end

    # nil when no decision could be made and the request is let through.
    def check(env)
      key = Argument.key(@key&.call(env) || address(env))
      cost = @cost.respond_to?(:call) ? @cost.call(env) : @cost
      requests = @policies.map { |policy| { key: key, policy: policy, cost: cost } }
      verdict(env, cost, requests, decisions(env, requests))
    rescue StoreUnavailable, StoreFailed => e
      raise unless @on_outage&.call(env, Outage.new(nil, e)) == :allow
    end

    # Each with whether it was made here; another one was made further out, by which the same was charged already.
    def decisions(env, requests)
      before = requests.map { |request| env[SPENDING]&.decision(@limiter, request[:key], request[:policy]) }
      new = requests.zip(before).filter_map { |request, known| request unless known }
      made = new.empty? ? [] : @limiter.check_together(new)
      before.map { |known| known ? [known, false] : [made.shift, true] }
    end

    def verdict(env, cost, requests, decided)
      decisions = decided.map(&:first)
      outcomes = @policies.zip(decisions).map do |policy, decision|
        PolylimitNative::Outcome.new(policy: @limiter.policy(policy), decision: decision)
      end
      rate_limit = env[RATE_LIMIT] = RateLimit.new(outcomes)
      # A denied policy spends nothing under any.
      spending = spend(env, rate_limit, requests.zip(decided)) if decisions.all?(&:allowed)
      # Overruled denials are not shown to the client.
      outcomes = outcomes.select { |outcome| outcome.decision.allowed } if overruled?(env, rate_limit, decisions)
      all = together(env, outcomes)
      all = refund_outer(env, all) unless outcomes.all? { |outcome| outcome.decision.allowed }
      said = PolylimitNative.respond(all, cost, @headers, @reset_form, text(env['HTTP_ACCEPT']))
      Verdict.new(rate_limit, written(env, said), said.problem, spending)
    end

    # The fields by name.
    def written(env, said)
      fields = said.fields.to_h { |field| [field.name, field.value] }
      env[FIELDS] = (env[FIELDS] || {}).merge(fields)
      fields
    end

    # The headers with fields that tell what is left after a refund, unless the application has written others.
    def rewritten(env, headers, left)
      before = env[FIELDS] || {}
      env[OUTCOMES] = replaced(env[OUTCOMES], left)
      written(env, PolylimitNative.respond(env[OUTCOMES], nil, @headers, @reset_form, nil)).each do |name, value|
        headers[name] = value if headers[name] == before[name]
      end
      headers
    end

    def spend(env, rate_limit, decided)
      spent = decided.filter_map { |request, (decision, is_new)| Spending::Spent.new(request, decision) if is_new }
      return if spent.empty?

      env[SPENDING] = Spending.new(@limiter, spent, env[SPENDING]) do |error|
        @on_outage&.call(env, Outage.new(rate_limit, error))
      end
    end

    # Whether denials of the outage policy are let through. A denial of the store keeps all others in force, too.
    def overruled?(env, rate_limit, decisions)
      return false unless decisions.any?(&:is_outage)

      allows = @on_outage&.call(env, Outage.new(rate_limit, nil)) == :allow
      allows && decisions.reject(&:allowed).all?(&:is_outage)
    end

    # The outcomes with those of other middlewares on the same request; each policy has one, the newest.
    def together(env, outcomes)
      names = outcomes.map { |outcome| outcome.policy.name }
      others = (env[OUTCOMES] || []).reject { |outcome| names.include?(outcome.policy.name) }
      env[OUTCOMES] = others + outcomes
    end

    # Refunds the units of outer middlewares, since the request is denied here, and returns the outcomes after that.
    def refund_outer(env, outcomes)
      env[OUTCOMES] = replaced(outcomes, env[SPENDING]&.refund_all || {})
    end

    # The outcomes with the decisions that tell what is left after a refund, found by the decision before it.
    def replaced(outcomes, left)
      outcomes.map do |outcome|
        after = left[outcome.decision]
        after ? PolylimitNative::Outcome.new(policy: outcome.policy, decision: after) : outcome
      end
    end

    # An application that raises counts as one that responds with 500.
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
      body = env['REQUEST_METHOD'] == 'HEAD' ? [] : [problem.body]
      [problem.status, verdict.fields.merge(headers), body]
    end

    # Gives back what the request has spent if its response does not count; says what decisions tell then.
    def finish(env, verdict, status, headers)
      return {} if verdict.spending.nil? || @count.nil? || @count.call(env, status, headers)

      verdict.spending.refund
    end

    def address(env)
      header = @rules.header
      line = header && text(env["HTTP_#{header.upcase.tr('-', '_')}"])
      peer = text(env['REMOTE_ADDR'])
      peer = THIS_HOST if peer.nil? || peer.empty?
      @rules.resolve(peer, line ? [line] : [])
    end

    # Rack's strings are bytes. What is not UTF-8 in them is nothing that is looked for, and takes nothing beside it along.
    def text(bytes)
      bytes&.dup&.force_encoding(Encoding::UTF_8)&.scrub('?')
    end
  end
end
