import jakarta.servlet.http.HttpServletResponse;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestHeader;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RestController;

/** Handlers that count their executions for each client. */
class Handlers {
  private final Map<String, Integer> runs = new ConcurrentHashMap<>();

  protected String run(String name, String client, HttpServletResponse response) {
    if (client != null) response.setHeader("x-runs", name + "=" + runs.merge(name + client, 1, Integer::sum));
    return name;
  }

  @RestController
  static class Plain extends Handlers {
    @PostMapping("/login")
    String login(@RequestHeader(name = "x-client", required = false) String client, HttpServletResponse response) {
      return run("login", client, response);
    }

    @GetMapping("/report")
    String report(@RequestHeader(name = "x-client", required = false) String client, HttpServletResponse response) {
      return run("report", client, response);
    }
  }

  @RestController
  @RequestMapping("/v1")
  static class Prefixed extends Handlers {
    @GetMapping("/users/{id:[^x]+}")
    String user(@PathVariable String id, @RequestHeader(name = "x-client", required = false) String client, HttpServletResponse response) {
      return run("user", client, response);
    }
  }

  /** For the site of limits that share nothing. */
  @RestController
  static class Separate extends Handlers {
    @GetMapping({"/a/{id}", "/b/{id}", "/c/{id}", "/d/{id}"})
    String one(@PathVariable String id) {
      return id;
    }

    @PostMapping("/a/{id}")
    String posted(@PathVariable String id) {
      return id;
    }
  }
}
