# frozen_string_literal: true

module Polylimit
  # The units that a request has spent in one middleware, so that they can be refunded once.
  class Spending
    # One request to the limiter, with the decision that admitted it.
    Spent = Struct.new(:request, :decision)

    # `outer` has the units spent by outer middlewares, nil if none. The block is called with the error of a refund.
    def initialize(limiter, spent, outer, &failed)
      @limiter = limiter
      @spent = spent
      @outer = outer
      @failed = failed
      @is_refunded = false
    end

    # The decision by which the key was charged under this policy already, by this or an outer middleware; nil if it was not.
    def decision(limiter, key, policy)
      spent = @spent.find { |one| one.request[:key] == key && one.request[:policy] == policy } if here?(limiter)
      spent ? spent.decision : @outer&.decision(limiter, key, policy)
    end

    # Refunds the units of this middleware and all outer ones. Returns the refunded decision for each decision.
    def refund_all
      refund.update(@outer ? @outer.refund_all : {})
    end

    # Refunds the units under every policy, also when the refund under one of them fails.
    def refund
      refunds = {}.compare_by_identity
      return refunds if @is_refunded

      @is_refunded = true
      errors = @spent.filter_map { |one| error_of(one, refunds) }
      # The error must not replace the response.
      @failed.call(errors.first) unless errors.empty?
      refunds
    end

    private

    # Whether the units were spent by this limiter, through either of its classes, and not refunded.
    def here?(limiter)
      !@is_refunded && synchronous(@limiter).equal?(synchronous(limiter))
    end

    def synchronous(limiter)
      limiter.is_a?(Asynchronous) ? limiter.limiter : limiter
    end

    # The error of the refund, if it fails.
    def error_of(one, refunds)
      key, policy, cost = one.request.values_at(:key, :policy, :cost)
      refunds[one.decision] = PolylimitNative.refunded(one.decision, @limiter.refund(key, policy: policy, cost: cost))
      nil
    rescue Error => e
      e
    end
  end
  private_constant :Spending
end
