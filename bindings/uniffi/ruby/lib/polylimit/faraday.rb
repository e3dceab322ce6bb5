# frozen_string_literal: true

require 'faraday'
require 'polylimit'

module Polylimit
  # Middleware for Faraday that stays within a limit of your own and waits as servers demand. The rules are those of every
  # language: docs/clients.md.
  #
  #   Faraday.new('https://api.example.com') do |connection|
  #     connection.use Polylimit::FaradayRateLimit, limiter: limiter, policy: '10/s token_bucket'
  #   end
  class FaradayRateLimit < ::Faraday::Middleware
    # Raised when a request was not sent, because it would have to wait for too long.
    class Throttled < ::Faraday::TimeoutError
      # Seconds after which the request would be sent; nil if the limiter never admits it.
      attr_reader :retry_after

      def initialize(message, retry_after)
        super(message)
        @retry_after = retry_after
      end
    end

    # `limiter` and `policy`, a policy's name or quotas, say what every attempt acquires; `key` is called with the
    # Faraday::Env and returns the key, by default the host with the port unless it is the scheme's own. `cost` is the units
    # of an attempt, and `backoff`, a Polylimit::Backoff, says how often and how long a request may wait.
    # A request raises Throttled if it would have to wait for more than `max_wait` of the backoff or its own timeout.
    def initialize(app, limiter:, policy: nil, key: nil, cost: 1, backoff: nil)
      super(app)
      limiter.policy_for(policy)
      @limiter = limiter
      @policy = policy
      @key = key || method(:host)
      @cost = cost
      @throttle = PolylimitNative::Throttle.new(backoff)
    end

    def call(env)
      body = env.body
      key = @key.call(env)
      attempts = start(env, key, body)
      loop do
        step = attempts.step
        case step.kind
        when 'wait' then sleep(step.duration)
        when 'acquire' then acquire(attempts, key, step.duration)
        when 'send'
          # The body of the last response stands in its place.
          env.body = body
          response = @app.call(env)
          return response unless again?(attempts, response)
        else raise Throttled.new(step.message, step.duration)
        end
      end
    end

    private

    def start(env, key, body)
      is_replayable = body.nil? || body.is_a?(String)
      @throttle.start(Argument.key(key), env.method.to_s.upcase, is_replayable, env.request.timeout)
    end

    def acquire(attempts, key, timeout)
      decision = @limiter.acquire(key, policy: @policy, cost: @cost, timeout: timeout)
      attempts.acquired(decision.allowed, decision.retry_after)
    end

    def again?(attempts, response)
      attempts.responded(response.status, Argument.header_lines(response.headers))
    end

    def host(env)
      url = env.url
      host = url.host.downcase
      url.port == url.default_port ? host : "#{host}:#{url.port}"
    end
  end
end
