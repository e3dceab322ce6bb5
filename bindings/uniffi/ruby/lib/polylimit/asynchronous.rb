# frozen_string_literal: true

require 'forwardable'

module Polylimit
  # The operations of a limiter for event loops of fibers, such as Async and Falcon. Made by Limiter#asynchronous.
  #
  # The native library waits on a thread, so each call waits on one of its own, and the event loop runs other fibers
  # meanwhile. Takes and returns what the limiter does, and stands in its place in Polylimit::Rack. A fiber that is stopped
  # takes nothing back: its call goes on to its end, #acquire to its turn or its timeout.
  class Asynchronous
    extend Forwardable

    WAITING = %i[check check_many check_together peek take charge refund reset acquire ready doctor close].freeze

    # What never waits.
    def_delegators :@limiter, :policy, :policies, :set_policy, :set_credentials, :keys, :stats

    def initialize(limiter)
      @limiter = limiter
    end

    WAITING.each do |operation|
      define_method(operation) do |*arguments, **named|
        thread = Thread.new { @limiter.public_send(operation, *arguments, **named) }
        # Whoever waits for the thread is told.
        thread.report_on_exception = false
        thread.value
      end
    end
  end
end
