# frozen_string_literal: true

require_relative 'rack'

module Polylimit
  # Reads from the env what a guard of a handler needs. An OPTIONS request that gets to a handler runs it, whatever a browser asks for.
  class HandlerEnv < RackEnv
    # What has a budget of its own under quotas without a name.
    HANDLER = 'polylimit.handler'

    def requested_method(_env); end

    def handler(env)
      env[HANDLER]
    end
  end
  private_constant :HandlerEnv

  # Ends the passages of a request through the limits of its handler.
  module HandlerLimits
    PASSAGES = 'polylimit.passages'

    module_function

    # The response of the block, by all limits of the handler that it has entered. `status_of` is called with what the block raises, and
    # returns the status of the response that the framework makes of it.
    def around(env, status_of, &block)
      outer = env.delete(PASSAGES)
      response = answer(env, status_of, &block)
      passages(env).inject(response) { |inner, passage| passage.denial ? inner : passage.finished(*inner) }
    ensure
      passages(env).each(&:close)
      outer ? env[PASSAGES] = outer : env.delete(PASSAGES)
    end

    def answer(env, status_of)
      yield
    rescue StandardError => e
      status = status_of.call(e)
      passages(env).each { |passage| passage.failed(status) unless passage.denial }
      raise
    end

    # The inner ones first.
    def passages(env)
      (env[PASSAGES] || []).reverse
    end

    # Calls a function in an object, such as a controller, with as many arguments as it takes.
    def call_within(object, function, arguments)
      return function.call(*arguments) unless function.is_a?(Proc)

      taken = function.lambda? && function.arity >= 0 ? arguments.first(function.arity) : arguments
      object.instance_exec(*taken, &function)
    end
  end
  private_constant :HandlerLimits

  # A limit on handlers of a framework, which its router has found.
  class HandlerLimit
    # `object` is the name of what handles requests in the env, in which functions of the program run.
    def initialize(object, event_key: nil, **options)
      Frameworks.check
      @object = object
      options = options.transform_values { |option| within(option) }
      @guard = Guard.new(RackEnv::Maker.new(HandlerEnv, nil), **options)
      @events = RackEvents.new(within(event_key))
    end

    # The passage of a request to the handler with this name, or nil for a request that is not limited. HandlerLimits ends it.
    def enter(env, handler)
      env[HandlerEnv::HANDLER] = handler
      RackPassage.enter(@guard, @events, env)&.tap { |passage| (env[HandlerLimits::PASSAGES] ||= []) << passage }
    end

    private

    def within(option)
      # A function for each of several policies.
      return option.transform_values { |one| within(one) } if option.is_a?(Hash)
      return option unless GuardOptions.function?(option)

      ->(env, *rest) { HandlerLimits.call_within(env[@object], option, [env, *rest]) }
    end
  end
  private_constant :HandlerLimit
end
