# frozen_string_literal: true

# Applications of Rack::Builder, whose handlers take one path each, as Rack compares it.
require_relative 'sites'
require 'polylimit/rack'

# The application that these methods and paths lead to, or 404.
def routes(table)
  lambda do |env|
    method = env['REQUEST_METHOD'] == 'HEAD' ? 'GET' : env['REQUEST_METHOD']
    _, app = table.find { |(verb, path), _| verb == method && path.match?(env['PATH_INFO']) }
    app ? app.call(env) : [404, { 'content-type' => 'text/plain' }, []]
  end
end

USERS = routes(['GET', %r{\A/users/[^/]+\z}] => handler('user'))
OTHERS = routes(['POST', %r{\A/login\z}] => handler('login'), ['GET', %r{\A/report\z}] => handler('report'))

# The whole application, behind these middlewares; those in /v1 are `inner`.
def application(*outer, inner: nil)
  ::Rack::Builder.new do
    outer.each { |middleware, options| use middleware, **options }
    use ::Rack::Head
    map '/v1' do
      use Polylimit::Rack, **inner if inner
      run USERS
    end
    run OTHERS
  end.to_app
end

site 'global', application([Polylimit::Rack, limit])
site 'methods', application([Polylimit::Rack, limit(methods: %w[get post])])
site 'path_rules', application([Polylimit::Rack, { limiter: by_rules('path') }])
site 'override', application([::Rack::MethodOverride, {}], [Polylimit::Rack, limit(methods: %w[get post])])
site 'override_rules', application([::Rack::MethodOverride, {}], [Polylimit::Rack, { limiter: by_rules('path') }])
site 'router', application(inner: limit), %w[user]

limiter = Polylimit::Limiter.new
mounts = ::Rack::Builder.new do
  %w[/a /b].each do |mount|
    map mount do
      use Polylimit::Rack, limiter: limiter, policy: '1/hour fixed_window', key: KEY
      run handler('mounted')
    end
  end
end
site 'separate', mounts.to_app, %w[GET:/a/1 GET:/b/1]

puts 'note route none, it is known to handlers only'
serve('rack', ::Rack.release)
