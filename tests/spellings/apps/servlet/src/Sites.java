import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import polylimit.Limiter;
import polylimit.PolylimitException;
import polylimit.http.KeyPart;
import polylimit.servlet.RateLimitFilter;
import polylimit.servlet.RateLimitOptions;

/** The sites of a servlet container. */
final class Sites {
  private static final String QUOTAS = "3/hour fixed_window";
  private static final String ALL = "login,report,user";

  /** Counts its executions for each client. */
  private static final class Handler extends HttpServlet {
    private final String name;
    private final String method;
    private final Map<String, Integer> runs = new ConcurrentHashMap<>();

    Handler(String name, String method) {
      this.name = name;
      this.method = method;
    }

    private void answer(HttpServletRequest request, HttpServletResponse response) throws IOException {
      if (name.equals("user") && !String.valueOf(request.getPathInfo()).matches("/[^/]+")) {
        response.sendError(404);
        return;
      }
      String client = request.getHeader("x-client");
      if (client != null) response.setHeader("x-runs", name + "=" + runs.merge(client, 1, Integer::sum));
      response.getOutputStream().print(name);
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
      if (method.equals("GET")) answer(request, response);
      else response.sendError(405);
    }

    @Override
    protected void doPost(HttpServletRequest request, HttpServletResponse response) throws IOException {
      if (method.equals("POST")) answer(request, response);
      else response.sendError(405);
    }
  }

  private static Map<String, HttpServlet> handlers() {
    return Map.of("/login", new Handler("login", "POST"), "/report", new Handler("report", "GET"), "/v1/users/*", new Handler("user", "GET"));
  }

  /** The document with rules by `path` or by `route`. */
  static String document(String attribute) {
    StringBuilder text = new StringBuilder("polylimit = 1\n");
    String[][] rules = {{"login", "POST", "/login"}, {"report", "GET", "/report"}, {"user", "GET", "/v1/users/{id}"}};
    for (String[] rule : rules) text.append("policies.%s.quotas = \"%s\"\n".formatted(rule[0], QUOTAS));
    for (String[] rule : rules) {
      text.append("[[rules]]\nmatch = { method = \"%s\", %s = \"%s\" }\n".formatted(rule[1], attribute, rule[2]));
      text.append("apply = [{ policy = \"%s\", key = \"{header.x-client}\" }]\n".formatted(rule[0]));
    }
    return text.toString();
  }

  private static Filter byDocument(String attribute) throws PolylimitException {
    Limiter limiter = Limiter.builder().document(document(attribute)).build();
    return new RateLimitFilter(new RateLimitOptions(limiter));
  }

  private static RateLimitOptions options(Limiter limiter, String quotas) throws PolylimitException {
    return new RateLimitOptions(limiter).policy(quotas).key(KeyPart.header("x-client"));
  }

  private static RateLimitOptions options() throws PolylimitException {
    return options(Limiter.of(Map.of()), QUOTAS);
  }

  /** Lets a field or a parameter replace the method of a request, as filters of applications do. */
  private static Filter methodOverride() {
    return (request, response, chain) -> {
      HttpServletRequest http = (HttpServletRequest) request;
      String field = http.getHeader("X-HTTP-Method-Override");
      String wanted = field != null ? field : http.getParameter("_method");
      if (wanted == null || !http.getMethod().equals("POST")) {
        chain.doFilter(request, response);
        return;
      }
      chain.doFilter(new HttpServletRequestWrapper(http) {
        @Override
        public String getMethod() {
          return wanted.toUpperCase(java.util.Locale.ROOT);
        }
      }, response);
    };
  }

  private final Container container;

  private Sites(Container container) {
    this.container = container;
  }

  private void site(String name, String listed, Container.Mount... filters) throws Exception {
    serve(name, listed, List.of(Container.Context.of("", handlers(), filters)));
  }

  private void serve(String name, String listed, List<Container.Context> contexts) throws Exception {
    System.out.println("listening " + name + " " + container.serve(contexts) + " " + listed);
  }

  /** Filters with the same quotas at different mounts of one context, and in different contexts. */
  private void separate() throws Exception {
    Limiter limiter = Limiter.of(Map.of());
    String quotas = "1/hour fixed_window";
    Container.Context root = Container.Context.of("", Map.of("/a/*", new Handler("a", "GET"), "/b/*", new Handler("b", "GET")),
        Container.Mount.on(new RateLimitFilter(options(limiter, quotas)), "/a/*"),
        Container.Mount.on(new RateLimitFilter(options(limiter, quotas)), "/b/*"));
    Container.Context one = Container.Context.of("/one", Map.of("/x", new Handler("x", "GET")),
        Container.Mount.on(new RateLimitFilter(options(limiter, quotas)), "/*"));
    Container.Context two = Container.Context.of("/two", Map.of("/x", new Handler("x", "GET")),
        Container.Mount.on(new RateLimitFilter(options(limiter, quotas)), "/*"));
    serve("separate", "GET:/a/1,GET:/b/1,GET:/one/x,GET:/two/x", List.of(root, one, two));
  }

  static void open(Container container) throws Exception {
    Sites sites = new Sites(container);
    sites.site("global", ALL, Container.Mount.on(new RateLimitFilter(options()), "/*"));
    sites.site("methods", ALL, Container.Mount.on(new RateLimitFilter(options().methods("get", "post")), "/*"));
    sites.site("path_rules", ALL, Container.Mount.on(byDocument("path"), "/*"));
    // The container knows which servlet is next, and not what that does with the rest of the path.
    sites.site("route_rules", "login,report", Container.Mount.on(byDocument("route"), "/*"));
    sites.site("router", "user", Container.Mount.on(new RateLimitFilter(options()), "/v1/*"));
    Limiter limiter = Limiter.of(Map.of());
    Container.Mount[] each = handlers().keySet().stream().map(name -> {
      try {
        return new Container.Mount(new RateLimitFilter(options(limiter, QUOTAS)), List.of(), List.of(name));
      } catch (PolylimitException mistake) {
        throw new IllegalStateException(mistake);
      }
    }).toArray(Container.Mount[]::new);
    sites.site("servlet", ALL, each);
    sites.site("override", ALL, Container.Mount.on(methodOverride(), "/*"), Container.Mount.on(byDocument("path"), "/*"));
    sites.separate();
    System.out.println("version " + container.name() + " " + container.version());
    System.out.println("note route the servlet's pattern");
    System.out.println("ready");
    while (System.in.read() >= 0) continue;
    Runtime.getRuntime().halt(0);
  }
}
