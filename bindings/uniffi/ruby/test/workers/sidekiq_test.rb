# frozen_string_literal: true

require 'minitest/autorun'
require 'rbconfig'
require 'socket'
require 'tempfile'
require_relative '../watch'

# The Redis of the tests, in a database that is empty.
STORE = ENV.fetch('POLYLIMIT_REDIS')
ENV['BROKER'] = "#{STORE[/\A[^?]+/].chomp('/')}/7"
ENV['STORE'] = STORE
require_relative 'jobs'
require 'sidekiq/api'

# Limits of the jobs of Sidekiq, and of those of Active Job on it, in a real worker.
class SidekiqTest < Minitest::Test
  def setup
    redis { |redis| redis.flushdb }
    @log = Tempfile.new('sidekiq')
    start
  end

  def teardown
    stop(:KILL) if @worker
    warn File.read(@log.path) unless passed?
    @log.close!
  end

  # Two threads.
  def start
    command = [RbConfig.ruby, '-W:no-deprecated', '-I', File.expand_path('../../lib', __dir__), '-S', 'sidekiq', '-r', File.expand_path('jobs.rb', __dir__),
               '-c', '2', '-t', '5']
    @worker = spawn(*command, out: @log.path, err: %i[child out], chdir: '/')
  end

  def stop(signal)
    Process.kill(signal, @worker)
    Process.wait(@worker)
    @worker = nil
  end

  def redis(&block)
    ::Sidekiq.redis(&block)
  end

  def get(name)
    redis { |redis| redis.get(name) }
  end

  def wait_until(what, seconds = 120)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
    until yield
      flunk "not in #{seconds} s: #{what}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      sleep 0.05
    end
  end

  def free?(key)
    LIMITER.peek(key, policy: :slots).allowed
  end

  { OfSidekiq => 'of Sidekiq', OfActiveJob => 'of Active Job' }.each do |jobs, name|
    define_method("test_jobs_#{name}_that_are_denied_come_back_without_using_their_retries".tr(' ', '_')) do
      held, tenant, other = %w[held tenant other].map { |one| "#{one} #{name} #{Process.pid}" }
      counted = LIMITER.peek(jobs.name, policy: :counted).remaining
      # The slot of this tenant is taken, so its jobs go back to the queue some times before they run.
      slot = LIMITER.reserve(held, policy: :slots)
      flaky = jobs::Flaky.send_job(held)
      jobs::Export.send_job(held, 0)
      jobs::Impossible.send_job
      5.times { jobs::Mail.send_job }
      3.times { jobs::Export.send_job(tenant, 0.2) }
      jobs::Export.send_job(other, 0)
      # More jobs wait than there are threads, which are free for others.
      wait_until('the job of another tenant has run') { get("done #{other}") == '1' }
      wait_until('the jobs have run') { get("done #{tenant}") == '3' && get("mails #{jobs}") == '5' }
      assert_equal [nil, nil], [get("done #{held}"), get("attempts #{held}")]
      wait_until('the denied job waits as itself') do
        ::Sidekiq::ScheduledSet.new.any? { |job| [job['jid'], job['args'].dig(0, 'job_id')].include?(flaky) && job['retry_count'].nil? }
      rescue TypeError
        # A job of Sidekiq has other arguments.
        ::Sidekiq::ScheduledSet.new.any? { |job| job['jid'] == flaky && job['retry_count'].nil? }
      end
      assert_equal 0, ::Sidekiq::RetrySet.new.size
      slot.cancel
      wait_until('the others have run') { get("done #{held}") == '1' && get("attempts #{held}") == '2' }
      # One at a time of each tenant, though two threads are free.
      assert_equal ['1'], redis { |redis| redis.lrange("running #{tenant}", 0, -1) }.uniq
      # A job that the inner limit denies has spent nothing under the outer one.
      assert_equal counted - 5, LIMITER.peek(jobs.name, policy: :counted).remaining
      assert_nil get("impossible #{jobs}")
      # Sidekiq's own has failed, and that of Active Job was discarded.
      failures = jobs == OfSidekiq ? 2 : 0
      wait_until('failures are counted') { ::Sidekiq::Stats.new.failed == failures } if jobs == OfSidekiq
      assert_equal '1', get('discarded') unless jobs == OfSidekiq
      wait_until('every job has freed its slot') { [held, tenant, other].all? { |key| free?(key) } }
      stop(:TERM)
    end
  end

  def test_slot_of_a_killed_worker_is_freed
    tenant = "killed #{Process.pid}"
    OfSidekiq::Export.send_job(tenant, 300)
    wait_until('the job runs') { get("now #{tenant}") == '1' }
    refute free?(tenant)
    stop(:KILL)
    wait_until('the slot is free') { free?(tenant) }
    OfSidekiq::Export.send_job(tenant, 0)
    start
    wait_until('the next job has run') { get("done #{tenant}") == '1' }
  end
end
