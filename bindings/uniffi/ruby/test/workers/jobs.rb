# frozen_string_literal: true

# The jobs of sidekiq_test.rb, of Sidekiq and of Active Job on Sidekiq: the program of its workers. They count what they do in Redis.
require 'polylimit/sidekiq'
require 'polylimit/active_job'

# Sidekiq 6.4 calls what version 5 of the gem redis changes.
Redis.silence_deprecations = true if defined?(Redis) && Redis.respond_to?(:silence_deprecations=)
SETTINGS = { url: ENV.fetch('BROKER') }.freeze
POLICIES = { slots: '1 concurrent', mails: '2/2s token_bucket', counted: '1000/day fixed_window' }.freeze
LIMITER = Polylimit::Limiter.new(ENV.fetch('STORE'), policies: POLICIES)
Sidekiq.configure_client { |config| config.redis = SETTINGS }
Sidekiq.configure_server do |config|
  config.redis = SETTINGS
  # How often scheduled jobs are looked for, in seconds.
  (config.respond_to?(:options) ? config.options : config)[:poll_interval_average] = 1
end
ActiveJob::Base.queue_adapter = :sidekiq
ActiveJob::Base.logger = Logger.new(nil)

def count(what, by = 1)
  Sidekiq.redis { |redis| redis.incrby(what, by) }
end

# What jobs of both do.
module Work
  def export(tenant, seconds)
    Sidekiq.redis { |redis| redis.rpush("running #{tenant}", count("now #{tenant}").to_s) }
    sleep(seconds)
    count("now #{tenant}", -1)
    count("done #{tenant}")
  end

  def fail_once(tenant)
    raise IOError, 'the first attempt fails' if count("attempts #{tenant}") == 1
  end
end

class SidekiqJob
  include Sidekiq::Job
  include Polylimit::Sidekiq
  include Work

  def self.send_job(*arguments)
    perform_async(*arguments)
  end
end

class ActiveJobJob < ActiveJob::Base
  include Polylimit::ActiveJob
  include Work

  def self.send_job(*arguments)
    perform_later(*arguments).job_id
  end
end

# The same classes of each.
def jobs(base, module_name)
  jobs = Object.const_set(module_name, Module.new)
  export = jobs.const_set(:Export, Class.new(base) { define_method(:perform) { |tenant, seconds| export(tenant, seconds) } })
  export.polylimit(limiter: LIMITER, policy: :slots, ttl: 3, max_delay: 1) { |tenant| tenant }
  mail = jobs.const_set(:Mail, Class.new(base) { define_method(:perform) { count("mails #{module_name}") } })
  mail.polylimit(limiter: LIMITER, policy: 'counted', key: module_name.to_s)
  mail.polylimit(limiter: LIMITER, policy: 'mails', key: -> { "mails #{module_name}" }, max_delay: 1)
  flaky = jobs.const_set(:Flaky, Class.new(base) { define_method(:perform) { |tenant| fail_once(tenant) } })
  flaky.polylimit(limiter: LIMITER, policy: :slots, key: ->(tenant) { tenant }, max_delay: 1)
  impossible = jobs.const_set(:Impossible, Class.new(base) { define_method(:perform) { count("impossible #{module_name}") } })
  impossible.polylimit(limiter: LIMITER, policy: :counted, cost: 2000)
end

jobs(SidekiqJob, :OfSidekiq)
OfSidekiq::Flaky.sidekiq_options retry: 1
OfSidekiq::Flaky.sidekiq_retry_in { 1 }
OfSidekiq::Impossible.sidekiq_options retry: false
jobs(ActiveJobJob, :OfActiveJob)
OfActiveJob::Flaky.retry_on(IOError, attempts: 2, wait: 1)
OfActiveJob::Impossible.discard_on(Polylimit::JobDenied) { count('discarded') }
