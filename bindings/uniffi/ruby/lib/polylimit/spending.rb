# frozen_string_literal: true

module Polylimit
  # What a request has spent in one middleware, so that it can be given back: once, whatever the reasons.
  class Spending
    # One request to the limiter, with the decision that admitted it.
    Spent = Struct.new(:request, :decision)

    # `before` is what was spent further out, nil when that is nothing. The block hears of an error of giving back.
    def initialize(limiter, spent, before, &failed)
      @limiter = limiter
      @spent = spent
      @before = before
      @failed = failed
      @is_given = false
    end

    # The decision by which the key was charged under this policy already, here or further out; nil when it was not.
    def decision(limiter, key, policy)
      spent = @spent.find { |one| one.request[:key] == key && one.request[:policy] == policy } if here?(limiter)
      spent ? spent.decision : @before&.decision(limiter, key, policy)
    end

    # This and all that was spent further out. Gives what its decisions say then, each by what it said before.
    def give_back
      refund.update(@before ? @before.give_back : {})
    end

    # Under every policy, also when it fails under one of them.
    def refund
      said = {}.compare_by_identity
      return said if @is_given

      @is_given = true
      errors = @spent.filter_map { |one| error_of(one, said) }
      # There is an answer, which must not be lost for this.
      @failed.call(errors.first) unless errors.empty?
      said
    end

    private

    # Whether it was spent by that limiter, by whichever of its faces, and not given back.
    def here?(limiter)
      !@is_given && synchronous(@limiter).equal?(synchronous(limiter))
    end

    def synchronous(limiter)
      limiter.is_a?(Asynchronous) ? limiter.limiter : limiter
    end

    # The error of its failing, if it does.
    def error_of(one, said)
      key, policy, cost = one.request.values_at(:key, :policy, :cost)
      said[one.decision] = PolylimitNative.refunded(one.decision, @limiter.refund(key, policy: policy, cost: cost))
      nil
    rescue Error => e
      e
    end
  end
  private_constant :Spending
end
