# frozen_string_literal: true

require 'grape'
require_relative 'rack'

module Polylimit
  # Reads from the env what Grape's router has found.
  class GrapeEnv < RackEnv
    ROUTING = 'grape.routing_args'
    # Grape answers these requests itself, without the handler.
    ALLOWED_METHODS = 'grape.allowed_methods'
    private_constant :ROUTING, :ALLOWED_METHODS

    # An OPTIONS request that gets to a handler runs it, whatever a browser asks for.
    def requested_method(env)
      super if env[ALLOWED_METHODS]
    end

    # GET and HEAD of a route are recognised by how the text begins.
    def handler(env)
      "#{method(env)} #{route(env)}"
    end

    private

    # With the place where the API is mounted, and the version of the API where there is one for the route.
    def route(env)
      route = env[ROUTING][:route_info]
      origin = route.pattern.origin
      origin = origin.sub('/:version', "/#{route.version}") if route.version.is_a?(String)
      RailsRoute.joined(env['SCRIPT_NAME'].to_s, RailsRoute.translated(origin))
    end

    def value(env, kind, name)
      kind == 'path' ? plain("the path parameter #{name}", env[ROUTING][name.to_sym]) : super
    end
  end
  private_constant :GrapeEnv

  # What limits in an API of Grape, around what its router has found.
  class GrapeLimit < Rack
    THROWN = 'polylimit.thrown'
    private_constant :THROWN

    # Grape has a stack of middlewares for each endpoint, in which this one is part of the API's.
    class Place
      def initialize(app, limit)
        @limit = limit.around(app)
      end

      def call(env)
        @limit.call(env)
      end
    end

    def initialize(**options)
      super(nil, **options)
    end

    # This limit around an application of Rack.
    def around(app)
      dup.tap { |limit| limit.app = ->(env) { caught(app, env) } }
    end

    # Grape makes the response of what is thrown further out.
    def call(env)
      status, headers, body = super
      thrown = env.delete(THROWN)
      return [status, headers, body] unless thrown

      body.close if body.respond_to?(:close)
      throw(:error, thrown.merge(headers: headers))
    end

    protected

    attr_writer :app

    private

    def reader
      GrapeEnv
    end

    # What `error!` throws, as a response.
    def caught(app, env)
      thrown = catch(:error) { return app.call(env) }
      env[THROWN] = thrown
      [thrown[:status] || 500, thrown[:headers].to_h, []]
    end

    def status_of(error)
      (error.status if error.is_a?(::Grape::Exceptions::Base)) || super
    end
  end
  private_constant :GrapeLimit

  # Limits on the endpoints of an API of Grape, or of one of its namespaces. They run behind its router.
  #
  #   class API < Grape::API
  #     polylimit limiter: LIMITER, policy: '5/minute'
  #     post('/login') { 'in' }
  #   end
  #
  # The options are those of Polylimit::Rack. Keys have path parameters and rules the route, and quotas without a name have a budget for
  # each method and route. Behind `http_basic`, or other middleware that sets REMOTE_USER, keys have the user. The response that `error!`
  # makes has the fields, and its status for `count`.
  module Grape
    def polylimit(options)
      Frameworks.check({ 'Grape' => ::Grape::VERSION })
      use(GrapeLimit::Place, GrapeLimit.new(**options))
    end
  end

  # As plug-ins of Grape do: what an API calls is repeated wherever it is mounted.
  ::Grape::API::Instance.extend(Grape)
end
