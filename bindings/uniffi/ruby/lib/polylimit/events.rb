# frozen_string_literal: true

require 'logger'

# The native library, with a function that is not generated: it is called after every decision, and costs less than those.
module PolylimitNative
  UniFFILib.attach_function(:polylimit_uniffi_has_events, [], :bool)

  def self.events?
    UniFFILib.polylimit_uniffi_has_events
  end
end

module Polylimit
  class << self
    # Told, as warnings, when a limiter begins to decide without its store, when it decides with it again, and what its
    # doctor finds. Any Logger, such as that of Rails; nil for none. Unless told otherwise it writes warnings to $stderr.
    attr_accessor :logger
  end
  self.logger = Logger.new($stderr, level: Logger::WARN, progname: 'polylimit')

  # What a limiter tells is kept by the native library, for all limiters of the process, until a thread comes for it: the
  # one of the next call of any limiter. No thread of the library calls Ruby.
  module Events
    # Whom a limiter tells, until it is closed.
    class Listener
      def initialize(on_degraded)
        @is_open = true
        @on_degraded = on_degraded
      end

      # Nothing that goes wrong here disturbs the call that comes here.
      def hear(event)
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

    # By the numbers of their limiters, which hold them.
    LISTENERS = ObjectSpace::WeakMap.new

    # A listener of the limiter, which has to hold it.
    def self.listen(native, on_degraded)
      unless on_degraded.nil? || on_degraded.respond_to?(:call)
        raise InvalidArgument, "on_degraded is of the class #{on_degraded.class}: allowed is a proc, or what else has call"
      end
      LISTENERS[native.keep_events] = listener = Listener.new(on_degraded)
      listener
    end

    # Tells what there is to tell, on this thread.
    def self.tell
      return unless PolylimitNative.events?

      PolylimitNative.take_events.each { |event| LISTENERS[event.limiter]&.hear(event) }
    end

    def self.log(message)
      Polylimit.logger&.warn(message)
    rescue StandardError
      # There is no other place to tell it.
      nil
    end
  end
  private_constant :Events
end
