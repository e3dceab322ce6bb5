# frozen_string_literal: true

module Polylimit
  # The state of a key under one quota, after the operation: `limit` in units per period, `remaining` whole units that this
  # quota would still admit right now, `reset_after` seconds until nothing counts as used if nothing else arrives, `over` units of
  # the quota's excess that are in use; and in a decision the quota's own verdict on the request: whether it is `allowed`, and
  # `retry_after` seconds until this quota would admit the same request if no other arrives, 0 when it admits it and nil for never.
  # Where no quota was asked, and in a usage, every quota admits.
  QuotaUsage = Struct.new(:limit, :remaining, :reset_after, :over, :allowed, :retry_after) do
    alias_method :allowed?, :allowed
  end

  # What a decision and a usage have in common. They are kept as the core has written them, and read where they are asked for. They are
  # frozen, and may be shared by Ractors.
  class StoreAnswer
    SOURCES = PolylimitNative.source_names.map(&:freeze).freeze
    CAUSES = [nil, *PolylimitNative.cause_names.map(&:freeze)].freeze
    DEGRADATIONS = [nil, *PolylimitNative.degradation_names.map(&:freeze)].freeze
    # Where the quotas begin.
    LENGTH = 48
    QUOTA_NUMBERS = 5
    QUOTA_LENGTH = QUOTA_NUMBERS * 8
    # A wait that never ends.
    NEVER = -1
    private_constant :SOURCES, :CAUSES, :DEGRADATIONS, :LENGTH, :QUOTA_NUMBERS, :QUOTA_LENGTH, :NEVER

    # The name of a cause by its number; nil for 0.
    def self.cause(number)
      CAUSES.fetch(number)
    end

    # How many bytes the answer takes that begins at that offset.
    def self.bytesize(bytes, at)
      LENGTH + (bytes.unpack1('L<', offset: at + 44) * QUOTA_LENGTH)
    end

    # Reads the answer from these bytes, where it begins at that offset.
    def initialize(bytes, at)
      @bytes = bytes.freeze
      @at = at
      freeze
    end

    # Whole units that can still be spent right now, after this operation: the least over the quotas.
    def remaining
      number(4)
    end

    # Seconds until nothing counts as used any more if nothing else arrives: the longest over the quotas.
    def reset_after
      Span.seconds(number(20))
    end

    # Units of an excess that are in use, the most over the quotas: above 0 once use is beyond a quota's limit.
    def over
      number(36)
    end

    # The source of the answer, such as "store".
    def source
      SOURCES.fetch(@bytes.getbyte(@at + 1))
    end

    # Whether the outage policy answered, since the store was unavailable.
    def is_outage
      (@bytes.getbyte(@at) & 2).positive?
    end
    alias outage? is_outage

    # Why this is not what a healthy store would have answered for this key alone, such as "timeout"; nil if it is.
    def degraded
      DEGRADATIONS.fetch(@bytes.getbyte(@at + 2))
    end

    # The QuotaUsage under each quota, in the order of the policy.
    def quotas
      numbers_of_quotas.each_slice(QUOTA_NUMBERS).map do |limit, remaining, reset_after, over, wait|
        QuotaUsage.new(limit, remaining, Span.seconds(reset_after), over, wait.zero?, seconds(wait)).freeze
      end.freeze
    end

    # All values by their names.
    def to_h
      names.to_h { |name| [name, public_send(name)] }
    end

    def deconstruct_keys(_names)
      to_h
    end

    def ==(other)
      other.class == self.class && other.to_h == to_h
    end
    alias eql? ==

    def hash
      to_h.hash
    end

    def inspect
      "#<#{self.class.name} #{to_h.map { |name, value| "#{name}=#{value.inspect}" }.join(' ')}>"
    end
    alias to_s inspect

    # What the core has written.
    def bytes
      @bytes.byteslice(@at, bytesize)
    end

    # How many bytes it takes.
    def bytesize
      StoreAnswer.bytesize(@bytes, @at)
    end

    private

    def quota_count
      @bytes.unpack1('L<', offset: @at + 44)
    end

    def numbers_of_quotas
      @bytes.unpack("@#{@at + LENGTH}q<#{quota_count * QUOTA_NUMBERS}")
    end

    def number(offset)
      @bytes.unpack1('q<', offset: @at + offset)
    end

    # A wait in seconds; nil is never.
    def seconds(microseconds)
      microseconds == NEVER ? nil : Span.seconds(microseconds)
    end
  end
  private_constant :StoreAnswer

  # The answer to a check, a peek, a reserve or an acquire.
  class Decision < StoreAnswer
    NAMES = %i[
      allowed remaining retry_after reset_after delay over source is_outage degraded cause crossed elastic shadowed quotas
    ].freeze
    private_constant :NAMES

    # Whether every quota of the policy admits the request.
    def allowed
      (@bytes.getbyte(@at) & 1).positive?
    end
    alias allowed? allowed

    # Why the request was denied, or is shadowed: "deny_list", "missing_key", "blocked", "quota" or "concurrency"; or why it was
    # admitted without the store: "off" or "allow_list"; nil otherwise.
    def cause
      CAUSES.fetch(@bytes.getbyte(@at + 3))
    end

    # Whether this decision has made the use of some quota cross its limit, into its excess.
    def crossed
      (@bytes.getbyte(@at) & 8).positive?
    end
    alias crossed? crossed

    # Whether the pool of an elastic policy has admitted the request.
    def elastic
      (@bytes.getbyte(@at) & 16).positive?
    end
    alias elastic? elastic

    # Whether the policy is in shadow and would have denied: the request is allowed, and has the cause and the retry_after of
    # the denial.
    def shadowed
      (@bytes.getbyte(@at) & 32).positive?
    end
    alias shadowed? shadowed

    # Seconds until the same request, alone, would be admitted: 0 when it is allowed; nil is never, as the cost exceeds what a
    # quota can ever admit.
    def retry_after
      seconds(number(12))
    end

    # Seconds that this admitted request has to wait for its turn: leaky bucket only, otherwise 0.
    def delay
      Span.seconds(number(28))
    end

    private

    def names
      NAMES
    end
  end

  # The answer to a take, a charge, a refund or a reset, or to a commit, cancel or renew of a reservation.
  class Usage < StoreAnswer
    NAMES = %i[remaining reset_after taken found repeated over source is_outage degraded quotas].freeze
    private_constant :NAMES

    # Whether a commit, a cancel or a renew has found the reservation; true for every other operation.
    def found
      (@bytes.getbyte(@at) & 4).positive?
    end
    alias found? found

    # Whether this was a commit of an id that was committed before and is remembered, so that nothing was charged.
    def repeated
      (@bytes.getbyte(@at) & 64).positive?
    end
    alias repeated? repeated

    # The units that a take has spent from every quota, from 0 to its cost; 0 for every other operation.
    def taken
      number(28)
    end

    private

    def names
      NAMES
    end
  end
end
