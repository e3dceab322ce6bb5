import com.google.protobuf.StringValue;
import com.google.rpc.QuotaFailure;
import com.google.rpc.RetryInfo;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerInterceptors;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.net.InetSocketAddress;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import polylimit.Limiter;
import polylimit.PolylimitException;
import polylimit.grpc.RateLimitInterceptor;
import polylimit.grpc.RateLimitOptions;
import polylimit.http.KeyPart;

/** What the interceptor does in a real gRPC server, with any version of it. Prints a line in cargo's form at the end. */
public class GrpcChecks {
  private static MethodDescriptor<StringValue, StringValue> method(String name, MethodDescriptor.MethodType type) {
    return MethodDescriptor.<StringValue, StringValue>newBuilder().setType(type).setFullMethodName("shop.Shop/" + name)
        .setRequestMarshaller(ProtoUtils.marshaller(StringValue.getDefaultInstance()))
        .setResponseMarshaller(ProtoUtils.marshaller(StringValue.getDefaultInstance())).build();
  }

  private static final MethodDescriptor<StringValue, StringValue> ECHO = method("Echo", MethodDescriptor.MethodType.UNARY);
  private static final MethodDescriptor<StringValue, StringValue> OTHER = method("Other", MethodDescriptor.MethodType.UNARY);
  private static final MethodDescriptor<StringValue, StringValue> LIST = method("List", MethodDescriptor.MethodType.SERVER_STREAMING);
  private static final MethodDescriptor<StringValue, StringValue> CHAT = method("Chat", MethodDescriptor.MethodType.BIDI_STREAMING);
  private static final Metadata.Key<String> CLIENT = Metadata.Key.of("x-client", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> POLICY = Metadata.Key.of("ratelimit-policy", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> RETRY_AFTER = Metadata.Key.of("retry-after", Metadata.ASCII_STRING_MARSHALLER);

  private static StringValue text(String text) {
    return StringValue.of(text);
  }

  /** A server with limits, the outermost last, and a client of it. */
  private static final class Service implements AutoCloseable {
    final AtomicInteger runs = new AtomicInteger();
    final AtomicReference<StreamObserver<StringValue>> open = new AtomicReference<>();
    final CountDownLatch cancelled = new CountDownLatch(1);
    private final Server server;
    final ManagedChannel channel;

    Service(RateLimitInterceptor... limits) throws Exception {
      ServerServiceDefinition service = ServerServiceDefinition.builder("shop.Shop")
          .addMethod(ECHO, ServerCalls.asyncUnaryCall(this::echo)).addMethod(OTHER, ServerCalls.asyncUnaryCall(this::echo))
          .addMethod(LIST, ServerCalls.asyncServerStreamingCall((request, response) -> {
            runs.incrementAndGet();
            response.onNext(request);
            open.set(response);
          }))
          .addMethod(CHAT, ServerCalls.asyncBidiStreamingCall(this::chat)).build();
      server = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0))
          .addService(ServerInterceptors.intercept(service, limits)).build().start();
      channel = NettyChannelBuilder.forAddress("127.0.0.1", server.getPort()).usePlaintext().build();
    }

    private void echo(StringValue request, StreamObserver<StringValue> response) {
      runs.incrementAndGet();
      if (request.getValue().equals("fails")) throw new IllegalStateException("broken");
      if (request.getValue().equals("missing")) {
        response.onError(Status.NOT_FOUND.asRuntimeException());
        return;
      }
      boolean isKnown = RateLimitInterceptor.RATE_LIMIT.get() != null;
      response.onNext(text(request.getValue() + " " + isKnown));
      response.onCompleted();
    }

    private StreamObserver<StringValue> chat(StreamObserver<StringValue> response) {
      return new StreamObserver<>() {
        @Override
        public void onNext(StringValue message) {
          runs.incrementAndGet();
          response.onNext(message);
        }

        @Override
        public void onError(Throwable failure) {
          cancelled.countDown();
        }

        @Override
        public void onCompleted() {
          response.onCompleted();
        }
      };
    }

    String call(MethodDescriptor<StringValue, StringValue> method, String client, String message) {
      Metadata headers = new Metadata();
      if (client != null) headers.put(CLIENT, client);
      return ClientCalls.blockingUnaryCall(
          ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(headers)), method, patient(), text(message)).getValue();
    }

