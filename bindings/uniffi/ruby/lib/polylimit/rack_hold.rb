# frozen_string_literal: true

module Polylimit
  # Reads a response of Rack that reports what was spent, and notices when it is done: when its server closes the body, as it does for a client that has gone as well, or when
  # the application closes a socket that it has taken over.
  class RackHold
    # A socket or a stream that reports when it is closed.
    module Closing
      def polylimit_holds
        @polylimit_holds ||= []
      end

      def close(*)
        super
      ensure
        polylimit_holds.each(&:end)
      end
    end

    # A socket or a stream whose writing is read.
    module Reading
      attr_accessor :polylimit_read

      def write(*parts)
        parts.each { |part| polylimit_read.call(part.to_s) }
        super
      end

      def <<(part)
        polylimit_read.call(part.to_s)
        super
      end
    end

    # A body that reports when it is closed. It can what the body of the application can.
    class Body
      def initialize(body, hold)
        @body = body
        @hold = hold
      end

      def close
        @body.close if @body.respond_to?(:close)
      ensure
        # A body that is called has a stream, which may outlive it.
        @hold.end unless @is_called
      end

      # Servers may take an array for the body itself, and not close it.
      def respond_to_missing?(name, all = false)
        name != :to_ary && @body.respond_to?(name, all)
      end

      def method_missing(name, *arguments, &block)
        return super if name == :to_ary || !@body.respond_to?(name)
        return @body.public_send(name, *arguments, &block) unless name == :call

        @is_called = true
        @body.call(@hold.until_closed(*arguments))
      end
    end

    # A body that is read as well, as its parts pass. Servers send a file by its path, and would not pass its parts.
    class ReadBody < Body
      HIDDEN = %i[to_ary to_path].freeze

      def initialize(body, hold, read)
        super(body, hold)
        @read = read
      end

      def respond_to_missing?(name, all = false)
        !HIDDEN.include?(name) && super
      end

      def method_missing(name, *arguments, &block)
        return super unless name == :each && block && @body.respond_to?(:each)

        @body.each do |part|
          @read.call(part)
          yield part
        end
      end
    end
    private_constant :Closing, :Reading, :Body, :ReadBody

    # The block ends what is held; `read` takes the parts of the body, or is nil.
    def initialize(read = nil, &block)
      @read = read
      @block = block
    end

    # The response, whose end is noticed.
    def response(env, status, headers, body)
      if (takes_over = headers['rack.hijack'])
        return [status, headers.merge('rack.hijack' => ->(socket) { takes_over.call(until_closed(socket)) }), body]
      end
      return [status, headers, @read ? ReadBody.new(body, self, @read) : Body.new(body, self)] unless env['rack.hijack_io']

      until_closed(env['rack.hijack_io'])
      [status, headers, body]
    end

    # The socket, which ends what is held when it is closed.
    def until_closed(socket)
      socket.extend(Closing)
      socket.extend(Reading).polylimit_read = @read if @read
      socket.polylimit_holds << self
      self.end if socket.respond_to?(:closed?) && socket.closed?
      socket
    end

    # Ends what is held, once.
    def end
      block = @block
      @block = nil
      block&.call
    end
  end
  private_constant :RackHold
end
