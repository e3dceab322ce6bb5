# frozen_string_literal: true

require_relative '../polylimit'
require_relative 'frameworks'
require_relative 'key_part'
require_relative 'rack_env'
require_relative 'rack_events'
require_relative 'rack_hold'
require_relative 'rack_passage'
require_relative 'rails_route'

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
  # what the event `throttle.polylimit` of ActiveSupport has as `key`, which has none otherwise. And `format_suffix`: whether the
  # router behind takes `/login.json` for `/login`, so that a rule for `/login` counts both. By default it does where the program has
  # a Rails application or Grape.
  class Rack
    RATE_LIMIT = RackPassage::RATE_LIMIT
    ORIGINAL_METHOD = 'rack.methodoverride.original_method'
    private_constant :ORIGINAL_METHOD

    def initialize(app, event_key: nil, format_suffix: nil, **options)
      Frameworks.check
      @app = app
      @guard = Guard.new(RackEnv::Maker.new(reader, format_suffix), **options)
      @events = RackEvents.new(event_key)
    end

    def call(env)
      passage = RackPassage.enter(@guard, @events, env)
      return passage&.denial || pass(env, passage) unless @guard.by_method?

      is_overridden = env.key?(ORIGINAL_METHOD)
      response = passage&.denial || pass(env, passage)
      warn_of_override if !is_overridden && env.key?(ORIGINAL_METHOD)
      response
    ensure
      passage&.close
    end

    private

    # What reads requests.
    def reader
      RackEnv
    end

    # The status of the response that something around makes of an error.
    def status_of(_error)
      500
    end

    def pass(env, passage)
      return @app.call(env) unless passage

      begin
        response = @app.call(env)
      rescue StandardError => e
        passage.failed(status_of(e))
        raise
      end
      passage.finished(*response)
    end

    # Behind this middleware a POST became another method, which the limit has not seen.
    def warn_of_override
      return if @has_warned

      @has_warned = true
      Polylimit.logger&.warn(
        'polylimit: Rack::MethodOverride stands behind Polylimit::Rack, whose methods or rules do not see the method that the handler ' \
        'sees: put Polylimit::Rack behind it (Rails: config.middleware.insert_after Rack::MethodOverride, Polylimit::Rack, ...)'
      )
    end
  end
end
