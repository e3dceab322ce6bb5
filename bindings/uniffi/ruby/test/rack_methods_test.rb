# frozen_string_literal: true

require 'logger'
require 'rack'
require 'rack/cors'
require 'stringio'
require_relative 'rack_case'

# Which methods are limited, and what browsers of other origins see.
class RackMethodsTest < RackCase
  ORIGIN = 'https://app.example'

  # The statuses of these requests, and how often the handler ran.
  def run_with(requests, *middlewares, **env)
    runs = 0
    app = ::Rack::Builder.new do
      middlewares.each { |middleware, arguments, block| use(middleware, **(arguments || {}), &block) }
      run(->(_) { [200, { 'content-type' => 'text/plain' }, [(runs += 1).to_s]] })
    end.to_app
    sent = requests.map { |method| ::Rack::MockRequest.new(app).request(method, '/', { 'REMOTE_ADDR' => '192.0.2.7' }.merge(env)) }
    [sent.map(&:status), runs, sent]
  end

  def middleware(**options)
    [Polylimit::Rack, { limiter: Polylimit::Limiter.new, policy: '3/hour fixed_window', **options }]
  end

  def test_a_limit_on_get_has_head_too
    %w[GET get].each do |name|
      statuses, runs = run_with(%w[GET HEAD HEAD HEAD GET POST], middleware(methods: [name]))
      assert_equal [[200, 200, 200, 429, 429, 200], 4], [statuses, runs]
    end
    statuses, = run_with(%w[GET HEAD HEAD HEAD HEAD], middleware(methods: 'GET', separate_head: true))
    assert_equal [200] * 5, statuses
  end

  def test_a_rule_on_get_has_head_too
    document = "polylimit = 1\n[policies.p]\nquotas = \"3/hour fixed_window\"\n[[rules]]\nmatch = { method = \"GET\", path = \"/\" }\n" \
               "apply = [{ policy = \"p\", key = \"{client}\" }]\n"
    statuses, runs = run_with(['HEAD'] * 20, [Polylimit::Rack, { limiter: Polylimit::Limiter.new(document: document) }])
    assert_equal [3, 3], [statuses.count(200), runs]
  end

  def test_methods_that_no_client_can_send_are_refused
    assert_raises(Polylimit::InvalidArgument) { Polylimit::Rack.new(LEFT, limiter: limiter(api: '1/s'), methods: ['G T']) }
    [{ separate_head: 1 }, { count_preflights: nil }, { cors_origins: 'app.example/x' }].each do |options|
      assert_raises(Polylimit::InvalidArgument, options.inspect) { Polylimit::Rack.new(LEFT, limiter: limiter(api: '1/s'), **options) }
    end
  end

  # Ten requests of POST that become DELETE, and the lines of the log.
  def overridden(*middlewares)
    log = StringIO.new
    logger = Polylimit.logger
    Polylimit.logger = Logger.new(log)
    form = { input: '_method=delete', 'CONTENT_TYPE' => 'application/x-www-form-urlencoded' }
    [*run_with(['POST'] * 10, *middlewares, **form).first(2), log.string.lines]
  ensure
    Polylimit.logger = logger
  end

  def test_behind_method_override_a_limit_sees_the_method_of_the_handler
    statuses, runs, lines = overridden([::Rack::MethodOverride], middleware(methods: %w[DELETE]))
    assert_equal [3, 3, []], [statuses.count(200), runs, lines]
  end

  def test_in_front_of_method_override_a_limit_by_methods_warns_once
    _, runs, lines = overridden(middleware(methods: %w[DELETE]), [::Rack::MethodOverride])
    assert_equal [10, 1], [runs, lines.size]
    assert_match(/Rack::MethodOverride stands behind Polylimit::Rack.*insert_after Rack::MethodOverride/, lines.first)
    document = Polylimit::Limiter.new(document: "polylimit = 1\n[policies.p]\nquotas = \"1/s\"\n")
    assert_equal 1, overridden([Polylimit::Rack, { limiter: document }], [::Rack::MethodOverride]).last.size
    # A limit on all methods has it in any case.
    statuses, _, lines = overridden(middleware, [::Rack::MethodOverride])
    assert_equal [3, []], [statuses.count(200), lines]
  end

  PREFLIGHT = { 'HTTP_ORIGIN' => ORIGIN, 'HTTP_ACCESS_CONTROL_REQUEST_METHOD' => 'POST' }.freeze

  def test_preflights_do_not_count
    assert_equal 9, run_with(%w[OPTIONS] * 9, middleware, **PREFLIGHT).last(2).first
    assert_equal 9, run_with(%w[OPTIONS] * 9, middleware(methods: 'POST'), **PREFLIGHT).last(2).first
    [{ count_preflights: true }, { methods: 'OPTIONS' }].each do |options|
      assert_equal 3, run_with(%w[OPTIONS] * 9, middleware(**options), **PREFLIGHT).last(2).first, options.inspect
    end
    # These are none.
    assert_equal 3, run_with(%w[OPTIONS] * 9, middleware, **PREFLIGHT.except('HTTP_ORIGIN')).last(2).first
    assert_equal 3, run_with(%w[POST] * 9, middleware, **PREFLIGHT).last(2).first
  end

  CORS = [::Rack::Cors, {}, lambda { |cors|
    cors.allow do |allow|
      allow.origins ORIGIN
      allow.resource '*', headers: :any, methods: %i[get post], expose: 'ratelimit'
    end
  }].freeze

  # The denial of the fourth request.
  def denial(*middlewares, **env)
    statuses, runs, sent = run_with(%w[POST] * 4, *middlewares, **env)
    assert_equal [[200, 200, 200, 429], 3], [statuses, runs]
    sent.last.headers.to_h { |name, value| [name.downcase, value] }
  end

  def test_a_page_can_read_a_denial
    [[[CORS, middleware], 'ratelimit'], [[middleware(cors_origins: ORIGIN), CORS], nil], [[CORS, middleware(cors_origins: [ORIGIN])], 'ratelimit']]
      .each do |middlewares, exposed|
      fields = denial(*middlewares, 'HTTP_ORIGIN' => ORIGIN)
      assert_equal ORIGIN, fields['access-control-allow-origin']
      assert_includes fields['access-control-expose-headers'], exposed || 'retry-after'
      assert_includes fields['vary'].downcase, 'origin'
    end
    fields = denial(middleware(cors_origins: ORIGIN), 'HTTP_ORIGIN' => ORIGIN)
    assert_equal 'accept, origin', fields['vary'].downcase
    assert_equal '*', denial(middleware(cors_origins: '*'), 'HTTP_ORIGIN' => ORIGIN)['access-control-allow-origin']
    [[middleware(cors_origins: ORIGIN), { 'HTTP_ORIGIN' => 'https://other.example' }], [middleware, { 'HTTP_ORIGIN' => ORIGIN }],
     [middleware(cors_origins: ORIGIN), {}]].each do |limit, env|
      assert_nil denial(limit, **env)['access-control-allow-origin']
    end
  end

  def test_fields_of_the_program_stay
    own = { 'Access-Control-Allow-Origin' => 'null' }
    fields = denial(middleware(cors_origins: ORIGIN, on_denied: ->(*) { [429, own, []] }), 'HTTP_ORIGIN' => ORIGIN)
    assert_equal 'null', fields['access-control-allow-origin']
    own = { 'Vary' => 'Cookie' }
    fields = denial(middleware(cors_origins: ORIGIN, on_denied: ->(*) { [429, own.dup, []] }), 'HTTP_ORIGIN' => ORIGIN)
    assert_equal 'cookie, origin', fields['vary'].downcase
  end
end
