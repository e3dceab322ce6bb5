# frozen_string_literal: true

require 'forwardable'

module Polylimit
  # The operations of a limiter for event loops of fibers, such as Async and Falcon. Made by Limiter#asynchronous.
  #
  # The native library waits on a thread, so each call waits on one of its own, and the event loop runs other fibers
  # meanwhile. Takes and returns what the limiter does, and stands in its place in Polylimit::Rack. A fiber that is stopped
  # in #acquire gives up its place in line; another call that it waits for goes on to its end.
  class Asynchronous
    extend Forwardable

    WAITING = %i[check check_many check_together peek take charge refund reset acquire ready doctor close].freeze

    # What never waits.
    def_delegators :@limiter, :policy, :policy_for, :policies, :set_policy, :set_credentials, :keys, :stats

    # The limiter that made it.
    attr_reader :limiter

    def initialize(limiter)
      @limiter = limiter
    end

    # Shows nothing of the limiter.
    def inspect
      '#<Polylimit::Asynchronous>'
    end

    WAITING.each do |operation|
      define_method(operation) do |*arguments, **named|
        thread = Thread.new { @limiter.public_send(operation, *arguments, **named) }
        # Whoever waits for the thread is told.
        thread.report_on_exception = false
        thread.value
      ensure
        thread&.kill
      end
    end
  end
end
