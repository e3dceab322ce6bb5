# frozen_string_literal: true

require 'minitest/autorun'
require 'net/http'
require 'polylimit/rack'
require_relative 'own_puma'

# Serves an application behind the middleware, for the tests of it.
class RackCase < Minitest::Test
  LEFT = lambda do |env|
    decided = env[Polylimit::Rack::RATE_LIMIT]
    [(env['PATH_INFO'][/\d+\z/] || 200).to_i, { 'content-type' => 'text/plain' }, [decided&.decision&.remaining.to_s]]
  end

  # Serves the application behind the middlewares with puma, and hands over how to send a request.
  def serve(*all)
    app = all.reverse.reduce(LEFT) { |inner, options| Polylimit::Rack.new(inner, **options) }
    server, port = own_puma(app)
    yield(->(path, fields = {}) { Net::HTTP.get_response(URI("http://127.0.0.1:#{port}#{path}"), fields) })
  ensure
    server&.stop(true)
  end

  def limiter(store = 'memory:', **policies)
    Polylimit::Limiter.new(store, policies: policies)
  end
end
