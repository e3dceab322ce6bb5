import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServlet;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.FilterMapping;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.ContextHandlerCollection;

/** Serves the sites in Jetty. `start` makes the source for newer servlets of this one. */
final class Jetties implements Container {
  @Override
  public String name() {
    return "jetty";
  }

  @Override
  public String version() {
    return Server.getVersion();
  }

  @Override
  public int serve(List<Context> contexts) throws Exception {
    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    server.addConnector(connector);
    ContextHandlerCollection handlers = new ContextHandlerCollection();
    for (Context context : contexts) handlers.addHandler(handler(context));
    server.setHandler(handlers);
    server.start();
    return connector.getLocalPort();
  }

  private static ServletContextHandler handler(Context context) {
    ServletContextHandler handler = new ServletContextHandler();
    handler.setContextPath(context.path().isEmpty() ? "/" : context.path());
    for (Map.Entry<String, HttpServlet> servlet : context.servlets().entrySet()) {
      ServletHolder holder = new ServletHolder(servlet.getKey(), servlet.getValue());
      handler.addServlet(holder, servlet.getKey());
    }
    for (Mount mount : context.filters()) {
      FilterHolder holder = new FilterHolder(mount.filter());
      FilterMapping mapping = new FilterMapping();
      mapping.setFilterName(holder.getName());
      mapping.setDispatcherTypes(EnumSet.of(DispatcherType.REQUEST));
      if (!mount.patterns().isEmpty()) mapping.setPathSpecs(mount.patterns().toArray(String[]::new));
      if (!mount.servlets().isEmpty()) mapping.setServletNames(mount.servlets().toArray(String[]::new));
      handler.getServletHandler().addFilter(holder, mapping);
    }
    return handler;
  }

  public static void main(String[] arguments) throws Exception {
    Sites.open(new Jetties());
  }
}
