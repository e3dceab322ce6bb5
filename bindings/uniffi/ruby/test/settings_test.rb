# frozen_string_literal: true

require 'minitest/autorun'
require 'polylimit'

# Settings that decide when Redis is asked.
class SettingsTest < Minitest::Test
  def setup
    @key = "settings #{Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)}"
  end

  def limiter(policy, **options)
    Polylimit::Limiter.new(ENV.fetch('POLYLIMIT_REDIS'), policies: { api: policy }, **options)
  end

  def test_leased_policy_decides_from_units_of_this_process
    { '100/1s' => 'lease', nil => 'store' }.each do |lease, expected|
      limiter = limiter({ quotas: '100000/hour fixed_window', lease: lease }.compact)
      key = "#{@key} #{lease}"
      decisions = Array.new(2000) { limiter.check(key) }
      assert_equal 'store', decisions.first.source
      assert_includes decisions.map(&:source), expected
      assert_equal ['store'], decisions.map(&:source).uniq unless lease
      assert_equal lease ? 1 : 0, limiter.stats.fetch('leased').clamp(0, 1), limiter.stats.inspect
      # What was leased and not spent is given back, exactly.
      limiter.close
      left = limiter('100000/hour fixed_window')
      sleep 0.05 until left.peek(key).remaining == 98_000
    end
  end

  def test_lease_that_cannot_be_is_refused
    assert limiter({ quotas: '100/hour', lease: 'auto' }).check(@key).allowed
    assert_raises(Polylimit::InvalidArgument) { limiter({ quotas: '100/hour sliding_log', lease: 'auto' }) }
    assert_raises(Polylimit::InvalidArgument) { limiter({ quotas: '100/hour', lease: 'always' }) }
  end

  def test_denials_are_remembered_as_long_as_the_setting_says
    { 3600 => %w[store denial_cache denial_cache], 0 => %w[store store store] }.each do |longest, sources|
      limiter = limiter('1/hour fixed_window', denial_cache_max: longest)
      key = "#{@key} #{longest}"
      assert limiter.check(key).allowed
      denials = Array.new(3) { limiter.check(key) }
      assert_equal [false] * 3, denials.map(&:allowed)
      assert_equal sources, denials.map(&:source)
      limiter.reset(key)
      assert limiter.check(key).allowed
      limiter.close
    end
  end
end
