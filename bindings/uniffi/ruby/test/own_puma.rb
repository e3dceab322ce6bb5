# frozen_string_literal: true

require 'puma'
require 'puma/events'
require 'puma/server'
begin
  require 'puma/log_writer'
rescue LoadError
  # Puma 5 has its log in its events.
end

# A server on a port of its own, and the port.
def own_puma(app, threads: 4)
  options = { min_threads: threads, max_threads: threads }
  server = if defined?(Puma::LogWriter)
             Puma::Server.new(app, nil, options.merge(log_writer: Puma::LogWriter.strings))
           else
             Puma::Server.new(app, Puma::Events.strings, options)
           end
  port = server.add_tcp_listener('127.0.0.1', 0).addr[1]
  server.run
  [server, port]
end
