# frozen_string_literal: true

# Records what a test measured for a row of docs/faults.md, as tests/faults/record.
def record(file, row, name, **measured)
  root = File.expand_path('../../../..', __dir__)
  pairs = measured.map { |what, value| "#{what}=#{value}" }
  file = File.expand_path(file).delete_prefix("#{root}/")
  system(File.join(root, 'tests/faults/record'), file, row, name, *pairs, exception: true)
end
