# frozen_string_literal: true

require 'active_job'
require_relative 'job_limits'

module Polylimit
  # Limits on the jobs of Active Job: a job that is denied is enqueued again for later, and no worker waits for it.
  #
  #   class ExportJob < ApplicationJob
  #     include Polylimit::ActiveJob
  #
  #     polylimit(limiter: LIMITER, policy: '2 concurrent; 100/day', max_delay: 5) { |tenant| tenant }
  #
  #     def perform(tenant); end
  #   end
  #
  # JobLimits#polylimit has the options. Going back is no attempt: `executions` and the attempts of `retry_on` stay as they are. The queue
  # needs to enqueue jobs for later, as all but `:inline` do. A job that `perform_now` runs raises JobDenied when it is denied.
  module ActiveJob
    def self.included(job_class)
      Frameworks.check({ 'Active Job' => ::ActiveJob::VERSION::STRING })
      job_class.extend(JobLimits)
      # A callback that has a name is there once, however many classes of a hierarchy include this.
      job_class.around_perform(:polylimit_around)
    end

    private

    def polylimit_around(&block)
      decision, seconds = JobLimits.around(self, job_id, arguments, &block)
      return unless seconds
      # A worker has it from a queue.
      raise JobDenied, decision unless enqueued_at

      # This one has been counted.
      self.executions -= 1
      retry_job(wait: seconds)
    end
  end
end
