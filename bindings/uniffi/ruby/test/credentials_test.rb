# frozen_string_literal: true

require 'minitest/autorun'
require 'timeout'
require 'polylimit'
require_relative 'own_redis'

# Credentials that a proc of the program gives.
class CredentialsTest < Minitest::Test
  POLICIES = { api: '1000000/hour' }.freeze
  SECONDS = 20

  def setup
    @before = Polylimit.logger
    Polylimit.logger = nil
    @events = []
  end

  def teardown
    @limiter&.close
    Polylimit.logger = @before
    @redis&.close
  end

  def redis
    @redis ||= OwnRedis.new.tap { |made| made.command('acl', 'setuser', 'limits', 'on', '>old', '~*', '&*', '+@all') }
  end

  def limiter(deadline: 5, **options, &give)
    @limiter = Polylimit::Limiter.new(redis.bare_url, policies: POLICIES, deadline: deadline, doctor_after: 0, outage: 'deny',
                                                      on_degraded: @events.method(:push), credentials: give, **options)
  end

  def wait_until
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + SECONDS
    until yield
      assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC), :<, deadline, 'waited in vain'
      sleep 0.01
    end
  end

  def by_store?
    decision = @limiter.check('k')
    refute_equal 'auth', decision.degraded
    decision.source == 'store'
  end

  def test_changed_password_is_used_without_a_refused_decision
    password = 'old'
    limiter { { username: 'limits', password: password } }
    assert_predicate self, :by_store?
    %w[two three four].each do |following|
      redis.command('acl', 'setuser', 'limits', ">#{following}")
      before = password
      password = following
      redis.command('acl', 'setuser', 'limits', "<#{before}")
      redis.command('client', 'kill', 'user', 'limits')
      wait_until { by_store? }
      50.times { assert_predicate self, :by_store? }
    end
  end

  def test_password_alone_is_that_of_the_default_user
    limiter { OwnRedis::PASSWORD }
    assert_predicate self, :by_store?
  end

  def test_errors_and_wrong_results_are_the_cause
    { -> { raise 'the token service is away' } => 'the token service is away',
      -> { raise NotImplementedError, 'no token' } => 'no token',
      -> {} => 'of the class NilClass: allowed is a text, or a hash',
      -> { { username: 'limits' } } => 'of the class Hash: allowed is a text, or a hash',
      -> { '' } => 'it is empty' }.each do |give, cause|
      @events.clear
      limiter(&give)
      assert_equal %w[deny auth], @limiter.check('k').then { |decision| [decision.source, decision.degraded] }
      assert_includes assert_raises(Polylimit::StoreUnavailable) { @limiter.ready(30) }.message, cause
      assert_includes @limiter.admin.doctor.map(&:message).join, cause
      wait_until { @limiter.check('k') && !@events.empty? }
      assert_includes @events.first.message, cause
      @limiter.close
    end
  end

  def test_proc_that_blocks_delays_neither_decisions_nor_close
    [true, false].each do |is_answered|
      go_on = Thread::Queue.new
      limiter(deadline: 0.05, first_connect_max: 0) do
        go_on.pop
        { username: 'limits', password: 'old' }
      end
      assert_equal(['deny'], Array.new(5) { @limiter.check('k').source }.uniq)
      if is_answered
        10.times { go_on.push(nil) }
        wait_until { @limiter.check('k').source == 'store' }
      end
      @limiter.close
      go_on.push(nil)
    end
  end

  def test_forked_child_asks_for_its_own
    limiter { { username: 'limits', password: 'old' } }
    assert_predicate self, :by_store?
    child = fork { exit!(@limiter.check('k').source == 'store' ? 0 : 1) }
    assert_predicate Timeout.timeout(SECONDS) { Process.wait2(child).last }, :success?
    assert_predicate self, :by_store?
  end

  def test_thread_ends_with_the_limiter
    # Limiters of other tests may not have been collected.
    others = Thread.list
    limiter { 'word' }
    @limiter.close
    assert_raises(Polylimit::InvalidArgument) { limiter(deadline: 'soon') { 'word' } }
    assert_raises(Polylimit::InvalidArgument) { Polylimit::Limiter.new('nowhere', policies: POLICIES, credentials: -> { 'word' }) }
    assert_raises(Polylimit::InvalidArgument) { Polylimit::Limiter.new(policies: { api: 'many' }, credentials: -> { 'word' }) }
    wait_until { (Thread.list - others).none? { |thread| thread.name == 'polylimit-credentials' } }
  end

  def test_what_cannot_be_called_is_refused
    error = assert_raises(Polylimit::InvalidArgument) { Polylimit::Limiter.new('memory:', credentials: 'word') }
    assert_equal 'credentials is of the class String: allowed is a proc, or what else has call', error.message
  end
end
