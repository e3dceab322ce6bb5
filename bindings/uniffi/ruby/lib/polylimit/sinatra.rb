# frozen_string_literal: true

require_relative 'handler_limits'

module Polylimit
  # Limits on the routes of a Sinatra application. They run when its router has found the route.
  #
  #   class App < Sinatra::Base
  #     register Polylimit::Sinatra
  #     post('/login', polylimit: { limiter: LIMITER, policy: '5/minute' }) { 'in' }
  #   end
  #
  # The options are those of Polylimit::Rack. Functions run in the application and may take the env. Quotas without a name have a budget
  # for each route of each class.
  module Sinatra
    def self.registered(app)
      Frameworks.check
      app.prepend(Application)
    end

    # What an instance of the application gets.
    module Application
      def call!(env)
        outer = env[SinatraHandler::APPLICATION]
        env[SinatraHandler::APPLICATION] = self
        HandlerLimits.around(env, ->(_error) { 500 }) { super }
      ensure
        env[SinatraHandler::APPLICATION] = outer
      end
    end

    private

    # Sinatra calls what each option is called, in their order: the limit comes after all conditions of the route.
    def route(verb, path, options = {}, &block)
      given = options[:polylimit]
      return super unless given

      limit = SinatraHandler.limit(given)
      super(verb, path, options.except(:polylimit).merge(polylimit: [limit, verb, path]), &block)
    end

    def polylimit(limit, verb, path)
      route = "#{verb} #{path}"
      owner = self
      condition do
        env['sinatra.route'] = route
        # A class may get its name after its routes. It comes last: GET and HEAD of a route are recognised by how the text begins.
        denial = limit.enter(env, "#{route} #{owner.name}")&.denial
        denial ? halt(*denial) : true
      end
    end
  end

  # What a limit of a route is made of.
  module SinatraHandler
    APPLICATION = 'polylimit.application'

    module_function

    def limit(given)
      return HandlerLimit.new(APPLICATION, **given) if given.is_a?(Hash)

      raise InvalidArgument, "polylimit is #{Argument.described(given)}: allowed is a hash of the options of Polylimit::Rack"
    end
  end
  private_constant :SinatraHandler
end
