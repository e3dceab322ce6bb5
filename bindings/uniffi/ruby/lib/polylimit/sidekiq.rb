# frozen_string_literal: true

require 'sidekiq'
require_relative 'job_limits'

module Polylimit
  # Limits on the jobs of Sidekiq: a job that is denied goes back to Sidekiq's scheduled jobs, and no thread waits for it.
  #
  #   class ExportJob
  #     include Sidekiq::Job
  #     include Polylimit::Sidekiq
  #
  #     polylimit(limiter: LIMITER, policy: '2 concurrent; 100/day', max_delay: 5) { |tenant| tenant }
  #
  #     def perform(tenant); end
  #   end
  #
  # JobLimits#polylimit has the options. Going back is no retry: the count of retries, the id and the arguments stay as they are. Jobs of
  # Active Job have Polylimit::ActiveJob, on Sidekiq as well.
  module Sidekiq
    def self.included(job_class)
      job_class.extend(JobLimits)
    end

    # The middleware of the server that limits, which this file adds. A program that wants it elsewhere among the others adds it again.
    class Middleware
      def call(job, payload, _queue, &block)
        return yield unless job.class.respond_to?(:polylimits)

        _decision, seconds = JobLimits.around(job, payload['jid'], payload['args'], &block)
        postpone(payload, seconds) if seconds
      end

      private

      # As Sidekiq schedules a retry, without counting one.
      def postpone(payload, seconds)
        at = Time.now.to_f + seconds
        ::Sidekiq.redis { |redis| redis.zadd('schedule', at.to_s, ::Sidekiq.dump_json(payload)) }
      end
    end
  end

  Frameworks.check({ 'Sidekiq' => ::Sidekiq::VERSION })
  ::Sidekiq.configure_server { |config| config.server_middleware { |chain| chain.add(Sidekiq::Middleware) } }
end
