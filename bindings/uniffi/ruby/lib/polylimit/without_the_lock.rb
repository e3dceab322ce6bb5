# frozen_string_literal: true

module Polylimit
  # Lets other threads of Ruby run during the calls that may wait for a store.
  module WithoutTheLock
    METHOD = 'uniffi_polylimit_uniffi_fn_method_limiter_'
    WAITING = %w[check check_many check_together peek take charge refund reset acquire ready doctor shut_down].freeze

    # Whether that method of the native limiter may wait.
    def self.waits?(method)
      WAITING.include?(method)
    end

    def attach_function(name, arguments, returned)
      waits = name.start_with?(METHOD) && WithoutTheLock.waits?(name.to_s.delete_prefix(METHOD))
      super(name, arguments, returned, blocking: waits)
    end
  end
end
