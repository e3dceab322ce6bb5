# frozen_string_literal: true

require 'action_controller'
require 'active_job'
require 'active_support'
require 'active_support/cache'
require 'minitest/autorun'
require 'minitest/mock'
require 'polylimit'
require 'rack/attack'
require 'rack/builder'
require 'rack/mock'
require 'sinatra/base'
require 'socket'
require_relative 'own_redis'

ActiveJob::Base.logger = nil

# The examples of the pages run one after the other, as they would in a config.ru.
class DocumentationTest < Minitest::Test
  README = File.expand_path('../README.md', __dir__)
  CLIENTS = File.expand_path('../../../../docs/clients.md', __dir__)
  POLICIES = File.expand_path('../../../../docs/policies.md', __dir__)
  METRICS = File.expand_path('../../../../docs/metrics.md', __dir__)
  LISTING = File.expand_path('../../../../docs/listing.md', __dir__)
  RESERVATIONS = File.expand_path('../../../../docs/reservations.md', __dir__)
  MIGRATION = File.expand_path('../../../../docs/migrate/from-rack-attack.md', __dir__)

  def examples(page)
    text = File.read(page)
    examples = text.scan(/^```ruby\n(.*?)^```$/m).flatten
    # Commands of a shell are checked with those of all pages.
    assert_equal text.scan(/^```(?!sh)\w/).size, examples.size
    # They give the deadline themselves.
    examples.map { |example| example.gsub('redis://localhost', ENV.fetch('POLYLIMIT_REDIS')[/\A[^?]+/]) }
  end

  # What these examples say they print, and the application that they make.
  def served(*examples)
    app = nil
    printed = examples.join.scan(/^ *puts .* # (.*)$/).flatten.reject { |line| line == 'nil is never' }
    out, err = capture_io { app = ::Rack::Builder.new_from_string("#{examples.join}run ->(_) { [200, {}, []] }") }
    assert_equal [printed, ''], [out.lines.map(&:chomp), err]
    ::Rack::MockRequest.new(app)
  end

  def test_the_examples_of_the_readme
    response = served(*examples(README)).get('/', 'HTTP_X_API_KEY' => 'documentation')
    assert_equal 200, response.status
    assert_match(/\A"api:1";q=100;w=60, "api:2";q=1000;w=3600\z/, response['ratelimit-policy'])
    client = "2001:db8:#{Process.pid.to_s(16)}:#{rand(1 << 16).to_s(16)}::1"
    login = -> { ::Rack::MockRequest.new(App).post('/login', 'REMOTE_ADDR' => client, 'HTTP_HOST' => 'localhost').status }
    assert_equal [200] * 5 + [429], (Array.new(6) { login.call })
    assert_includes SessionsController.ancestors, Polylimit::Rails
    user = { 'HTTP_AUTHORIZATION' => "Basic #{["#{client.tr(':', '-')}:secret"].pack('m0')}" }
    assert_equal [200] * 5 + [429], (Array.new(6) { ::Rack::MockRequest.new(ShopAPI).get('/a/items', user).status })
    assert_equal 1, ExportJob.polylimits.size
  end

  # On a server that admits no connection without them.
  def test_the_example_of_credentials
    own = OwnRedis.new
    own.command('acl', 'setuser', 'limits', 'on', '>token-of-limits', '~*', '&*', '+@all')
    example = File.read(README).scan(/^```ruby\n(.*?)^```$/m).flatten.find { |ruby| ruby.include?('credentials:') }
    limiter = Object.new.instance_eval("#{example.sub('redis://localhost', own.bare_url)}renewed", README)
    limiter.ready(60)
  ensure
    limiter&.close
    own&.close
  end

  def test_the_examples_of_the_migration_from_rack_attack
    theirs, ours, _controller, mistake = examples(MIGRATION)
    Rack::Attack.cache.store = ActiveSupport::Cache::MemoryStore.new
    name = "name#{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
    [served(theirs), served(ours, mistake)].each do |app|
      login = -> { app.post('/login', params: { 'name' => name }, 'REMOTE_ADDR' => '192.0.2.7').status }
      # Windows of rack-attack end by the clock of this process.
      Time.stub(:now, Time.now) { assert_equal [200] * 5 + [429], Array.new(6) { login.call } }
      assert_equal 200, app.get('/login', 'REMOTE_ADDR' => '192.0.2.7').status
      assert_nil app.get('/health', 'REMOTE_ADDR' => '192.0.2.7')['ratelimit']
    end
  end

  # The paths that a router may take for the same handler.
  def test_the_example_of_the_migration_has_every_spelling_of_the_path
    _theirs, ours, = examples(MIGRATION)
    name = "name#{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
    app = served(ours)
    login = lambda do |path|
      app.post('/', params: { 'name' => name }, 'REMOTE_ADDR' => '192.0.2.7', 'PATH_INFO' => path).status
    end
    assert_equal [200] * 5 + [429] * 3, %w[/login /login/ //login /./login /log%69n /login /login/ //login].map { |path| login.call(path) }
  end

  def test_the_examples_of_the_page_on_metrics
    values, events = File.read(METRICS).scan(/^```ruby\n(.*?)^```$/m).flatten
    told = /^ *puts .* # (.*)$/
    out, err = capture_io do
      app = ::Rack::Builder.new_from_string("#{values}#{events}run ->(_) { [200, {}, []] }")
      assert_equal 200, ::Rack::MockRequest.new(app).get('/').status
    end
    assert_equal ["#{values[told, 1]}\n#{events[told, 1]}\n", ''], [out, err]
  ensure
    ActiveSupport::Notifications.unsubscribe('throttle.polylimit')
  end

  def test_the_example_of_the_page_on_lists
    (example,) = File.read(LISTING).scan(/^```ruby\n(.*?)^```$/m).flatten
    served(example)
  end

  def test_the_example_of_the_page_on_reservations
    (example,) = File.read(RESERVATIONS).scan(/^```ruby\n(.*?)^```$/m).flatten
    committed = Object.new.instance_eval(example, RESERVATIONS)
    assert_predicate committed, :found?
  end

  def test_the_example_of_the_page_on_policies
    url = "#{ENV.fetch('POLYLIMIT_REDIS')}&prefix=policies#{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
    Polylimit::Limiter.new(url, configuration: 'store').admin.publish("polylimit = 1\nlists.deny = ['plan none']")
    (example,) = File.read(POLICIES).scan(/^```ruby\n(.*?)^```$/m).flatten
    app = served(example.sub('redis://localhost', url))
    assert_equal([403, 200], %w[none gold].map { |plan| app.get('/', 'HTTP_X_PLAN' => plan).status })
  end

  # Its server is one of this process.
  def test_the_example_of_the_page_on_clients
    socket = TCPServer.new('127.0.0.1', 0)
    server = Thread.new do
      client = socket.accept
      client.gets("\r\n\r\n")
      client.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
      client.close
    end
    example = File.read(CLIENTS)[/^```ruby\n(.*?)^```$/m, 1]
    example = example.sub('https://api.example.com/', "http://127.0.0.1:#{socket.addr[1]}/")
    out, err = capture_io { Object.new.instance_eval(example, CLIENTS) }
    assert_equal ["200\n", ''], [out, err]
  ensure
    server&.join
    socket&.close
  end

  def test_the_quotas_of_the_migration_are_allowed
    quotas = File.read(MIGRATION).scan(%r{`'?(\d+/[^`']*)'?`}).flatten
    assert_operator quotas.size, :>=, 3
    quotas.each { |text| Polylimit::Limiter.new(policies: { api: text }) }
  end
end
