# frozen_string_literal: true

module Polylimit
  # Lets other threads of Ruby run during the calls that may wait for a store.
  module WithoutTheLock
    METHOD = 'uniffi_polylimit_uniffi_fn_method_'
    # Methods of the native classes that may wait.
    WAITING = {
      'limiter' => %w[check check_many check_together peek take charge refund reset shut_down],
      'waiting' => %w[wait give_up]
    }.freeze
    FUNCTIONS = WAITING.flat_map { |type, methods| methods.map { |method| "#{METHOD}#{type}_#{method}" } }.freeze

    def attach_function(name, arguments, returned)
      super(name, arguments, returned, blocking: FUNCTIONS.include?(name.to_s))
    end
  end
end
