# frozen_string_literal: true

require_relative 'rack_case'

# Mistakes in the options of the middleware.
class RackOptionsTest < RackCase
  def test_invalid_options_are_refused_when_the_middleware_is_built
    two = limiter(a: '1/hour', b: '1/hour')
    {
      [] => /\Apolicy is an empty list: allowed is a policy's name/,
      ['a', nil] => /\Apolicy is nil: allowed is a policy's name/,
      [:a, '5/hour', 'a'] => /\Apolicy "a" is a duplicate: leave out one of the two\z/,
      ['5/hour', '5 per 60m'] => /\Apolicy "5 per 60m" is a duplicate: leave out one of the two\z/,
      'apy' => /\Apolicy "apy" is not known: this limiter has a, b\z/,
      '100/minut' => /minut/,
      5 => /\Apolicy is 5: allowed is text/
    }.each do |policy, message|
      error = assert_raises(Polylimit::InvalidArgument) { Polylimit::Rack.new(LEFT, limiter: two, policy: policy) }
      assert_match message, error.message
    end
    {
      { policy: nil } => /several/,
      { headers: 'IETF' } => /IETF/,
      { policy: '5/hour', scope: '' } => /allowed is a text of 1 to 256 bytes/,
      { scope: 5 } => /\Ascope is 5/,
      { limiter: nil } => /\Alimiter is nil: allowed is a Polylimit::Limiter/,
      { limiter: 'redis://localhost' } => /\Alimiter is of the class String/,
      { key: 'HTTP_USER' } => /\Akey part "HTTP_USER" cannot be read: allowed are address, user/,
      { key: 5 } => /\Akey is of the class Integer: allowed is what can be called/,
      { missing_key: 'no' } => /\Amissing key "no" is not known/, { status: '429' } => /\Astatus is "429"/,
      { status: 200 } => /\Astatus is 200: allowed is 400 to 599/, { dry_run: 1 } => /\Adry_run is 1/,
      { headers: 'x=y' } => /header name for field "x"/, { message: 5 } => /\Amessage is 5/,
      { methods: 5 } => /\Amethods is 5/,
      { skip: true } => /\Askip is of the class TrueClass/,
      { count: 1 } => /\Acount is of the class Integer/,
      { on_denied: 'no' } => /\Aon_denied is of the class String/,
      { on_outage: :admit } => /\Aon_outage is of the class Symbol/,
      { client_address: ['10.0.0.0/8'] } => /\Aclient_address is of the class Array/,
      { cost: -1 } => /\Acost is -1/, { cost: 0.5 } => /\Acost is 0.5/, { cost: 10**13 } => /\Acost is 10000000000000/,
      { limit: 5 } => /\Aunknown keyword: limit: use policy, with quotas such as/,
      { period: 60 } => /\Aunknown keyword: period: use policy/,
      { discriminator: 1 } => /\Aunknown keyword: discriminator: use key\z/,
      { within: 60 } => /\Aunknown keyword: within: use policy/, { by: 1 } => /\Aunknown keyword: by: use key\z/,
      { colour: 'red' } => /\Aunknown keyword: colour: allowed are limiter, policy, scope/
    }.each do |options, message|
      error = assert_raises(Polylimit::InvalidArgument, options.inspect) do
        Polylimit::Rack.new(LEFT, **{ limiter: two, policy: 'a' }.merge(options))
      end
      assert_match message, error.message
    end
  end
end
