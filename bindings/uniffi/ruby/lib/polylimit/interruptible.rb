# frozen_string_literal: true

module Polylimit
  # Waits for what may take long, in pieces: between two of them Ruby looks whether the thread is interrupted, such as by
  # Timeout, Thread#raise, Thread#kill or a signal.
  module Interruptible
    # The longest piece, in seconds.
    PIECE = 0.05

    # The answer, given by that method, to the call that the block starts. A thread that is interrupted gives up its place in
    # line, and gives back what it was admitted.
    def self.answer(method)
      waiting = nil
      is_taken = false
      # Not before it is known what to give up.
      Thread.handle_interrupt(Object => :never) { waiting = yield }
      nil until waiting.wait(PIECE)
      answer = waiting.public_send(method)
      is_taken = true
      answer
    ensure
      give_up(waiting) if waiting && !is_taken
    end

    def self.give_up(waiting)
      Thread.handle_interrupt(Object => :never) { waiting.give_up }
    rescue Error
      # The interruption is what the caller is told; what the store cannot give back stays spent, as with any refund.
      nil
    end
    private_class_method :give_up
  end
  private_constant :Interruptible
end
