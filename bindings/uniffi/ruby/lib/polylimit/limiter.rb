# frozen_string_literal: true

module Polylimit
  # A quota as text, of its numbers. The period is in seconds; the algorithm `concurrency` has none, and `calendar` takes its place, as in
  # "month from=15 zone=Europe/Berlin".
  def self.quota(limit:, period: nil, **numbers)
    PolylimitNative.quota(PolylimitNative::QuotaNumbers.new(limit: limit, period: period, **numbers))
  end

  # A quota of at most this many reservations of a key at a time, as text: "20 concurrent".
  def self.concurrent(limit)
    PolylimitNative.concurrent(limit)
  end

  # Decides whether requests may proceed. A denial is a value, never an error.
  #
  # May be used by any number of threads, and by the fibers of event loops such as Async: others run while one waits for a store.
  # A thread or a fiber that is interrupted while it waits in `acquire`, `ready` or Admin#doctor (Timeout, Thread#raise, Thread#kill,
  # Async::Task#stop), and any fiber of an event loop, stops at once; an `acquire` then gives up its place in line, and gives back
  # what it was admitted. After a fork, the child's operations make connections of their own. Durations are seconds.
  class Limiter
    # One of several checks.
    CheckResult = Struct.new(:decision, :error)

    # How many names of policies are shown.
    MAX_SHOWN = 8
    private_constant :MAX_SHOWN

    include Calls

    # `store` is "memory:", "local:<name>" or a URL such as "redis://localhost". Without it the limits are those of this process alone; nil,
    # such as a missing variable of the environment, is an InvalidArgument.
    # `policies` has quotas such as "100/minute; 1000/hour" by names; in place of the text there may be a hash with
    # :quotas, :outage ("fallback", "allow" or "deny") and :lease. Other options are those of Polylimit.options.
    # `on_degraded` is called with each Polylimit::DegradedEvent that is logged to Polylimit.logger, on the thread of some call of
    # some limiter, after that is decided; what it raises is logged.
    # Connects to nothing: a store that cannot be reached is no error here.
    # `document` is a text in TOML or JSON with policies, rules and lists, which the program keeps itself; for one that is followed there
    # are the options `configuration` ("file:PATH", "store" or "store+file:PATH") and `copy` (a path).
    # `credentials` is a proc without arguments that gives the password for each new connection to Redis, or a hash with :username and
    # :password, in place of those in the URL: for tokens that expire. It is called on a thread of its own, and again when the server
    # refuses what it gave, then not for 0.25 to 10 seconds, growing with each time in a row. It may block: decisions keep their
    # deadline. What it raises is the cause in `ready`, the events and the doctor. Admin#set_credentials replaces it.
    def initialize(store = 'memory:', policies: {}, document: nil, clock: nil, on_degraded: nil, credentials: nil, **options)
      settings = PolylimitNative::Settings.new(
        store: store && Argument.secret('store', store),
        policies: Argument.policies(policies),
        options: options.to_h { |name, value| [name.to_s, Argument.option(name, value)] },
        clock: Argument.clock(clock),
        document: document && Argument.secret('document', document)
      )
      # The calls of the proc end when the native limiter is closed or collected, or cannot be made.
      @native = if credentials.nil?
                  PolylimitNative::Limiter.new(settings)
                else
                  PolylimitNative::Limiter.with_credentials(settings, CredentialsServer.answering(credentials))
                end
      @address = @native.address
      @ends = { nil => NO_POLICY }
      @on_reservation = method(:on_reservation)
      @listener = Events.listen(@native, on_degraded)
      # What stands before the colon of a URL is no secret.
      @kind = store[/\A[a-z+-]*/]
      @is_closed = false
    end

    # Shows the kind of its store and its first policies, no URL.
    def inspect
      names = policies.map(&:name)
      shown = names.first(MAX_SHOWN).join(', ')
      more = names.size > MAX_SHOWN ? " and #{names.size - MAX_SHOWN} more" : ''
      "#<Polylimit::Limiter #{@kind}: #{shown}#{more}#{' (closed)' if closed?}>"
    end
    alias to_s inspect

    # The operations for operators: keys of the store, explanations, the policy document, lists.
    # @return [Admin]
    def admin
      Admin.new(self, @native, @address, @ends)
    end

    # The guard of a middleware with these options.
    def guard(options)
      @native.guard(options)
    end

    # Decides, and spends the cost from every quota of the policy when all admit it.
    # @param key [String, Integer] up to 1 MiB; a number stands for its decimal digits
    # @param policy [String, Symbol, nil] a name, or quotas such as "5/minute"; nil is the only one of the limiter
    # @param cost [Integer] units, 0 to 10^12
    # @param headroom [Integer, nil] percent of every quota's capacity that the request leaves for others, 0 to 99; nil is 0
    # @param plan [String, nil] the plan of the key, for a limiter with a configuration; a calendar may follow: 'gold from=15'
    # @return [Decision]
    # @raise [Error] when no decision can be made; a denial is none
    def check(key, policy: nil, cost: 1, headroom: nil, plan: nil)
      answer(:check, key, policy, cost, plan, headroom)
    end

    # The decision that a check would give now; changes no state.
    # @return [Decision]
    def peek(key, policy: nil, cost: 1, headroom: nil, plan: nil)
      answer(:peek, key, policy, cost, plan, headroom)
    end

    # Spends as much of the cost as every quota admits, from 0 to the cost, and returns how much it took.
    # @return [Usage]
    def take(key, policy: nil, cost: 1, plan: nil)
      answer(:take, key, policy, cost, plan)
    end

    # Spends the cost even if it exceeds what remains, for a cost that is known only afterwards.
    # @return [Usage]
    def charge(key, policy: nil, cost: 1, plan: nil)
      answer(:charge, key, policy, cost, plan)
    end

    # Returns units, at most those that are used, the newest first.
    # @return [Usage]
    def refund(key, policy: nil, cost: 1, plan: nil)
      answer(:refund, key, policy, cost, plan)
    end

    # Removes the state of the key under its policy.
    # @return [Usage]
    def reset(key, policy: nil, plan: nil)
      answer(:reset, key, policy, 1, plan)
    end

    # Waits until the request is admitted. Says at once that the timeout, in seconds, cannot be met: then the decision is
    # a denial, and nothing was spent.
    # @param timeout [Numeric] seconds, 0 or more; Float::INFINITY waits as long as it takes
    # @return [Decision]
    def acquire(key, timeout:, policy: nil, cost: 1, headroom: nil, plan: nil)
      timeout_us = Span.microseconds(timeout, 'timeout')
      buffer = request(:acquire, key, policy, other_than_one(cost), plan: plan, headroom: headroom)
      buffer.put_int64(Direct::TIMEOUT_AT, timeout_us)
      read Waiting.answer(@address, buffer, Acquisition.new(self, key, policy, cost, plan))
    end

    # Decides as a check does and, when every quota admits the request, sets its cost aside until the reservation is committed,
    # cancelled or closed, or until its time has passed; it is renewed in the background meanwhile. Nothing is spent before the
    # commit. A denied request has a reservation as well, which is not allowed.
    #
    # With a block, returns what the block returns. Then the reservation has ended: a block that has neither committed nor cancelled
    # it cancels it, or commits what was reserved with `commit_at_end`; an exception in the block cancels it.
    #
    #   limiter.reserve('tenant:7', cost: 4_000) do |reservation|
    #     reservation.commit(ask(model).tokens) if reservation.allowed?
    #   end
    #
    # @param id [String, nil] 1 to 64 bytes; nil is random. A caller that has received no answer repeats the call with the same id
    # @param ttl [Numeric, nil] seconds that the reservation lasts after its last renewal: 0.001 to 172,800; nil is 30
    # @param timeout [Numeric, nil] seconds that the caller waits in line, as in `acquire`; nil is not at all
    # @param max_age [Numeric, nil] seconds for which the reservation is renewed, 0 or more; nil is an hour
    # @param commit_at_end [Boolean] whether closing it commits what was reserved, in place of cancelling
    # @param remember [Numeric, nil] seconds after its commit for which the id is remembered: 0.001 to 172,800; nil is not at all.
    #   Meanwhile nothing more is charged for the id under this key and policy: a commit that is repeated is `repeated`, and a
    #   reserve, of a job that runs again, asks for a slot only. A key remembers its 1,000 latest commits
    # @return [Reservation, Object]
    # @raise [Error] when no decision can be made; a denial is none
    def reserve(key, cost: 1, policy: nil, id: nil, ttl: nil, timeout: nil, max_age: nil, commit_at_end: false,
                remember: nil, headroom: nil, plan: nil, &block)
      options = ReserveOptions.bytes(id, ttl, max_age, commit_at_end, remember)
      timeout_us = timeout ? Span.microseconds(timeout, 'timeout') : 0
      reservation = interrupted_only_while_blocked do
        hold(request(:reserve, key, policy, other_than_one(cost), options, plan: plan, headroom: headroom), timeout_us, key, policy, plan)
      end
      block ? reservation.within(&block) : reservation
    end

    # Ends the reservation of this id, which another process may have made, and charges what was spent, in units from 0 to 10^12; nil
    # is what was reserved. A reservation that is gone changes nothing, and the usage is not `found`: a repeated commit never charges
    # twice.
    # @return [Usage]
    def commit(key, id, spent: nil, policy: nil, plan: nil)
      on_reservation(:commit, key, policy, plan, spent, ReservationHandle.argument(id))
    end

    # Ends the reservation of this id and spends nothing.
    # @return [Usage]
    def cancel(key, id, policy: nil, plan: nil)
      on_reservation(:cancel, key, policy, plan, nil, ReservationHandle.argument(id))
    end

    # Makes the reservation of this id end this many seconds from now: 0.001 to 172,800.
    # @return [Usage]
    def renew(key, id, ttl, policy: nil, plan: nil)
      on_reservation(:renew, key, policy, plan, nil, ReservationHandle.argument(id) << [Span.microseconds(ttl, 'ttl')].pack('q<'))
    end

    # Checks several requests in one call. Each is a hash with :key, and where it matters :policy, :cost, :headroom and :plan; each is
    # decided on its own, in order, and has a decision or an error.
    # @return [Array<CheckResult>]
    def check_many(requests)
      converted = Argument.requests(requests).map { |request| bytes_or_error(request) }
      answers = read Direct.call(@address, :check_many, several(converted.grep(String)))
      converted.map { |one| result(one.is_a?(String) ? answers.shift : one) }
    end

    # Checks several requests that belong together, such as one client under several policies: all are admitted, or nothing is spent.
    # When one is denied, the decisions that admit are those of a peek. Requests for the same key under the same policy are one of their
    # sum. Each is a hash as in `check_many`.
    # @return [Array<Decision>]
    # @raise [Error] the first error of any of them
    def check_together(requests)
      read Direct.call(@address, :check_together, together(requests))
    end

    # The decisions that `check_together` would give now; changes no state.
    # @return [Array<Decision>]
    # @raise [Error] the first error of any of them
    def peek_together(requests)
      read Direct.call(@address, :peek_together, together(requests))
    end

    # As `check_together`, but requests under a policy with a quota such as "20 concurrent" are reserved, all under one id; the others
    # spend. When one is denied, nothing is spent or reserved.
    #
    #   requests = [{ key: 'tenant:7', policy: 'slots', cost: 0 }, { key: 'tenant:7', policy: 'requests' }]
    #   reserved = limiter.reserve_together(requests)
    #   limiter.commit('tenant:7', reserved.id, policy: 'slots') if reserved.allowed?
    #
    # The caller ends each reservation by `commit` or `cancel` with its key, its policy and the id. They are not renewed in the
    # background: `renew` makes them last longer.
    # @param id [String, nil] the id of the reservations, 1 to 64 bytes; nil is random. A caller that has received no answer repeats the
    #   call with the same id
    # @param ttl [Numeric, nil] seconds that they last: 0.001 to 172,800; nil is 30
    # @param remember [Numeric, nil] seconds after their commits for which the id is remembered, as in `reserve`; nil is not at all
    # @return [RequestReservation]
    # @raise [Error] the first error of any of them
    def reserve_together(requests, id: nil, ttl: nil, remember: nil)
      arguments = together(requests) << ReserveOptions.terms(id, ttl, remember)
      read Direct.call(@address, :reserve_together, arguments, owner: UnusedReservations.new(self, requests))
    end

    # Decides about a request by the configuration: its lists, rules and policies. Policies with a quota of concurrency are reserved,
    # under this id and for this ttl, and all others spend. When one policy denies, nothing is spent or reserved, and the decisions of
    # the others are those of a peek.
    # @param request [Hash] :method, :path, :peer, :headers (pairs or a hash, in order), :attributes (a hash); what is left out is absent
    # @param id [String, nil] the id of reservations, 1 to 64 bytes; nil is random
    # @param ttl [Numeric, nil] seconds that reservations last: 0.001 to 172,800; nil is 30
    # @param remember [Numeric, nil] seconds after the commit for which the id is remembered, as in `reserve`; nil is not at all
    # @return [RequestDecision]
    def decide(request, id: nil, ttl: nil, remember: nil)
      arguments = Attributes.bytes(request) << ReserveOptions.terms(id, ttl, remember)
      read Direct.call(@address, :decide_request, arguments, owner: Undecided.new(self))
    end

    # Waits until the store answers, at most for this many seconds. A service may call it when it starts.
    # @param timeout [Numeric] seconds, 0 or more
    # @raise [StoreUnavailable] when the store has not answered in time
    def ready(timeout)
      wait(:ready, Span.microseconds(timeout, 'timeout'))
      nil
    end

    # Registers a policy, or changes the quotas of the one of that name. The usage is kept.
    # @return [nil]
    def set_policy(name, quotas)
      policy = Argument.policy(name, quotas)
      @native.set_policy(policy.name, policy.quotas)
    end

    # The policy of that name, with its current quotas; or the policy of these quotas, if a request has used them.
    # @return [Policy, nil]
    def policy(name)
      @native.policy(Argument.name(name))
    end

    # The policy by which a request that names this policy, quotas such as "100/minute" or none is decided. Quotas without a
    # name are registered by it; with a scope (1 to 256 bytes of text), they are a policy of their own there. A policy that
    # has a name is shared by all scopes. Raises InvalidArgument for what no request may name.
    # @return [Policy]
    def policy_for(policy = nil, scope: nil)
      @native.policy_for(Argument.text('policy', policy), Argument.text('scope', scope))
    end

    # All policies, in the order in which they were registered.
    # @return [Array<Policy>]
    def policies
      @native.policies
    end

    # Counters of the operations so far, by name.
    # @return [Hash{String => Integer}]
    def stats
      @native.stats
    end

    # What the limiter has counted, and the state of its store and its configuration: one hash for each family.
    # The keys of the hashes are symbols, with the names of the fields that docs/metrics.md describes.
    # @return [Array<Hash>]
    def metrics
      report Direct.call_now(@address, :metrics)
    end

    # The same as text: "prometheus", whose media type is `text/plain; version=0.0.4; charset=utf-8`, or "openmetrics", whose media
    # type is `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    # @return [String]
    def metrics_text(format = 'prometheus')
      @native.metrics_text(Argument.text('format', format).to_s)
    end

    # Gives back leases, ends connections and threads and frees what the limiter holds, at once; later operations raise
    # Polylimit::Closed, as do those under way, and it reports nothing more. May be called again.
    def close
      @is_closed = true
      @native.shut_down
      @listener.close
    end

    # Whether `close` was called.
    def closed?
      @is_closed
    end

    private

    def answer(operation, key, policy, cost, plan, headroom = nil)
      cost = other_than_one(cost)
      buffer = plan || headroom ? request(operation, key, policy, cost, plan: plan, headroom: headroom) : request(operation, key, policy, cost)
      read Direct.answer(@address, buffer)
    end

    # An interruption of the thread never comes between an answer and the handle that ends what it has set aside. A fiber of an
    # event loop is stopped only where it waits.
    def interrupted_only_while_blocked(&block)
      Fiber.current_scheduler ? yield : Thread.handle_interrupt(Object => :on_blocking, &block)
    end

    # The handle of the reservation that the request in the buffer makes.
    def hold(buffer, timeout_us, key, policy, plan)
      buffer.put_int64(Direct::TIMEOUT_AT, timeout_us)
      length = Direct.ask(@address, buffer, buffer.size)
      bytes = length == Direct::HAS_TO_WAIT ? Waiting.answer(@address, buffer, UnusedReservation) : Direct.finish(buffer, length)
      Reservation.new(@on_reservation, key, policy, plan, *read(bytes))
    end

    def on_reservation(operation, key, policy, plan, spent, name)
      read Direct.answer(@address, request(operation, key, policy, spent, name, plan: plan), Waiting::ENDING)
    end

    # One of several requests.
    def bytes(request)
      Argument.one_of_several(request)
      key = Argument.key(request[:key])
      cost = other_than_one(request.fetch(:cost, 1))
      plan = request[:plan]
      headroom = Argument.percent(request[:headroom] || 0)
      flags = (cost ? HAS_COST : 0) | (plan ? HAS_PLAN : 0)
      bytes = [flags, cost || 0, headroom, key.bytesize, key].pack('Cq<l<L<a*') << (@ends[request[:policy]] || ending(request[:policy]))
      plan ? bytes << Attributes.text('plan', plan.to_s) : bytes
    end

    # The bytes of a request, or the error of an invalid one.
    def bytes_or_error(request)
      bytes(request)
    rescue InvalidArgument => e
      e
    end

    def several(requests)
      [requests.size].pack('L<') << requests.join
    end

    def together(requests)
      several(Argument.requests(requests).map { |request| bytes(request) })
    end

    def result(answer)
      answer.is_a?(Decision) ? CheckResult.new(answer, nil) : CheckResult.new(nil, answer)
    end

    # Releases a reservation whose caller does not take it.
    module UnusedReservation
      module_function

      def submitted(_buffer); end

      def abandoned(bytes)
        handle, = AnswerReader.read(bytes) if bytes
        ReservationHandle.release(handle) if handle
      rescue Error
        nil
      end
    end
    private_constant :UnusedReservation

    # Cancels what was reserved together for a caller that does not take it. What was spent stays spent, as with a check.
    UnusedReservations = Struct.new(:limiter, :requests) do
      def submitted(_buffer); end

      def abandoned(bytes)
        reserved = bytes && AnswerReader.read(bytes)
        return unless reserved&.allowed

        requests.each do |request|
          limiter.cancel(request[:key], reserved.id, policy: request[:policy], plan: request[:plan])
        rescue Error
          # What cannot be cancelled, ends at its time.
          nil
        end
      rescue Error
        nil
      end
    end
    private_constant :UnusedReservations

    # Cancels what was reserved for a caller that was interrupted. What was spent stays spent, as with a check.
    Undecided = Struct.new(:limiter) do
      def submitted(_buffer); end

      def abandoned(bytes)
        decided = bytes && AnswerReader.read(bytes)
        decided&.decisions&.each do |made|
          limiter.cancel(made.key, made.reservation, policy: made.policy) if made.reservation
        end
      rescue Error
        # What cannot be cancelled ends at its time.
        nil
      end
    end
    private_constant :Undecided

    # Gives back what an acquire was admitted whose answer is not taken.
    Acquisition = Struct.new(:limiter, :key, :policy, :cost, :plan) do
      def submitted(_buffer); end

      def abandoned(bytes)
        decision = bytes && AnswerReader.read(bytes)
        limiter.refund(key, policy: policy, cost: cost, plan: plan) if decision&.allowed && !decision.is_outage
      rescue Error
        # The caller receives the interruption. Units that the store cannot refund stay spent, as with any refund.
        nil
      end
    end
    private_constant :Acquisition
  end

  # Every option of a limiter: its name, what it is for, which values it may have.
  def self.options
    Argument::OPTIONS.values
  end
end
