# frozen_string_literal: true

require 'async'
require 'minitest/autorun'
require 'timeout'
require 'polylimit'
require_relative 'own_redis'

# Reservations and their handles, in threads and in fibers of an event loop.
class ReservationTest < Minitest::Test
  LONG = 3600
  SOON = 20

  def setup
    @key = "reservation #{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
  end

  def teardown
    @redis&.close
  end

  # A limiter on each store, in a thread and in an event loop.
  def each_limiter(quotas = "#{Polylimit.concurrent(2)}; 100/hour", **options)
    ['memory:', "local:ruby-#{Process.pid}?size=1MiB", ENV.fetch('POLYLIMIT_REDIS')].each do |store|
      limiter = Polylimit::Limiter.new(store, policies: { api: quotas }, **options)
      yield limiter
      limiter.reset(@key)
      Sync do
        yield limiter
        nil
      end
      limiter.reset(@key)
      limiter.close
    end
  end

  def left(limiter)
    limiter.peek(@key).quotas.map(&:remaining)
  end

  def assert_soon
    assert((SOON * 100).times.any? { yield || (sleep(0.01) && false) })
  end

  def test_handle_charges_what_was_spent_and_frees_its_slot
    each_limiter do |limiter|
      first, second, third = [40, 30, 1].map { |cost| limiter.reserve(@key, cost: cost) }
      assert_equal([true, true, false], [first, second, third].map(&:allowed?))
      assert_equal 30, second.decision.quotas.last.remaining
      refute_predicate first, :lost?
      assert_equal 20, first.commit(50).quotas.last.remaining
      refute_predicate first.commit(50), :found?
      assert second.cancel.found
      refute third.cancel.found
      [first, second, third].each(&:close)
      assert_equal [2, 50], left(limiter)
    end
  end

  def test_request_is_reserved_together_or_not_at_all
    each_limiter do |limiter|
      both = [{ key: @key, policy: 'api', cost: 40 }, { key: @key, policy: '2/day fixed_window' }]
      first = limiter.reserve_together(both)
      assert_equal [true, 32, [60, 1]], [first.allowed?, first.id.size, first.decisions.map(&:remaining)]
      second = limiter.reserve_together(both, id: "se\0cond", ttl: 40)
      assert_equal [true, "se\0cond"], [second.allowed, second.id]
      denied = limiter.reserve_together(both)
      assert_equal [false, [false, false]], [denied.allowed?, denied.decisions.map(&:allowed)]
      assert limiter.cancel(@key, first.id, policy: 'api').found
      refute limiter.cancel(@key, first.id, policy: '2/day fixed_window').found
      assert limiter.commit(@key, second.id, spent: 10, policy: 'api').found
      # No slot is taken where another policy denies.
      refute_predicate limiter.reserve_together(both), :allowed?
      assert_equal [2, 90], limiter.peek(@key, policy: 'api').quotas.map(&:remaining)
      limiter.reset(@key, policy: '2/day fixed_window')
      [{ id: '' }, { ttl: 0 }, { remember: 49 * 3600 }, { ttl: -1 }].each do |wrong|
        assert_raises(Polylimit::InvalidArgument, wrong.inspect) { limiter.reserve_together(both, **wrong) }
      end
    end
  end

  def test_commits_of_requests_are_remembered
    each_limiter do |limiter|
      [false, true].each do |repeated|
        reserved = limiter.reserve_together([{ key: @key, cost: 40 }], id: 'job', remember: 3600)
        usage = limiter.commit(@key, reserved.id, spent: 30)
        assert_equal [true, repeated, [2, 70]], [usage.found?, usage.repeated?, left(limiter)]
      end
    end
  end

  def test_job_that_runs_again_is_charged_once
    each_limiter do |limiter|
      [false, true].each do |repeated|
        usage = limiter.reserve(@key, cost: 40, id: 'job', remember: 3600).commit(30)
        assert_equal [true, repeated, [2, 70]], [usage.found?, usage.repeated?, left(limiter)]
      end
      again = limiter.commit(@key, 'job', spent: 30)
      assert_equal [false, true], [again.found, again.repeated]
      refute limiter.commit(@key, 'other').repeated
      error = assert_raises(Polylimit::InvalidArgument) { limiter.reserve(@key, remember: 49 * 3600) }
      assert_match(/remembered for/, error.message)
    end
  end

  def test_block_ends_its_reservation
    each_limiter do |limiter|
      assert_equal(:done, limiter.reserve(@key, cost: 10) { |held| held.allowed? && :done })
      assert_equal [2, 100], left(limiter)
      limiter.reserve(@key, cost: 10, commit_at_end: true) { assert_equal [1, 90], left(limiter) }
      assert_equal [2, 90], left(limiter)
      assert_raises(IOError) { limiter.reserve(@key, cost: 10, commit_at_end: true) { raise IOError, 'broken' } }
      assert_equal [2, 90], left(limiter)
      limiter.reserve(@key, cost: 10, commit_at_end: true) { |held| held.commit(3) }
      assert_equal [2, 87], left(limiter)
      assert_equal(7, limiter.reserve(@key, cost: 10) { break 7 })
      assert_equal [2, 87], left(limiter)
    end
  end

  def test_reservation_is_committed_cancelled_and_renewed_by_its_id
    clock = Polylimit::ManualClock.new(1_700_000_000_000_000)
    each_limiter('100/hour fixed_window', clock: clock) do |limiter|
      options = { ttl: 60, max_age: 0, id: "\xFFmine" }
      held = limiter.reserve(@key, cost: 10, **options)
      assert_equal "\xFFmine".b, held.id
      clock.advance(59)
      assert limiter.renew(@key, held.id, 60).found
      clock.advance(59)
      # The id is there: nothing is set aside twice.
      assert_equal 90, limiter.reserve(@key, cost: 50, **options).decision.remaining
      assert_equal 93, limiter.commit(@key, held.id, spent: 7).remaining
      refute limiter.commit(@key, held.id, spent: 7).found
      refute limiter.cancel(@key, held.id).found
      refute limiter.renew(@key, held.id, 60).found
      held.close
      assert_equal 93, limiter.peek(@key).remaining
    end
  end

  def test_reservation_that_is_not_renewed_is_lost_at_its_end
    clock = Polylimit::ManualClock.new(1_700_000_000_000_000)
    limiter = Polylimit::Limiter.new(policies: { api: '1 concurrent' }, clock: clock)
    held = limiter.reserve(@key, ttl: 60)
    refute_predicate held, :lost?
    clock.advance(60)
    assert_soon { held.lost? }
    refute held.commit.found
    refute_predicate held, :lost?
  end

  # In a stack of its own, to which nothing refers afterwards.
  def forget(limiter)
    Thread.new { 10.times { limiter.reserve(@key, cost: 1) } }.join
  end

  def test_reservation_that_nothing_refers_to_is_ended_by_the_garbage_collector
    each_limiter('10 concurrent') do |limiter|
      forget(limiter)
      assert_equal [0], left(limiter)
      # A collector that is conservative may keep one of them.
      assert_soon do
        GC.start
        left(limiter).first >= 8
      end
    end
  end

  # Interrupts the block while it waits.
  def interrupt(&block)
    task = Async::Task.current?
    return task.async(&block).stop if task

    assert_raises(Timeout::Error) { Timeout.timeout(0.1, &block) }
  end

  def test_reserve_with_a_timeout_waits_in_line
    each_limiter('1 concurrent') do |limiter|
      first = limiter.reserve(@key, timeout: LONG)
      refute_predicate limiter.reserve(@key, timeout: 0.001), :allowed?
      interrupt { limiter.reserve(@key, timeout: LONG) }
      thread = Thread.new { limiter.reserve(@key, timeout: LONG) }
      Thread.pass until thread.status == 'sleep'
      first.close
      second = thread.value
      assert_predicate second, :allowed?
      second.close
      # The one that has stopped waiting holds nothing.
      assert_equal [1], left(limiter)
    end
  end

  def test_stopped_fiber_holds_nothing
    @redis = OwnRedis.new
    limiter = Polylimit::Limiter.new(@redis.url, policies: { api: '2 concurrent; 100/hour' }, deadline: 60, doctor_after: 0)
    limiter.ready(LONG)
    Sync do |task|
      held = limiter.reserve(@key, cost: 10)
      @redis.pause
      reserving = task.async { limiter.reserve(@key, cost: 10) }
      committing = task.async { held.commit(4) }
      [reserving, committing].each(&:stop)
      @redis.resume
      assert_soon { left(limiter) == [2, 96] }
    end
  end

  def test_refused_reservations_say_why
    limiter = Polylimit::Limiter.new(policies: { api: '2 concurrent', drops: '5/s leaky_bucket' })
    ask = ->(**options) { limiter.reserve(@key, policy: :api, **options) }
    ['', 'x' * 65, 7].each do |id|
      error = assert_raises(Polylimit::InvalidArgument, id.inspect) { ask.call(id: id) }
      assert_match(/1 to 64/, error.message)
      assert_raises(Polylimit::InvalidArgument) { limiter.cancel(@key, id, policy: :api) }
    end
    [0, 49 * 3600, -1].each do |ttl|
      assert_raises(Polylimit::InvalidArgument, ttl.inspect) { ask.call(ttl: ttl) }
      assert_raises(Polylimit::InvalidArgument, ttl.inspect) { limiter.renew(@key, 'id', ttl, policy: :api) }
    end
    assert_raises(Polylimit::InvalidArgument) { limiter.check(@key, policy: :api) }
    assert_raises(Polylimit::InvalidArgument) { limiter.take(@key, policy: :api) }
    assert_raises(Polylimit::InvalidArgument) { limiter.acquire(@key, policy: :api, timeout: 1) }
    assert_raises(Polylimit::InvalidArgument) { limiter.reserve(@key, policy: :drops) }
    held = ask.call
    [-1, 10**12 + 1, 1.5].each { |spent| assert_raises(Polylimit::InvalidArgument) { held.commit(spent) } }
    # A refused commit leaves the reservation to its handle.
    assert_equal 1, limiter.peek(@key, policy: :api).remaining
    held.close
    assert_equal 2, limiter.peek(@key, policy: :api).remaining
    assert_raises(Polylimit::InvalidArgument) { Polylimit.quota(limit: 5) }
    assert_equal '20 concurrent', Polylimit.quota(limit: 20, algorithm: 'concurrency')
    assert_equal '5/month from=15', Polylimit.quota(limit: 5, calendar: 'month from=15 zone=UTC')
  end

  def test_reservation_belongs_to_the_process_that_has_made_it
    limiter = Polylimit::Limiter.new("local:ruby-#{Process.pid}?size=1MiB", policies: { api: '2 concurrent' })
    held = limiter.reserve(@key)
    # As the collector of the child would do.
    Process.wait(fork { Polylimit.const_get(:ReservationHandle).release(held.instance_variable_get(:@handle)).then { exit!(0) } })
    assert_predicate Process.last_status, :success?
    assert_equal 1, limiter.peek(@key).remaining
    assert held.commit.found
  end
end
