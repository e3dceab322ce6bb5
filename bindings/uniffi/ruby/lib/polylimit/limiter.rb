# frozen_string_literal: true

module Polylimit
  # A quota as text, of its numbers; the period is in seconds.
  def self.quota(limit:, period:, **numbers)
    PolylimitNative.quota(PolylimitNative::QuotaNumbers.new(limit: limit, period: period, **numbers))
  end

  # Decides whether requests may proceed. A denial is a value, never an error.
  #
  # May be used by any number of threads; others run while one waits. After a fork, the child's operations make
  # connections of their own. Durations are seconds.
  class Limiter
    # One of several checks.
    CheckResult = Struct.new(:decision, :error)

    # `policies` has quotas such as "100/minute; 1000/hour" by names; in place of the text there may be a hash with
    # :quotas, :outage ("fallback", "allow" or "deny") and :lease. Other options are those of Polylimit.options.
    # `on_degraded` is called with each Polylimit::DegradedEvent that Polylimit.logger is told, on the thread of some call of
    # some limiter, after that is decided; what it raises is logged.
    # Connects to nothing: a store that cannot be reached is no error here.
    def initialize(store = nil, policies: {}, clock: nil, on_degraded: nil, **options)
      @native = PolylimitNative::Limiter.new(
        PolylimitNative::Settings.new(
          store: store && Argument.secret('store', store),
          policies: Argument.policies(policies),
          options: options.to_h { |name, value| [name.to_s, Argument.option(name, value)] },
          clock: Argument.clock(clock)
        )
      )
      @listener = Events.listen(@native, on_degraded)
    end

    # The same operations for event loops of fibers, which go on while one waits. Shares everything with this one.
    def asynchronous
      Asynchronous.new(self)
    end

    # Shows neither its store nor its policies.
    def inspect
      '#<Polylimit::Limiter>'
    end

    # The guard of a middleware with these options.
    def guard(options)
      @native.guard(options)
    end

    # Decides, and spends the cost from every quota of the policy when all admit it.
    def check(key, policy: nil, cost: nil)
      deliver @native.check(Argument.request(key, policy, cost))
    end

    # The decision that a check would give now; changes no state.
    def peek(key, policy: nil, cost: nil)
      deliver @native.peek(Argument.request(key, policy, cost))
    end

    # Spends as much of the cost as every quota admits, from 0 to the cost, and returns how much it took.
    def take(key, policy: nil, cost: nil)
      deliver @native.take(Argument.request(key, policy, cost))
    end

    # Spends the cost even if it exceeds what remains, for a cost that is known only afterwards.
    def charge(key, policy: nil, cost: nil)
      deliver @native.charge(Argument.request(key, policy, cost))
    end

    # Returns units, at most those that are used, the newest first.
    def refund(key, policy: nil, cost: nil)
      deliver @native.refund(Argument.request(key, policy, cost))
    end

    # Removes the state of the key under its policy.
    def reset(key, policy: nil)
      deliver @native.reset(Argument.request(key, policy, nil))
    end

    # Waits until the request is admitted. Says at once that the timeout, in seconds, cannot be met: then the decision is
    # a denial, and nothing was spent. A thread that is interrupted meanwhile (Timeout, Thread#raise, Thread#kill) stops
    # within 0.1 s: it gives up its place in line, and gives back what it was admitted.
    def acquire(key, timeout:, policy: nil, cost: nil)
      request = Argument.request(key, policy, cost)
      deliver(Interruptible.answer(:decision) { @native.start_acquire(request, timeout) })
    end

    # Checks several requests in one call. Each is a hash with :key, and where it matters :policy and :cost; each is
    # decided on its own, in order, and has a decision or an error.
    def check_many(requests)
      converted = Argument.requests(requests).map { |request| native_request(request) }
      decided = deliver @native.check_many(converted.reject { |one| one.is_a?(InvalidArgument) })
      converted.map { |one| one.is_a?(InvalidArgument) ? CheckResult.new(nil, one) : result(decided.shift) }
    end

    # Checks several requests of one key that belong together, one for each policy: when one is denied, what the others
    # have spent is given back. Requests of several keys are refused.
    def check_together(requests)
      deliver @native.check_together(Argument.requests(requests).map { |request| Argument.one_of_several(request) })
    end

    # Waits until the store answers, at most for so many seconds. A service may call it when it starts.
    def ready(timeout)
      Interruptible.answer(:ready) { @native.start_ready(timeout) }
    end

    # Examines the store for an operator.
    def doctor
      Interruptible.answer(:findings) { @native.start_doctor }
    end

    # Registers a policy, or changes the numbers of the one of that name. The usage is kept.
    def set_policy(name, quotas)
      policy = Argument.policy(name, quotas)
      @native.set_policy(policy.name, policy.quotas)
    end

    # The policy of that name, with its current numbers; or the policy of these quotas, if a request has used them.
    def policy(name)
      @native.policy(Argument.name(name))
    end

    # The policy by which a request that names this policy, quotas such as "100/minute" or none is decided. Quotas without a
    # name are registered by it; with a scope (1 to 256 bytes of text), they are a policy of their own there. A policy that
    # has a name is shared by all scopes. Raises InvalidArgument for what no request may name.
    def policy_for(policy = nil, scope: nil)
      @native.policy_for(Argument.text('policy', policy), Argument.text('scope', scope))
    end

    # All policies, in the order in which they were registered.
    def policies
      @native.policies
    end

    # How many keys the memory store or the local one holds a state for; nil for a store elsewhere.
    def keys
      @native.keys
    end

    # Counters of the operations so far, by name.
    def stats
      @native.stats
    end

    # Authenticates new connections with another password, and user name if there is one, from now on.
    def set_credentials(password, username: nil)
      @native.set_credentials(Argument.text('username', username), Argument.secret('password', password))
    end

    # Gives back leases, ends connections and threads and frees what the limiter holds, at once; later operations raise
    # Polylimit::Closed, as do those under way, and it tells nothing more. May be called again.
    def close
      @native.shut_down
      @listener.close
    end

    private

    # Delivers events, and returns the answer.
    def deliver(answer)
      Events.deliver
      answer
    end

    # The native request, or the error of an invalid one.
    def native_request(request)
      Argument.one_of_several(request)
    rescue InvalidArgument => e
      e
    end

    def result(result)
      error = result.error_code && Error.of(result.error_code, result.error_message)
      CheckResult.new(result.decision, error)
    end
  end

  # Every option of a limiter: its name, what it is for, which values it may have.
  def self.options
    Argument::OPTIONS.values
  end
end
