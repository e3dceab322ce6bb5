# frozen_string_literal: true

module Polylimit
  # Notifies ActiveSupport of what the middleware decides, as the event `throttle.polylimit`, where it is loaded and has a subscriber.
  class RackEvents
    NAME = 'throttle.polylimit'

    # `key` is called with the env and returns what the event has as `key`; without it the event has none.
    def initialize(key)
      @key = GuardOptions.function('event_key', key)
    end

    def decided(env, check)
      return unless defined?(ActiveSupport::Notifications) && ActiveSupport::Notifications.notifier.listening?(NAME)

      payload = payload(check)
      payload[:key] = @key.call(env) if @key
      ActiveSupport::Notifications.instrument(NAME, payload)
    end

    private

    # About the first denial, or else the decision that has the least left.
    def payload(check)
      outcomes = RateLimit.new(check).outcomes
      outcome = outcomes.find { |one| !one.decision.allowed } || outcomes.min_by { |one| one.decision.remaining }
      decision = outcome&.decision
      {
        policy: outcome&.policy&.name, allowed: check.problem.nil?, status: check.problem&.status, source: decision&.source,
        cause: decision&.cause, degraded: decision&.degraded, remaining: decision&.remaining, retry_after: decision&.retry_after
      }
    end
  end
  private_constant :RackEvents
end
