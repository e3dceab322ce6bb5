# frozen_string_literal: true

require 'forwardable'

module Polylimit
  # The operations of a limiter for event loops of fibers, such as Async and Falcon. Made by Limiter#asynchronous.
  #
  # Each call blocks a thread of its own, and the event loop runs other fibers meanwhile. Arguments and results are those of
  # the limiter, which it can replace in Polylimit::Rack. A fiber that is stopped in #acquire leaves the queue; other calls
  # continue to their end.
  class Asynchronous
    extend Forwardable

    BLOCKING = %i[check check_many check_together peek take charge refund reset acquire ready doctor close].freeze

    # Operations that never block.
    def_delegators :@limiter, :policy, :policy_for, :policies, :set_policy, :set_credentials, :keys, :stats,
                   :guard

    # The limiter that made it.
    attr_reader :limiter

    # What the block returns on a thread of its own.
    def self.on_thread(&block)
      thread = Thread.new(&block)
      # `value` raises the exception in the caller.
      thread.report_on_exception = false
      thread.value
    ensure
      thread&.kill
    end

    def initialize(limiter)
      @limiter = limiter
    end

    # Shows nothing of the limiter.
    def inspect
      '#<Polylimit::Asynchronous>'
    end

    BLOCKING.each do |operation|
      define_method(operation) do |*arguments, **named|
        Asynchronous.on_thread { @limiter.public_send(operation, *arguments, **named) }
      end
    end
  end
end
