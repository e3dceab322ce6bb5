# frozen_string_literal: true

require 'io/wait'

module Polylimit
  # Calls that were submitted and are waited for: by a fiber, while the event loop of its thread runs others, or by a thread that
  # can be interrupted. When there are answers, the core writes a byte into a pipe, once for all of them.
  #
  # On an event loop a fiber of its own waits for the pipe and takes the answers of all, while there are calls. The fibers that have
  # called wait for their turn: timeouts of every event loop reach a fiber there, and not in all of them one that waits for a pipe. A
  # thread without an event loop has a queue and a pipe to itself.
  #
  # Ruby cannot defer the handlers of signals, which run on the main thread, and what they raise: such an exception may end any method
  # here at any point, also where interruptions by other threads are deferred. Then the call is cancelled, and no other is affected.
  class Waiting
    # A call, and its answer as bytes once it is there.
    Call = Struct.new(:number, :turn, :answer)

    # Those of threads without an event loop that no thread uses at the moment.
    FREE = []
    # The variable of a thread for the one of its event loop.
    OF_SCHEDULER = :polylimit_waiting
    # Room for many answers.
    CAPACITY = 64 * 1024
    # The owner of calls that end a reservation.
    ENDING = Class.new { def submitted(_buffer); end }.new
    private_constant :Call, :FREE, :OF_SCHEDULER, :CAPACITY

    class << self
      # The answer to the request in the buffer, once it is there. A caller that is interrupted meanwhile cancels its call. The
      # owner, where there is one, receives what is in the buffer when the call is pending (`submitted`), and on an interruption
      # the answer that the caller does not get, or nil (`abandoned`). A call whose owner is ENDING goes on without its caller.
      def answer(target, buffer, owner = nil)
        scheduler = Fiber.current_scheduler
        return of(scheduler).answer(target, buffer, owner) if scheduler

        waiting = FREE.pop
        waiting = new(nil) unless waiting&.usable?(nil)
        is_whole = false
        begin
          answer = waiting.answer(target, buffer, owner)
          is_whole = true
          answer
        ensure
          # Which part of an answer was taken when the exception of a signal's handler came is not known.
          is_whole ? FREE.push(waiting) : waiting.close
        end
      end

      # Closes a queue of the core. It must not refer to what is collected.
      def closing(queue)
        proc { Direct.call_now(queue, :close_queue) }
      end

      private

      def of(scheduler)
        known = Thread.current.thread_variable_get(OF_SCHEDULER)
        return known if known&.usable?(scheduler)

        new(scheduler).tap { |made| Thread.current.thread_variable_set(OF_SCHEDULER, made) }
      end
    end

    def initialize(scheduler)
      @scheduler = scheduler.object_id
      @is_looping = !scheduler.nil?
      @process = Process.pid
      # The core has a duplicate of the writer.
      @reader, @writer = IO.pipe
      @queue = Direct.call_now(0, :open_queue, [@writer.fileno].pack('q<')).unpack1('Q<')
      ObjectSpace.define_finalizer(self, Waiting.closing(@queue))
      @calls = {}
      @last = 0
      @is_taking = false
      @buffer = FFI::MemoryPointer.new(CAPACITY)
      @scratch = String.new(capacity: 64)
    end

    # Whether it belongs to this process and to this event loop: a forked child uses nothing of its parent.
    def usable?(scheduler)
      @process == Process.pid && @scheduler == scheduler.object_id
    end

    def answer(target, buffer, owner)
      call = Call.new(@last += 1, Thread::Queue.new)
      is_taken = false
      # An interruption is deferred until the call is known.
      Thread.handle_interrupt(Object => :never) { submit(call, target, buffer, owner) }
      wait_for(call)
      is_taken = true
      call.answer
    ensure
      Thread.handle_interrupt(Object => :never) { leave(call, owner, is_taken) } if call
    end

    # Cancels all calls.
    def close
      ObjectSpace.undefine_finalizer(self)
      Waiting.closing(@queue).call
      @reader.close
      @writer.close
    end

    private

    def submit(call, target, buffer, owner)
      buffer.put_uint8(Direct::WAITS_AT, Direct::SUBMIT)
      buffer.put_uint64(Direct::QUEUE_AT, @queue)
      buffer.put_uint64(Direct::TAG_AT, call.number)
      length = Direct.ask(target, buffer, buffer.size)
      if length == Direct::PENDING
        @calls[call.number] = call
        owner&.submitted(buffer)
        Direct.free(buffer)
      else
        call.answer = Direct.finish(buffer, length)
      end
    end

    def wait_for(call)
      until call.answer
        next take_when_readable unless @is_looping

        start_reading unless reading?
        failure = call.turn.pop
        raise failure if failure
      end
    end

    # The fiber that reads may be stopped with the task that has started it: then the next call starts another one.
    def start_reading
      Fiber.schedule do
        @reading = Fiber.current
        take_when_readable until @calls.empty?
      rescue StandardError => e
        @calls.each_value { |call| call.turn.push(e) }
      ensure
        @reading = nil
        start_elsewhere
      end
    end

    def reading?
      @reading&.alive?
    end

    def take_when_readable
      # What has ended the last take midway may have left the pipe empty, and answers.
      @reader.wait_readable unless @is_taking
      Thread.handle_interrupt(Object => :never) { take }
    end

    # Takes all answers that are there. When the handler of a signal raises, the next take goes on where this one was.
    def take
      @is_taking = true
      @reader.read_nonblock(64, @scratch, exception: false)
      hand_out if @length
      loop do
        fetch
        break if hand_out.zero?
      end
      @buffer = FFI::MemoryPointer.new(CAPACITY) if @buffer.size > CAPACITY
      @is_taking = false
    end

    # Fetches some answers. They stay in the buffer until all of them are handed out: neither a call of native code nor the assignment
    # of what it returns can be interrupted.
    def fetch
      @buffer.put_bytes(0, Direct::HEADERS[:take_answers])
      @length = Direct.ask(@queue, @buffer, @buffer.size)
    end

    # Hands out the answers in the buffer, each to the call with its number, and returns how many there were.
    def hand_out
      if @length == Direct::TOO_LARGE
        larger = FFI::MemoryPointer.new(@buffer.get_uint32(8))
        larger.put_bytes(0, Direct::HEADERS[:fetch])
        @buffer, @length = larger, Direct.ask(@buffer.get_uint64(0), larger, larger.size)
      end
      bytes = @buffer.get_bytes(0, @length)
      reader = AnswerReader.new(bytes)
      answers = reader.list do
        number = reader.address
        from = reader.at
        reader.answer
        deliver(number, bytes.byteslice(from, reader.at - from))
      end
      @length = nil
      answers.size
    end

    def deliver(number, answer)
      call = @calls[number]
      return unless call

      call.answer = answer
      call.turn.push(nil)
      @calls.delete(number)
    end

    # Cancels a call that is not waited for any more. When it was the last one, nothing else ends the fiber that reads; when it was to
    # start another one, that is for the next call.
    def leave(call, owner, is_taken)
      give_up(call, owner) unless is_taken
    ensure
      if !reading?
        start_elsewhere
      elsif @calls.empty?
        @writer.write_nonblock('.', exception: false)
      end
    end

    # Has another call start the fiber that reads.
    def start_elsewhere
      @calls.first&.last&.turn&.push(nil)
    end

    def give_up(call, owner)
      return @calls.delete(call.number) if owner.equal?(ENDING)

      # What was not cancelled has finished.
      take unless call.answer || cancelled?(call)
      @calls.delete(call.number)
      owner&.abandoned(call.answer)
    end

    def cancelled?(call)
      Direct.call_now(@queue, :cancel_call, '', tag: call.number).getbyte(0) == 1
    end
  end
  private_constant :Waiting
end
