/** Which of Express's routes a middleware stands at, as a text that is the same in every process. */

/** A router's entry: a route of its own, or whatever was handed to `use`. */
interface Layer {
  readonly route?: Route;
  readonly handle?: { readonly stack?: readonly Layer[] };
  /** The path that it was made for: in newer routers as it was given, in older ones as a pattern. */
  readonly rawPath?: unknown;
  readonly regexp?: RegExp & { readonly fast_slash?: boolean };
  readonly keys?: readonly { readonly name: string | number }[];
}

interface Route {
  readonly path: unknown;
  readonly stack: readonly { readonly handle: unknown }[];
  readonly methods: { readonly [method: string]: boolean | undefined };
}

type Router = { readonly stack?: readonly Layer[] };

/** A request, as far as it is looked at here; Express's types do not tell of most of it. */
interface Request {
  readonly app?: Application;
  readonly route?: Route;
  readonly method: string;
}

interface Application {
  readonly path?: () => string;
  /** The routers of Express 5, and of Express 4, whose `router` must not be read. */
  readonly router?: Router;
  readonly _router?: Router;
}

/** The paths under which routes were found, with where their routers are mounted. */
const paths = new WeakMap<Route, string>();

/** The method and the path of the route that has this middleware; `undefined` when the one that was matched has not. */
export function expressRoute(request: unknown, middleware: unknown): string | undefined {
  const { app, route, method } = request as Request;
  if (!route?.stack?.some(({ handle }) => handle === middleware)) return undefined;
  let path = paths.get(route);
  if (path === undefined) {
    path = (app && mounted(app, route)) ?? written(route.path);
    paths.set(route, path);
  }
  // A route for GET answers HEAD too.
  const own = method === "HEAD" && !route.methods.head ? "GET" : method;
  return `${route.methods._all ? "ALL" : own} ${path}`;
}

function mounted(app: Application, route: Route): string | undefined {
  const { stack = [] } = app._router ?? app.router ?? {};
  const found = below(stack, route);
  return found === undefined ? undefined : (app.path?.() ?? "") + found;
}

/** The path of a route, seen from a router or from one that it is mounted in. */
function below(stack: readonly Layer[], route: Route): string | undefined {
  for (const layer of stack) {
    if (layer.route === route) return written(route.path);
    const { stack: inner } = layer.handle ?? {};
    const found = layer.route === undefined && inner ? below(inner, route) : undefined;
    if (found !== undefined) return mountPath(layer) + found;
  }
  return undefined;
}

function mountPath({ rawPath, regexp, keys = [] }: Layer): string {
  if (rawPath !== undefined) return rawPath === "/" ? "" : written(rawPath);
  if (regexp === undefined || regexp.fast_slash) return "";
  // Mostly this is the path that it was made of; where it is not, it is still one text for one path.
  let parameter = 0;
  return regexp.source
    .replace(/^\^|\\\/\?\(\?=\\\/\|\$\)$/g, "")
    .replace(/\(\?:\\\/\(\[\^\/\]\+\?\)\)/g, () => `/:${keys[parameter++]?.name}`)
    .replace(/\\(.)/g, "$1");
}

function written(path: unknown): string {
  return [path].flat().map(String).join(",");
}
