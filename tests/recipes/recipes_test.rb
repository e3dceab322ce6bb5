# frozen_string_literal: true

require 'fileutils'
require 'minitest/autorun'
require 'rack/mock'
require 'rack/utils'
require 'socket'
require 'stringio'
require 'tmpdir'

# The Ruby of the recipes, each page's program as it stands there, with a real Redis and real frameworks.
class RecipesTest < Minitest::Test
  PAGES = File.expand_path('../../docs/recipes', __dir__)
  # Limiters look for their documents as long as the process lives.
  FOLDER = Dir.mktmpdir
  Minitest.after_run { FileUtils.remove_entry(FOLDER) }

  # Runs the program of a page with the page's document, and returns the module that has what it defines.
  def recipe(page, stands_for = {})
    text = File.read(File.join(PAGES, page))
    (program,) = text.scan(/^```ruby\n(.*?)^```$/m).flatten
    document = File.join(FOLDER, page)
    File.write(document, text[/^```toml\n(.*?)^```$/m, 1])
    program = program.sub('file:limits.toml', "file:#{document}")
    # Pages share a server, and no keys.
    { 'redis://localhost' => "#{ENV.fetch('POLYLIMIT_REDIS')}&prefix=ruby-#{page}", **stands_for }.each do |named, here|
      assert_includes program, named
      program = program.sub(named, here)
    end
    Module.new.tap { |made| made.module_eval(program, page) }
  end

  # Serves responses to one request after the other, and yields the address and what has counted the requests.
  def with_server(*responses)
    socket = TCPServer.new('127.0.0.1', 0)
    requests = 0
    server = Thread.new do
      responses.each do |response|
        client = socket.accept
        head = client.gets("\r\n\r\n")
        client.read(head[/^content-length: (\d+)/i, 1].to_i)
        requests += 1
        client.write("HTTP/1.1 #{response}")
        client.close
      end
    end
    yield "http://127.0.0.1:#{socket.addr[1]}/", -> { requests }
    server.join
  ensure
    server&.kill
    socket&.close
  end

  def test_login_counts_failures_only_and_the_account_stays_open_elsewhere
    app = ::Rack::MockRequest.new(recipe('login.md')::App)
    login = lambda do |times, name, password, address = '192.0.2.7'|
      form = { params: { 'name' => name, 'password' => password }, 'REMOTE_ADDR' => address, 'HTTP_HOST' => 'localhost' }
      Array.new(times) { app.post('/login', form).status }
    end
    assert_equal [200] * 10, login.call(10, 'alice', 'correct horse')
    assert_equal [401] * 5, login.call(5, 'Alice ', 'x')
    assert_equal [429] * 3, login.call(3, 'alice', 'correct horse')
    assert_equal [200], login.call(1, 'alice', 'correct horse', '192.0.2.8')
    assert_equal [400], login.call(1, '', 'x')
  end

  def test_plans_have_limits_of_their_own
    app = ::Rack::MockRequest.new(recipe('api-plans.md')::App)
    ask = lambda do |key|
      response = app.get('/v1/items', 'HTTP_X_API_KEY' => key, 'REMOTE_ADDR' => '192.0.2.7', 'HTTP_HOST' => 'localhost')
      [response.status, response['ratelimit-policy'][/q=\d+/]]
    end
    assert_equal [200, 'q=60'], ask.call('key-of-acme')
    assert_equal [200, 'q=600'], ask.call('key-of-globex')
    assert_equal [[200, 'q=10']] * 10 + [[429, 'q=10']], Array.new(11) { ask.call('another') }
  end

  def test_answers_commit_what_they_took
    app = ::Rack::MockRequest.new(recipe('language-models.md')::APP)
    ask = lambda do |tenant, prompt = 'one two'|
      query = ::Rack::Utils.build_query('prompt' => prompt, 'max_tokens' => 4000)
      app.get("/answer?#{query}", { 'HTTP_X_TENANT' => tenant }.compact)
    end
    # 40 answers of 4002 reserved units: they fit only because each commits 6.
    40.times do
      answer = ask.call('acme')
      assert_equal [200, 'You said: one two '], [answer.status, answer.body]
    end
    assert_equal 429, ask.call('acme', 'word ' * 98_000).status
    assert_equal 400, ask.call(nil).status
  end

  def test_webhooks_of_a_busy_host_go_back_to_the_queue
    made = recipe('webhooks.md')
    done = "204 No Content\r\n\r\n"
    with_server("503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", done, done) do |address, requests|
      assert_equal([60, 0, 0], (1..3).map { |number| made.deliver(address, { number: number }) })
      made::LIMITER.charge(address[%r{//(.*)/}, 1], cost: 80)
      assert_operator made.deliver(address, {}), :>, 10
      assert_equal 3, requests.call
    end
  end

  def test_outgoing_calls_wait_as_the_other_side_asks
    responses = ["429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n", "200 OK\r\ncontent-length: 5\r\n\r\n12.50"]
    with_server(*responses) do |address, requests|
      assert_equal '12.50', recipe('outgoing-calls.md', 'https://api.example.com/' => address).balance('alice')
      assert_equal 2, requests.call
    end
  end

  # The program of a task queue, on the server of the tests: its keys and Sidekiq's are of this run.
  def task_queue(name)
    text = File.read(File.join(PAGES, 'task-queues.md'))
    program = text[/^\*\*#{name}\*\*\n\n```ruby\n(.*?)^```$/m, 1]
    assert_includes program, 'redis://localhost:6379'
    program.sub('redis://localhost:6379', store(name))
  end

  def store(name)
    "#{ENV.fetch('POLYLIMIT_REDIS')}&prefix=ruby-#{name.delete(' ')}-#{Process.pid}"
  end

  # With both slots of a tenant taken, its job comes back and that of another one runs.
  def assert_comes_back(name, exported, enqueue)
    policies = { exports: '2 concurrent; 100/day' }
    limiter = Polylimit::Limiter.new(store(name), policies: policies)
    slots = Array.new(2) { limiter.reserve('acme', policy: :exports) }
    %w[acme globex acme].each(&enqueue)
    wait_until { exported.call.include?('exported globex') }
    refute_includes exported.call, 'exported acme'
    slots.each(&:cancel)
    wait_until { exported.call.scan('exported acme').size == 2 }
    wait_until { limiter.peek('acme', policy: :exports).remaining == 98 }
  end

  def wait_until
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 120
    until yield
      flunk 'not in 120 s' if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      sleep 0.05
    end
  end

  def test_jobs_of_sidekiq_over_the_limit_come_back
    url = ENV.fetch('POLYLIMIT_REDIS')[/\A[^?]+/].chomp('/')
    jobs, log = %w[jobs.rb log].map { |name| File.join(FOLDER, name) }
    often = 'Sidekiq.configure_server { |config| (config.respond_to?(:options) ? config.options : config)[:poll_interval_average] = 1 }'
    File.write(jobs, "$stdout.sync = true\n#{task_queue('Sidekiq')}#{often}\n")
    environment = { 'REDIS_URL' => "#{url}/8", 'RUBYLIB' => $LOAD_PATH.join(':') }
    worker = spawn(environment, RbConfig.ruby, '-W:no-deprecated', '-S', 'sidekiq', '-r', jobs, '-c', '2', %i[out err] => log)
    send_job = lambda do |tenant|
      assert system(environment, RbConfig.ruby, '-W:no-deprecated', '-e', "require #{jobs.dump}; ExportJob.perform_async(#{tenant.dump})", err: File::NULL)
    end
    assert_comes_back('Sidekiq', -> { File.read(log) }, send_job)
  ensure
    Process.kill(:KILL, worker)
    Process.wait(worker)
  end

  def test_jobs_of_active_job_over_the_limit_come_back
    log = StringIO.new
    stdout, $stdout = $stdout, log
    eval(task_queue('Active Job'), TOPLEVEL_BINDING) # rubocop:disable Security/Eval
    ::ActiveJob::Base.logger = nil
    ::ActiveJob::Base.queue_adapter = :async
    assert_comes_back('Active Job', -> { log.string }, ->(tenant) { ::ExportJob.perform_later(tenant) })
  ensure
    $stdout = stdout
  end

  def test_jobs_beyond_the_slots_go_back_to_the_queue
    made = recipe('background-jobs.md')
    inner = []
    second = lambda do
      inner << made.run('acme', timeout: 0) { flunk } << made.run('globex', timeout: 0) { nil }
    end
    assert(made.run('acme', timeout: 0) { inner << made.run('acme', timeout: 0, &second) })
    assert_equal [false, true, true], inner
    # The slots came back.
    assert(made.run('acme') { nil })
  end
end
