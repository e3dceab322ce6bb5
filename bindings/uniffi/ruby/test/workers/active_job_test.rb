# frozen_string_literal: true

require 'minitest/autorun'
require 'polylimit/active_job'
require 'timeout'
require_relative '../watch'

ActiveJob::Base.logger = Logger.new(nil)

# Limits of Active Job on its own adapters.
class ActiveJobTest < Minitest::Test
  DONE = Queue.new
  LIMITER = Polylimit::Limiter.new(policies: { slots: '1 concurrent', mails: '1/s fixed_window', counted: '10/day token_bucket', daily: '1/day token_bucket' })

  class Job < ActiveJob::Base
    include Polylimit::ActiveJob
    self.queue_adapter = :async
  end

  class Mail < Job
    polylimit limiter: LIMITER, policy: :counted, key: 'mails'
    polylimit(limiter: LIMITER, policy: 'mails') { |to, **| to }

    def perform(to, subject: nil)
      DONE << [to, subject, executions, job_id]
    end
  end

  class Direct < Job
    polylimit limiter: LIMITER, policy: :counted, key: 'direct'
    polylimit(limiter: LIMITER, policy: :daily) { |to| to }

    def perform(_to); end
  end

  # One limit of its own, and what it inherits.
  class Letter < Direct
    include Polylimit::ActiveJob
    polylimit limiter: LIMITER, policy: :daily, key: -> { "letter #{arguments.first}" }
  end

  class Failing < Job
    polylimit(limiter: LIMITER, policy: :slots) { |key| key }

    def perform(_key)
      raise IOError, 'broken'
    end
  end

  def left(key, policy)
    LIMITER.peek(key, policy: policy).remaining
  end

  def test_denied_job_comes_back_as_itself_and_is_no_attempt
    before = left('mails', :counted)
    ids = Array.new(2) { Mail.perform_later('ann', subject: 'news').job_id }
    done = Timeout.timeout(120) { Array.new(2) { DONE.pop } }
    assert_equal ids.sort, done.map(&:last).sort
    assert_equal [['ann', 'news', 1]], done.map { |one| one.first(3) }.uniq
    assert_equal before - 2, left('mails', :counted)
  end

  def test_job_that_no_worker_runs_raises_a_denial
    before = left('direct', :counted)
    Direct.perform_now('bob')
    denied = assert_raises(Polylimit::JobDenied) { Direct.perform_now('bob') }
    assert_operator denied.retry_after, :>, 3600
    assert_match(/\Aover the limit: retry after \d+\.\d{3} s\z/, denied.message)
    assert_equal before - 1, left('direct', :counted)
  end

  def test_job_has_the_limits_of_its_ancestors_once
    before = left('direct', :counted)
    Letter.perform_now('cat')
    assert_equal [before - 1, 0, 0], [left('direct', :counted), left('cat', :daily), left('letter cat', :daily)]
    LIMITER.reset('cat', policy: :daily)
    assert_raises(Polylimit::JobDenied) { Letter.perform_now('cat') }
    assert_equal [before - 1, 1], [left('direct', :counted), left('cat', :daily)]
  end

  def test_job_that_fails_frees_its_slot
    2.times { assert_raises(IOError) { Failing.perform_now('k') } }
    assert_equal 1, left('k', :slots)
    held = LIMITER.reserve('k', policy: :slots)
    assert_raises(Polylimit::JobDenied) { Failing.perform_now('k') }
    held.cancel
  end

  def test_job_that_can_never_be_admitted_fails
    job = Class.new(Job) { polylimit(limiter: LIMITER, policy: :counted, key: 'never', cost: 11) }
    denied = assert_raises(Polylimit::JobDenied) { job.perform_now }
    assert_equal [nil, 'over the limit: for ever'], [denied.retry_after, denied.message]
  end

  def test_mistakes_are_refused_where_they_stand
    [{ policy: 'unknown' }, { max_delay: 0 }, { max_delay: 'long' }, { cost: -1 }, { cost: nil }, { ttl: -1 }, { max_age: -1 }, { key: :name }].each do |wrong|
      assert_raises(Polylimit::InvalidArgument, wrong.inspect) { Class.new(Job).polylimit(limiter: LIMITER, policy: :slots, **wrong) }
    end
    assert_raises(Polylimit::InvalidArgument) { Class.new(Job).polylimit(limiter: 'redis://localhost') }
    assert_raises(Polylimit::InvalidArgument) { Class.new(Job).polylimit(limiter: LIMITER, policy: :slots, key: 'a') { 'b' } }
    assert_raises(ArgumentError) { Class.new(Job).polylimit(limiter: LIMITER, timeout: 1) }
  end

  def test_versions_are_checked
    check = Polylimit.const_get(:Frameworks).method(:check)
    refused = assert_raises(Polylimit::InvalidArgument) { check.call({ 'Sidekiq' => '6.3.1' }) }
    assert_match(/\ASidekiq is 6\.3\.1: allowed is 6\.4 or newer, below 9/, refused.message)
    assert_raises(Polylimit::InvalidArgument) { check.call({ 'Active Job' => '9.0.0.beta1' }) }
  end
end
