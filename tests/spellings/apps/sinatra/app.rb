# frozen_string_literal: true

# Applications of Sinatra, with one that is mounted at /v1.
require_relative '../rack/sites'
require 'sinatra/base'
require 'polylimit/sinatra'

# An application with the routes of a table, whose options are `given`, behind these middlewares.
def application(table, given = {}, *middlewares)
  Class.new(Sinatra::Base) do
    set :environment, :production
    set :logging, false
    set :host_authorization, {} if respond_to?(:host_authorization)
    register Polylimit::Sinatra
    middlewares.each { |middleware, options| use middleware, **options }
    table.each do |verb, path, name|
      public_send(verb, path, **given) do
        response['x-runs'] = runs(name, env)
        name
      end
    end
  end
end

OTHERS = [[:post, '/login', 'login'], [:get, '/report', 'report']].freeze
USERS = [[:get, '/users/:id', 'user']].freeze

# Both applications, behind these middlewares; `inner` are the middlewares of the mounted one.
def mounted(*outer, given: {}, inner: [])
  others = application(OTHERS, given)
  users = application(USERS, given, *inner)
  ::Rack::Builder.new do
    outer.each { |middleware, options| use middleware, **options }
    map('/v1') { run users }
    run others
  end.to_app
end

site 'global', mounted([Polylimit::Rack, limit])
site 'methods', mounted([Polylimit::Rack, limit(methods: %w[get post])])
site 'path_rules', mounted([Polylimit::Rack, { limiter: by_rules('path') }])
site 'override', mounted([::Rack::MethodOverride, {}], [Polylimit::Rack, limit(methods: %w[get post])])
site 'override_rules', mounted([::Rack::MethodOverride, {}], [Polylimit::Rack, { limiter: by_rules('path') }])
site 'router', mounted(inner: [[Polylimit::Rack, limit]]), %w[user]
site 'route_option', mounted(given: { polylimit: limit })
site 'route_rules', mounted(given: { polylimit: { limiter: by_rules('route') } })

limiter = Polylimit::Limiter.new
once = { polylimit: { limiter: limiter, policy: '1/hour fixed_window', key: KEY } }
First = application([[:get, '/:id', 'a'], [:get, '/', 'list'], [:post, '/', 'new']], once)
Second = application([[:get, '/:id', 'b']], once)
separate = ::Rack::Builder.new do
  map('/a') { run First }
  map('/b') { run Second }
end
site 'separate', separate.to_app, %w[GET:/a/1 GET:/a/ POST:/a/ GET:/b/1]

puts 'note route in options of routes'
serve('sinatra', Sinatra::VERSION)
