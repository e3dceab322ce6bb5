# frozen_string_literal: true

require 'action_controller/railtie'
require 'logger'
require 'minitest/autorun'
require 'rack'
require 'polylimit/rails'
require_relative '../own_puma'
require_relative '../watch'

# An application of Rails, whose actions count how often they run.
class Shop < ::Rails::Application
  config.eager_load = false
  config.logger = Logger.new(nil)
  config.hosts.clear
  config.secret_key_base = 'test'
  config.active_support.deprecation = :silence
end

RUNS = Hash.new(0)
LIMITER = Polylimit::Limiter.new(policies: { named: '3/hour fixed_window', jobs: '1 concurrent' })
MODEL = Polylimit::Limiter.new(policies: { tokens: '10000/day fixed_window', requests: '3/day fixed_window' })
UNNAMED = '3/hour fixed_window'
ROUTES = Polylimit::Limiter.new(document: <<~TOML)
  polylimit = 1
  [policies.items]
  quotas = "3/hour fixed_window"
  [policies.by_route]
  quotas = "1/hour fixed_window"
  [[rules]]
  match = { header.x-by-route = "*" }
  apply = [{ policy = "by_route", key = "{route}" }]
  [[rules]]
  match = { route = "/{tenant}/stock/items/{id}" }
  apply = [{ policy = "items", key = "{header.x-client}" }]
TOML

class ApplicationController < ActionController::Base
  include Polylimit::Rails

  before_action { @user = request.headers['x-client'] }

  def run
    RUNS["#{controller_path}##{action_name}"] += 1
    render plain: request.env['polylimit.rate_limit']&.decision&.remaining.to_s
  end
  private :run
end

class SessionsController < ApplicationController
  polylimit limiter: LIMITER, policy: UNNAMED, key: -> { @user }, only: %i[create show]
  polylimit limiter: LIMITER, policy: '2/hour fixed_window', key: -> { @user }, if: -> { params[:strict] }, only: :create
  polylimit limiter: LIMITER, policy: '9/hour fixed_window', key: ->(env) { env['HTTP_X_CLIENT'] }, only: :failing,
            count: ->(_env, status) { status == 401 }
  polylimit limiter: LIMITER, policy: '1/hour fixed_window', key: ->(_) { @user }, only: :rendered,
            on_denied: ->(_env, denial) { render json: { over: denial.problem.status }, status: 420 }
  polylimit limiter: LIMITER, policy: :jobs, key: -> { @user }, only: :job
  polylimit limiter: MODEL, policy: %i[tokens requests], key: -> { @user }, only: :complete,
            cost: { tokens: -> { params[:max].to_i } }, spent: { tokens: -> { @used } }
  rescue_from(KeyError) { head :unauthorized }

  %i[create show rendered job].each { |action| define_method(action) { run } }

  def complete
    @used = 1234
    run
  end

  def failing
    raise({ 'key' => KeyError, 'missing' => ActionController::RoutingError, 'other' => IOError }.fetch(params[:why]), 'failed')
  end
end

class AdminController < SessionsController
end

class OpenController < ApplicationController
  polylimit limiter: LIMITER, policy: UNNAMED, key: -> { @user }

  def action_missing(_name)
    run
  end
end

# The controller of the page on rack-attack, and its document, without Redis.
MIGRATION = File.read(File.expand_path('../../../../../docs/migrate/from-rack-attack.md', __dir__))
EXAMPLES = MIGRATION.gsub(/redis:\/\/localhost|, outage: 'deny'|^ *outage = "deny"$/) { |text| text.start_with?('redis') ? 'memory:' : '' }.scan(/^```ruby\n(.*?)^```$/m).flatten
eval(EXAMPLES[2]) # rubocop:disable Security/Eval

# An engine that is mounted below a parameter.
module Stock
  class Engine < ::Rails::Engine
    isolate_namespace Stock
    middleware.use Polylimit::Rack, limiter: LIMITER, policy: '4/hour fixed_window', key: 'header:x-client'
  end

  class ItemsController < ::ApplicationController
    polylimit limiter: ROUTES

    def show
      run
    end
  end
end

Shop.initialize!
Stock::Engine.routes.draw { get '/items/:id', to: 'items#show' }
Shop.routes.draw do
  post '/login', to: 'sessions#create'
  post '/example', to: 'logins#create'
  post '/signin(/:hint)', to: 'sessions#create'
  scope '/v1/:account' do
    get '/session', to: 'sessions#show'
    get '/admin/session', to: 'admin#show'
  end
  get '/files/*path', to: 'sessions#show'
  get '/lambda', to: 'sessions#rendered', constraints: ->(request) { request.headers['x-client'] }
  get '/failing/:why', to: 'sessions#failing'
  get '/job', to: 'sessions#job'
  get '/complete', to: 'sessions#complete'
  get '/open/:action', controller: 'open'
  mount Stock::Engine => '/:tenant/stock'
  mount ->(_env) { [200, {}, ['x']] } => '/plain'
