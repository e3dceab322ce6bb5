import jakarta.servlet.http.HttpServlet;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.catalina.Wrapper;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;
import org.apache.catalina.util.ServerInfo;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;

/** Serves the sites in Tomcat. */
final class Tomcats implements Container {
  /** Held, so that its level is not lost. */
  private static final Logger LOGGER = Logger.getLogger("org.apache");

  @Override
  public String name() {
    return "tomcat";
  }

  @Override
  public String version() {
    return ServerInfo.getServerNumber();
  }

  @Override
  public int serve(List<Context> contexts) throws Exception {
    Tomcat tomcat = new Tomcat();
    String folder = Files.createTempDirectory("tomcat").toString();
    tomcat.setBaseDir(folder);
    Connector connector = new Connector();
    connector.setPort(0);
    connector.setProperty("address", "127.0.0.1");
    tomcat.setConnector(connector);
    for (Context context : contexts) add(context, tomcat.addContext(context.path(), folder));
    tomcat.start();
    return connector.getLocalPort();
  }

  private static void add(Context context, org.apache.catalina.Context to) {
    for (Map.Entry<String, HttpServlet> servlet : context.servlets().entrySet()) {
      Wrapper wrapper = Tomcat.addServlet(to, servlet.getKey(), servlet.getValue());
      wrapper.setAsyncSupported(true);
      to.addServletMappingDecoded(servlet.getKey(), servlet.getKey());
    }
    for (Mount mount : context.filters()) {
      FilterDef definition = new FilterDef();
      definition.setFilterName("filter " + mount);
      definition.setFilter(mount.filter());
      to.addFilterDef(definition);
      FilterMap map = new FilterMap();
      map.setFilterName(definition.getFilterName());
      mount.patterns().forEach(map::addURLPattern);
      mount.servlets().forEach(map::addServletName);
      to.addFilterMap(map);
    }
  }

  public static void main(String[] arguments) throws Exception {
    LOGGER.setLevel(Level.SEVERE);
    Sites.open(new Tomcats());
  }
}
