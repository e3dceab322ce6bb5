# frozen_string_literal: true

# APIs of Grape, with one that is mounted at /v1.
require_relative '../rack/sites'
require 'polylimit/grape'

# An API with the endpoints of a table, in which a limit with these options is.
def api(table, limit = nil)
  Class.new(Grape::API) do
    format :txt
    polylimit limit if limit
    table.each do |verb, path, name|
      public_send(verb, path) do
        status 200
        header 'x-runs', runs(name, env)
        name
      end
    end
  end
end

OTHERS = [[:post, '/login', 'login'], [:get, '/report', 'report']].freeze
USERS = [[:get, '/users/:id', 'user']].freeze

# Both APIs, behind these middlewares. The mounted one inherits the limit that is `given`; `inner` is one of its own.
def mounted(*outer, given: nil, inner: nil)
  users = api(USERS, inner)
  all = api(OTHERS, given)
  all.mount(users => '/v1')
  Rack::Builder.new do
    outer.each { |middleware, options| use middleware, **options }
    run all
  end.to_app
end

site 'global', mounted([Polylimit::Rack, limit])
site 'methods', mounted([Polylimit::Rack, limit(methods: %w[get post])])
site 'path_rules', mounted([Polylimit::Rack, { limiter: by_rules('path') }])
site 'api', mounted(given: limit)
site 'router', mounted(inner: limit), %w[user]
site 'route_rules', mounted(given: { limiter: by_rules('route') })

once = { limiter: Polylimit::Limiter.new, policy: '1/hour fixed_window', key: KEY }
separate = api([[:get, '/a/:id', 'a'], [:get, '/a', 'list'], [:post, '/a', 'new'], [:get, '/b/:id', 'b']], once)
site 'separate', Rack::Builder.new { run separate }.to_app, %w[GET:/a/1 GET:/a POST:/a GET:/b/1]

puts 'note route in APIs and namespaces'
serve('grape', Grape::VERSION)
