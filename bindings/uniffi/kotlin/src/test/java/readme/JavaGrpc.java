package readme;

import io.grpc.ServerInterceptors;
import io.grpc.ServerServiceDefinition;
import polylimit.Limiter;
import polylimit.grpc.RateLimitInterceptor;
import polylimit.grpc.RateLimitOptions;
import polylimit.http.KeyPart;

/** The example of the README for gRPC; {@link ReadmeTest} compares and runs it. */
final class JavaGrpc {
  private JavaGrpc() {}

  static ServerServiceDefinition limited(ServerServiceDefinition service, Limiter limiter) {
    RateLimitOptions options = new RateLimitOptions(limiter).policy("api").key(KeyPart.header("x-api-key"));
    ServerServiceDefinition limited = ServerInterceptors.intercept(service, new RateLimitInterceptor(options));
    return limited;
  }
}
