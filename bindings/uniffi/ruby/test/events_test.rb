# frozen_string_literal: true

require 'async'
require 'minitest/autorun'
require 'stringio'
require 'weakref'
require 'polylimit'
require_relative 'own_redis'

# A limiter reports when it begins and when it ceases to decide without its store, and what its doctor finds.
class EventsTest < Minitest::Test
  KEY = 'a key that is shown nowhere'
  POLICIES = { api: '1000000/hour' }.freeze
  UNREACHABLE = 'redis://127.0.0.1:1'
  SECONDS = 20

  def setup
    @before = Polylimit.logger
    @lines = StringIO.new
    Polylimit.logger = Logger.new(@lines, level: :warn, formatter: ->(level, _, _, text) { "#{level} #{text}\n" })
    @events = []
  end

  def teardown
    Polylimit.logger = @before
    @redis&.close
  end

  def redis
    @redis ||= OwnRedis.new
  end

  def limiter(store, **options)
    @limiter = Polylimit::Limiter.new(store, policies: POLICIES, on_degraded: @events.method(:push), **options)
  end

  def lines
    @lines.string.lines(chomp: true)
  end

  def ask_until
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + SECONDS
    until yield
      assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC), :<, deadline, 'no event came'
      @limiter.check(KEY)
      sleep 0.01
    end
  end

  def test_outage_causes_a_started_and_an_ended_event
    limiter(redis.url, deadline: 0.5, doctor_after: 0).ready(SECONDS)
    assert_equal 'store', @limiter.check(KEY).source
    redis.pause
    10.times { assert_equal 'fallback', @limiter.check(KEY).source }
    assert_equal 1, @events.size
    redis.resume
    ask_until { @events.size > 1 }
    @limiter.close
    started, ended = @events
    assert_equal ['started', 0, 0, 'problem', nil],
                 [started.kind, started.decisions, started.lasted, started.severity, started.finding]
    assert_includes %w[timeout unreachable connection_lost], started.reason
    assert_equal ['ended', started.reason, 'fine'], [ended.kind, ended.reason, ended.severity]
    assert_operator ended.decisions, :>=, 10
    assert_operator ended.lasted, :>, 0
    assert_match(/\Athe limiter decides without its store \(/, started.message)
    assert_equal ["WARN #{started.message}", "WARN #{ended.message}"], lines
    refute_match(/nowhere/, @events.inspect + lines.join)
  end

  def test_finding_of_the_doctor_causes_an_event
    limiter(redis.url, deadline: 10, doctor_after: 0.001).ready(SECONDS)
    ask_until { @events.any? }
    @limiter.close
    event, = @events
    assert_equal [1, 'finding', nil, 0, 'problem'], [@events.size, event.kind, event.reason, event.lasted, event.severity]
    assert_equal 'memory', event.finding.subject
    assert_match(/allkeys-lru/, event.finding.message)
    assert_equal ["WARN #{event.message}"], lines
    refute_match(/nowhere/, @events.inspect + lines.join)
  end

  def test_every_operation_delivers_events
    request = [{ key: KEY }]
    {
      check: [KEY], peek: [KEY], take: [KEY], charge: [KEY], refund: [KEY], reset: [KEY], check_many: [request],
      check_together: [request], acquire: [KEY, { timeout: 1 }]
    }.each do |operation, (argument, named)|
      [->(&call) { call.call }, ->(&call) { Sync(&call) }].each do |run|
        limiter(UNREACHABLE)
        @limiter.check(KEY) if %i[take charge refund reset].include?(operation)
        run.call { @limiter.public_send(operation, argument, **named.to_h) }
        @limiter.close
        assert_equal ['started'], @events.map(&:kind), operation
        @events.clear
      end
    end
  end

  def test_exception_of_a_hook_is_logged_and_affects_no_call
    raising = ->(event) { raise ArgumentError, event.kind }
    limiter = Polylimit::Limiter.new(UNREACHABLE, policies: POLICIES, on_degraded: raising)
    assert_equal 'fallback', limiter.check(KEY).source
    assert_match(/\AWARN the limiter decides without its store/, lines.first)
    assert_equal ['WARN on_degraded raised ArgumentError: started'], lines.drop(1)
  end

  def test_exception_of_a_logger_affects_no_call
    Polylimit.logger = Object.new
    assert_equal 'fallback', limiter(UNREACHABLE).check(KEY).source
    Polylimit.logger = nil
    assert_equal 'fallback', limiter(UNREACHABLE).check(KEY).source
    assert_equal %w[started started], @events.map(&:kind)
  end

  def test_closed_limiter_delivers_no_events
    limiter(UNREACHABLE, doctor_after: 0).close
    assert_raises(Polylimit::Closed) { @limiter.check(KEY) }
    # The next call of any limiter would deliver one.
    Polylimit::Limiter.new(policies: POLICIES).check(KEY)
    assert_equal [[], []], [@events, lines]
  end

  def abandoned(count)
    Array.new(count) do
      hook = ->(_) {}
      Polylimit::Limiter.new(policies: POLICIES, on_degraded: hook).check(KEY)
      WeakRef.new(hook)
    end
  end

  def test_closed_and_collected_limiters_release_their_hooks
    hooks = abandoned(100)
    closed = Array.new(100) do
      hook = ->(_) {}
      hooks << WeakRef.new(hook)
      Polylimit::Limiter.new(policies: POLICIES, on_degraded: hook).tap(&:close)
    end
    GC.start
    # The collector looks at the stack conservatively.
    assert_operator hooks.count(&:weakref_alive?), :<, 20
    assert_equal 100, closed.size
  end

  def test_forked_process_delivers_its_own_events
    limiter(UNREACHABLE)
    told = IO.popen('-') do |child|
      next child.read if child

      @limiter.check(KEY)
      print @events.map(&:kind).join
      $stdout.flush
      exit!
    end
    assert_equal 'started', told
    assert_empty @events
    @limiter.check(KEY)
    assert_equal ['started'], @events.map(&:kind)
  end

  def test_hook_that_cannot_be_called_is_refused
    error = assert_raises(Polylimit::InvalidArgument) { Polylimit::Limiter.new(on_degraded: 'print') }
    assert_equal 'on_degraded is of the class String: allowed is a proc, or what else has call', error.message
  end
end
