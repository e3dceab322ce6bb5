# frozen_string_literal: true

require 'minitest/autorun'
require 'rack'
require 'sinatra/base'
require 'polylimit/sinatra'
require_relative '../watch'

RUNS = Hash.new(0)
LIMITER = Polylimit::Limiter.new(policies: { jobs: '1 concurrent' })
LIMIT = { limiter: LIMITER, policy: '3/hour fixed_window', key: 'header:x-client' }.freeze
ROUTES = Polylimit::Limiter.new(document: <<~TOML)
  polylimit = 1
  [policies.users]
  quotas = "3/hour fixed_window"
  [[rules]]
  match = { method = "GET", route = "/v1/users/{id}" }
  apply = [{ policy = "users", key = "{header.x-client}" }]
TOML

# An application whose handlers count how often they run.
class Main < Sinatra::Base
  register Polylimit::Sinatra
  set :environment, :test
  set :host_authorization, {} if respond_to?(:host_authorization)
  helpers { def run = (RUNS["#{self.class} #{env['sinatra.route']}"] += 1).to_s }

  get('/report', polylimit: LIMIT) { run }
  post('/report', polylimit: LIMIT) { run }
  get('/users/:id', polylimit: { limiter: ROUTES }) { run }
  get('/job', polylimit: LIMIT.merge(policy: :jobs)) { run }
  get('/json', polylimit: LIMIT, provides: 'json') { run }
  get('/failing', polylimit: LIMIT.merge(policy: '1/hour fixed_window', count: ->(_, status) { status == 401 })) { halt params[:status].to_i }
  get('/own', polylimit: LIMIT.merge(policy: '1/hour fixed_window', key: -> { params[:key] }, on_denied: ->(*) { [418, {}, []] })) { run }
end

class Other < Main
  get('/report', polylimit: LIMIT) { run }
end

# A class that gets its name after its routes.
Late = Class.new(Sinatra::Base) do
  register Polylimit::Sinatra
  set :environment, :test
  set :host_authorization, {} if respond_to?(:host_authorization)
  get('/report', polylimit: LIMIT) { 'late' }
end

class SinatraTest < Minitest::Test
  def setup
    RUNS.clear
    @app = ::Rack::Builder.new do
      map('/v1') { run Main }
      map('/v2') { run Main }
      map('/other') { run Other }
      map('/late') { run Late }
    end.to_app
  end

  def ask(method, path, **env)
    ::Rack::MockRequest.new(@app).request(method, path, { 'HTTP_X_CLIENT' => name }.merge(env))
  end

  def statuses(*requests, **env)
    requests.map { |request| ask(*request.split, **env).status }
  end

  def test_a_route_has_a_budget_for_all_its_spellings_and_mounts
    assert_equal [200, 200, 200, 429, 429, 429],
                 statuses('GET /v1/report', 'HEAD /v1/report', 'GET /v2/rep%6Frt', 'GET /v2/report', 'HEAD /v1/report', 'GET /v1/report?a')
    assert_equal 3, RUNS.values.sum
    # Those of other methods and of other classes have their own.
    assert_equal [200, 200, 200], statuses('POST /v1/report', 'GET /other/report', 'GET /late/report')
  end

  def test_rules_know_the_route
    assert_equal [200, 200, 200, 429], statuses('GET /v1/users/1', 'GET /v1/users/2', 'HEAD /v1/users/%33', 'GET /v1/users/4.json')
    assert_equal [200] * 4, statuses(*(['GET /v2/users/1'] * 4))
  end

  def test_a_route_whose_conditions_fail_spends_nothing
    assert_equal [404] * 4, statuses(*(['GET /v1/json'] * 4), 'HTTP_ACCEPT' => 'image/png')
    assert_equal [200] * 3, statuses(*(['GET /v1/json'] * 3), 'HTTP_ACCEPT' => 'application/json')
  end

  def test_the_response_says_whether_it_counts
    assert_equal [200, 200, 401, 429], statuses('GET /v1/failing?status=200', 'GET /v1/failing?status=200', 'GET /v1/failing?status=401',
                                                'GET /v1/failing?status=200')
  end

  def test_functions_run_in_the_application
    assert_equal [200, 418, 200], statuses('GET /v1/own?key=a', 'GET /v1/own?key=a', 'GET /v1/own?key=b')
  end

  def test_slots_are_free_when_the_response_is_done
    env = ::Rack::MockRequest.env_for('/v1/job', 'HTTP_X_CLIENT' => name)
    status, _, body = @app.call(env)
    assert_equal [200, 429], [status, ask('GET', '/v1/job').status]
    body.close
    assert_equal 200, ask('GET', '/v1/job').status
  end

  def test_a_router_without_format_suffixes
    limiter = Polylimit::Limiter.new(document: <<~TOML)
      polylimit = 1
      [policies.p]
      quotas = "1/hour"
      [[rules]]
      match = { path = "/report" }
      apply = [{ policy = "p", key = "k" }]
    TOML
    @app = Polylimit::Rack.new(Main, limiter: limiter)
    assert_equal [404, 404, 200, 429], statuses('GET /report.json', 'GET /report.json', 'GET /report', 'GET /rep%6frt')
  end

  # Rack::Protection resolves dots, and takes a backslash for a slash.
  def test_a_rule_has_what_rack_protection_makes_of_a_path
    limiter = Polylimit::Limiter.new(document: <<~TOML)
      polylimit = 1
      [policies.p]
      quotas = "1/hour"
      [[rules]]
      match = { path = "/report" }
      apply = [{ policy = "p", key = "{header.x-client}" }]
    TOML
    protected = Class.new(Main) { set :protection, true }
    @app = Polylimit::Rack.new(protected, limiter: limiter)
    ['/report', '/\\report', '/x\\../report', '/x%5C..%2Freport', '/x/..%5creport', '/./report'].each do |path|
      sent = Array.new(2) { ask('GET', '/', 'PATH_INFO' => path, 'HTTP_X_CLIENT' => path).status }
      assert_equal [200, 429], sent, path
    end
  end

  def test_mistakes_are_found_when_the_class_is_made
    [5, { limiter: 1 }, { limiter: LIMITER, to: 5 }].each do |options|
      assert_raises(Polylimit::InvalidArgument, options.inspect) do
        Class.new(Sinatra::Base) do
          register Polylimit::Sinatra
          get('/', polylimit: options) { 'x' }
        end
      end
    end
  end
end
