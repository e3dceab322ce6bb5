import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.rpc.QuotaFailure;
import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerInterceptor;
import io.grpc.ServerInterceptors;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.ServerCalls;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import polylimit.Limiter;
import polylimit.LimiterBuilder;
import polylimit.ManualClock;
import polylimit.PolylimitException;
import polylimit.grpc.RateLimitInterceptor;
import polylimit.grpc.RateLimitOptions;

/** The cases of guard_waiting.json in `tests/conformance`, through a real gRPC server. */
final class WaitingCases {
  private static final Map<Integer, Status.Code> CODES = Map.of(200, Status.Code.OK, 429, Status.Code.RESOURCE_EXHAUSTED);

  /** What a case does, by its name. */
  interface Case {
    void run() throws Exception;
  }

  private WaitingCases() {}

  static Map<String, Case> all(Path file) throws Exception {
    Map<String, Case> cases = new LinkedHashMap<>();
    for (JsonElement one : JsonParser.parseString(Files.readString(file)).getAsJsonObject().getAsJsonArray("cases")) {
      cases.put(one.getAsJsonObject().get("name").getAsString(), () -> run(one.getAsJsonObject()));
    }
    return cases;
  }

  private static void run(JsonObject one) throws Exception {
    ManualClock clock = new ManualClock(1_789_948_800_000_000L);
    LimiterBuilder builder = Limiter.builder().clock(clock);
    for (Map.Entry<String, JsonElement> policy : one.getAsJsonObject("policies").entrySet()) {
      builder.policy(policy.getKey(), policy.getValue().getAsString());
    }
    try (Limiter limiter = builder.build()) {
      List<ServerInterceptor> limits = new ArrayList<>();
      try {
        for (JsonElement guard : one.getAsJsonArray("guards")) limits.add(new RateLimitInterceptor(options(limiter, guard.getAsJsonObject())));
      } catch (PolylimitException.InvalidArgument refused) {
        same("invalid_argument", one.get("error").getAsString());
        return;
      }
      same(false, one.has("error"));
      // The outermost is the last.
      Collections.reverse(limits);
      serve(one, limits, clock);
      if (!one.has("left")) return;
      for (JsonElement element : one.getAsJsonArray("left")) {
        JsonObject left = element.getAsJsonObject();
        same(left.get("remaining").getAsLong(), limiter.peek(left.get("key").getAsString(), left.get("policy").getAsString()).getRemaining());
      }
    }
  }

  private static RateLimitOptions options(Limiter limiter, JsonObject guard) {
    RateLimitOptions options = new RateLimitOptions(limiter);
    for (Map.Entry<String, JsonElement> option : guard.entrySet()) {
      JsonElement value = option.getValue();
      switch (option.getKey()) {
        case "policy" -> options.policy(texts(value).toArray(String[]::new));
        case "key" -> options.key(request -> request.getHeaders().get(key(value.getAsJsonObject().get("header").getAsString())));
        case "wait_ms" -> options.wait(Duration.ofMillis(value.getAsLong()));
        case "max_waiting" -> options.maxWaiting(value.getAsInt());
        case "dry_run" -> options.dryRun(value.getAsBoolean());
        default -> throw new AssertionError("no option of calls: " + option.getKey());
      }
    }
    return options;
  }

