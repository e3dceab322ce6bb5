# frozen_string_literal: true

require 'minitest/autorun'
require 'rack/builder'
require 'rack/mock'
require 'polylimit/grape'
require_relative '../watch'

# Limits inside an API of Grape.
class GrapeTest < Minitest::Test
  LIMITER = Polylimit::Limiter.new(policies: { named: '2/hour fixed_window', jobs: '1 concurrent' })
  ONCE = '1/hour fixed_window'
  ROUTES = %w[/shop/v1/users/{id} /shop/v1/files/{*path} /shop/v1/tenants/{tenant}/items].freeze
  BY_ROUTE = Polylimit::Limiter.new(document: <<~TOML)
    polylimit = 1
    policies.first.quotas = "1/hour"
    policies.second.quotas = "1/hour"
    policies.third.quotas = "1/hour"
    [[rules]]
    match = { route = "#{ROUTES[0]}" }
    apply = [{ policy = "first", key = "k" }]
    [[rules]]
    match = { route = "#{ROUTES[1]}" }
    apply = [{ policy = "second", key = "k" }]
    [[rules]]
    match = { route = "#{ROUTES[2]}" }
    apply = [{ policy = "third", key = "k" }]
  TOML

  class Base < ::Grape::API
    format :json
  end

  # An API whose limit has these options.
  def self.api(**options, &routes)
    Class.new(Base) do
      polylimit(**options)
      class_exec(&routes)
    end
  end

  def serve(api)
    ::Rack::MockRequest.new(::Rack::Builder.new { map('/shop') { run api } }.to_app)
  end

  def statuses(app, *paths, **env)
    paths.map { |path| app.get("/shop#{path}", **env).status }
  end

  def test_quotas_without_a_name_have_a_budget_for_each_route
    app = serve(self.class.api(limiter: LIMITER, policy: ONCE, key: 'header:x-client') do
      resource(:users) do
        get(':id') { params[:id] }
        post(':id') { params[:id] }
      end
      get('files/*path') { 'file' }
    end)
    client = { 'HTTP_X_CLIENT' => 'routes' }
    assert_equal [200, 429, 429, 200, 429], statuses(app, '/users/1', '/users/2', '/users/3.json', '/files/a/b', '/files/c', **client)
    assert_equal [201, 429], Array.new(2) { app.post('/shop/users/1', **client).status }
    # The handler of GET runs for HEAD.
    assert_equal 429, app.request('HEAD', '/shop/users/1', **client).status
    assert_equal [404], statuses(app, '/none', **client)
  end

  def test_rules_see_the_route_with_version_and_mount
    api = self.class.api(limiter: BY_ROUTE) do
      version 'v1', using: :path
      get('users/:id') { 'user' }
      get('files/*path') { 'file' }
      namespace(:tenants) { route_param(:tenant) { get(:items) { 'items' } } }
    end
    app = serve(api)
    ['/v1/users/1', '/v1/files/a/b', '/v1/tenants/t/items'].each do |path|
      assert_equal [200, 429], statuses(app, path, path), path
    end
  end

  def test_keys_have_the_user_and_path_parameters
    api = Class.new(Base) do
      http_basic { |_, password| password == 'secret' }
      polylimit limiter: LIMITER, policy: :named, key: [:user, 'path:tenant']
      get(':tenant') { 'in' }
    end
    app = serve(api)
    by = lambda do |user, tenant, password = 'secret'|
      statuses(app, "/#{tenant}", 'HTTP_AUTHORIZATION' => "Basic #{["#{user}:#{password}"].pack('m0')}").first
    end
    3.times { assert_equal 401, by.call('ann', 'a', 'wrong') }
    assert_equal [200, 200, 429], Array.new(3) { by.call('ann', 'a') }
    assert_equal [200, 200], [by.call('bob', 'a'), by.call('ann', 'b')]
  end

  def test_response_of_an_error_has_the_fields_and_its_status_counts
    raised = Class.new(StandardError)
    app = serve(self.class.api(limiter: LIMITER, policy: :named, key: ->(env) { env['PATH_INFO'] }, count: ->(_, status, _) { [400, 401].include?(status) }) do
      rescue_from(raised) { error!('mine', 418) }
      get('denied') { error!({ error: 'no' }, 401, 'X-Why' => 'secret') }
      get('raised') { raise raised }
      params { requires :name }
      get('invalid') { 'valid' }
    end)
    first, second, third = Array.new(3) { app.get('/shop/denied') }
    assert_equal [401, 401, 429], [first, second, third].map(&:status)
    assert_equal ['{"error":"no"}', 'secret', '"named";q=2;w=3600'], [first.body, first['X-Why'], first['ratelimit-policy']]
    assert_equal [418] * 3, statuses(app, *['/raised'] * 3)
    # Grape makes the response of what its validations raise.
    assert_equal [400, 400, 429], statuses(app, *['/invalid'] * 3)
  end

  def test_place_is_free_after_each_request
    api = self.class.api(limiter: LIMITER, policy: :jobs, key: ->(_) { 'place' }) do
      get('ends') { LIMITER.peek('place', policy: :jobs).remaining }
      get('throws') { error!('no', 400) }
    end
    app = serve(api)
    taken = Array.new(2) { app.get('/shop/ends', lint: false).tap { |response| response.close if response.respond_to?(:close) }.body }
    assert_equal %w[0 0], taken
    assert_equal [400, 400], statuses(app, '/throws', '/throws')
    assert_equal 1, LIMITER.peek('place', policy: :jobs).remaining
  end

  def test_preflight_that_grape_answers_does_not_count
    app = serve(self.class.api(limiter: LIMITER, policy: ONCE, key: ->(_) { 'preflight' }) do
      get('own') { 'own' }
      route(:options, 'handled') { 'handled' }
    end)
    ask = ->(path) { app.request('OPTIONS', path, 'HTTP_ORIGIN' => 'https://app.example', 'HTTP_ACCESS_CONTROL_REQUEST_METHOD' => 'GET').status }
    assert_equal [204, 204], Array.new(2) { ask.call('/shop/own') }
    assert_equal [200, 429], Array.new(2) { ask.call('/shop/handled') }
  end

  def test_limit_of_a_namespace_counts_only_there_and_mistakes_are_refused_at_once
    api = lambda do
      Class.new(Base) do
        namespace(:in) do
          polylimit limiter: LIMITER, policy: ONCE, key: ->(_) { 'namespace' }
          get(:a) { 'a' }
        end
        get(:out) { 'out' }
      end
    end
    other = Class.new(Base) { mount api.call => '/other' }
    assert_equal [200, 429, 200, 200], statuses(serve(api.call), '/in/a', '/in/a', '/out', '/out')
    # At another place it is another route.
    assert_equal [200, 429], statuses(serve(other), '/other/in/a', '/other/in/a')
    assert_raises(Polylimit::InvalidArgument) { Class.new(Base) { polylimit limiter: LIMITER, policy: 'unknown' } }
  end

  def test_other_versions_are_refused
    refused = assert_raises(Polylimit::InvalidArgument) { Polylimit.const_get(:Frameworks).check({ 'Grape' => '2.0.0' }) }
    assert_match(/\AGrape is 2\.0\.0: allowed is 1\.6 or newer, below 2/, refused.message)
  end
end
