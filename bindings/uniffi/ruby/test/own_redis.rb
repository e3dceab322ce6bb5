# frozen_string_literal: true

require 'socket'

# A Redis server for one test, which may stop it. It asks for a password, and forgets keys when it is full.
class OwnRedis
  PASSWORD = 'p4ssw0rd-shown-nowhere'

  attr_reader :url, :bare_url, :pid

  # A port that is free now: below those that the kernel gives to connections, which would take it meanwhile.
  def self.free_port
    loop do
      return TCPServer.open('127.0.0.1', rand(10_000...20_000)) { |server| server.addr[1] }
    rescue SystemCallError
      next
    end
  end

  def initialize
    @port = port = self.class.free_port
    @bare_url = "redis://127.0.0.1:#{port}"
    @url = "redis://:#{PASSWORD}@127.0.0.1:#{port}"
    @pid = spawn('redis-server', '--port', port.to_s, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no',
                 '--maxmemory', '100mb', '--maxmemory-policy', 'allkeys-lru', '--requirepass', PASSWORD, out: File::NULL)
  end

  # Runs a command of redis-cli on the server, once it is there.
  def command(*words)
    line = ['redis-cli', '-e', '--no-auth-warning', '-a', PASSWORD, '-p', @port.to_s, *words]
    1000.times do
      return if system(*line, out: File::NULL, err: File::NULL)

      sleep 0.01
    end
    raise "redis-cli has failed: #{words.join(' ')}"
  end

  def pause
    Process.kill(:STOP, @pid)
  end

  def resume
    Process.kill(:CONT, @pid)
  end

  def close
    Process.kill(:KILL, @pid)
    Process.wait(@pid)
  end
end
