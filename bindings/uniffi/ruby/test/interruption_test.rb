# frozen_string_literal: true

require 'async'
require 'minitest/autorun'
require 'timeout'
require 'polylimit'

# A thread that waits in the limiter can be interrupted, and then holds nothing.
class InterruptionTest < Minitest::Test
  # Much longer than any test may take.
  LONG = 3600
  # Much longer than an interruption takes, on a machine that is busy.
  SOON = 20
  # What an interruption takes at most. The shortest of several waits shows it: a busy machine lengthens them, and shortens none.
  AT_MOST = 0.1

  def setup
    @clock = Polylimit::ManualClock.new(1_700_000_000_000_000)
    @key = "interruption #{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
  end

  # Of every store a limiter whose only unit is spent.
  def spent
    ['memory:', "local:ruby-#{Process.pid}?size=1MiB", ENV.fetch('POLYLIMIT_REDIS')].each do |store|
      limiter = Polylimit::Limiter.new(store, policies: { api: '1/minute fixed_window' }, clock: @clock)
      assert limiter.check(@key).allowed
      yield limiter
      # It stands in no line any more, and what would have been its unit is there for others.
      @clock.advance(60)
      assert limiter.acquire(@key, timeout: LONG).allowed, store
      assert_equal 0, limiter.peek(@key).remaining, store
      limiter.reset(@key)
      limiter.close
    end
  end

  def waiting(limiter)
    thread = Thread.new { limiter.acquire(@key, timeout: LONG) }
    thread.report_on_exception = false
    Thread.pass until thread.status == 'sleep'
    thread
  end

  def elapsed
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    yield
    Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
  end

  # Asserts that the block, which an interruption ends after this number of seconds, ends within 100 ms of it.
  def assert_interrupted(after, &block)
    waits = []
    waits << (elapsed(&block) - after) until waits.size == 5 || waits.any? { |wait| wait < AT_MOST }
    assert_operator waits.min, :<, AT_MOST, waits
  end

  def test_timeout_ends_acquire
    spent do |limiter|
      assert_interrupted(0.2) do
        assert_raises(Timeout::Error) { Timeout.timeout(0.2) { limiter.acquire(@key, timeout: LONG) } }
      end
    end
  end

  # As Ctrl-C does, by the handler of the process for the signal.
  def test_signal_ends_acquire
    spent do |limiter|
      before = trap('INT') { raise Interrupt }
      assert_interrupted(0) do
        assert_raises(Interrupt) do
          main = Thread.main
          Thread.new do
            Thread.pass until main.status == 'sleep'
            Process.kill(:INT, Process.pid)
          end
          limiter.acquire(@key, timeout: LONG)
        end
      end
    ensure
      trap('INT', before)
    end
  end

  # What the handler of a signal raises, which Ruby cannot defer, may come at any line.
  class Signalled < StandardError; end

  # Runs the block for each line of the waiting with an exception there, until it has raised none.
  def with_exception_at_each_line
    1.step do |at|
      line = 0
      trace = TracePoint.new(:line) do |point|
        # Those of finalizers run when the garbage collector comes by.
        is_here = point.path.end_with?('polylimit/waiting.rb') && point.method_id != :closing
        raise Signalled if is_here && (line += 1) == at
      end
      yield trace
      return at if line < at
    end
  end

  def outcome_of
    yield.allowed
  rescue Signalled => e
    e.class
  end

  def test_exception_of_a_signal_handler_anywhere_keeps_no_other_call
    limiter = Polylimit::Limiter.new(ENV.fetch('POLYLIMIT_REDIS'), policies: { api: '1000/hour' })
    lines = with_exception_at_each_line do |trace|
      begin
        trace.enable { limiter.acquire(@key, timeout: LONG) }
      rescue Signalled
        # It is the caller's.
      end
      following = Thread.new { limiter.acquire(@key, timeout: LONG) }
      assert following.join(SOON), 'the following call waits in vain'
      assert following.value.allowed
    end
    assert_operator lines, :>, 20
    limiter.close
  end

  def test_exception_of_a_signal_handler_anywhere_keeps_no_other_fiber
    # It reports each task that an exception ends.
    level = Console.logger.level
    Console.logger.off!
    limiter = Polylimit::Limiter.new(ENV.fetch('POLYLIMIT_REDIS'), policies: { api: '1000/hour' })
    lines = with_exception_at_each_line do |trace|
      Sync do |task|
        fibers = trace.enable do
          all = Array.new(2) { task.async { outcome_of { limiter.acquire(@key, timeout: LONG) } } }
          task.with_timeout(SOON) { all.each(&:wait) }
        end
        assert_empty fibers.map(&:result).uniq - [true, Signalled]
        task.with_timeout(SOON) { assert limiter.acquire(@key, timeout: LONG).allowed }
      end
    end
    assert_operator lines, :>, 20
    limiter.close
  ensure
    Console.logger.level = level
  end

  def test_exception_from_another_thread_ends_acquire
    spent do |limiter|
      thread = waiting(limiter)
      thread.raise(IOError, 'enough')
      assert_equal 'enough', assert_raises(IOError) { assert thread.join(SOON) }.message
    end
  end

  def test_killing_the_thread_ends_acquire
    spent do |limiter|
      thread = waiting(limiter)
      thread.kill
      assert thread.join(SOON), 'it goes on'
    end
  end

  def test_stopping_a_fiber_ends_acquire
    spent do |limiter|
      Sync do |task|
        fiber = task.async { limiter.acquire(@key, timeout: LONG) }
        fiber.stop
      end
    end
  end

  # Until the block is true. This blocks the thread, and the event loop with it.
  def assert_soon(&block)
    is_so = Fiber.new(blocking: true) do
      (SOON * 100).times.any? { block.call || (sleep(0.01) && false) }
    end
    assert is_so.resume
  end

  def test_acquire_admitted_during_an_interruption_is_refunded
    spent do |limiter|
      Sync do |task|
        fiber = task.async { limiter.acquire(@key, timeout: LONG) }
        # The event loop does not come to take the answer. What it was last denied may be from after a step of the clock.
        assert_soon do
          @clock.advance(60)
          sleep 0.05
          limiter.peek(@key).remaining.zero?
        end
        fiber.stop
      end
      assert_soon { limiter.peek(@key).remaining == 1 }
      assert limiter.check(@key).allowed
    end
  end

  def test_acquire_with_a_taken_answer_is_not_refunded
    spent do |limiter|
      @clock.advance(60)
      assert limiter.acquire(@key, timeout: LONG).allowed
      assert_equal 0, limiter.peek(@key).remaining
    end
  end

  def test_interruption_ends_ready_and_doctor
    limiter = Polylimit::Limiter.new('redis://127.0.0.1:1', policies: { api: '1/s' })
    assert_interrupted(0.2) { assert_raises(Timeout::Error) { Timeout.timeout(0.2) { limiter.ready(LONG) } } }
    limiter.close
  end
end
