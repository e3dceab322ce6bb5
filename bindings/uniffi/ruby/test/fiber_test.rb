# frozen_string_literal: true

require 'async'
require 'minitest/autorun'
require 'polylimit/rack'
require_relative 'own_redis'

# Calls in fibers of an event loop: the loop runs others meanwhile, and no call makes a thread.
class FiberTest < Minitest::Test
  # Much longer than any test may take.
  LONG = 3600

  def setup
    @key = "fiber #{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
  end

  def teardown
    @redis&.close
  end

  def stores
    ['memory:', "local:ruby-#{Process.pid}?size=1MiB", ENV.fetch('POLYLIMIT_REDIS')]
  end

  def without_threads(&block)
    before = Thread.list
    made = []
    TracePoint.new(:thread_begin) { made << Thread.current }.enable(&block)
    # Those of minitest may begin late.
    assert_empty made - before, 'a call made a thread'
  end

  def test_every_operation_works_in_an_event_loop
    stores.each do |store|
      limiter = Polylimit::Limiter.new(store, policies: { api: '10/hour' })
      without_threads do
        Sync do
          limiter.ready(LONG)
          assert_equal 9, limiter.check(@key).remaining
          assert_equal 9, limiter.peek(@key).remaining
          assert_equal 9, limiter.take(@key, cost: 99).taken
          assert_equal 5, limiter.refund(@key, cost: 5).remaining
          assert_equal 3, limiter.charge(@key, cost: 2).remaining
          assert_equal 10, limiter.reset(@key).remaining
          assert_equal([9, 8], limiter.check_many([{ key: @key }, { key: @key }]).map { |one| one.decision.remaining })
          assert_equal([7], limiter.check_together([{ key: @key }]).map(&:remaining))
          assert_equal([7], limiter.peek_together([{ key: @key }]).map(&:remaining))
          assert limiter.acquire(@key, timeout: LONG).allowed
          assert_kind_of Array, limiter.admin.doctor
          assert_raises(Polylimit::InvalidArgument) { limiter.check(@key, cost: -1) }
          # A task whose result is an exception raises it.
          nil
        end
      end
      limiter.close
    end
  end

  def test_other_fibers_run_while_one_waits_for_a_store
    @redis = OwnRedis.new
    limiter = Polylimit::Limiter.new(@redis.url, policies: { api: '9/hour' }, deadline: 60, doctor_after: 0)
    limiter.ready(LONG)
    without_threads do
      Sync do |task|
        @redis.pause
        waiting = Array.new(3) { |at| task.async { limiter.check("#{@key} #{at}").source } }
        assert(waiting.all?(&:running?))
        # A call that kept the event loop would not come back from there, and not be answered by the store.
        @redis.resume
        assert_equal %w[store store store], waiting.map(&:wait)
      end
    end
  end

  def test_concurrent_fibers_get_exactly_the_limit
    stores.each do |store|
      limiter = Polylimit::Limiter.new(store, policies: { api: '400/hour' })
      without_threads do
        Sync do |task|
          fibers = Array.new(50) { task.async { Array.new(10) { limiter.check(@key) } } }
          decisions = fibers.flat_map(&:wait)
          assert_equal [400, ['store']], [decisions.count(&:allowed), decisions.select(&:allowed).map(&:source).uniq], store
        end
      end
      limiter.close
    end
  end

  def test_fiber_that_takes_the_answers_of_all_may_be_stopped
    clock = Polylimit::ManualClock.new(1_700_000_000_000_000)
    stores.each do |store|
      limiter = Polylimit::Limiter.new(store, policies: { api: '1/minute fixed_window' }, clock: clock)
      keys = Array.new(4) { |at| "#{@key} #{at}" }
      keys.each { |key| assert limiter.check(key).allowed }
      Sync do |task|
        fibers = keys.map { |key| task.async { limiter.acquire(key, timeout: 1_000_000).allowed } }
        # The first one waits for the pipe, and then the second one.
        fibers.first(2).each(&:stop)
        clock.advance(60)
        # On Redis the others may not have had their place in line yet: then they wait for the next minute.
        while store.start_with?('redis') && !fibers.last(2).all?(&:finished?)
          task.sleep(0.01)
          clock.advance(60)
        end
        assert_equal [true, true], fibers.last(2).map(&:wait), store
      end
      limiter.close
    end
  end

  # In the middle of three, so that neither the first nor the last call makes the difference.
  def test_timeout_of_the_event_loop_ends_a_wait
    stores.each do |store|
      limiter = Polylimit::Limiter.new(store, policies: { api: '1/hour token_bucket' })
      assert limiter.check(@key).allowed
      Sync do |task|
        others = Array.new(2) { task.async { limiter.acquire(@key, timeout: 10 * LONG) } }
        assert_raises(Async::TimeoutError) { task.with_timeout(0.05) { limiter.acquire(@key, timeout: 10 * LONG) } }
        others.each(&:stop)
        assert_raises(Async::TimeoutError) { task.with_timeout(0.05) { limiter.acquire(@key, timeout: 10 * LONG) } }
        assert_equal 'store', limiter.peek(@key).source
      end
      limiter.close
    end
  end

  def test_event_loops_may_follow_each_other_and_run_on_several_threads
    limiter = Polylimit::Limiter.new(ENV.fetch('POLYLIMIT_REDIS'), policies: { api: '1000/hour' })
    loops = Array.new(4) do
      Thread.new do
        Array.new(3) { Sync { |task| Array.new(5) { task.async { limiter.check(@key).source } }.map(&:wait) } }
      end
    end
    assert_equal ['store'] * 60, loops.flat_map(&:value).flatten
    assert_equal 940, limiter.peek(@key).remaining
  end

  def test_closing_the_limiter_ends_waiting_fibers
    stores.each do |store|
      limiter = Polylimit::Limiter.new(store, policies: { api: '1/hour' })
      assert limiter.check(@key).allowed
      Sync do |task|
        fibers = Array.new(2) { task.async { limiter.acquire(@key, timeout: 10 * LONG) } }
        limiter.close
        fibers.each { |fiber| assert_raises(Polylimit::Closed) { fiber.wait } }
        nil
      end
    end
  end

  def test_middlewares_run_in_an_event_loop
    stores.each do |store|
      out, within = %w[out in].map { |name| "#{name}#{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}" }
      limiter = Polylimit::Limiter.new(store, policies: { out => '9/hour', within => '2/hour' })
      app = [within, out].inject(->(_) { [200, {}, []] }) do |inner, policy|
        Polylimit::Rack.new(inner, limiter: limiter, policy: policy, key: ->(_) { @key }, count: ->(_, status, _) { status < 500 })
      end
      without_threads do
        Sync do |task|
          statuses = Array.new(4) { task.async { app.call({ 'REQUEST_METHOD' => 'GET' }).first } }.map(&:wait)
          assert_equal [200, 200, 429, 429], statuses.sort, store
        end
      end
      # What the outer one has spent for a denied request was given back.
      assert_equal 7, limiter.peek(@key, policy: out).remaining, store
    end
  end

  # A response that does not count, and a denial of an inner middleware whose store answers at once.
  def test_refunds_of_middlewares_let_other_fibers_run
    @redis = OwnRedis.new
    limiter = Polylimit::Limiter.new(@redis.url, policies: { api: '9/hour' }, deadline: 60, doctor_after: 0)
    denying = Polylimit::Limiter.new(policies: { none: '0/hour' })
    stopping = ->(_) { @redis.pause && [500, {}, []] }
    {
      { limiter: limiter, count: ->(_, status, _) { status < 500 } } => stopping,
      { limiter: limiter } => Polylimit::Rack.new(stopping, limiter: denying, skip: ->(_) { @redis.pause && false })
    }.each do |options, inner|
      app = Polylimit::Rack.new(inner, key: ->(_) { @key }, **options)
      limiter.ready(LONG)
      without_threads do
        Sync do |task|
          request = task.async { app.call({ 'REQUEST_METHOD' => 'GET' }).first }
          sleep 0.001 until stopped?
          assert_predicate request, :running?
          @redis.resume
          assert_includes [429, 500], request.wait
        end
      end
      assert_equal 9, limiter.peek(@key).remaining
    end
  end

  def stopped?
    File.read("/proc/#{@redis.pid}/stat").split[2] == 'T'
  end

  def test_request_that_is_stopped_holds_nothing
    @redis = OwnRedis.new
    limiter = Polylimit::Limiter.new(@redis.url, policies: { api: '9/hour' }, deadline: 60, doctor_after: 0)
    app = Polylimit::Rack.new(->(_) { [200, {}, []] }, limiter: limiter, key: ->(_) { @key })
    limiter.ready(LONG)
    Sync do |task|
      @redis.pause
      stopped, other = Array.new(2) { task.async { app.call({ 'REQUEST_METHOD' => 'GET' }).first } }
      stopped.stop
      @redis.resume
      assert_equal 200, other.wait
    end
    assert_equal 200, app.call({ 'REQUEST_METHOD' => 'GET' }).first
  end
end
