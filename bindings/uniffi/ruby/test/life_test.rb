# frozen_string_literal: true

require 'minitest/autorun'
require 'rbconfig'
require 'polylimit'

# Closing a limiter gives everything back, whether or not the garbage collector comes by.
class LifeTest < Minitest::Test
  # 10,000 where `make faults` runs this.
  LIMITERS = ENV.key?('POLYLIMIT_FAULTS') ? 10_000 : 2_000
  # More than processes can use a local store at once.
  KEPT = 1_025
  LIB = File.expand_path('../lib', __dir__)

  def stores
    { memory: 'memory:', local: "local:ruby-life-#{Process.pid}?size=1MiB", redis: ENV.fetch('POLYLIMIT_REDIS') }
  end

  def open_check_close(store)
    limiter = Polylimit::Limiter.new(store, policies: { api: '1000000/hour' })
    assert_equal 'store', limiter.check('life').source
    limiter.close
    limiter
  end

  def held
    {
      descriptors: Dir.children('/proc/self/fd').size, threads: Dir.children('/proc/self/task').size,
      mappings: File.foreach('/proc/self/maps').count { |line| line.include?('polylimit') }
    }
  end

  # Threads end in the background.
  def settled(before)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
    after = held
    until before.all? { |what, count| after[what] <= count } || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      sleep 0.05
      after = held
    end
    after
  end

  def resident_bytes
    File.read('/proc/self/statm').split[1].to_i * 4096
  end

  %i[memory local redis].each do |name|
    define_method("test_closed_limiters_hold_nothing_#{name}") do
      store = stores.fetch(name)
      500.times { open_check_close(store) }
      GC.start
      before = held
      # These are referred to all the time, the others until the garbage collector comes by. What describes a limiter, and the counts
      # of its policies, can be read after it is closed.
      kept = Array.new(KEPT) { open_check_close(store) }
      after = settled(before)
      many = (LIMITERS - KEPT) / 3
      growths = Array.new(3) do
        resident = resident_bytes
        many.times { open_check_close(store) }
        after = settled(before)
        GC.start
        resident_bytes - resident
      end
      before.each { |what, count| assert_operator after[what], :<=, count + 2, what }
      # The more threads end late, the more memory the allocator keeps. What leaks grows in every part.
      assert_operator growths.min / many, :<, 8_192, "bytes for each, #{growths}"
      assert_raises(Polylimit::Closed) { kept.last.check('life') }
    end
  end

  def test_closed_limiters_release_the_shared_file_for_other_processes
    store = stores[:local]
    kept = Array.new(KEPT) { open_check_close(store) }
    program = "require 'polylimit'; print Polylimit::Limiter.new('#{store}', policies: { api: '9/hour' }).check('k').source"
    assert_equal 'store', IO.popen([RbConfig.ruby, '-I', LIB, '-e', program], &:read)
    assert_equal KEPT, kept.size
  end

  def test_every_operation_on_a_closed_limiter_fails_with_closed
    stores.each do |name, store|
      limiter = Polylimit::Limiter.new(store, policies: { api: '9/hour' })
      limiter.check('life')
      2.times { limiter.close }
      {
        check: -> { limiter.check('k') }, peek: -> { limiter.peek('k') }, take: -> { limiter.take('k') },
        charge: -> { limiter.charge('k') }, refund: -> { limiter.refund('k') }, reset: -> { limiter.reset('k') },
        acquire: -> { limiter.acquire('k', timeout: 1) }, together: -> { limiter.check_together([{ key: 'k' }]) },
        peek_together: -> { limiter.peek_together([{ key: 'k' }]) },
        reserve_together: -> { limiter.reserve_together([{ key: 'k' }]) },
        ready: -> { limiter.ready(1) }, doctor: -> { limiter.admin.doctor }, policy_for: -> { limiter.policy_for },
        set_policy: -> { limiter.set_policy('api', '5/hour') }
      }.each { |what, call| assert_raises(Polylimit::Closed, "#{what} of #{name}", &call) }
      assert_equal 'closed', limiter.check_many([{ key: 'k' }]).first.error.code
    end
  end

  def test_close_ends_a_waiting_acquire
    stores.each_value do |store|
      limiter = Polylimit::Limiter.new(store, policies: { api: '1/hour' })
      key = "closing #{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
      assert limiter.check(key).allowed
      waiting = Thread.new { limiter.acquire(key, timeout: 36_000) }
      waiting.report_on_exception = false
      Thread.pass until waiting.status == 'sleep'
      limiter.close
      assert_raises(Polylimit::Closed) { assert waiting.join(20), 'it goes on' }
    end
  end
end
