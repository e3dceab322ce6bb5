# frozen_string_literal: true

module Polylimit
  # A policy, and what it decided about a request. Where several are applied to one request they have different names.
  Outcome = Struct.new(:policy, :decision)

  # The response to a request that does not proceed, besides the fields of its limits. It is kept as the core has written it, and
  # read where it is asked for.
  class Problem
    # The status of the response.
    attr_reader :status

    def initialize(bytes, at)
      @status = bytes.unpack1('L<', offset: at)
      @bytes = bytes
      @at = at + 4
    end

    def inspect
      "#<Polylimit::Problem status=#{status} detail=#{detail.inspect}>"
    end

    # One sentence for a person about this denial.
    def detail
      AnswerReader.new(@bytes, @at).text
    end

    # The quotas that were exceeded, by their names in ratelimit-policy.
    def violated
      reader = AnswerReader.new(@bytes, @at).tap(&:skip)
      reader.list { reader.text }
    end

    # The fields `content-type` and `vary`.
    def fields
      response.first
    end

    # The body: a problem document (RFC 9457), or text for clients that prefer it.
    def body
      response.last
    end

    private

    def response
      @response ||= begin
        reader = AnswerReader.new(@bytes, @at).tap(&:skip)
        reader.length.times { reader.skip }
        [reader.fields.freeze, reader.text.freeze].freeze
      end
    end
  end

  # The decisions about a request so far.
  class RateLimit
    def initialize(check)
      @check = check
    end

    # Each policy with its newest decision, in order, as they are when this is first called.
    def outcomes
      @outcomes ||= @check.outcomes
    end

    # The first denial, or else the decision that has the least left; nil when there is none.
    def decision
      decisions = outcomes.map(&:decision)
      decisions.find { |decision| !decision.allowed } || decisions.min_by(&:remaining)
    end

    # Shows no facts of the request.
    def inspect
      '#<Polylimit::RateLimit>'
    end
  end

  # A guard's decision about one request. The core has an object for it only while it needs one: when several guards share a
  # request, in an outage that is reported to the program, and while it holds reservations. Otherwise the facts and the decisions are all there is.
  class GuardCheck
    REPLY = 16
    OUTCOMES = 17
    # Where the decisions of a reply begin.
    DECISIONS_AT = 18
    DENIED = 1
    OUTAGE = 2
    HOLDS = 3
    OVERRULES = { admit: "\1", deny: "\0" }.freeze
    LEFT = "\2"
    NO_OUTER = "\0"
    # What most replies begin with: the request proceeds, there are no objects, and one decision.
    ADMITTED = [REPLY, 0, 0, 0, 1].pack('CCQ<Q<L<').freeze
    private_constant :ADMITTED, :REPLY, :OUTCOMES, :DECISIONS_AT, :DENIED, :OUTAGE, :HOLDS, :OVERRULES, :LEFT, :NO_OUTER

    # The fields of the response by their names, for all guards of the request so far; the Problem of a request that does not
    # proceed.
    attr_reader :fields, :problem

    def initialize(guard, facts)
      # The facts have its address.
      @guard = guard
      @facts = facts
      @facts_end = facts.bytesize
      @address = 0
    end

    # Shows no facts of the request, such as its key.
    def inspect
      '#<Polylimit::GuardCheck>'
    end

    def rate_limit
      @rate_limit ||= RateLimit.new(self)
    end

    # Decides, within the check of the guard around this one.
    def decide(address, outer)
      @outer = outer
      reply(call(address, :decide, @facts << (outer ? outer.to_outer : NO_OUTER)))
    end

    # Whether an outage must be reported to the program before there is a reply; then `error` is the one of the store, or nil.
    def outage?
      @is_outage
    end
    attr_reader :error

    # Concludes an outage by what the program has said.
    def overrule(said)
      reply(call(@address, :overrule, OVERRULES.fetch(said, LEFT)))
    end

    # Ends the check with the response. One that does not count gives its units back. Returns the fields; nil if they
    # stay as they are.
    def finish(counts)
      bytes = call(@address, :finish, (counts ? "\1" : "\0") + restored)
      @address = 0 unless holds?
      @fields = keep_outcomes(bytes)
    rescue Closed
      # The limiter was closed during the request. The response stays as it is, and nothing is refunded.
      nil
    end

    # Whether the core has an object for it, which `finish` or `close` releases.
    def kept?
      @address != 0
    end

    # Whether it holds reservations until the response is done: then `end_with` or `close` ends them, in the background.
    def holds?
      !@held.nil?
    end

    # Reads the headers of the response. Returns whether the parts of its body have to be passed to `read_body`.
    def read_head(headers)
      fields = headers.flat_map { |name, value| Array(value).map { |line| [name.to_s, line.to_s] } }
      bytes = fields.flatten.inject([fields.size].pack('L<')) { |written, text| written << [text.bytesize, text].pack('L<a*') }
      Direct.call_now(@address, :read_head, bytes).getbyte(0) == 1
    end

    # Reads the next part of the body, which is not kept.
    def read_body(part)
      Direct.call_now(@address, :read_body, [part.bytesize, part].pack('L<a*')) if kept?
    end

    # Commits what a request has spent, in units, under all policies; nil is what was reserved.
    def end_with(spent)
      spent = spent ? [1, spent].pack('Cq<') : "\0"
      release { |address| Direct.call_now(address, :end_check, spent) }
    end

    # The same by policies; for one that is nil or left out it is what was reserved.
    def end_each(spent)
      bytes = spent.inject([2, spent.size].pack('CL<')) do |written, (policy, units)|
        written << [policy.bytesize, policy, units ? 1 : 0, units || 0].pack('L<a*Cq<')
      end
      release { |address| Direct.call_now(address, :end_check, bytes) }
    end

    # Ends a check that has no response, or one that makes no difference.
    def close
      release { |address| Direct.call_now(address, :release) }
    end

    # Releases a check that is collected, to which the result does not refer: of an application or a server that has lost its response.
    def self.releasing(held)
      proc { Direct.call_now(held.first, :release) unless held.empty? }
    end

    # Each policy that was applied to the request so far, with its newest decision.
    def outcomes
      keep_outcomes(Direct.call_now(@address, :outcomes, restored)) unless @outcomes && !kept?
      reader = AnswerReader.new(*@outcomes)
      reader.list { Outcome.new(Policy.new(name: reader.text, quotas: reader.text), reader.decision) }
    end

    # Itself as the outer check of another one.
    def to_outer
      kept? ? [1, @address].pack('CQ<') : "\2#{restored}"
    end

    # The core has an object from now on, for a guard inside of it.
    def keep(address)
      @address = address unless address.zero?
    end

    # The call has to wait, and has the addresses of this check and of the outer one.
    def submitted(buffer)
      keep(buffer.get_uint64(0))
      @outer&.keep(buffer.get_uint64(8))
    end

    # The program does not wait for the decision any more.
    def abandoned(_answer)
      Direct.call_now(@address, :release) if kept?
      @address = 0
    end

    private

    # The core has no object any more.
    def release
      return unless kept?

      keep_outcomes(Direct.call_now(@address, :outcomes))
      address = @address
      @address = 0
      @held&.clear
      @held = nil
      answer = yield address
      raise AnswerReader.new(answer).answer unless answer.empty?
    end

    # It is released when it is collected, at the latest.
    def hold
      @held = [@address]
      ObjectSpace.define_finalizer(self, GuardCheck.releasing(@held))
    end

    # Asks, and goes on as often as the core has something to wait for.
    def call(target, operation, arguments)
      bytes = Direct.call(target, operation, arguments, owner: self)
      bytes = Direct.call(@address, :resume, owner: self) while bytes == Direct::GO_ON
      bytes
    end

    # What the core restores a check of, where it has no object.
    def restored
      kept? ? '' : @facts.byteslice(0, @facts_end) << @reply.byteslice(DECISIONS_AT, @decisions_end - DECISIONS_AT).b
    end

    # Read for each request, mostly without a reader. Parts of a frozen text are not copied.
    def reply(bytes)
      raise AnswerReader.new(bytes).answer unless bytes.getbyte(0) == REPLY

      @reply = bytes
      return admitted(bytes) if bytes.start_with?(ADMITTED)

      bytes.force_encoding(Encoding::UTF_8).freeze
      verdict, address, outer, count = bytes.unpack('xCQ<Q<L<')
      keep(address)
      @outer&.keep(outer)
      @outer = nil
      @decisions_end = AnswerReader.pass_decisions(bytes, DECISIONS_AT + 4, count)
      @is_outage = verdict == OUTAGE
      return outage(bytes) if @is_outage

      hold if verdict == HOLDS

      if verdict == DENIED
        @fields, @problem = @guard.denial(bytes, @decisions_end)
      else
        @fields = AnswerReader.fields(bytes, @decisions_end)
      end
    end

    def admitted(bytes)
      @outer = nil
      @is_outage = false
      @decisions_end = DECISIONS_AT + 4 + StoreAnswer.bytesize(bytes, DECISIONS_AT + 4)
      @fields = AnswerReader.fields(bytes.force_encoding(Encoding::UTF_8).freeze, @decisions_end)
    end

    def outage(bytes)
      reader = AnswerReader.new(bytes, @decisions_end)
      @fields = reader.fields
      @error = reader.list { Error.of(reader.text, reader.text) }.first
    end

    # Keeps the outcomes of an answer, and returns its fields.
    def keep_outcomes(bytes)
      reader = AnswerReader.expect(OUTCOMES, bytes)
      fields = reader.fields
      @outcomes = [bytes, reader.at]
      fields
    end
  end
  private_constant :GuardCheck
end
