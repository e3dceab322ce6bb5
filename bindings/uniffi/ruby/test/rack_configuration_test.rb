# frozen_string_literal: true

require_relative 'rack_case'

# Middleware whose limits come from the configuration of its limiter.
class RackConfigurationTest < RackCase
  DOCUMENT = <<~TOML
    polylimit = 1
    [policies.api]
    quotas = "2/hour fixed_window"
    [policies.jobs]
    quotas = "1 concurrent"
    [[rules]]
    match = { path = "/v1/{*rest}", header.x-api-key = "*" }
    apply = [{ policy = "api", key = "{header.x-api-key}" }]
    [[rules]]
    match = { path = "/users/{*rest}" }
    apply = [{ policy = "api", key = "{user}", missing = "deny" }]
    [policies.tokens]
    quotas = "100/hour fixed_window"
    [[rules]]
    match = { path = "/model" }
    apply = [{ policy = "tokens", key = "{client}", cost = 60, spent = "usage:total" }]
    [[rules]]
    match = { path = "/jobs", method = "GET" }
    apply = [{ policy = "jobs", key = "{client}" }]
    [lists]
    deny = ["user mallory"]
  TOML

  def setup
    @limiter = Polylimit::Limiter.new(document: DOCUMENT)
  end

  def test_the_rules_decide
    serve({ limiter: @limiter }) do |get|
      assert_equal(%w[200 200 429 429], Array.new(4) { get.call('/v1/items?page=2', 'X-Api-Key' => 'k1').code })
      allowed = get.call('/v1/items', 'X-Api-Key' => 'k2')
      assert_equal ['200', '"api";q=2;w=3600', '1'], [allowed.code, allowed['ratelimit-policy'], allowed.body]
      assert_nil get.call('/other')['ratelimit-policy']
      assert_equal '400', get.call('/users/').code
    end
  end

  def test_attributes_of_the_application_and_the_user
    attributes = ->(env) { { user: env['HTTP_X_USER'] } }
    serve({ limiter: @limiter, attributes: attributes }) do |get|
      assert_equal(%w[200 200 429], Array.new(3) { get.call('/users/1/200', 'X-User' => 'alice').code })
      denied = get.call('/users/', 'X-User' => 'mallory')
      assert_equal '403', denied.code
      assert_nil denied['ratelimit-policy']
    end
    app = Polylimit::Rack.new(LEFT, limiter: @limiter)
    env = { 'REQUEST_METHOD' => 'GET', 'PATH_INFO' => '/users/', 'REMOTE_ADDR' => '192.0.2.7', 'REMOTE_USER' => 'bob' }
    assert_equal([200, 200, 429], Array.new(3) { app.call(env.dup).first })
  end

  def test_a_rule_charges_what_the_response_reports
    parts = ['{"usage": {"prompt_tok', 'ens": 5, "completion_tokens": 2}}']
    app = Polylimit::Rack.new(->(_) { [200, { 'content-type' => 'application/json' }, parts] }, limiter: @limiter)
    env = { 'REQUEST_METHOD' => 'GET', 'PATH_INFO' => '/model', 'REMOTE_ADDR' => '192.0.2.7' }
    [93, 86].each do |left|
      status, _, body = app.call(env.dup)
      read = []
      body.each { |part| read << part }
      body.close
      assert_equal [200, parts, left], [status, read, @limiter.peek('192.0.2.7', policy: 'tokens').remaining]
    end
    # A client that leaves in the middle has spent the cost.
    app.call(env.dup).last.close
    assert_equal 26, @limiter.peek('192.0.2.7', policy: 'tokens').remaining
  end

  def test_a_response_that_does_not_count_and_a_request_that_holds
    serve({ limiter: @limiter, count: ->(_env, status, _headers) { status < 500 } }) do |get|
      assert_equal(%w[500 500 500], Array.new(3) { get.call('/v1/500', 'X-Api-Key' => 'k1').code })
      assert_equal(%w[200 200 429], Array.new(3) { get.call('/v1/', 'X-Api-Key' => 'k1').code })
      assert_equal(%w[200 200], Array.new(2) { get.call('/jobs').code })
    end
  end

  def test_options_beside_a_configuration
    [{ key: ->(_) { 'k' } }, { cost: 2 }, { scope: '/x' }].each do |options|
      assert_raises(Polylimit::InvalidArgument, options.inspect) { Polylimit::Rack.new(LEFT, limiter: @limiter, **options) }
    end
    assert_raises(Polylimit::InvalidArgument) { Polylimit::Rack.new(LEFT, limiter: limiter(api: '1/s'), attributes: ->(_) {}) }
    app = Polylimit::Rack.new(LEFT, limiter: @limiter, policy: 'api', key: ->(_) { 'k' })
    assert_equal 200, app.call({ 'REQUEST_METHOD' => 'GET', 'PATH_INFO' => '/', 'REMOTE_ADDR' => '192.0.2.7' }).first
  end
end
