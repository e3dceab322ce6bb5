# frozen_string_literal: true

require 'async'
require 'minitest/autorun'
require 'polylimit'

class LimiterTest < Minitest::Test
  def limiter(quotas = '10/minute', **options)
    Polylimit::Limiter.new(policies: { api: quotas }, **options)
  end

  def stores
    ['memory:', "local:ruby-#{Process.pid}?size=1MiB", ENV.fetch('POLYLIMIT_REDIS')]
  end

  def test_exactly_the_limit_passes_whoever_asks
    stores.each do |store|
      limiter = Polylimit::Limiter.new(store, policies: { api: '40/hour' })
      key = "key #{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
      threads = Array.new(8) { Thread.new { Array.new(8) { limiter.check(key).allowed }.count(true) } }
      assert_equal 40, threads.sum(&:value), store
      limiter.close
    end
  end

  def test_every_operation_is_there
    limiter = limiter()
    assert_equal 9, limiter.check('key').remaining
    assert_equal 9, limiter.peek('key').remaining
    assert_equal 9, limiter.take('key', cost: 99).taken
    assert_equal 5, limiter.refund('key', cost: 5).remaining
    assert_equal 0, limiter.charge('key', policy: :api, cost: 7).remaining
    denied = limiter.check('key')
    refute denied.allowed
    assert_operator denied.retry_after, :<=, denied.reset_after
    assert_nil limiter.check('key', cost: 99).retry_after
    assert_equal 10, limiter.reset('key').remaining
    decided, refused = limiter.check_many([{ key: 'key' }, { key: 'key', policy: 'unknown' }])
    assert_equal 9, decided.decision.remaining
    assert_equal 'invalid_argument', refused.error.code
    assert limiter.acquire('key', timeout: 0.5).allowed
    limiter.set_policy('api', '20/minute')
    assert_equal '20/minute', limiter.policy('api').quotas
    limiter.ready(1)
    assert_empty limiter.doctor
    assert_equal 1, limiter.keys
  end

  def test_what_is_not_allowed_is_refused
    limiter = limiter()
    [-1, Float::NAN, 1e308, 1.5, 1 << 64, 10**12 + 1, '1'].each do |cost|
      assert_raises(Polylimit::InvalidArgument, cost.inspect) { limiter.check('key', cost: cost) }
    end
    costs = [-1, 1, 1.5, 10**12 + 1, 1 << 64, 1]
    answers = limiter.check_many(costs.map { |cost| { key: 'many', cost: cost } })
    assert_equal([nil, 9, nil, nil, nil, 8], answers.map { |answer| answer.decision&.remaining })
    answers.filter_map(&:error).each { |error| assert_match(/\Acost is /, error.message) }
    [-1, -0.1, Float::NAN, nil, '1'].each do |timeout|
      assert_raises(Polylimit::InvalidArgument, timeout.inspect) { limiter.acquire('key', timeout: timeout) }
    end
    assert limiter.acquire('key', timeout: Float::INFINITY).allowed
    assert_raises(Polylimit::InvalidArgument) { limiter.check(42) }
    assert_raises(Polylimit::InvalidArgument) { limiter.check('key', policy: "\xff") }
    assert_raises(Polylimit::InvalidArgument) { limiter('10/fortnight') }
    assert_raises(Polylimit::InvalidArgument) { limiter(max_keys: 1.5) }
    assert_raises(Polylimit::InvalidArgument) { limiter(unknown: 1) }
    limiter.check("any bytes \xff\0".b)
  end

  def test_every_kind_of_error_has_its_class
    codes = PolylimitNative.error_table.map(&:code)
    assert_equal codes, Polylimit::Error::CODES.values
    assert_equal codes, (codes.map { |code| Polylimit::Error.of(code, 'why').code })
  end

  def test_a_store_that_is_not_there_is_unavailable_and_a_closed_limiter_says_so
    limiter = Polylimit::Limiter.new('redis://127.0.0.1:1', policies: { api: '1/minute' }, deadline: 0.05)
    assert_raises(Polylimit::StoreUnavailable) { limiter.ready(0.05) }
    assert limiter.check('key').is_outage
    2.times { limiter.close }
    assert_raises(Polylimit::Closed) { limiter.check('key') }
  end

  def test_others_run_while_one_waits
    clock = Polylimit::ManualClock.new(1_700_000_000_000_000)
    limiter = limiter('1/minute fixed_window', clock: clock)
    assert limiter.check('key').allowed
    waiting = Thread.new { limiter.acquire('key', timeout: 3600).allowed }
    # A call that kept the lock would not come back from here.
    Thread.pass until waiting.status == 'sleep'
    clock.advance(60)
    assert waiting.join(30), 'it waits for longer than its turn'
    assert waiting.value
  end

  def test_other_fibers_run_while_one_waits
    clock = Polylimit::ManualClock.new(1_700_000_000_000_000)
    limiter = limiter('1/minute fixed_window', clock: clock).asynchronous
    assert limiter.check('key').allowed
    admitted = Sync do |task|
      waiting = task.async { limiter.acquire('key', timeout: 3600).allowed }
      # A call that kept the event loop would not come back from there.
      assert_predicate waiting, :running?
      clock.advance(60)
      waiting.wait
    end
    assert admitted
    assert_raises(Polylimit::InvalidArgument) { Sync { limiter.check('key', cost: -1) } }
  end

  def test_every_operation_that_may_wait_has_an_asynchronous_one
    native = PolylimitNative::Limiter.instance_methods(false).map(&:to_s)
    waiting = native.select { |name| Polylimit::WithoutTheLock.waits?(name) } - ['shut_down']
    assert_equal waiting.sort, Polylimit::Asynchronous::WAITING.map(&:to_s).sort - ['close']
    rest = Polylimit::Limiter.instance_methods(false) - [:asynchronous]
    assert_equal rest.sort, Polylimit::Asynchronous.instance_methods(false).sort
  end

  def test_a_child_counts_with_its_parent
    key = "fork #{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
    limiter = Polylimit::Limiter.new(ENV.fetch('POLYLIMIT_REDIS'), policies: { api: '3/hour' })
    assert_equal 2, limiter.check(key).remaining
    child = fork { exit!(limiter.check(key).remaining == 1) }
    assert Process.wait2(child).last.success?
    assert_equal 0, limiter.check(key).remaining
  end

  HANDLES = 100_000

  def test_handles_do_not_stay
    many = lambda do
      HANDLES.times { Polylimit::ManualClock.new(0) }
      GC.start
    end
    many.call
    before = resident_bytes
    many.call
    # Each has more than that.
    assert_operator resident_bytes - before, :<, HANDLES * 100
  end

  def resident_bytes
    File.read('/proc/self/statm').split[1].to_i * 4096
  end
end
