# frozen_string_literal: true

module Polylimit
  # Parts of a key that the middleware reads from the env. Each is a text, the same in every language.
  module KeyPart
    module_function

    # The client's address, as the option client_address finds it.
    def address
      'address'
    end

    # The authenticated user, REMOTE_USER.
    def user
      'user'
    end

    # The value of the header with this name.
    def header(name)
      "header:#{name}"
    end

    # The value of the cookie with this name, as the client sends it.
    def cookie(name)
      "cookie:#{name}"
    end

    # The value of the path parameter with this name, which Rails has set for middleware behind its router.
    def path(name)
      "path:#{name}"
    end
  end
end