end

# Limits in front of Rails and in its controllers.
class RailsTest < Minitest::Test
  def setup
    RUNS.clear
    @client = "client-#{name}"
  end

  def ask(method, path, app = Shop, **env)
    ::Rack::MockRequest.new(app).request(method, path, { 'HTTP_X_CLIENT' => @client, 'REMOTE_ADDR' => '192.0.2.7' }.merge(env))
  end

  # The statuses of these requests.
  def statuses(method, paths, app = Shop, **env)
    paths.map { |path| ask(method, path, app, **env).status }
  end

  def rules(path, **match)
    condition = { path: path, method: 'POST' }.merge(match).map { |name, value| "#{name} = \"#{value}\"" }.join(', ')
    Polylimit::Limiter.new(document: <<~TOML)
      polylimit = 1
      [policies.p]
      quotas = "3/hour fixed_window"
      [[rules]]
      match = { #{condition} }
      apply = [{ policy = "p", key = "{client}" }]
    TOML
  end

  def test_a_rule_in_front_has_every_spelling_that_reaches_the_action
    app = Polylimit::Rack.new(Shop, limiter: rules('/login'))
    spelled = %w[/login /login.json /login.x /login/ /login.json/ /login// /login.j%2Fson /login.json;a=1]
    sent = statuses('POST', spelled * 2, app)
    assert_equal [3, 3, 13], [sent.count(200), RUNS['sessions#create'], sent.count(429)]
    # What does not reach it is not counted as if it did.
    assert_equal [404] * 2, statuses('POST', %w[/login;a=1 /LOGIN], app)
  end

  def test_the_option_says_otherwise
    app = Polylimit::Rack.new(Shop, limiter: rules('/job', method: 'GET'), format_suffix: false)
    assert_equal [200] * 5, statuses('GET', ['/job.json'] * 5, app)
  end

  def test_a_limit_in_a_controller_counts_all_routes_to_its_action
    sent = statuses('POST', %w[/login /signin.json /signin/x /login.x /signin])
    assert_equal [[200, 200, 200, 429, 429], 3], [sent, RUNS['sessions#create']]
    denied = ask('POST', '/login')
    assert_equal 'application/problem+json', denied['content-type']
    assert_equal ['0', true], [denied['ratelimit'][/r=(\d+)/, 1], denied.body.include?('status')]
    # Other actions, and the same action of another controller, have budgets of their own.
    assert_equal [200] * 3, statuses('GET', %w[/v1/7/session /files/a/b /v1/8/session])
    assert_equal 429, ask('HEAD', '/v1/7/session').status
    assert_equal [200] * 3, statuses('GET', ['/v1/7/admin/session'] * 3)
    @client = 'another'
    assert_equal 200, ask('POST', '/login').status
  end

  def test_get_and_head_are_one_action
    assert_equal [200, 200, 200, 429], %w[GET HEAD HEAD HEAD].map { |method| ask(method, '/v1/7/session').status }
    assert_equal 3, RUNS['sessions#show']
  end

  def test_several_limits_of_an_action
    assert_equal [200, 200, 429], statuses('POST', ['/login?strict=1'] * 3)
    # The inner one has denied, and the outer one has its unit back.
    assert_equal '0', ask('POST', '/login').body
    assert_equal 429, ask('POST', '/login').status
  end

  def test_errors_count_as_the_responses_that_rails_makes_of_them
    remaining = ->(path) { ask('GET', path)['ratelimit'].to_s[/r=(\d+)/, 1] }
    assert_equal %w[8 7], [remaining.call('/failing/key'), remaining.call('/failing/key')]
    %w[missing other].each { |why| ask('GET', "/failing/#{why}") }
    assert_equal '6', remaining.call('/failing/key')
  end

  def test_on_denied_may_render
    assert_equal 200, ask('GET', '/lambda').status
    denied = ask('GET', '/lambda')
    assert_equal [420, '{"over":429}'], [denied.status, denied.body]
    assert_match(/r=0/, denied['ratelimit'])
    assert_equal 'application/json', denied['content-type'][/\A[^;]+/]
  end

  def test_slots_are_free_when_the_response_is_done
    env = ::Rack::MockRequest.env_for('/job', 'HTTP_X_CLIENT' => @client)
    status, _, body = Shop.call(env)
    assert_equal [200, 429], [status, ask('GET', '/job').status]
    body.close
    assert_equal 200, ask('GET', '/job').status
  end

  def test_tokens_and_requests_of_an_action_are_limited_together
    left = -> { %w[tokens requests].map { |policy| MODEL.peek(@client, policy: policy).remaining } }
    assert_equal [200, [8766, 2]], [ask('GET', '/complete?max=4000').status, left.call]
    assert_equal [429, [8766, 2]], [ask('GET', '/complete?max=8767').status, left.call]
    assert_equal [200, 200, 429], statuses('GET', ['/complete?max=1'] * 3)
    assert_equal [6298, 0], left.call
  end

  def test_what_action_missing_takes_is_one_action
    assert_equal [200, 200, 200, 429, 429], statuses('GET', %w[a b c d e].map { |action| "/open/#{action}" })
  end

  def test_a_controller_knows_the_route_with_the_places_of_engines
    assert_equal [200, 200, 200, 429], statuses('GET', %w[/a/stock/items/1 /b/stock/items/2.json /c/stock//items/3 /d/stock/items/4])
    assert_equal 3, RUNS['stock/items#show']
    @client = 'other'
    assert_equal [200, 429], statuses('GET', %w[/a/stock/items/1 /b/stock/items/2], 'HTTP_X_BY_ROUTE' => '1')
  end

  def test_parameters_of_a_mount_make_no_budgets
    @client = 'mount'
    env = { 'HTTP_X_CLIENT' => 'm' }
    sent = %w[a b c d e f].map { |tenant| ask('GET', "/#{tenant}/stock/none", **env).status }
    assert_equal [404, 404, 404, 404, 429, 429], sent
  end

  PATTERNS = {
    ['POST', '/login'] => '/login', ['POST', '/login.json'] => '/login', ['POST', '/login/'] => '/login', ['GET', '/login'] => nil,
    ['POST', '/signin'] => '/signin/{hint}', ['POST', '/signin/x'] => '/signin/{hint}', ['GET', '/files/a/b.c'] => '/files/{*path}',
    ['HEAD', '/v1/7/session'] => '/v1/{account}/session', ['GET', '/a/stock/items/7.json'] => '/{tenant}/stock/items/{id}',
    ['GET', '/a/stock/none'] => nil, ['GET', '/plain/x'] => '/plain/{*rest}', ['GET', '/lambda'] => '/lambda', ['GET', '/none'] => nil
  }.freeze

  def test_the_route_is_known_before_the_router
    PATTERNS.each do |(method, path), pattern|
      env = ::Rack::MockRequest.env_for(path, method: method, 'HTTP_X_CLIENT' => 'c')
      before = env.dup
      pattern.nil? ? assert_nil(Polylimit::Rails.route(env), path) : assert_equal(pattern, Polylimit::Rails.route(env), path)
      assert_equal before, env
    end
    assert_nil Polylimit::Rails.route(::Rack::MockRequest.env_for('/lambda'))
    mounted = ::Rack::MockRequest.env_for('/login', method: 'POST', script_name: '/shop')
    assert_nil Polylimit::Rails.route(mounted)
    assert_equal '/shop/login', Polylimit::Rails.route(mounted.merge(Shop.routes.env_key => '/shop'))
  end

  def test_rules_about_routes_in_front
    attributes = ->(env) { { route: Polylimit::Rails.route(env) } }
    limiter = Polylimit::Limiter.new(document: <<~TOML)
      polylimit = 1
      [policies.p]
      quotas = "3/hour fixed_window"
      [[rules]]
      match = { route = "/login" }
      apply = [{ policy = "p", key = "{client}" }]
    TOML
    app = Polylimit::Rack.new(Shop, limiter: limiter, attributes: attributes)
    assert_equal [200, 200, 200, 429], statuses('POST', %w[/login /login.json /login/ /login.x], app)
  end

  def test_the_examples_of_the_migration_from_rack_attack_have_no_hole
    login = ->(path, app) { ask('POST', path, app, params: { 'name' => 'ann' }).status }
    assert_equal [204] * 5 + [429], %w[/example /example.json /example/ /example// /example.x /example.json].map { |path| login.call(path, Shop) }
    app = ::Rack::Builder.new_from_string("#{EXAMPLES[1]}run ->(_) { [200, {}, []] }")
    assert_equal [200] * 5 + [429], %w[/login /login.json /login/ /login// /login.x /login.json].map { |path| login.call(path, app) }
  end

  def test_mistakes_in_options_are_found_when_the_class_is_made
    { { policy: 'none' } => /none/, { to: 5 } => /use policy/, { limiter: nil } => /limiter/, { per: 1 } => /unknown keyword: per/ }
      .each do |options, message|
      error = assert_raises(Polylimit::InvalidArgument, options.inspect) do
        Class.new(ApplicationController) { polylimit(**{ limiter: LIMITER, policy: UNNAMED }.merge(options)) }
      end
      assert_match message, error.message
    end
  end

  # As sockets see it: raw requests under Puma.
  def test_raw_spellings_under_puma
    app = Polylimit::Rack.new(Shop, limiter: rules('/login'))
    server, port = own_puma(app)
    spelled = %w[/login http://h/login HTTP://h/login.json /login.é //login /login/.. /login#x /login?x http:/login x://u@h/login /%6Cogin]
    20.times do
      spelled.each do |target|
        TCPSocket.open('127.0.0.1', port) do |socket|
          socket.write("POST #{target} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
          socket.read
        end
      end
    end
    assert_equal 3, RUNS['sessions#create']
  ensure
    server&.stop(true)
  end
end
