# frozen_string_literal: true

require 'polylimit'

# The quotas of cases.
module Quotas
  module_function

  # Quotas of a policy as text.
  def text(all)
    texts = all.map do |numbers|
      # A quota by the calendar has its text.
      next numbers['text'] if numbers.key?('text')

      numbers = numbers.transform_keys(&:to_sym)
      period = numbers.delete(:period_us)
      Polylimit.quota(period: period && Rational(period, 1_000_000), **numbers)
    end
    texts.join('; ')
  end
end
