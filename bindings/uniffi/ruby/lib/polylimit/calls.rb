# frozen_string_literal: true

require 'json'

module Polylimit
  # How a Limiter and its Admin call native code: requests on one key as bytes, and answers. The limiter is at @address; @ends has the ends
  # of requests by their policies.
  module Calls
    # The end of a request that names no policy.
    NO_POLICY = [Direct::NONE].pack('L<').freeze
    # How many policies are remembered as the ends of requests.
    MAX_REMEMBERED = 1024
    # What stands before a key: the header of the request, and that it has neither cost, plan nor headroom.
    BEGINNINGS = Direct::HEADERS.transform_values { |header| "#{header}#{"\0" * 13}".freeze }.freeze
    FLAGS_AT = Direct::HEADER
    COST_AT = FLAGS_AT + 1
    HEADROOM_AT = COST_AT + 8
    KEY_AT = HEADROOM_AT + 4
    HAS_COST = 1
    HAS_PLAN = 2
    private_constant :NO_POLICY, :MAX_REMEMBERED, :BEGINNINGS, :FLAGS_AT, :COST_AT, :HEADROOM_AT, :KEY_AT, :HAS_COST, :HAS_PLAN

    private

    # A request without a cost spends 1. A cost of nil is a mistake of the caller, such as the number of tokens of a failed answer.
    def other_than_one(cost)
      cost.equal?(1) ? nil : Argument.cost(cost)
    end

    # Waits in a way that can be interrupted.
    def wait(operation, timeout_us, arguments = '')
      buffer = Direct.filled(operation, arguments)
      buffer.put_int64(Direct::TIMEOUT_AT, timeout_us)
      read Waiting.answer(@address, buffer)
    end

    # Delivers events, and returns what the answer says.
    def read(bytes)
      Events.deliver
      AnswerReader.read(bytes)
    end

    def report(answer)
      JSON.parse(read(answer), symbolize_names: true)
    end

    # A buffer with the request of an operation on one key: bindings/uniffi/src/direct/layout.rs has the layout.
    def request(operation, key, policy, cost, more = '', plan: nil, headroom: nil)
      key = Argument.key(key)
      ending = @ends[policy] || ending(policy)
      ending += Attributes.text('plan', plan.to_s) if plan
      ending += more unless more.empty?
      headroom = Argument.percent(headroom) if headroom
      cost = Argument.units(operation == :commit ? 'spent' : 'cost', cost) if cost
      size = key.bytesize
      buffer = Direct.buffer_for(KEY_AT + 4 + size + ending.bytesize)
      buffer.put_bytes(0, BEGINNINGS[operation])
      buffer.put_int64(COST_AT, cost) if cost
      buffer.put_uint8(FLAGS_AT, (cost ? HAS_COST : 0) | (plan ? HAS_PLAN : 0)) if cost || plan
      buffer.put_int32(HEADROOM_AT, headroom) if headroom
      buffer.put_uint32(KEY_AT, size)
      buffer.put_bytes(KEY_AT + 4, key)
      buffer.put_bytes(KEY_AT + 4 + size, ending)
    end

    # The end of a request: its policy.
    def ending(policy)
      text = Argument.text('policy', policy)
      ending = [text.bytesize, text].pack('L<a*')
      @ends[policy.dup.freeze] = ending if @ends.size < MAX_REMEMBERED
      ending
    end
  end
  private_constant :Calls
end