  private static void serve(JsonObject one, List<ServerInterceptor> limits, ManualClock clock) throws Exception {
    MethodDescriptor<byte[], byte[]> method = MethodDescriptor.<byte[], byte[]>newBuilder().setType(MethodDescriptor.MethodType.UNARY)
        .setFullMethodName("test.Cases/Run").setRequestMarshaller(new Bytes()).setResponseMarshaller(new Bytes()).build();
    AtomicBoolean isHandled = new AtomicBoolean();
    ServerServiceDefinition service = ServerServiceDefinition.builder("test.Cases").addMethod(method, ServerCalls.asyncUnaryCall((request, response) -> {
      isHandled.set(true);
      response.onNext(request);
      response.onCompleted();
    })).build();
    Server server = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0)).addService(ServerInterceptors.intercept(service, limits)).build().start();
    ManagedChannel channel = NettyChannelBuilder.forAddress("127.0.0.1", server.getPort()).usePlaintext().build();
    try {
      for (JsonElement element : one.getAsJsonArray("requests")) {
        JsonObject asked = element.getAsJsonObject();
        isHandled.set(false);
        Metadata headers = new Metadata();
        asked.getAsJsonObject("headers").entrySet().forEach(header -> headers.put(key(header.getKey()), header.getValue().getAsString()));
        var interceptor = MetadataUtils.newAttachHeadersInterceptor(headers);
        StatusRuntimeException denied = null;
        CountDownLatch done = new CountDownLatch(1);
        Thread passing = passing(asked, clock, done);
        try {
          ClientCalls.blockingUnaryCall(io.grpc.ClientInterceptors.intercept(channel, interceptor), method,
              CallOptions.DEFAULT.withDeadlineAfter(60, TimeUnit.SECONDS), new byte[0]);
        } catch (StatusRuntimeException failure) {
          denied = failure;
        } finally {
          done.countDown();
          passing.join();
        }
        check(asked.getAsJsonObject("expect"), denied, isHandled.get());
      }
    } finally {
      channel.shutdownNow();
      server.shutdownNow();
    }
  }

  private static void check(JsonObject expect, StatusRuntimeException denied, boolean isHandled) throws Exception {
    same(CODES.get(expect.get("status").getAsInt()), denied == null ? Status.Code.OK : denied.getStatus().getCode());
    same(expect.get("handled").getAsBoolean(), isHandled);
    if (expect.has("fields") && denied != null) {
      for (Map.Entry<String, JsonElement> field : expect.getAsJsonObject("fields").entrySet()) {
        same(field.getValue().getAsString(), denied.getTrailers().get(key(field.getKey())));
      }
    }
    if (!expect.has("problem")) return;
    JsonObject problem = expect.getAsJsonObject("problem");
    same(problem.get("detail").getAsString(), denied.getStatus().getDescription());
    List<String> violated = new ArrayList<>();
    for (com.google.protobuf.Any any : StatusProto.fromThrowable(denied).getDetailsList()) {
      if (any.is(QuotaFailure.class)) any.unpack(QuotaFailure.class).getViolationsList().forEach(each -> violated.add(each.getSubject()));
    }
    same(texts(problem.get("violated")), violated);
  }

  /** Lets time pass while a call is under way, so that a limit that holds it does so first. */
  private static Thread passing(JsonObject asked, ManualClock clock, CountDownLatch done) {
    Duration elapse = Duration.ofMillis(asked.has("elapse_ms") ? asked.get("elapse_ms").getAsLong() : 0);
    Thread passing = new Thread(() -> {
      try {
        while (!done.await(100, TimeUnit.MILLISECONDS)) clock.advance(elapse);
      } catch (InterruptedException interrupted) {
        throw new AssertionError(interrupted);
      }
    });
    passing.start();
    return passing;
  }

  private static List<String> texts(JsonElement value) {
    if (!value.isJsonArray()) return List.of(value.getAsString());
    List<String> texts = new ArrayList<>();
    value.getAsJsonArray().forEach(each -> texts.add(each.getAsString()));
    return texts;
  }

  private static Metadata.Key<String> key(String name) {
    return Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
  }

  private static void same(Object expected, Object seen) {
    if (!expected.equals(seen)) throw new AssertionError("expected " + expected + ", but was " + seen);
  }

  /** Messages are their bytes. */
  private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
    @Override
    public java.io.InputStream stream(byte[] value) {
      return new java.io.ByteArrayInputStream(value);
    }

    @Override
    public byte[] parse(java.io.InputStream stream) {
      try {
        return stream.readAllBytes();
      } catch (java.io.IOException failure) {
        throw new java.io.UncheckedIOException(failure);
      }
    }
  }
}
