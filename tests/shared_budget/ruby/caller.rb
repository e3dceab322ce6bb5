# frozen_string_literal: true

# Callers in Ruby: caller.rb URL CALLERS ATTEMPTS. For each line of the input, a key and quotas with a tab between them, all
# callers ask at the same time, each in a thread; the answer is how many were admitted.
require 'polylimit'

url, callers, attempts = ARGV
limiter = Polylimit::Limiter.new(url)
Thread.report_on_exception = false
$stdout.sync = true

call = lambda do |key, quotas|
  Array.new(Integer(attempts)) { limiter.check(key, policy: quotas) }.count do |decision|
    # What the store did not decide would say nothing about a shared budget.
    raise "a decision is degraded: #{decision.degraded}" if decision.degraded

    decision.allowed
  end
end

puts 'ready'
$stdin.each_line(chomp: true) do |line|
  key, quotas = line.split("\t")
  puts Array.new(Integer(callers)) { Thread.new { call.call(key, quotas) } }.sum(&:value)
end
limiter.close
