# frozen_string_literal: true

module Polylimit
  # What a request has spent in one middleware, so that it can be given back: once, whatever the reasons.
  class Spending
    # `before` is what was spent further out, nil when that is nothing. The block hears of an error of giving back.
    def initialize(limiter, requests, before, &failed)
      @limiter = limiter
      @requests = requests
      @before = before
      @failed = failed
      @is_given = false
    end

    # This and all that was spent further out.
    def give_back
      refund
      @before&.give_back
    end

    # Under every policy, also when it fails under one of them.
    def refund
      return if @is_given

      @is_given = true
      errors = @requests.filter_map { |request| error_of(request) }
      # There is an answer, which must not be lost for this.
      @failed.call(errors.first) unless errors.empty?
    end

    private

    # The error of its failing, if it does.
    def error_of(request)
      @limiter.refund(request[:key], policy: request[:policy], cost: request[:cost])
      nil
    rescue Error => e
      e
    end
  end
  private_constant :Spending
end
