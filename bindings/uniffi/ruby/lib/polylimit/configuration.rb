# frozen_string_literal: true

require 'json'

module Polylimit
  # A policy that the rules of a configuration apply to a request: `policy` its name, `key`, `cost` units, `headroom` percent that is
  # kept for others.
  PolicyMatch = Struct.new(:policy, :key, :cost, :headroom) do
    # Shows no key.
    def inspect
      "#<Polylimit::PolicyMatch policy=#{policy.inspect} cost=#{cost} headroom=#{headroom}>"
    end
    alias_method :to_s, :inspect
  end

  # The decision of one policy on a request. `decision` may admit a denied request. `reservation` is the id of the reservation that
  # was made under the policy, for Limiter#commit and Limiter#cancel; nil where units were spent.
  PolicyDecision = Struct.new(:policy, :key, :cost, :headroom, :decision, :reservation) do
    # Shows no key.
    def inspect
      "#<Polylimit::PolicyDecision policy=#{policy.inspect} cost=#{cost} headroom=#{headroom} decision=#{decision.inspect}>"
    end
    alias_method :to_s, :inspect
  end

  # The decision on a request by a configuration: `allowed`, `cause` as in a Decision, `status` the HTTP status of a denial (400, 403
  # or 429) or nil, `retry_after` seconds or nil for never, `decisions` one PolicyDecision for each policy that the rules apply.
  RequestDecision = Struct.new(:allowed, :cause, :status, :retry_after, :decisions) do
    alias_method :allowed?, :allowed
  end

  # Which configuration is in force: `source` such as "document", `version`, `document_version` (which document of Redis, counted
  # from 1, that `publish` expects to replace; 0 for another source), `digest` (SHA-256 of the canonical document), `applied_at` (a Time, or nil before the first), `age` seconds for which the source has been unreachable, `error` or nil.
  ConfigurationStatus = Struct.new(:source, :version, :document_version, :digest, :applied_at, :age, :error)

  # The operations of a limiter whose limits come from a configuration.
  module Configured
    # Decides about a request by the configuration: its lists, rules and policies. Policies with a quota of concurrency are reserved,
    # under this id and for this ttl, and all others spend. When one policy denies, what the others spent or reserved is given back,
    # and their decisions say what a peek tells then.
    # @param request [Hash] :method, :path, :peer, :headers (pairs or a hash, in order), :attributes (a hash); what is left out is absent
    # @param id [String, nil] the id of reservations, 1 to 64 bytes; nil is random
    # @param ttl [Numeric, nil] seconds that reservations last: 0.001 to 172,800; nil is 30
    # @return [RequestDecision]
    def decide(request, id: nil, ttl: nil)
      name = id ? [Argument.id(id).bytesize, id].pack('L<a*') : Attributes::NONE
      terms = [ttl ? 1 : 0, ttl ? Span.microseconds(ttl, 'ttl') : 0].pack('Cq<')
      read Direct.call(@address, :decide_request, Attributes.bytes(request) << name << terms, owner: Undecided.new(self))
    end

    # The policies that the rules apply to a request, each with its key, cost and headroom. Asks no store.
    # @param request [Hash] as in `decide`
    # @return [Array<PolicyMatch>]
    def matching(request)
      read Direct.call_now(@address, :matching, Attributes.bytes(request))
    end

    # Which configuration is in force; nil for a limiter that has none.
    # @return [ConfigurationStatus, nil]
    def configuration
      answer = Direct.call_now(@address, :configuration)
      answer.empty? ? nil : read(answer)
    end

    # Replaces the document that the program has given, in TOML or JSON; its entries stay. One that cannot be used is refused with
    # "line L, column C:", what was read and what is allowed, and the one before stays in force.
    # @return [ConfigurationStatus]
    def set_document(text)
      read Direct.compute(@address, :set_document, Attributes.text('document', text))
    end

    # Sets an entry: "deny ITEM", "allow ITEM" or "override POLICY KEY".
    # @param value [Hash, String] with :until, :by, :why and, for an override, :numbers; or the same as a JSON object
    # @return [ConfigurationStatus]
    def set_entry(item, value = {})
      value = JSON.generate(value) unless value.is_a?(String)
      read Direct.call(@address, :set_entry, Attributes.text('item', item) << Attributes.text('value', value))
    end

    # Deletes an entry; one that is not there is no error.
    # @return [ConfigurationStatus]
    def delete_entry(item)
      read Direct.call(@address, :delete_entry, Attributes.text('item', item))
    end

    # Publishes a document, in TOML or JSON, to the Redis store that the configuration comes from, and waits until it is in force
    # here. Every process that follows the store takes it within a second.
    # @param expected_version [Integer, nil] the version of the document that this one replaces; nil replaces whichever is there
    # @param by [String] the author's name, up to 256 bytes
    # @param why [String] the reason, up to 1,024 bytes
    # @return [ConfigurationStatus]
    def publish(document, expected_version: nil, by: '', why: '')
      version = Argument.units('expected_version', expected_version)
      arguments = Attributes.text('document', document) << [version ? 1 : 0, version || 0].pack('Cq<')
      read Direct.call(@address, :publish, arguments << Attributes.text('by', by) << Attributes.text('why', why))
    end

    # Waits until this version of the configuration or a later one is in force, at most for so many seconds.
    # @return [ConfigurationStatus]
    # @raise [StoreUnavailable] when the timeout passes before
    def wait_for_version(version, timeout)
      wait(:wait_for_version, Span.microseconds(timeout, 'timeout'), [Argument.units('version', version)].pack('q<'))
    end

    # How the candidate of a policy compares with the numbers in force: `both_allow`, `only_live_denies`, `only_candidate_denies`
    # and `both_deny`; nil for a policy without a candidate.
    # @return [CandidateCounts, nil]
    def candidate_counts(policy)
      @native.candidate_counts(Argument.name(policy))
    end

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
  end
  private_constant :Configured

  # The attributes of requests as arguments of direct calls: bindings/uniffi/src/direct/configured.rs has the layout.
  module Attributes
    NAMES = %i[method path peer headers attributes router_paths].freeze
    NONE = [Direct::NONE].pack('L<').freeze

    module_function

    def bytes(request)
      unless request.is_a?(Hash) && (request.keys - NAMES).empty?
        raise InvalidArgument, "a request has #{request.is_a?(Hash) ? request.keys.inspect : Argument.described(request)}: allowed is a " \
                               'hash of :method, :path, :peer, :headers, :attributes and :router_paths'
      end
      written = String.new(capacity: 256, encoding: Encoding::BINARY)
      optional(written, request[:method])
      optional(written, request[:path])
      optional(written, request[:peer])
      pairs(written, request[:headers])
      pairs(written, request[:attributes])
      written << [request[:router_paths] || 0].pack('L<')
    end

    # A text as an argument.
    def text(name, value)
      text = Argument.secret(name, value)
      [text.bytesize, text].pack('L<a*')
    end

    def optional(written, value)
      value.nil? ? written << NONE : put(written, value)
    end

    # Names with values; those without a value are absent.
    def pairs(written, pairs)
      present = pairs.nil? ? [] : pairs.reject { |_, value| value.nil? }
      written << [present.size].pack('L<')
      present.each { |name, value| put(put(written, name), value) }
      written
    end

    def put(written, value)
      case value
      when String then nil
      when Symbol, Integer then value = value.to_s
      else raise InvalidArgument, "an attribute is #{Argument.described(value)}: allowed are strings, symbols and whole numbers"
      end
      written << [value.bytesize].pack('L<') << value.b
    end
  end
  private_constant :Attributes
end