    StatusRuntimeException denied(MethodDescriptor<StringValue, StringValue> method, String client) {
      try {
        call(method, client, "hello");
      } catch (StatusRuntimeException denied) {
        return denied;
      }
      throw new AssertionError("the call was admitted");
    }

    /** How a call ends, whose message comes at once or, late, after the decision about its start. */
    Status end(String client, String message, boolean isLate) throws Exception {
      Metadata headers = new Metadata();
      headers.put(CLIENT, client);
      CompletableFuture<Status> end = new CompletableFuture<>();
      ClientCall<StringValue, StringValue> call = channel.newCall(ECHO, patient());
      call.start(new ClientCall.Listener<>() {
        @Override
        public void onClose(Status status, Metadata trailers) {
          end.complete(status);
        }
      }, headers);
      call.request(2);
      if (isLate) Thread.sleep(20);
      call.sendMessage(text(message));
      call.halfClose();
      return end.get(60, TimeUnit.SECONDS);
    }

    Status.Code code(String client, String message) {
      try {
        call(ECHO, client, message);
        return Status.Code.OK;
      } catch (StatusRuntimeException denied) {
        return denied.getStatus().getCode();
      }
    }

    @Override
    public void close() {
      channel.shutdownNow();
      server.shutdownNow();
    }
  }

  private static CallOptions patient() {
    return CallOptions.DEFAULT.withDeadlineAfter(60, TimeUnit.SECONDS);
  }

  private static RateLimitOptions options(Limiter limiter) {
    return new RateLimitOptions(limiter).policy("api").key(KeyPart.header("x-client"));
  }

  private static Limiter limiter(String store, String quotas) {
    return Limiter.builder().store(store).policy("api", quotas).build();
  }

  private static void same(Object expected, Object seen) {
    if (!expected.equals(seen)) throw new AssertionError("expected " + expected + ", but was " + seen);
  }

  private static <T extends com.google.protobuf.Message> T detail(StatusRuntimeException failure, Class<T> type) throws Exception {
    for (com.google.protobuf.Any any : StatusProto.fromThrowable(failure).getDetailsList()) if (any.is(type)) return any.unpack(type);
    throw new AssertionError("there is no " + type.getSimpleName());
  }

  private interface Check {
    void run(String store) throws Exception;
  }

  private int passed;
  private int failed;
  private final String redis;

  private GrpcChecks(String redis) {
    this.redis = redis;
  }

  /** Runs a check on a store of this process, and on Redis, for which calls have to wait. */
  private void check(String name, Check check) {
    for (String store : List.of("memory:", redis)) {
      try {
        check.run(store.equals(redis) ? redis + (redis.contains("?") ? "&" : "?") + "prefix=grpc" + System.nanoTime() : store);
        passed += 1;
      } catch (Throwable failure) {
        failed += 1;
        System.out.println("FAILED: " + name + ", " + store.split(":")[0] + ": " + failure);
      }
    }
  }

  private void run() {
    check("a call over its limit is exhausted, and its details say when to come back", store -> {
      try (Limiter limiter = limiter(store, "2/hour fixed_window"); Service service = new Service(new RateLimitInterceptor(options(limiter)))) {
        same("hello true", service.call(ECHO, "a", "hello"));
        same("hello true", service.call(OTHER, "a", "hello"));
        StatusRuntimeException denied = service.denied(ECHO, "a");
        same(Status.Code.RESOURCE_EXHAUSTED, denied.getStatus().getCode());
        long wait = detail(denied, RetryInfo.class).getRetryDelay().getSeconds();
        same(true, wait > 0 && wait <= 3600);
        same("api", detail(denied, QuotaFailure.class).getViolations(0).getSubject());
        same("\"api\";q=2;w=3600", denied.getTrailers().get(POLICY));
        same("hello true", service.call(ECHO, "b", "hello"));
        same(3, service.runs.get());
      }
    });
    check("the wait in the details has the jitter of the field", store -> {
      try (Limiter limiter = limiter(store, "1/day fixed_window");
          Service service = new Service(new RateLimitInterceptor(options(limiter).headers("ietf jitter=100%")))) {
        service.call(ECHO, "a", "hello");
        for (int each = 0; each < 3; each++) {
          StatusRuntimeException denied = service.denied(ECHO, "a");
          com.google.protobuf.Duration wait = detail(denied, RetryInfo.class).getRetryDelay();
          // The field has whole seconds.
          same(denied.getTrailers().get(RETRY_AFTER), Long.toString(wait.getSeconds() + (wait.getNanos() > 0 ? 1 : 0)));
        }
      }
    });
    check("quotas without a name have a budget for each method", store -> {
      try (Limiter limiter = Limiter.of(Map.of(), store);
          Service service = new Service(new RateLimitInterceptor(new RateLimitOptions(limiter).policy("1/hour fixed_window")))) {
        service.call(ECHO, null, "hello");
        service.call(OTHER, null, "hello");
        same(Status.Code.RESOURCE_EXHAUSTED, service.denied(OTHER, null).getStatus().getCode());
      }
    });
    check("the rules of a document see path, route, metadata and user, and decide the status", store -> {
      String document = "polylimit = 1\npolicies.echo.quotas = \"1/hour fixed_window\"\nlists.deny = [\"user mallory\"]\n[[rules]]\n"
          + "match = { route = \"/shop.Shop/Echo\" }\napply = [{ policy = \"echo\", key = \"{user}\", missing = \"deny\" }]\n";
      try (Limiter limiter = Limiter.builder().store(store).document(document).build(); Service service = new Service(
          new RateLimitInterceptor(new RateLimitOptions(limiter).user(request -> request.getHeaders().get(CLIENT))))) {
        for (int each = 0; each < 3; each++) service.call(OTHER, "a", "hello");
        service.call(ECHO, "a", "hello");
        same(Status.Code.RESOURCE_EXHAUSTED, service.denied(ECHO, "a").getStatus().getCode());
        same(Status.Code.PERMISSION_DENIED, service.denied(ECHO, "mallory").getStatus().getCode());
        same(Status.Code.INVALID_ARGUMENT, service.denied(ECHO, null).getStatus().getCode());
      }
    });
    check("what does not count is given back, by the status of the call", store -> {
      try (Limiter limiter = limiter(store, "2/hour fixed_window");
          Service service = new Service(new RateLimitInterceptor(options(limiter).count((request, status) -> status.isOk())))) {
        for (int each = 0; each < 3; each++) {
          same(Status.Code.NOT_FOUND, service.code("a", "missing"));
          same(Status.Code.UNKNOWN, service.code("a", "fails"));
          left(limiter, 2);
        }
        same(Status.Code.OK, service.code("a", "hello"));
        left(limiter, 1);
      }
    });
    check("an exception of a handler has the same status before and after the decision has come", store -> {
      try (Limiter limiter = limiter(store, "2/hour fixed_window");
          Service service = new Service(new RateLimitInterceptor(options(limiter).count((request, status) -> status.isOk())));
          Service each = new Service(new RateLimitInterceptor(options(limiter).eachMessage(true)))) {
        for (int turn = 0; turn < 20; turn++) {
          same(Status.Code.UNKNOWN, service.end("a", "fails", turn % 2 == 0).getCode());
          same(Status.Code.UNKNOWN, each.end("m" + turn, "fails", turn % 2 == 0).getCode());
        }
        left(limiter, 2);
      }
    });
    check("a denial gives back what interceptors before have spent", store -> {
      try (Limiter wide = limiter(store, "5/hour fixed_window"); Limiter narrow = limiter("memory:", "1/hour fixed_window");
          Service service = new Service(new RateLimitInterceptor(options(narrow)), new RateLimitInterceptor(options(wide)))) {
        same(Status.Code.OK, service.code("a", "hello"));
        for (int each = 0; each < 3; each++) same(Status.Code.RESOURCE_EXHAUSTED, service.code("a", "hello"));
        left(wide, 4);
      }
    });
    check("a stream holds its place until it ends, or its client has gone", store -> {
      try (Limiter limiter = limiter(store, "1 concurrent"); Service service = new Service(new RateLimitInterceptor(options(limiter)))) {
        for (boolean isCancelled : new boolean[] {true, false}) {
          ClientCall<StringValue, StringValue> call = open(service);
          same(Status.Code.RESOURCE_EXHAUSTED, service.code("a", "hello"));
          if (isCancelled) call.cancel("gone", null);
          else service.open.get().onCompleted();
          long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
          while (service.code("a", "hello") != Status.Code.OK) if (System.nanoTime() > end) throw new AssertionError("the place is not free again");
        }
      }
    });
    check("each message of a client is decided, with a cost of its own", store -> {
      try (Limiter limiter = limiter(store, "10/hour fixed_window"); Service service = new Service(
          new RateLimitInterceptor(options(limiter).eachMessage(true).cost(request -> ((StringValue) request.getMessage()).getValue().length())))) {
        List<String> answers = new ArrayList<>();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        CountDownLatch done = new CountDownLatch(1);
        Metadata headers = new Metadata();
        headers.put(CLIENT, "a");
        StreamObserver<StringValue> requests = ClientCalls.asyncBidiStreamingCall(
            ClientInterceptors.intercept(service.channel, MetadataUtils.newAttachHeadersInterceptor(headers)).newCall(CHAT, patient()), new StreamObserver<StringValue>() {
              @Override
              public void onNext(StringValue message) {
                answers.add(message.getValue());
              }

              @Override
              public void onError(Throwable thrown) {
                failure.set(thrown);
                done.countDown();
              }

              @Override
              public void onCompleted() {
                done.countDown();
              }
            });
        for (String message : List.of("four", "fives", "no", "a")) requests.onNext(text(message));
        same(true, done.await(60, TimeUnit.SECONDS));
        same(List.of("four", "fives"), answers);
        same(Status.Code.RESOURCE_EXHAUSTED, Status.fromThrowable(failure.get()).getCode());
        same(true, service.cancelled.await(60, TimeUnit.SECONDS));
        same(2, service.runs.get());
        left(limiter, 1);
      }
    });
    check("an outage is reported to clients as unavailable", store -> {
      try (Limiter limiter = Limiter.builder().store("redis://127.0.0.1:1?deadline=50ms&doctor_after=0").policy(new polylimit.Policy("api", "1/hour", "deny", null)).build();
          Service service = new Service(new RateLimitInterceptor(options(limiter)))) {
        same(Status.Code.UNAVAILABLE, service.code("a", "hello"));
      }
    });
    check("what has no meaning for gRPC is refused", store -> {
      try (Limiter limiter = limiter("memory:", "1/hour")) {
        for (RateLimitOptions options : List.of(options(limiter).onDenied((denial, request, response) -> {}), options(limiter).spentBy("usage:total"))) {
          try {
            new RateLimitInterceptor(options);
          } catch (PolylimitException.InvalidArgument refused) {
            continue;
          }
          throw new AssertionError("it was not refused");
        }
      }
    });
    check("errors of the program end the call", store -> {
      try (Limiter limiter = limiter(store, "1/hour"); Service service = new Service(new RateLimitInterceptor(options(limiter).cost(request -> -1)))) {
        same(Status.Code.INTERNAL, service.code("a", "hello"));
      }
    });
  }

  private void runCases() throws Exception {
    Map<String, WaitingCases.Case> cases = WaitingCases.all(Path.of("../../../../tests/conformance/guard_waiting.json"));
    same(true, cases.size() >= 12);
    for (Map.Entry<String, WaitingCases.Case> one : cases.entrySet()) {
      try {
        one.getValue().run();
        passed += 1;
      } catch (Throwable failure) {
        failed += 1;
        System.out.println("FAILED: " + one.getKey() + ": " + failure);
      }
    }
  }

  private static ClientCall<StringValue, StringValue> open(Service service) throws Exception {
    Metadata headers = new Metadata();
    headers.put(CLIENT, "a");
    CountDownLatch first = new CountDownLatch(1);
    ClientCall<StringValue, StringValue> call = service.channel.newCall(LIST, patient());
    call.start(new ClientCall.Listener<>() {
      @Override
      public void onMessage(StringValue message) {
        first.countDown();
      }
    }, headers);
    call.sendMessage(text("first"));
    call.halfClose();
    call.request(2);
    same(true, first.await(60, TimeUnit.SECONDS));
    return call;
  }

  private static void left(Limiter limiter, long expected) throws Exception {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (limiter.peek("x-client:a", "api").getRemaining() != expected) {
      if (System.nanoTime() > end) throw new AssertionError("left are " + limiter.peek("x-client:a", "api").getRemaining() + ", and not " + expected);
      Thread.sleep(5);
    }
  }

  public static void main(String[] arguments) throws Exception {
    GrpcChecks checks = new GrpcChecks(arguments[1]);
    checks.run();
    checks.runCases();
    System.out.println("gRPC " + arguments[0]);
    System.out.println("test result: " + (checks.failed == 0 ? "ok" : "FAILED") + ". " + checks.passed + " passed; " + checks.failed + " failed;");
    Runtime.getRuntime().halt(checks.failed == 0 ? 0 : 1);
  }
}
