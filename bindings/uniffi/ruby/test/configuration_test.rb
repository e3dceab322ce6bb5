# frozen_string_literal: true

require 'async'
require 'minitest/autorun'
require 'polylimit'
require 'tempfile'
require 'tmpdir'
require_relative 'own_redis'

# Headroom and blocks, and limiters whose limits come from a document.
class ConfigurationTest < Minitest::Test
  DOCUMENT = <<~TOML
    polylimit = 1
    [policies.api]
    quotas = "4/hour fixed_window"
    plans = { gold = "7/hour fixed_window" }
    [policies.jobs]
    quotas = "1 concurrent"
    [policies.tried]
    quotas = "2/hour fixed_window"
    candidate = { quotas = "1/hour fixed_window", compare = 1000 }
    [[rules]]
    match = { path = "/v1/{*rest}" }
    apply = [{ policy = "api", key = "user={user}", headroom = 20 }]
    [[rules]]
    match = { path = "/jobs" }
    apply = [{ policy = "jobs", key = "{client}" }]
    [lists]
    deny = ["user mallory"]
  TOML

  def limiter
    Polylimit::Limiter.new(document: DOCUMENT)
  end

  def stores
    ['memory:', "local:ruby-#{Process.pid}?size=1MiB", ENV.fetch('POLYLIMIT_REDIS')]
  end

  def request(user)
    { method: 'GET', path: '/v1/items?page=2', peer: '192.0.2.7:443', headers: [%w[X-Api-Key k1]], attributes: { user: user } }
  end

  def test_blocks_and_headroom_work_in_every_store
    stores.each do |store|
      limiter = Polylimit::Limiter.new(store, policies: { api: '10/hour fixed_window excess=2' })
      key = "blocked #{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
      refute limiter.check(key, cost: 9, headroom: 50).allowed
      assert limiter.check(key, cost: 5).allowed
      assert_equal 'quota', limiter.check(key, cost: 5, headroom: 50).cause
      assert limiter.check(key, cost: 6).crossed?
      assert_equal 0, limiter.admin.block(key, 3600).remaining
      blocked = limiter.peek(key)
      assert_equal 'blocked', blocked.cause
      assert_operator blocked.retry_after, :>, 3500
      limiter.admin.unblock(key)
      assert_nil limiter.peek(key, headroom: 0).cause
      Sync do
        limiter.admin.block(key, 3600)
        refute limiter.reserve(key).allowed
        limiter.admin.unblock(key)
        assert limiter.check(key).allowed
      end
      limiter.reset(key)
      limiter.close
    end
  end

  def test_bad_headroom_and_times_are_refused
    limiter = limiter()
    [-1, 100, 1000, 1 << 40, 1.5, '5'].each do |headroom|
      assert_raises(Polylimit::InvalidArgument, headroom) { limiter.check('key', policy: :api, headroom: headroom) }
    end
    [0.000001, 367 * 86_400, -1, nil].each do |time|
      assert_raises(Polylimit::InvalidArgument, time.inspect) { limiter.admin.block('key', time, policy: :api) }
    end
    [{ paht: '/' }, nil, { attributes: { user: 1.5 } }].each do |request|
      assert_raises(Polylimit::InvalidArgument, request.inspect) { limiter.admin.matching(request) }
    end
    assert_nil Polylimit::Limiter.new.admin.configuration
  end

  def test_a_document_decides_about_requests
    limiter = limiter()
    found = limiter.admin.matching(request('alice')).first
    assert_equal ['api', 'user=alice', 1, 20], found.to_a
    assert_equal found, limiter.admin.matching(request(:alice)).first
    refute_includes "#{found.inspect} #{limiter.decide(request('alice')).inspect}", 'alice'
    assert Sync { limiter.decide(request('alice')) }.allowed?
    denied = (1..9).lazy.map { limiter.decide(request('alice')) }.find { |decided| !decided.allowed }
    assert_equal ['quota', 429], [denied.cause, denied.status]
    assert_equal 'quota', denied.decisions.first.decision.cause
    assert_equal 7, limiter.peek('user=carol', policy: :api, plan: 'gold').remaining
    many = limiter.check_many([{ key: 'user=carol', policy: 'api', plan: 'gold', cost: 6, headroom: 50 }])
    refute many.first.decision.allowed
    listed = limiter.decide(request('mallory'))
    assert_equal ['deny_list', 403, nil, []], [listed.cause, listed.status, listed.retry_after, listed.decisions]
  end

  def test_a_decision_reserves_where_the_policy_counts_concurrency
    limiter = limiter()
    job = { path: '/jobs', peer: '192.0.2.7' }
    made = limiter.decide(job, id: 'job-1', ttl: 10).decisions.first
    assert_equal 'job-1', made.reservation
    assert_equal 'concurrency', limiter.decide(job).cause
    assert limiter.cancel(made.key, made.reservation, policy: made.policy).found
    assert limiter.decide(job).allowed
  end

  def test_a_decision_remembers_the_commit
    limiter = limiter()
    job = { path: '/jobs', peer: '192.0.2.8' }
    [false, true].each do |repeated|
      made = limiter.decide(job, id: 'job', remember: 60).decisions.first
      usage = limiter.commit(made.key, made.reservation, policy: made.policy)
      assert_equal [true, repeated], [usage.found?, usage.repeated?]
    end
    assert_raises(Polylimit::InvalidArgument) { limiter.decide(job, remember: 49 * 3600) }
  end

  def test_documents_and_entries_change_while_the_limiter_runs
    limiter = limiter()
    before = limiter.admin.configuration
    assert_equal ['document', 64, 0, nil], [before.source, before.digest.size, before.age, before.error]
    assert_instance_of Time, before.applied_at
    refused = assert_raises(Polylimit::InvalidArgument) { limiter.admin.set_document("polylimit = 1\nnonsense = 2\n") }
    assert_match(/\Aline 2, column /, refused.message)
    assert_equal before.version, limiter.admin.configuration.version
    limiter.admin.set_entry('deny user bob', by: 'ann', why: %("spam"\n))
    assert_equal 'deny_list', limiter.decide(request('bob')).cause
    limiter.admin.delete_entry('deny user bob')
    status = Sync { limiter.admin.set_entry('override api user=bob', '{"numbers":"1/hour"}') }
    assert_equal 1, limiter.peek('user=bob', policy: :api).remaining
    assert_operator status.version, :>, before.version
    assert_equal status.digest, limiter.admin.wait_for_version(status.version, 3600).digest
    assert_raises(Polylimit::StoreUnavailable) { limiter.admin.wait_for_version(status.version + 9, 0.001) }
    assert_operator limiter.admin.set_document("polylimit = 1\n[policies]\n").version, :>, status.version
    assert_empty limiter.admin.matching(request('bob'))
  end

  def test_a_candidate_is_counted
    limiter = limiter()
    assert_nil limiter.admin.candidate_counts(:api)
    3.times { limiter.check('key', policy: :tried) }
    counts = limiter.admin.candidate_counts('tried')
    assert_equal [1, 0, 1, 1], [counts.both_allow, counts.only_live_denies, counts.only_candidate_denies, counts.both_deny]
  end

  def test_a_document_is_published_to_redis_and_followed
    redis = OwnRedis.new
    Polylimit::Limiter.new(redis.url, deadline: 30).tap { |first| first.ready(60) }.close
    limiter, other = Array.new(2) { Polylimit::Limiter.new(redis.url, configuration: 'store', deadline: 30) }
    status = limiter.admin.publish(DOCUMENT, by: 'ann', why: 'first')
    assert_equal 'store', status.source
    assert_equal status.digest, other.admin.wait_for_version(status.version, 60).digest
    assert_raises(Polylimit::InvalidArgument) { limiter.admin.publish(DOCUMENT, expected_version: 7) }
    bare = assert_raises(Polylimit::InvalidArgument) { limiter.admin.publish('polylimit = 1') }
    assert_includes bare.message, 'it may be incomplete'
    entry = limiter.admin.set_entry('deny user bob')
    there = other.admin.wait_for_version(entry.version, 60)
    published = other.admin.publish(DOCUMENT, expected_version: there.document_version)
    assert_equal [1, 2], [there.document_version, published.document_version]
    assert_raises(Polylimit::InvalidArgument) { limiter.admin.publish(DOCUMENT, expected_version: there.document_version) }
    assert_equal 'deny_list', other.decide(request('bob')).cause
    last = Sync { limiter.admin.publish("polylimit = 1\n[policies]\n") }
    assert_operator last.version, :>, entry.version
  ensure
    [limiter, other].compact.each(&:close)
    redis&.close
  end

  def test_a_document_in_a_file_is_followed
    Tempfile.create(['polylimit', '.toml']) do |file|
      file.write(DOCUMENT)
      file.flush
      limiter = Polylimit::Limiter.new(configuration: "file:#{file.path}")
      assert_equal "file:#{file.path}", limiter.admin.configuration.source
      assert limiter.decide({ path: '/v1/' }).allowed
      limiter.close
    end
    refused = assert_raises(Polylimit::InvalidArgument) { Polylimit::Limiter.new(configuration: 'elsewhere') }
    assert_includes refused.message, 'elsewhere'
  end

  def test_a_limiter_starts_from_the_copy_of_a_file
    Dir.mktmpdir do |folder|
      file, copy = %w[limits.toml copy].map { |name| File.join(folder, name) }
      File.write(file, DOCUMENT)
      source = { configuration: "file:#{file}" }
      first = Polylimit::Limiter.new(**source, copy: copy)
      ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
      until File.exist?(copy)
        assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC), :<, ends
        sleep 0.001
      end
      digest = first.admin.configuration.digest
      first.close
      File.delete(file)
      assert_raises(Polylimit::InvalidArgument) { Polylimit::Limiter.new(**source) }
      assert_equal digest, Polylimit::Limiter.new(**source, copy: copy).tap(&:close).admin.configuration.digest
    end
  end
end
