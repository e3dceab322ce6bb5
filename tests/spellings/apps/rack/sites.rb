# frozen_string_literal: true

# What the applications of Ruby share: handlers that count, the document of the rules, and Puma on a port for each site.
require 'puma'
require 'puma/events'
require 'puma/server'
begin
  require 'puma/log_writer'
rescue LoadError
  # Puma 5 has its log in its events.
end
require 'rack'

QUOTAS = '3/hour fixed_window'
KEY = 'header:x-client'
HANDLERS = %w[login report user].freeze
PATHS = { 'login' => ['POST', '/login'], 'report' => ['GET', '/report'], 'user' => ['GET', '/v1/users/{id}'] }.freeze

# How often each handler ran for each client.
RUNS = Hash.new(0)
LOCK = Mutex.new

# The field of a response of a handler, which has run once more.
def runs(handler, env)
  "#{handler}=#{LOCK.synchronize { RUNS[[handler, env['HTTP_X_CLIENT']]] += 1 }}"
end

# The handler as an application of Rack.
def handler(name)
  ->(env) { [200, { 'content-type' => 'text/plain', 'x-runs' => runs(name, env) }, [name]] }
end

# A limiter by rules about paths, or about routes.
def by_rules(subject)
  policies = HANDLERS.map { |name| "[policies.#{name}]\nquotas = \"#{QUOTAS}\"\n" }
  rules = PATHS.map do |name, (method, path)|
    "[[rules]]\nmatch = { method = \"#{method}\", #{subject} = \"#{path}\" }\n" \
      "apply = [{ policy = \"#{name}\", key = \"{header.x-client}\" }]\n"
  end
  Polylimit::Limiter.new(document: "polylimit = 1\n#{policies.join}#{rules.join}")
end

# The options of a limit on its own memory.
def limit(**options)
  { limiter: Polylimit::Limiter.new, policy: QUOTAS, key: KEY, **options }
end

# On a connection that it keeps, Puma 5 does not answer a request that it cannot read.
def unkept(app)
  lambda do |env|
    env['HTTP_CONNECTION'] = 'close'
    app.call(env)
  end
end

# Serves an application as a site, and says which handlers are limited there.
def site(name, app, handlers = HANDLERS)
  server = if defined?(Puma::LogWriter)
             Puma::Server.new(app, nil, log_writer: Puma::LogWriter.strings, min_threads: 1, max_threads: 4)
           else
             Puma::Server.new(unkept(app), Puma::Events.strings, min_threads: 1, max_threads: 4)
           end
  port = server.add_tcp_listener('127.0.0.1', 0).addr[1]
  server.run
  puts "listening #{name} #{port} #{handlers.join(',')}"
end

# Says what is served, and ends with the standard input.
def serve(framework, version)
  puts "version #{framework} #{version}"
  puts 'ready'
  $stdout.flush
  $stdin.read
  exit!(true)
end
