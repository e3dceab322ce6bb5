# frozen_string_literal: true

module Polylimit
  # Native handles of reservations: bindings/uniffi/src/direct/reservation.rs has their operations and the layout.
  module ReservationHandle
    # Where there is none.
    NONE = 0

    module_function

    # A reservation as an argument of a call.
    def argument(id, handle = NONE)
      [handle, Argument.id(id).bytesize, id].pack('Q<L<a*')
    end

    # Frees a handle, which no object uses any more.
    def release(handle)
      Direct.call_now(handle, :release_reservation) unless handle == NONE
    end

    # Frees the handle of a reservation that is collected, to which the result does not refer.
    def releasing(handle)
      proc { release(handle) }
    end
  end
  private_constant :ReservationHandle

  # Units that are set aside for their holder, made by Limiter#reserve. While it is held, the limiter renews it in the background. One
  # that nothing refers to any more is ended when it is collected: it is cancelled, or committed with `commit_at_end`.
  #
  # May be used by any number of threads and fibers.
  class Reservation
    # The Decision on the request.
    attr_reader :decision
    # The id, by which another process can end the reservation: see Limiter#commit.
    attr_reader :id

    # `ask` performs an operation on it.
    def initialize(ask, key, policy, plan, handle, id, decision)
      @ask = ask
      @key = key.dup
      @policy = policy.dup
      @plan = plan.dup
      @handle = handle
      @id = id.freeze
      @decision = decision
      @name = ReservationHandle.argument(id, handle).freeze
      ObjectSpace.define_finalizer(self, ReservationHandle.releasing(handle)) unless handle == ReservationHandle::NONE
    end

    # Whether every quota has admitted the request, so that its units are set aside.
    def allowed
      @decision.allowed
    end
    alias allowed? allowed

    # Whether the reservation is known to have ended without its holder: a renewal did not find it, or its time has passed without
    # a renewal. Its units may be admitted to others meanwhile. False once it was committed or cancelled.
    def lost?
      @handle != ReservationHandle::NONE && Direct.call_now(@handle, :is_lost).getbyte(0) == 1
    end

    # Ends the reservation and charges what was spent, in units from 0 to 10^12: less than was reserved, or more; nil is what was
    # reserved. When the reservation had ended before, nothing is charged, and the usage is not `found`.
    # @return [Usage]
    def commit(spent = nil)
      @ask.call(:commit, @key, @policy, @plan, spent, @name)
    end

    # Ends the reservation and spends nothing.
    # @return [Usage]
    def cancel
      @ask.call(:cancel, @key, @policy, @plan, nil, @name)
    end

    # Ends a reservation that was neither committed nor cancelled: cancels it, or commits what was reserved with `commit_at_end`. May
    # be called again.
    def close
      finish(cancels: false)
    end

    # Hands the reservation to the block, and ends it: see Limiter#reserve.
    def within
      yield self
    rescue Exception
      cancel_quietly
      raise
    ensure
      close
    end

    # Shows no key.
    def inspect
      "#<Polylimit::Reservation id=#{@id.inspect} decision=#{@decision.inspect}>"
    end

    private

    def finish(cancels:)
      @ask.call(:end, @key, @policy, @plan, nil, @name + [cancels ? 1 : 0].pack('C')) unless @handle == ReservationHandle::NONE
      nil
    end

    # The caller receives the exception of the block. What the store cannot end, ends at its time.
    def cancel_quietly
      finish(cancels: true)
    rescue Error
      nil
    end
  end

  # The decisions on requests that were reserved together: `allowed`, whether every one is admitted, so that units are set aside or spent;
  # `decisions`, one for each request in their order; and `id`, that of the reservations, for Limiter#commit, Limiter#cancel and
  # Limiter#renew. In a denied request, the decisions that admit are those of a peek.
  RequestReservation = Struct.new(:allowed, :decisions, :id) do
    alias_method :allowed?, :allowed
  end

  # The options of a reservation, as arguments of a direct call.
  module ReserveOptions
    HAS_TTL = 1
    HAS_MAX_AGE = 2
    COMMITS_AT_END = 4
    NONE = [Direct::NONE, 0, 0, 0, 0].pack('L<Cq<q<q<').freeze

    module_function

    def bytes(id, ttl, max_age, commit_at_end, remember)
      return NONE unless id || ttl || max_age || commit_at_end || remember

      flags = (ttl ? HAS_TTL : 0) | (max_age ? HAS_MAX_AGE : 0) | (commit_at_end ? COMMITS_AT_END : 0)
      start = id ? [Argument.id(id).bytesize, id].pack('L<a*') : [Direct::NONE].pack('L<')
      times = { 'ttl' => ttl, 'max_age' => max_age, 'remember' => remember }
      start << [flags, *times.map { |name, time| time ? Span.microseconds(time, name) : 0 }].pack('Cq<q<q<')
    end

    # The terms of reservations that have no handle.
    def terms(id, ttl, remember)
      start = id ? [Argument.id(id).bytesize, id].pack('L<a*') : [Direct::NONE].pack('L<')
      times = { 'ttl' => ttl, 'remember' => remember }.map { |name, time| time ? Span.microseconds(time, name) : 0 }
      start << [ttl ? 1 : 0, *times].pack('Cq<q<')
    end
  end
  private_constant :ReserveOptions
end
