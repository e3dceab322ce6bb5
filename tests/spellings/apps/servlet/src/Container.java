import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServlet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What the program needs of a servlet container. */
interface Container {
  /** A filter of a context, on URL patterns or on servlets by their names. */
  record Mount(Filter filter, List<String> patterns, List<String> servlets) {
    static Mount on(Filter filter, String... patterns) {
      return new Mount(filter, List.of(patterns), List.of());
    }
  }

  /** Servlets by their patterns, which are their names as well, behind filters. */
  record Context(String path, Map<String, HttpServlet> servlets, List<Mount> filters) {
    static Context of(String path, Map<String, HttpServlet> servlets, Mount... filters) {
      return new Context(path, new LinkedHashMap<>(servlets), List.of(filters));
    }
  }

  String name();

  String version();

  /** Serves the contexts on a port of 127.0.0.1, and returns it. */
  int serve(List<Context> contexts) throws Exception;
}
