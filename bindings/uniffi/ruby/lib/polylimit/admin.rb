# frozen_string_literal: true

require 'json'

module Polylimit
  # The operations for operators, made by Limiter#admin. It shares everything with the limiter, and keeps it alive.
  #
  # Lists, explanations and counters of keys are hashes whose keys are symbols, with the names of the fields that docs/listing.md
  # describes; names that end in `_us` are microseconds. A key is `:key` when it is text, `:key_base64` for other bytes, and `:key_digest`
  # when the store has no more of it.
  class Admin
    # The form in which the core returns a report.
    JSON_FORM = "\0".b.freeze
    private_constant :JSON_FORM

    include Calls

    def initialize(limiter, native, address, ends)
      @limiter = limiter
      @native = native
      @address = address
      @ends = ends
    end

    # Shows what its limiter shows.
    def inspect
      "#<Polylimit::Admin of #{@limiter.inspect}>"
    end
    alias to_s inspect

    # Denies every request of the key under its policy for this many seconds, 0.001 to 366 days; 0 ends a block and forgets the key's
    # penalties.
    # @return [Usage]
    def block(key, seconds, policy: nil, plan: nil)
      time_us = Span.microseconds(seconds, 'seconds')
      buffer = request(:block, key, policy, nil, plan: plan)
      buffer.put_int64(Direct::TIMEOUT_AT, time_us)
      read Direct.answer(@address, buffer)
    end

    # Ends a block of the key under its policy, and forgets its penalties.
    # @return [Usage]
    def unblock(key, policy: nil, plan: nil)
      block(key, 0, policy: policy, plan: plan)
    end

    # Examines the store for an operator.
    # @return [Array<Finding>]
    def doctor
      wait(:doctor, 0)
    end

    # How many keys the memory store or the local one holds a state for; nil for a store elsewhere.
    # @return [Integer, nil]
    def keys
      @native.admin.keys
    end

    # The keys that the store has, with what is used of their quotas, a page at a time: `{ keys:, examined:, cursor: }`. A page without
    # keys may have a cursor. In Redis each call is followed by a pause; the caller can be interrupted meanwhile.
    #
    # @param policy [String, nil] only keys of this policy: its name, or its quotas as text
    # @param key_prefix [String, nil] only keys that begin with these bytes
    # @param at_least_used [Integer, nil] only keys of which at least this much is used, in percent, 0 to 255
    # @param entries [Integer, nil] the page ends once it has this many keys, 1 or more; nil is 1,000
    # @param examined [Integer, nil] the page ends once the store has examined this many keys, 1 or more; nil is 100,000
    # @param pace_percent [Integer, nil] the share of a Redis server's time that a list may take, 1 to 100; nil is 10
    # @param cursor [String, nil] where the list goes on: that of the page before
    # @return [Hash]
    # @raise [Error]
    def list(**options)
      listed(:list, ListOptions.bytes(**options))
    end

    # The most used keys, at most this many, in descending order. The options are those of `list` without
    # `cursor`.
    # @return [Hash]
    def scan_top(number, **options)
      listed(:scan_top, ListOptions.number('number', number) << ListOptions.bytes(**options))
    end

    # Lists a page of keys as `list` does, and resets them: `{ reset:, unknown:, examined:, cursor: }`. Keys of policies that this
    # limiter does not know stay. Keys may have been reset before an error.
    # @return [Hash]
    def reset_listed(**options)
      listed(:reset_listed, ListOptions.bytes(**options))
    end

    # The keys that this limiter has denied and admitted most often in this process lately, this many of each at most:
    # `{ denied:, admitted:, half_life_us:, counters: }`. It needs the option `observe_keys`; without, there are none.
    # @return [Hash]
    def top_keys(number)
      report Direct.call_now(@address, :top_keys, ListOptions.number('number', number))
    end

    # Why a request would be admitted or denied now: what each quota says, in the words of its algorithm; blocks and reservations;
    # and what the configuration says about the key. It charges nothing.
    # @return [Hash]
    # @raise [StoreUnavailable] when the store does not answer: no outage policy answers in its place
    def explain(key, policy: nil, cost: 1, headroom: nil, plan: nil)
      report Direct.answer(@address, request(:explain, key, policy, other_than_one(cost), JSON_FORM, plan: plan, headroom: headroom))
    end

    # Why a request, by its attributes, would be admitted or denied by the configuration: the lists, the rules that match, and what
    # each of their policies says.
    # @param request [Hash] as in Limiter#decide
    # @return [Hash]
    def explain_request(request)
      report Direct.call(@address, :explain_request, Attributes.bytes(request) << JSON_FORM)
    end

    # The policies that the rules apply to a request, each with its key, cost and headroom. Asks no store.
    # @param request [Hash] as in Limiter#decide
    # @return [Array<PolicyMatch>]
    def matching(request)
      read Direct.call_now(@address, :matching, Attributes.bytes(request))
    end

    # How the candidate of a policy compares with the effective quotas: `both_allow`, `only_live_denies`, `only_candidate_denies`
    # and `both_deny`; nil for a policy without a candidate.
    # @return [CandidateCounts, nil]
    def candidate_counts(policy)
      @native.admin.candidate_counts(Argument.name(policy))
    end

    # Which configuration is active; nil for a limiter that has none.
    # @return [ConfigurationStatus, nil]
    def configuration
      answer = Direct.call_now(@address, :configuration)
      answer.empty? ? nil : read(answer)
    end

    # Replaces the document that the program has given, in TOML or JSON; its entries stay. One that cannot be used is refused with
    # "line L, column C:", what was read and what is allowed, and the previous one stays active.
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

    # Publishes a document, in TOML or JSON, to the Redis store that the configuration comes from, and waits until it is active
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

    # Waits until this version of the configuration or a later one is active, at most for this many seconds.
    # @return [ConfigurationStatus]
    # @raise [StoreUnavailable] when the timeout passes before
    def wait_for_version(version, timeout)
      wait(:wait_for_version, Span.microseconds(timeout, 'timeout'), [Argument.units('version', version)].pack('q<'))
    end

    # Authenticates new connections with another password, and user name if there is one, from now on.
    def set_credentials(password, username: nil)
      @native.admin.set_credentials(Argument.text('username', username), Argument.secret('password', password))
    end

    private

    # Other threads run while a store in this process goes over its keys, and a caller that waits for Redis can be interrupted.
    def listed(operation, arguments)
      buffer = Direct.filled(operation, arguments << JSON_FORM)
      length = Direct.wait(@address, buffer, buffer.size)
      report(length == Direct::HAS_TO_WAIT ? Waiting.answer(@address, buffer) : Direct.finish(buffer, length))
    end
  end
end
