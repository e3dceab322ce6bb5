# frozen_string_literal: true

module Polylimit
  # Lets other threads of Ruby run during the calls that may wait for a store.
  module WithoutTheLock
    WAITING = /\Auniffi_polylimit_uniffi_fn_method_limiter_
      (check|check_many|check_together|peek|take|charge|refund|reset|acquire|ready|doctor|shut_down)\z/x

    def attach_function(name, arguments, returned)
      super(name, arguments, returned, blocking: WAITING.match?(name))
    end
  end
end
