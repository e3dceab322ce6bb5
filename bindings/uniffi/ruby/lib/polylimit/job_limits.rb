# frozen_string_literal: true

require 'digest'
require_relative '../polylimit'
require_relative 'frameworks'

module Polylimit
  # Raised by a job that can never be admitted, and by one that was denied and that no worker runs.
  class JobDenied < StandardError
    # The decision that has denied it.
    attr_reader :decision

    def initialize(decision)
      @decision = decision
      wait = decision.retry_after
      super("over the limit: #{wait ? format('retry after %.3f s', wait) : 'for ever'}")
    end

    # Seconds after which the job would be admitted; nil for never.
    def retry_after
      decision.retry_after
    end
  end

  # A limit of jobs: its options, and what one job takes of it.
  class JobLimit
    # The longest id of a reservation, in bytes.
    ID_SIZE = 64

    def initialize(limiter:, policy: nil, key: nil, cost: 1, ttl: nil, max_age: nil, max_delay: 600, &block)
      GuardOptions.limiter(limiter)
      raise InvalidArgument, 'key is given, and a block is, too: leave one of them out' unless key.nil? || block.nil?

      @limiter = limiter
      @policy = policy
      @key = block || key
      @cost = Argument.cost(cost)
      @terms = { ttl: ttl, max_age: max_age, commit_at_end: true }
      @max_delay = max_delay
      check
    end

    # What a job takes; nothing, where it is not `allowed?`.
    def take(job, id, arguments)
      key = @key.is_a?(Proc) ? job.instance_exec(*taken(arguments), &@key) : @key || job.class.name
      return checked(key) unless slots?

      # A job that a queue hands out again has the same id, and continues in the slot of the worker that was killed.
      id = Digest::SHA256.hexdigest(id) if id.bytesize > ID_SIZE
      reservation = @limiter.reserve(key, policy: @policy, cost: @cost, id: id, **@terms)
      Taken.new(reservation.decision, reservation.method(:commit), reservation.method(:cancel))
    end

    # After how many whole seconds a denied job asks again.
    def delay(decision)
      raise JobDenied, decision unless decision.retry_after

      seconds = [decision.retry_after, @max_delay].min.ceil.clamp(1, nil)
      # Jobs that were denied together do not come back together.
      seconds + rand((seconds / 4) + 1)
    end

    # What a job has taken.
    Taken = Struct.new(:decision, :spend, :give_back) do
      def allowed?
        decision.allowed
      end

      # The job is not run again for a store that does not answer: a slot frees itself after its ttl.
      def end(has_run)
        (has_run ? spend : give_back).call
      rescue Error
        nil
      end
    end

    private

    # Refuses what is not valid before a job finds out.
    def check
      raise InvalidArgument, "max_delay is #{@max_delay.inspect}: allowed is 1 second or more" if Span.microseconds(@max_delay, 'max_delay') < Span::MICROSECONDS

      Argument.key(@key) unless @key.nil? || @key.is_a?(Proc)
      slots?
      refuse_terms
    end

    # The core says which costs and times are valid.
    def refuse_terms
      limiter = Limiter.new(policies: { slot: '1 concurrent' })
      limiter.reserve('', cost: @cost, **@terms).cancel
    ensure
      limiter&.close
    end

    # Whether the policy limits how many run at a time. Raises for a policy that the limiter does not know.
    def slots?
      # The policies are not there yet.
      return false if @limiter.admin.configuration&.version == 0 # rubocop:disable Style/NumericPredicate

      @limiter.policy_for(@policy).quotas.include?('concurrent')
    end

    def checked(key)
      refund = -> { @limiter.refund(key, policy: @policy, cost: @cost) }
      Taken.new(@limiter.check(key, policy: @policy, cost: @cost), -> {}, refund)
    end

    # A block takes as many arguments as it names; a lambda does only when it is called with them.
    def taken(arguments)
      @key.lambda? && @key.arity >= 0 ? arguments.first(@key.arity) : arguments
    end
  end

  # The limits of jobs of one class.
  module JobLimits
    # Limits the jobs of this class, and of those that inherit from it. A block returns the key, of the arguments of a job; it runs in the
    # job. Several limits all admit a job, or it spends nothing under any.
    #
    # @param limiter [Limiter]
    # @param policy [String, Symbol, nil] a policy's name or quotas; nil is the limiter's only one
    # @param key [String, Integer, Proc, nil] the key, or a function of the arguments in place of the block; nil is the name of the class
    # @param cost [Integer] the units of a job
    # @param ttl [Numeric, nil] seconds for which a slot stays taken after its worker was killed; nil is 30
    # @param max_age [Numeric, nil] seconds for which the slot of a running job is renewed; nil is an hour
    # @param max_delay [Numeric] the longest wait until a denied job asks again, in seconds: 1 or more
    def polylimit(**options, &key)
      (@polylimits ||= []) << JobLimit.new(**options, &key)
    end

    # The limits of this class, those that it inherits first.
    def polylimits
      inherited = superclass.respond_to?(:polylimits) ? superclass.polylimits : []
      inherited + (@polylimits || [])
    end

    # Runs the block for a job that its limits admit. Otherwise returns the decision that denies it, and after how many seconds it asks
    # again. A job that raises has spent its units.
    def self.around(job, id, arguments)
      taken = []
      has_run = false
      job.class.polylimits.each do |limit|
        one = limit.take(job, id, arguments)
        return [one.decision, limit.delay(one.decision)] unless one.allowed?

        taken << one
      end
      has_run = true
      yield
      nil
    ensure
      taken.reverse_each { |one| one.end(has_run) }
    end
  end
  private_constant :JobLimit
end
