# frozen_string_literal: true

# A Rack application whose requests are limited by the middleware of polylimit.
require 'polylimit/rack'

limiter = Polylimit::Limiter.new(
  ENV.fetch('POLYLIMIT_URL', 'local:demo'),
  policies: { demo: ENV.fetch('POLYLIMIT_QUOTA', '100/minute') }
)

# The key of a request: the query parameter "user", or "demo".
user = ->(env) { Rack::Request.new(env).GET['user'] || 'demo' }

use Polylimit::Rack, limiter: limiter, key: user
run ->(_env) { [200, { 'content-type' => 'application/json' }, ['{"hello":"world"}']] }
