# frozen_string_literal: true

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

  # Which configuration is active: `source` such as "document", `version`, `document_version` (which document of Redis, counted
  # from 1, that `publish` expects to replace; 0 for another source), `digest` (SHA-256 of the canonical document), `applied_at` (a Time, or nil before the first), `age` seconds for which the source has been unreachable, `error` or nil.
  ConfigurationStatus = Struct.new(:source, :version, :document_version, :digest, :applied_at, :age, :error)

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
