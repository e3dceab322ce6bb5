# frozen_string_literal: true

module Polylimit
  # Reads an answer to a direct call: bindings/uniffi/src/direct/layout.rs has the layout.
  class AnswerReader
    ERROR = 0
    DECISION = 1
    USAGE = 2
    DECISIONS = 3
    READY = 4
    FINDINGS = 5
    RESERVATION = 6
    REQUEST = 7
    CONFIGURATION = 8
    MATCHES = 9
    REPORT = 10
    RESERVATIONS = 11
    NEVER = -1
    # By the numbers of errors.
    ERRORS = [Internal, *PolylimitNative.error_table.map { |row| Error::CODES.key(row.code) }].freeze

    # The whole answer: a decision, a usage, a list of decisions and errors, true for "ready", findings, the handle, the id and
    # the decision of a reservation, the reservations of several requests, or the JSON of a report. Raises the error that it may be instead.
    def self.read(bytes)
      case bytes.getbyte(0)
      when DECISION then Decision.new(bytes, 1)
      when USAGE then Usage.new(bytes, 1)
      else new(bytes).answer.tap { |answer| raise answer if answer.is_a?(Error) }
      end
    end

    # Reads an answer of the kind that is expected. Raises the error that it may be instead.
    def self.expect(kind, bytes)
      return new(bytes, 1) if bytes.getbyte(0) == kind

      raise new(bytes).answer
    end

    # Where this many decisions end that begin at this offset.
    def self.pass_decisions(bytes, at, count)
      while count.positive?
        at += StoreAnswer.bytesize(bytes, at)
        count -= 1
      end
      at
    end

    # The values of header fields, which begin at this offset, by their names. They are read for each request, so that there is no
    # call for each text.
    def self.fields(bytes, at)
      left = bytes.unpack1('L<', offset: at)
      at += 4
      fields = {}
      while left.positive?
        size = bytes.unpack1('L<', offset: at)
        name = bytes.byteslice(at + 4, size)
        at += 4 + size
        size = bytes.unpack1('L<', offset: at)
        fields[name] = bytes.byteslice(at + 4, size)
        at += 4 + size
        left -= 1
      end
      fields
    end

    # Where it reads next.
    attr_reader :at

    # What is text in the bytes is UTF-8, as in those that are frozen.
    def initialize(bytes, at = 0)
      @bytes = bytes.frozen? ? bytes : bytes.force_encoding(Encoding::UTF_8)
      @at = at
    end

    def byte
      @at += 1
      @bytes.getbyte(@at - 1)
    end

    def length
      @at += 4
      @bytes.unpack1('L<', offset: @at - 4)
    end

    def address
      @at += 8
      @bytes.unpack1('Q<', offset: @at - 8)
    end

    def number
      @at += 8
      @bytes.unpack1('q<', offset: @at - 8)
    end

    # Bytes, or nil where they are left out.
    def optional
      return binary unless @bytes.unpack1('L<', offset: @at) == Direct::NONE

      @at += 4
      nil
    end

    def text
      from = @at + 4
      skip
      @bytes.byteslice(from, @at - from)
    end

    # Bytes that are text in UTF-8 where they are any.
    def binary
      bytes = text
      bytes.valid_encoding? ? bytes : bytes.b
    end

    def list
      Array.new(length) { yield }
    end

    # An answer, or the error that it is.
    def answer
      case byte
      when ERROR then error
      when DECISION then store_answer(Decision)
      when USAGE then store_answer(Usage)
      when DECISIONS then list { answer }
      when READY then true
      when RESERVATION then [address, binary, decision]
      when REQUEST then request_decision
      when CONFIGURATION then configuration
      when MATCHES then list { PolicyMatch.new(*match).freeze }
      when REPORT then text
      when RESERVATIONS then request_reservation
      when FINDINGS then list { Finding.new(severity: text, subject: text, message: text) }
      else raise Internal, 'an answer of the native library cannot be read'
      end
    end

    # The values of header fields by their names.
    def fields
      from = @at
      length.times { 2.times { skip } }
      AnswerReader.fields(@bytes, from)
    end

    # Passes a text.
    def skip
      @at += 4 + @bytes.unpack1('L<', offset: @at)
    end

    def decision
      store_answer(Decision)
    end

    private

    # The policy, the key, the cost and the headroom.
    def match
      [text, binary, number, byte]
    end

    def request_decision
      allowed = byte == 1
      cause = StoreAnswer.cause(byte)
      status = length
      wait = number
      decisions = list do
        policy, key, cost, headroom = match
        reservation = optional
        PolicyDecision.new(policy, key, cost, headroom, decision, reservation).freeze
      end
      RequestDecision.new(allowed, cause, status.zero? ? nil : status, wait == NEVER ? nil : Span.seconds(wait), decisions.freeze).freeze
    end

    def request_reservation
      id = binary.freeze
      decisions = answer.freeze
      RequestReservation.new(decisions.all?(&:allowed), decisions, id).freeze
    end

    def configuration
      source = text
      version = number
      document_version = number
      digest = text
      applied_at = number
      age = Span.seconds(number)
      applied_at = applied_at.zero? ? nil : Time.at(0, applied_at, :microsecond)
      ConfigurationStatus.new(source, version, document_version, digest, applied_at, age, optional).freeze
    end

    def error
      ERRORS.fetch(byte).new(text)
    end

    def store_answer(type)
      type.new(@bytes, @at).tap { |answer| @at += answer.bytesize }
    end
  end
  private_constant :AnswerReader
end
