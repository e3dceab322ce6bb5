# frozen_string_literal: true

require 'logger'

# Adds a function to the native library that is not generated. It is called after every decision, and costs less than a
# generated one.
module PolylimitNative
  UniFFILib.attach_function(:polylimit_uniffi_has_events, [], :bool)

  def self.events?
    UniFFILib.polylimit_uniffi_has_events
  end
end

module Polylimit
  class << self
    # The Logger that receives, as warnings, when a limiter begins to decide without its store, when it decides with it again,
    # and findings of its doctor; nil for none. The default writes warnings to $stderr.
    attr_accessor :logger
  end
  self.logger = Logger.new($stderr, level: Logger::WARN, progname: 'polylimit')

  # Delivers events. The native library queues the events of all limiters of the process until the next call of any limiter
  # takes them on its own thread. No native thread calls Ruby.
  module Events
    # Receives the events of a limiter until the limiter is closed.
    class Listener
      def initialize(on_degraded)
        @is_open = true
        @on_degraded = on_degraded
      end

      # An error here does not affect the call that delivers the event.
      def receive(event)
        return unless @is_open

        Events.log(event.message)
        @on_degraded&.call(event)
      rescue StandardError => e
        Events.log("on_degraded raised #{e.class}: #{e.message}")
      end

      def close
        @is_open = false
        @on_degraded = nil
      end
    end

    # Listeners by the numbers of their limiters, which hold references to them.
    LISTENERS = ObjectSpace::WeakMap.new

    # A listener for the limiter, which has to hold a reference to it.
    def self.listen(native, on_degraded)
      unless on_degraded.nil? || on_degraded.respond_to?(:call)
        raise InvalidArgument, "on_degraded is of the class #{on_degraded.class}: allowed is a proc, or what else has call"
      end
      LISTENERS[native.keep_events] = listener = Listener.new(on_degraded)
      listener
    end

    # Delivers the queued events on this thread.
    def self.deliver
      return unless PolylimitNative.events?

      PolylimitNative.take_events.each { |event| LISTENERS[event.limiter]&.receive(event) }
    end

    def self.log(message)
      Polylimit.logger&.warn(message)
    rescue StandardError
      # There is no other place to report it.
      nil
    end
  end
  private_constant :Events
end
