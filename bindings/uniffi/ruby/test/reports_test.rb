# frozen_string_literal: true

require 'async'
require 'minitest/autorun'
require 'polylimit'

# Lists of keys, explanations, counters of keys and metrics, on a store in this process, on this host and in Redis.
class ReportsTest < Minitest::Test
  DOCUMENT = <<~TOML
    polylimit = 1
    [policies.api]
    quotas = "2/hour fixed_window"
    [[rules]]
    match = { path = "/v1/{*rest}" }
    apply = [{ policy = "api", key = "{user}" }]
  TOML

  def now
    Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)
  end

  # A store of its own for each, so that a list has only its keys.
  def each_limiter(**options)
    stores = ['memory:', "local:ruby-#{Process.pid}-#{now}?size=1MiB", "#{ENV.fetch('POLYLIMIT_REDIS')}&prefix=reports-#{now}"]
    stores.each do |store|
      limiter = Polylimit::Limiter.new(store, policies: { api: '4/hour fixed_window', login: '2/hour fixed_window' }, **options)
      yield limiter
      limiter.close
    end
  end

  def pages(limiter, **options)
    cursor = nil
    Enumerator.new do |pages|
      loop do
        pages << (page = limiter.admin.list(pace_percent: 100, cursor: cursor, **options))
        break unless (cursor = page[:cursor])
      end
    end
  end

  def keys(limiter, **options)
    pages(limiter, **options).flat_map { |page| page[:keys] }
  end

  def test_list_has_the_keys_that_the_filter_takes
    each_limiter do |limiter|
      limiter.check('user:1', policy: 'api')
      limiter.charge('user:2', policy: 'api', cost: 3)
      limiter.charge("user:\xff".b, policy: 'api')
      limiter.check('x' * 300, policy: 'login')
      listed = keys(limiter)
      assert_equal 4, listed.size
      two = listed.find { |key| key[:key] == 'user:2' }
      assert_equal ['api', 75, 0, 0], two.values_at(:policy, :used_percent, :reservations, :blocked_for_us)
      assert_equal [{ quota: '4/hour fixed_window', limit: 4, capacity: 4, used: 3, remaining: 1 }],
                   (two[:quotas].map { |quota| quota.reject { |name, _| name == :reset_after_us } })
      assert_equal ['dXNlcjr/'], listed.filter_map { |key| key[:key_base64] }
      assert_match(/\A([0-9a-f]{2})+\z/, listed.find { |key| key[:policy] == 'login' }.fetch(:key_digest))
      assert_equal 3, keys(limiter, policy: 'api', key_prefix: 'user:').size
      assert_equal 1, keys(limiter, key_prefix: "user:\xff".b).size
      assert_equal ['user:2'], (keys(limiter, at_least_used: 75).map { |key| key[:key] })
      assert_equal 'user:2', limiter.admin.scan_top(1, policy: :api, pace_percent: 100)[:keys].first[:key]
    end
  end

  def test_pages_lead_from_one_to_the_next
    each_limiter do |limiter|
      2_000.times.each_slice(500) { |some| limiter.check_many(some.map { |at| { key: "user:#{at}", policy: 'api' } }) }
      all = pages(limiter, entries: 200).to_a
      assert_operator all.size, :>, 1
      assert_equal 2_000, (all.flat_map { |page| page[:keys].map { |key| key[:key] } }.uniq.size)
    end
  end

  def test_reset_listed_resets_what_is_listed
    each_limiter do |limiter|
      %w[user:1 user:2 guest:1].each { |key| limiter.check(key, policy: 'api') }
      assert_equal({ reset: 2, unknown: 0, cursor: nil },
                   limiter.admin.reset_listed(policy: 'api', key_prefix: 'user:', pace_percent: 100).slice(:reset, :unknown, :cursor))
      assert_equal([4, 3], %w[user:1 guest:1].map { |key| limiter.peek(key, policy: 'api').remaining })
    end
  end

  def test_explanation_names_the_quota_that_denies
    each_limiter do |limiter|
      quotas = '100/minute token_bucket; 2/hour fixed_window'
      2.times { limiter.check('user:1', policy: quotas) }
      explained = limiter.admin.explain('user:1', policy: quotas)
      assert_equal [false, 'quota', 'user:1', 1], explained.values_at(:allowed, :cause, :key, :cost)
      bucket, window = explained[:quotas]
      assert_equal [true, false, 0], [bucket[:admits], window[:admits], bucket[:retry_after_us]]
      assert_match(/\A2 of 2 /, window[:words])
      assert_equal explained[:retry_after_us], window[:retry_after_us]
      assert_nil limiter.admin.explain('user:1', policy: quotas, cost: 3)[:retry_after_us]
      # Nothing was spent.
      assert_equal 0, limiter.peek('user:1', policy: quotas).remaining
      limiter.admin.block('user:1', 60, policy: quotas)
      assert_equal 'blocked', limiter.admin.explain('user:1', policy: quotas)[:cause]
    end
  end

  def test_explanation_of_a_request_says_which_entry_decides
    limiter = Polylimit::Limiter.new(document: DOCUMENT)
    request = { path: '/v1/items', attributes: { user: 'alice' } }
    3.times { limiter.decide(request) }
    explained = limiter.admin.explain_request(request)
    assert_equal [false, 'quota', 'document'], [explained[:allowed], explained[:cause], explained[:configuration][:source]]
    assert_equal ['api', 1, 'alice'], explained[:policies].first.values_at(:policy, :rule, :key)
    limiter.admin.set_entry('deny user alice', by: 'ops', why: 'abuse')
    entry = limiter.admin.explain_request(request)[:list_entry]
    assert_equal ['deny user alice', false, 'ops', 'abuse'], entry.values_at(:entry, :in_document, :by, :why)
  end

  def test_top_keys_are_those_that_are_denied_most
    each_limiter(observe_keys: 256) do |limiter|
      20_000.times { limiter.check('user:1', policy: 'login') }
      top = limiter.admin.top_keys(10)
      assert_equal ['login', 'user:1'], top[:denied].first.values_at(:policy, :key)
      assert_operator top[:denied].first[:count], :>, 0
      assert_equal [256, 60_000_000], top.values_at(:counters, :half_life_us)
    end
    assert_empty Polylimit::Limiter.new(policies: { api: '1/s' }).admin.top_keys(1)[:denied]
  end

  def test_metrics_are_values_and_text
    each_limiter do |limiter|
      limiter.check('user:1', policy: 'api')
      3.times { limiter.check('user:1', policy: 'login') }
      decisions = limiter.metrics.find { |family| family[:name] == 'polylimit_decisions_total' }
      assert_equal 'counter', decisions[:kind]
      denied = { policy: 'login', result: 'denied' }
      assert_equal [1], (decisions[:samples].filter_map { |one| one[:value] if one[:labels].slice(:policy, :result) == denied })
      text = limiter.metrics_text
      assert_includes text, 'polylimit_decisions_total{policy="api",result="allowed",source="store"} 1'
      assert limiter.metrics_text('openmetrics').end_with?("# EOF\n")
      assert_raises(Polylimit::InvalidArgument) { limiter.metrics_text('json') }
    end
  end

  def test_mistakes_in_options_are_refused
    limiter = Polylimit::Limiter.new(policies: { api: '1/s' })
    {
      { entries: 0 } => 'entries of a list is 0: allowed is 1 or more',
      { examined: -1 } => 'examined of a list is -1: allowed is 1 or more',
      { pace_percent: 101 } => 'pace_percent of a list is 101: allowed is 1 to 100',
      { at_least_used: 256 } => 'at_least_used of a list is 256: allowed is 0 to 255',
      { entries: 1.5 } => 'entries is 1.5: allowed are whole numbers'
    }.each do |options, message|
      assert_equal message, assert_raises(Polylimit::InvalidArgument) { limiter.admin.list(**options) }.message
    end
    assert_raises(Polylimit::InvalidArgument) { limiter.admin.list(cursor: 'guess') }
    assert_raises(Polylimit::InvalidArgument) { limiter.admin.explain('k', policy: 'unknown') }
    assert_raises(Polylimit::InvalidArgument) { limiter.admin.top_keys(-1) }
    assert_raises(ArgumentError) { limiter.admin.list(prefix: 'user:') }
    limiter.close
    assert_raises(Polylimit::Closed) { limiter.admin.list }
  end

  def test_lost_store_is_unavailable
    limiter = Polylimit::Limiter.new('redis://127.0.0.1:1?deadline=50ms', policies: { api: '1/s' })
    assert_raises(Polylimit::StoreUnavailable) { limiter.admin.explain('k') }
    assert_raises(Polylimit::StoreUnavailable) { limiter.admin.list }
  end

  def test_fibers_run_while_one_lists
    limiter = Polylimit::Limiter.new("#{ENV.fetch('POLYLIMIT_REDIS')}&prefix=fibers-#{now}", policies: { api: '9/hour' })
    Sync do |task|
      limiter.check('user:1')
      listing = Array.new(3) { task.async { limiter.admin.list(pace_percent: 100)[:keys].size } }
      assert_equal 'user:1', limiter.admin.explain('user:1')[:key]
      assert_equal [1, 1, 1], listing.map(&:wait)
    end
    limiter.close
  end
end
