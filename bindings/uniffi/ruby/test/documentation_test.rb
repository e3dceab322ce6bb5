# frozen_string_literal: true

require 'minitest/autorun'
require 'rack/builder'
require 'rack/mock'

# The examples of the README run one after the other, as they would in a config.ru.
class DocumentationTest < Minitest::Test
  README = File.read(File.expand_path('../README.md', __dir__))

  def test_the_examples_of_the_readme
    examples = README.scan(/^```ruby\n(.*?)^```$/m).flatten
    assert_equal README.scan(/^```\w/).size, examples.size
    # They give the deadline themselves.
    server = ENV.fetch('POLYLIMIT_REDIS')[/\A[^?]+/]
    program = "#{examples.join.gsub('redis://localhost', server)}run ->(_) { [200, {}, []] }"
    app = nil
    assert_silent { app = ::Rack::Builder.new_from_string(program) }
    response = ::Rack::MockRequest.new(app).get('/', 'HTTP_X_API_KEY' => 'documentation')
    assert_equal 200, response.status
    assert_match(/\A"api:1";q=100;w=60, "api:2";q=1000;w=3600\z/, response['ratelimit-policy'])
  end
end
