# frozen_string_literal: true

module Polylimit
  # Waits for a pending call in steps. Between two steps Ruby checks whether the thread is interrupted, such as by Timeout,
  # Thread#raise, Thread#kill or a signal.
  module Interruptible
    # The duration of a step, in seconds.
    STEP = 0.05

    # The answer, given by that method, to the call that the block starts. A thread that is interrupted gives up its place in
    # line, and gives back what it was admitted.
    def self.answer(method)
      pending = nil
      is_taken = false
      # An interruption is deferred until the pending call is known.
      Thread.handle_interrupt(Object => :never) { pending = yield }
      nil until pending.wait(STEP)
      answer = pending.public_send(method)
      is_taken = true
      answer
    ensure
      cancel(pending) if pending && !is_taken
    end

    def self.cancel(pending)
      Thread.handle_interrupt(Object => :never) { pending.cancel }
    rescue Error
      # The caller receives the interruption. Units that the store cannot refund stay spent, as with any refund.
      nil
    end
    private_class_method :cancel
  end
  private_constant :Interruptible
end
