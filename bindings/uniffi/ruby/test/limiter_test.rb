# frozen_string_literal: true

require 'minitest/autorun'
require 'polylimit'
require_relative 'record'

class LimiterTest < Minitest::Test
  def limiter(quotas = '10/minute', **options)
    Polylimit::Limiter.new(policies: { api: quotas }, **options)
  end

  def stores
    ['memory:', "local:ruby-#{Process.pid}?size=1MiB", ENV.fetch('POLYLIMIT_REDIS')]
  end

  def test_concurrent_callers_get_exactly_the_limit
    stores.each do |store|
      limiter = Polylimit::Limiter.new(store, policies: { api: '40/hour' })
      key = "key #{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
      threads = Array.new(8) { Thread.new { Array.new(8) { limiter.check(key).allowed }.count(true) } }
      assert_equal 40, threads.sum(&:value), store
      limiter.close
    end
  end

  def test_every_operation_works
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
    assert_empty limiter.admin.doctor
    assert_equal 1, limiter.admin.keys
  end

  def test_every_quota_has_a_verdict_of_its_own
    verdicts = ->(answer) { answer.quotas.map { |quota| [quota.allowed?, quota.retry_after] } }
    stores.each do |store|
      limiter = Polylimit::Limiter.new(store, policies: { api: '5/hour fixed_window; 2/minute token_bucket' })
      key = "key #{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
      assert_equal [[true, 0], [true, 0]], verdicts.call(limiter.check(key, cost: 2)), store
      denied = limiter.check(key)
      assert_equal [[true, 0], [false, denied.retry_after]], verdicts.call(denied), store
      assert_operator denied.retry_after, :>, 0
      assert_equal [[false, nil], [false, nil]], verdicts.call(limiter.check(key, cost: 9)), store
      assert_equal [[true, 0], [true, 0]], verdicts.call(limiter.charge(key)), store
      limiter.close
    end
  end

  def test_invalid_arguments_are_refused
    limiter = limiter()
    [-1, Float::NAN, 1e308, 1.5, 1 << 64, 10**12 + 1, '1'].each do |cost|
      assert_raises(Polylimit::InvalidArgument, cost.inspect) { limiter.check('key', cost: cost) }
    end
    record(__FILE__, 'S4', 'Ruby', measured: '7 costs: invalid_argument')
    costs = [-1, 1, 1.5, 10**12 + 1, 1 << 64, 1]
    answers = limiter.check_many(costs.map { |cost| { key: 'many', cost: cost } })
    assert_equal([nil, 9, nil, nil, nil, 8], answers.map { |answer| answer.decision&.remaining })
    answers.filter_map(&:error).each { |error| assert_match(/\Acost is /, error.message) }
    [-1, -0.1, Float::NAN, nil, '1'].each do |timeout|
      assert_raises(Polylimit::InvalidArgument, timeout.inspect) { limiter.acquire('key', timeout: timeout) }
    end
    assert limiter.acquire('key', timeout: Float::INFINITY).allowed
    [nil, 4.2, true, :key, []].each do |key|
      assert_raises(Polylimit::InvalidArgument, key.inspect) { limiter.check(key) }
    end
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

  def test_integer_is_a_key
    limiter = limiter()
    assert_equal 9, limiter.check(42).remaining
    assert_equal 8, limiter.check('42').remaining
    assert_equal([7, 6], limiter.check_many([{ key: 42 }, { key: '42' }]).map { |one| one.decision.remaining })
  end

  def refused(&block)
    assert_raises(Polylimit::InvalidArgument, &block).message
  end

  def test_messages_name_the_mistake_in_policies_and_requests
    ['1/s', ['1/s'], nil].each do |policies|
      message = refused { Polylimit::Limiter.new(policies: policies) }
      assert_equal "policies is #{policies.inspect}: allowed is a hash of quotas by names, such as { api: '100/minute' }",
                   message
    end
    [nil, { quota: '1/s' }, { outage: 'deny' }, { quotas: '1/s', other: 1 }].each do |given|
      assert_match(/\Apolicy :api is .*: allowed are quotas such as/, refused { limiter(given) })
    end
    assert_match(/\Apolicy :api: outage is 3: allowed is text/, refused { limiter({ quotas: '1/s', outage: 3 }) })
    assert_match(/\Aa name of a policy is nil/, refused { Polylimit::Limiter.new(policies: { nil => '1/s' }) })
    assert_match(/\Aclock is of the class Integer/, refused { limiter(clock: 5) })
    assert_match(/\Arequests is of the class String/, refused { limiter.check_many('key') })
    assert_match(/\Aa request is of the class String/, limiter.check_many(['key']).first.error.message)
    %i[check_together peek_together reserve_together].each do |operation|
      assert_match(/\Aa request is of the class String/, refused { limiter.public_send(operation, ['key']) })
      assert_match(/\Arequests is of the class String/, refused { limiter.public_send(operation, 'key') })
    end
    assert_equal 'option "limit" is not known: use policy, with quotas such as 100/minute', refused { limiter(limit: 5) }
  end

  def test_requests_of_several_keys_are_decided_together
    limiter = Polylimit::Limiter.new(policies: { a: '5/hour', b: '1/hour' })
    both = [{ key: 'x', policy: 'a' }, { key: 'y', policy: 'b' }]
    assert_equal([4, 0], limiter.check_together(both).map(&:remaining))
    denied = [[4, true], [0, false]]
    assert_equal(denied, limiter.check_together(both).map { |made| [made.remaining, made.allowed] })
    assert_equal(denied, limiter.peek_together(both).map { |made| [made.remaining, made.allowed] })
    assert_equal 4, limiter.peek('x', policy: 'a').remaining
    %i[check_together peek_together reserve_together].each do |operation|
      assert_match(/unknown/, refused { limiter.public_send(operation, [*both, { key: 'x', policy: 'unknown' }]) })
    end
    assert_empty limiter.peek_together([])
  end

  def test_unnamed_quotas_have_separate_states_in_each_scope
    limiter = limiter()
    assert_equal 'api', limiter.policy_for.name
    assert_equal 'api', limiter.policy_for(:api, scope: '/login').name
    login, search = %w[/login /search].map { |scope| limiter.policy_for('5 per minute', scope: scope).name }
    refute_equal login, search
    assert_equal login, limiter.policy_for('5/60s', scope: '/login').name
    assert_equal([4, 4], [login, search].map { |policy| limiter.check('key', policy: policy).remaining })
    assert_match(/policy "apy" is not known/, refused { limiter.policy_for('apy') })
    assert_match(/minut/, refused { limiter.policy_for('100/minut') })
  end

  def test_generated_classes_have_names_in_the_module_polylimit
    limiter = limiter('1/hour')
    shown = [
      limiter.check('key'), limiter.take('key'), limiter.policy('api'), limiter.check('key').quotas.first,
      Polylimit.options.first, Polylimit::ManualClock.new(0), Polylimit::ClientAddressRules.new([]), limiter, limiter.admin,
      assert_raises(Polylimit::InvalidArgument) { limiter.check('key', cost: -1) }
    ]
    shown.each do |one|
      assert_match(/\APolylimit::\w+\z/, one.class.name)
      refute_match(/PolylimitNative/, one.inspect)
    end
    assert_equal Polylimit::Internal, PolylimitNative::InternalError
  end

  SECRET = 'hunter2'

  def test_inspect_shows_no_secret
    limiter = Polylimit::Limiter.new("redis://user:#{SECRET}@127.0.0.1:1", policies: { api: '1/s' }, key_secret: SECRET * 5)
    assert_equal '#<Polylimit::Admin of #<Polylimit::Limiter redis: api>>', limiter.admin.inspect
    refute_includes limiter.inspect, SECRET
    refute_includes refused { Polylimit::Limiter.new("redis://user:#{SECRET}\xff@127.0.0.1:1") }, SECRET
    refute_includes refused { limiter.admin.set_credentials("#{SECRET}\xff") }, SECRET
    settings = PolylimitNative::Settings.new(store: "redis://u:#{SECRET}@h", options: { 'password' => SECRET })
    refute_includes settings.inspect + settings.to_s, SECRET
  end

  def test_absent_store_is_unavailable_and_closed_limiter_raises_closed
    limiter = Polylimit::Limiter.new('redis://127.0.0.1:1', policies: { api: '1/minute' }, deadline: 0.05)
    assert_raises(Polylimit::StoreUnavailable) { limiter.ready(0.05) }
    assert limiter.check('key').is_outage
    2.times { limiter.close }
    assert_raises(Polylimit::Closed) { limiter.check('key') }
  end

  def test_other_threads_run_while_one_waits
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

  def test_a_store_that_is_nil_is_refused
    error = assert_raises(Polylimit::InvalidArgument) { Polylimit::Limiter.new(ENV['POLYLIMIT_NO_SUCH_VARIABLE'], policies: { api: '1/s' }) }
    assert_match(/\Athe store's URL is missing/, error.message)
  end

  def test_values_are_frozen_and_can_be_read
    limiter = limiter('9/hour')
    [limiter.check('key'), limiter.take('key', cost: 3)].each do |value|
      assert_predicate value, :frozen?
      assert Ractor.shareable?(value)
      assert_equal 9, value.quotas.first.limit
      assert_match(/remaining=/, value.inspect)
      assert_equal value, value.dup
    end
  end

  def test_closed_limiter_describes_itself
    limiter = Polylimit::Limiter.new('memory:', document: '{"polylimit": 1, "policies": {"api": {"quotas": "9/hour"}}}', observe_keys: 16)
    limiter.check('key')
    refute_predicate limiter, :closed?
    assert_equal '#<Polylimit::Limiter memory: api>', limiter.inspect
    limiter.close
    assert_predicate limiter, :closed?
    assert_equal '#<Polylimit::Limiter memory: api (closed)>', limiter.to_s
    assert_equal ['9/hour', ['api']], [limiter.policy(:api).quotas, limiter.policies.map(&:name)]
    assert_equal 'document', limiter.admin.configuration.source
    assert_match(/polylimit_decisions_total\{policy="api"/, limiter.metrics_text)
    refute_empty limiter.stats
    assert_raises(Polylimit::Closed) { limiter.set_policy(:api, '5/hour') }
    assert_raises(Polylimit::Closed) { limiter.policy_for('5/hour') }
  end

  def test_numbers_are_reported_as_they_were_written
    limiter = limiter('9/hour')
    {
      'cost is nil: allowed are whole numbers of units, 0 to 10^12; leave it out for 1' => -> { limiter.check('key', cost: nil) },
      'timeout is -1: allowed are seconds, 0 or more' => -> { limiter.acquire('key', timeout: -1) },
      'ttl is -0.5: allowed are seconds, 0 or more' => -> { limiter.renew('key', 'id', -0.5) },
      'seconds is -2: allowed are seconds, 0 or more' => -> { limiter.admin.block('key', -2) },
      'deadline is 1.0e+30 s: allowed is 1ms to 60s' => -> { Polylimit::Limiter.new('memory:', deadline: 1e30) }
    }.each do |message, call|
      assert_equal message, assert_raises(Polylimit::InvalidArgument, &call).message
    end
  end

  HANDLES = 100_000

  def test_native_handles_are_released
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
