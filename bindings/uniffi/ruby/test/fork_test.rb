# frozen_string_literal: true

require 'English'
require 'async'
require 'minitest/autorun'
require 'net/http'
require 'rbconfig'
require 'socket'
require 'tempfile'
require 'timeout'
require 'uri'
require 'polylimit'
require_relative 'own_redis'

# A forked child uses a limiter of its parent, and nothing that its parent has open.
class ForkTest < Minitest::Test
  LIB = File.expand_path('../lib', __dir__)
  LONG = 3600
  # Much longer than any test takes.
  SOON = 120

  def setup
    @key = "fork #{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
  end

  def redis
    ENV.fetch('POLYLIMIT_REDIS')
  end

  def local
    "local:ruby-#{Process.pid}?size=1MiB"
  end

  def limiter(store, quotas = '1000000/day')
    Polylimit::Limiter.new(store, policies: { api: quotas })
  end

  # Runs the block in a child, which then ends as processes do: with its handlers and finalizers.
  def in_child
    child = fork do
      # Not the tests of the parent.
      Minitest.class_variable_set(:@@after_run, [])
      at_exit { exit!($ERROR_INFO.nil? || $ERROR_INFO.is_a?(SystemExit) && $ERROR_INFO.success? ? 0 : 1) }
      exit(yield ? 0 : 1)
    end
    assert succeeds?(child)
  end

  # Whether a child ends well. One that hangs fails its test, and not all that follow.
  def succeeds?(child)
    Timeout.timeout(SOON) { Process.wait2(child).last.success? }
  rescue Timeout::Error
    Process.kill(:KILL, child)
    Process.wait(child)
    flunk 'the child hangs'
  end

  def test_children_under_load_use_the_limiter_of_their_parent
    { redis => 1, local => 1, 'memory:' => 0 }.each do |store, counted|
      limiter = limiter(store)
      over = false
      # Without a pass, each of them would keep Ruby's lock for 100 ms, and the forks would be few.
      load = Array.new(3) { |at| Thread.new { Thread.pass while limiter.check("load #{@key} #{at}") && !over } }
      10.times do
        children = Array.new(10) { fork { exit!(limiter.check(@key).source == 'store') } }
        children.each { |child| assert succeeds?(child), store }
      end
      over = true
      load.each(&:join)
      # Of the memory store each process has one of its own.
      assert_equal 1_000_000 - (100 * counted), limiter.peek(@key).remaining, store
      limiter.close
    end
  end

  # Hands over a way to the store that counts its connections.
  def counted_connections
    server = TCPServer.new('127.0.0.1', 0)
    to = URI(redis)
    accepted = Queue.new
    relay = Thread.new do
      loop do
        pair = [server.accept, TCPSocket.new(to.host, to.port)]
        accepted << pair
        [pair, pair.reverse].each { |from, into| Thread.new { IO.copy_stream(from, into) && into.close_write } }
      end
    end
    yield "redis://127.0.0.1:#{server.addr[1]}?deadline=30s&doctor_after=0", accepted
  ensure
    relay&.kill
    server&.close
  end

  def test_child_connects_for_itself
    counted_connections do |store, accepted|
      limiter = limiter(store, '100/day')
      assert_equal 99, limiter.check(@key).remaining
      before = accepted.size
      in_child { limiter.check(@key).source == 'store' }
      assert_equal before + 1, accepted.size
      # The parent goes on with its connection, which the child has not closed.
      assert_equal [97, 'store'], limiter.check(@key).then { |decision| [decision.remaining, decision.source] }
      assert_equal before + 1, accepted.size
      limiter.close
    end
  end

  def test_child_may_close_the_limiter_and_collect_what_it_inherits
    [redis, local, 'memory:'].each do |store|
      limiter = limiter(store, '100/day')
      limiter.check(@key)
      in_child do
        limiter.close
        GC.start
        limiter(store, '100/day').check(@key).source == 'store'
      end
      assert_equal 'store', limiter.check(@key).source, store
      limiter.close
    end
  end

  def test_memory_store_of_a_child_is_its_own
    limiter = limiter('memory:', '9/day')
    limiter.check(@key)
    in_child { limiter.peek(@key).remaining == 9 && limiter.check(@key, cost: 9).allowed }
    assert_equal 8, limiter.peek(@key).remaining
  end

  # Both wait for the core by pipes, which a child must not read.
  def test_waiting_calls_of_parent_and_child_are_apart
    clock = Polylimit::ManualClock.new(1_700_000_000_000_000)
    [redis, local, 'memory:'].each do |store|
      limiter = Polylimit::Limiter.new(store, policies: { api: '1/minute fixed_window' }, clock: clock)
      mine, other = ["#{@key} mine", "#{@key} other"]
      [mine, other].each { |key| assert limiter.acquire(key, timeout: LONG).allowed }
      waiting = Thread.new { limiter.acquire(mine, timeout: LONG) }
      Thread.pass until waiting.status == 'sleep'
      in_child do
        clock.advance(60)
        limiter.acquire(other, timeout: LONG).allowed
      end
      assert_predicate waiting, :alive?
      clock.advance(60)
      assert waiting.join(SOON), store
      assert waiting.value.allowed, store
      limiter.close
    end
  end

  def test_event_loops_run_in_parent_and_child
    limiter = limiter(redis, '1000/day')
    use = -> { Sync { |task| Array.new(5) { task.async { limiter.check(@key).source } }.map(&:wait) }.uniq == ['store'] }
    assert use.call
    3.times { in_child(&use) }
    assert use.call
    assert_equal 975, limiter.peek(@key).remaining
    # A fork within an event loop, which the child has to leave: it shares the descriptors of its parent's loop.
    Sync do
      limiter.check(@key)
      child = fork { exit!(Fiber.new(blocking: true) { limiter.check(@key).source == 'store' }.resume) }
      assert succeeds?(child)
      limiter.check(@key)
    end
    assert_equal 972, limiter.peek(@key).remaining
  end

  def test_daemon_uses_the_limiter
    report = Tempfile.new('polylimit')
    program = <<~RUBY
      require 'polylimit'
      limiter = Polylimit::Limiter.new(ARGV[0], policies: { api: '9/day' })
      limiter.check(ARGV[1])
      Process.daemon(true, true)
      File.write(ARGV[2], limiter.check(ARGV[1]).then { |decision| "\#{decision.source} \#{decision.remaining}" })
    RUBY
    assert system(RbConfig.ruby, '-I', LIB, '-e', program, redis, @key, report.path)
    Timeout.timeout(SOON) { sleep 0.02 while File.empty?(report.path) }
    assert_equal 'store 7', File.read(report.path)
  end

  PUMA = <<~RUBY
    require 'polylimit/rack'
    limiter = Polylimit::Limiter.new(ENV.fetch('STORE'), policies: { ENV.fetch('POLICY') => '20/day' })
    limiter.check('warm up')
    app do |env|
      Polylimit::Rack.new(->(_) { [200, { 'x-process' => Process.pid.to_s }, []] }, limiter: limiter, key: ->(_) { 'key' }).call(env)
    end
    workers 2
    threads 2, 2
    preload_app!
    silence_single_worker_warning
  RUBY

  # One budget for all workers, with the limiter that was used before they were forked.
  def test_puma_workers_share_the_budget_of_the_application_that_is_preloaded
    [redis, local].each do |store|
      config = Tempfile.new(%w[puma .rb]).tap { |file| file.write(PUMA) && file.close }
      port = OwnRedis.free_port
      env = { 'STORE' => store, 'POLICY' => "api#{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}", 'RUBYLIB' => LIB }
      server = spawn(env, 'puma', '--bind', "tcp://127.0.0.1:#{port}", '--config', config.path, out: File::NULL)
      begin
        answers = Array.new(40) { answer(port) }
        assert_equal [20, 20], %w[200 429].map { |code| answers.map(&:code).count(code) }, store
        refute_empty answers.filter_map { |answer| answer['x-process'] } - [server.to_s]
      ensure
        Process.kill(:TERM, server)
        Process.wait(server)
      end
    end
  end

  def answer(port)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + SOON
    begin
      Net::HTTP.get_response(URI("http://127.0.0.1:#{port}/"))
    rescue SystemCallError, EOFError
      raise if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

      sleep 0.05
      retry
    end
  end
end
