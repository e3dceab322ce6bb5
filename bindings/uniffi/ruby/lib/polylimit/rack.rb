# frozen_string_literal: true

require_relative '../polylimit'
require_relative 'key_part'
require_relative 'rack_env'
require_relative 'rack_events'
require_relative 'rack_hold'

module Polylimit
  # Rack middleware that limits the requests which pass through it.
  #
  #   use Polylimit::Rack, limiter: limiter, policy: 'api'
  #
  # `env['polylimit.rate_limit']` has the decisions, the response its fields; a request that does not proceed is answered by a
  # problem document or text: with 429, with 503 when the store could not be asked, with 400 when its key is missing and
  # required. Of several middlewares the outer one decides first; what it has spent is given back when an inner one denies.
  # The same policy and key are charged once a request, with the highest cost.
  #
  # The options are those of Polylimit::Guard; what they call a request is the env. And `event_key`: called with the env, it returns
  # what the event `throttle.polylimit` of ActiveSupport has as `key`, which has none otherwise.
  class Rack
    # The name of the decisions in the env.
    RATE_LIMIT = 'polylimit.rate_limit'
    # The fields that the middlewares on a request have written, so that those of an application are told apart.
    FIELDS = 'polylimit.fields'
    CHECK = 'polylimit.check'
    private_constant :FIELDS, :CHECK

    def initialize(app, event_key: nil, **options)
      @app = app
      @guard = Guard.new(RackEnv, **options)
      @events = RackEvents.new(event_key)
    end

    def call(env)
      outer = env[CHECK]
      is_held = false
      check = @guard.decide(env, outer)
      return @app.call(env) unless check

      @events.decided(env, check)
      env[RATE_LIMIT] = check.rate_limit
      env[FIELDS] = check.fields
      return deny(env, check) if check.problem

      response = proceed(env, check, outer)
      is_held = check.holds?
      is_held ? held(env, check, *response) : response
    ensure
      check&.close unless is_held
    end

    private

    # The response of the application, with the fields of all middlewares.
    def proceed(env, check, outer)
      env[CHECK] = check
      status, headers, body = answer(env, check, outer)
      headers = env[FIELDS].merge(headers)
      left = @guard.finish(env, check, outer, status, headers)
      [status, left ? rewritten(env, headers, left) : headers, body]
    ensure
      # Requests that the application makes afterwards are not nested in this one.
      env[CHECK] = outer
    end

    # The response, which ends the reservations when it is done.
    def held(env, check, status, headers, body)
      RackHold.new { @guard.done(env, check, status, headers) }.response(env, status, headers, body)
    end

    # An application that raises counts as one that responds with 500.
    def answer(env, check, outer)
      @app.call(env)
    rescue StandardError
      @guard.finish(env, check, outer, 500, {})
      raise
    end

    def deny(env, check)
      status, headers, body = @guard.response(env, check)
      return [status, check.fields.merge(headers), body] if status

      problem = check.problem
      [problem.status, check.fields.merge(problem.fields), env['REQUEST_METHOD'] == 'HEAD' ? [] : [problem.body]]
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
  end
end
