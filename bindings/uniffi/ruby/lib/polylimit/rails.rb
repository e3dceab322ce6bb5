# frozen_string_literal: true

require_relative 'handler_limits'

module Polylimit
  # Limits on the actions of a controller. They run behind Rails' router, in the order of the callbacks of the controller.
  #
  #   class SessionsController < ApplicationController
  #     include Polylimit::Rails
  #     polylimit limiter: LIMITER, policy: '5/minute', only: :create
  #   end
  #
  # Quotas without a name have a budget for each action of each controller, however many routes lead to it.
  module Rails
    # The pattern of the route that the application's router finds for a request, such as `/users/{id}`, or nil. With it a middleware,
    # which runs before the router, has the attribute `route` for the rules of a document. The constraints of routes are
    # called once more for it, with what the middlewares before have made of the request.
    def self.route(env, application = ::Rails.application)
      RailsRoute.pattern(env, application)
    end

    def self.included(controller)
      Frameworks.check
      controller.extend(ClassMethods)
    end

    # What a controller class gets.
    module ClassMethods
      # Limits the actions of this controller before they run. `only`, `except`, `if` and `unless` are those of `before_action`; the
      # others are the options of Polylimit::Rack. Functions run in the controller and may take the env, and `on_denied` may render.
      def polylimit(only: nil, except: nil, if: nil, unless: nil, **options)
        options[:on_denied] = RailsHandler.rendering(options[:on_denied]) if options[:on_denied]
        limit = HandlerLimit.new(RailsHandler::CONTROLLER, **options)
        conditions = { only: only, except: except, if: binding.local_variable_get(:if), unless: binding.local_variable_get(:unless) }
        before_action(**conditions.compact) { RailsHandler.limit(self, limit) }
      end
    end

    # Rails calls it for an action that its router has found.
    def dispatch(name, request, response)
      HandlerLimits.around(request.env, RailsHandler.method(:status_of)) { super }
    end
  end

  # What a limit of a controller does in it.
  module RailsHandler
    CONTROLLER = 'action_controller.instance'

    module_function

    # A request that does not proceed has its response, by which the callbacks end.
    def limit(controller, limit)
      status, headers, body = limit.enter(controller.request.env, name(controller))&.denial
      return unless status

      headers.each { |field, value| controller.response.set_header(field == 'content-type' ? 'Content-Type' : field, value) }
      return if controller.performed?

      controller.status = status
      controller.response_body = body
    end

    # What has a budget of its own: a controller's action, or all that a controller takes for one by `action_missing`.
    def name(controller)
      action = controller.action_name
      action = '*' if controller.respond_to?(:action_missing, true) && !controller.class.action_methods.include?(action)
      "#{controller.class.controller_path}##{action}"
    end

    # A function that may render the response in place of returning one.
    def rendering(function)
      return function unless GuardOptions.function?(function)

      lambda do |env, denial|
        controller = env[CONTROLLER]
        answer = HandlerLimits.call_within(controller, function, [env, denial])
        controller.performed? ? [controller.status, {}, []] : answer
      end
    end

    # The status of the response that Rails makes of an error.
    def status_of(error)
      ActionDispatch::ExceptionWrapper.status_code_for_exception(error.class.name)
    end
  end
  private_constant :RailsHandler
end
