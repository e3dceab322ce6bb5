# frozen_string_literal: true

require 'ffi'

module Polylimit
  # Calls of what happens in each request: a request in a buffer, which the answer replaces, by one primitive call.
  # bindings/uniffi/src/direct.rs has the operations, and direct/layout.rs the layout.
  #
  # A call is first tried without waiting, under Ruby's global lock: memory, the file of this host, the denial cache and leases
  # need no more. Only a call that has to wait for a store releases the lock or, on an event loop, submits itself.
  module Direct
    extend FFI::Library
    ffi_lib LIBRARY
    attach_function :ask, :polylimit_direct_call, %i[uint64 pointer uint32], :int32
    # Other threads run meanwhile.
    attach_function :wait, :polylimit_direct_call, %i[uint64 pointer uint32], :int32, blocking: true

    # The numbers of operations.
    OPERATIONS = {
      check: 1, peek: 2, take: 3, charge: 4, refund: 5, reset: 6, acquire: 7, check_many: 8, check_together: 9, ready: 10,
      doctor: 11, reserve: 12, commit: 13, cancel: 14, renew: 15, end: 16, release_reservation: 17, is_lost: 18,
      block: 19, decide_request: 20, set_entry: 21, delete_entry: 22, publish: 23, wait_for_version: 24, matching: 25,
      configuration: 26, set_document: 27, peek_together: 28, reserve_together: 29, list: 40, scan_top: 41, reset_listed: 42, explain: 43, explain_request: 44, top_keys: 45,
      metrics: 46, decide: 32, resume: 33, overrule: 34, finish: 35, outcomes: 36, release: 37, applies_to: 38,
      end_check: 39, fields: 48, problem: 49, read_head: 50, read_body: 51,
      open_queue: 64, take_answers: 65, cancel_call: 66, close_queue: 67, fetch: 68
    }.freeze
    TRY = 1
    WAIT = 2
    SUBMIT = 4
    # Where the second of them stands in a request, and where its arguments begin.
    WAITS_AT = 1
    QUEUE_AT = 8
    TAG_AT = 16
    TIMEOUT_AT = 24
    HEADER = 32
    HEADERS = OPERATIONS.transform_values { |number| [number, TRY].pack("CCx#{HEADER - 2}").freeze }.freeze
    # The length of what is left out.
    NONE = (1 << 32) - 1

    # The answer in place of that of a guard which has to go on.
    GO_ON = "\4"

    PENDING = -1
    TOO_LARGE = -2
    HAS_TO_WAIT = -3

    # Enough for nearly all requests and answers.
    CAPACITY = 4096
    # Buffers that no call uses at the moment. Taking one out of the list is atomic, so that threads, fibers and handlers of
    # signals never share one.
    FREE = []

    module_function

    # The answer, as bytes, to a call of an operation with these arguments. The owner learns what becomes of a call that is
    # submitted: see Waiting.
    def call(target, operation, arguments = '', timeout_us: 0, owner: nil)
      buffer = filled(operation, arguments)
      # The header has none.
      buffer.put_int64(TIMEOUT_AT, timeout_us) unless timeout_us.zero?
      answer(target, buffer, owner)
    end

    # The answer to a call that never waits for a store, but computes; other threads run meanwhile.
    def compute(target, operation, arguments)
      buffer = filled(operation, arguments)
      finish(buffer, wait(target, buffer, buffer.size))
    end

    # The answer to a call that never waits.
    def call_now(target, operation, arguments = '', tag: 0)
      buffer = filled(operation, arguments)
      buffer.put_uint64(TAG_AT, tag)
      finish(buffer, ask(target, buffer, buffer.size))
    end

    # A buffer with a request.
    def filled(operation, arguments)
      buffer = buffer_for(HEADER + arguments.bytesize)
      buffer.put_bytes(0, HEADERS.fetch(operation))
      buffer.put_bytes(HEADER, arguments)
      buffer
    end

    def buffer_for(size)
      size > CAPACITY ? FFI::MemoryPointer.new(size) : FREE.pop || FFI::MemoryPointer.new(CAPACITY)
    end

    def free(buffer)
      FREE.push(buffer) if buffer.size == CAPACITY
    end

    # The answer, as bytes, to the request in the buffer, which is not the caller's any more.
    def answer(target, buffer, owner = nil)
      length = ask(target, buffer, buffer.size)
      return finish(buffer, length) if length >= 0
      return unfinished(buffer, owner) if length == PENDING
      return finish(buffer, length) unless length == HAS_TO_WAIT
      return Waiting.answer(target, buffer, owner) if Fiber.current_scheduler

      buffer.put_uint8(WAITS_AT, WAIT)
      finish(buffer, wait(target, buffer, buffer.size))
    end

    # A guard has decided, and has something to wait for: it has to go on.
    def unfinished(buffer, owner)
      owner.submitted(buffer)
      free(buffer)
      GO_ON
    end

    # Takes the answer out of a buffer.
    def finish(buffer, length)
      answer = length >= 0 ? buffer.get_bytes(0, length) : fetched(buffer, length)
      free(buffer)
      answer
    end

    # An answer that is larger than its buffer.
    def fetched(buffer, length)
      raise Internal, "a direct call returned #{length}" unless length == TOO_LARGE

      target = buffer.get_uint64(0)
      larger = FFI::MemoryPointer.new([buffer.get_uint32(8), CAPACITY + 1].max)
      larger.put_bytes(0, HEADERS[:fetch])
      finish(larger, ask(target, larger, larger.size))
    end
  end
  private_constant :Direct
end
