# frozen_string_literal: true

module Polylimit
  # Releases Ruby's global VM lock during native calls that may wait for a store, so that other threads run.
  module BlockingCalls
    PREFIX = 'uniffi_polylimit_uniffi_fn_method_'
    # Methods of the generated classes that may block. What happens in each request goes through Direct.
    METHODS = { 'limiter' => %w[shut_down] }.freeze
    FUNCTIONS = METHODS.flat_map { |type, methods| methods.map { |method| "#{PREFIX}#{type}_#{method}" } }.freeze

    def attach_function(name, arguments, returned)
      super(name, arguments, returned, blocking: FUNCTIONS.include?(name.to_s))
    end
  end
end
