# frozen_string_literal: true

module Polylimit
  # The pattern of the route that Rails' router finds for a request, with the places where engines are mounted: `/shop/users/{id}`.
  module RailsRoute
    # The format that ends nearly every route of Rails.
    FORMAT = '(.:format)'
    private_constant :FORMAT

    module_function

    # The pattern in the routes of an application, which have been asked or will be.
    def pattern(env, application)
      mounts, inner = found(env, application)
      joined(*mounts, inner) if mounts
    end

    # Where the program that has this env is mounted: with the pattern of Rails for what Rails has mounted.
    def mount(env, application)
      mounts, _, script_name = found(env, application)
      joined(*mounts, env['SCRIPT_NAME'].to_s.delete_prefix(script_name)) if mounts
    end

    # The patterns of the places where engines are mounted, the pattern behind them, and the text of the places.
    def found(env, application)
      routes = application.routes
      prefix, path = split("#{env['SCRIPT_NAME']}#{env['PATH_INFO']}", prefix(env, routes, application))
      mounts, inner, script_name = find(routes, env, prefix, path)
      [[prefix, *mounts], inner, script_name] if mounts
    end

    # Where the application itself is mounted. It notes that when it is called.
    def prefix(env, routes, application)
      known = env[routes.env_key]
      known = application.config.relative_url_root if known.nil? && application.config.respond_to?(:relative_url_root)
      known.to_s.chomp('/')
    end

    def split(path, prefix)
      path.start_with?("#{prefix}/") ? [prefix, path.delete_prefix(prefix)] : ['', path]
    end

    # The pattern of the first route that takes the path, whose method and constraints fit.
    def find(routes, env, script_name, path)
      request = ActionDispatch::Request.new(
        env.merge('SCRIPT_NAME' => script_name, 'PATH_INFO' => ActionDispatch::Journey::Router::Utils.normalize_path(path))
      )
      request.path_parameters = {}
      routes.router.recognize(request) do |route, parameters|
        request.path_parameters = parameters
        next unless route.app.matches?(request)

        found = within(route, request)
        return found if found
      end
      nil
    end

    # What `found` returns, of a route and of the engine behind it.
    def within(route, request)
      outer = translated(route.path.spec.to_s)
      return [[], outer, request.script_name] if route.path.anchored
      return [[outer], '/{*rest}', request.script_name] unless route.app.engine?

      mounts, inner, script_name = find(route.app.rack_app.routes, request.env, request.script_name, request.path_info)
      [[outer, *mounts], inner, script_name] if mounts
    end

    # The path of a route in the form of all frameworks. An optional part is written as if it were there, for all requests alike.
    def translated(spec)
      spec.delete_suffix(FORMAT).delete('()?').gsub(/:(\w+)/, '{\1}').gsub(/\*(\w+)/, '{*\1}').gsub(/(?<!{)\*/, '{*splat}')
    end

    def joined(*parts)
      path = parts.map { |part| part.chomp('/') }.join
      path.empty? ? '/' : path
    end
  end
  private_constant :RailsRoute
end
