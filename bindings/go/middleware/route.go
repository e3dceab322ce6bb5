package middleware

import (
	"net/http"
	"net/url"
	"strings"
)

// RoutePattern is the attribute "route" of a route that a router writes in its own way: its path, with parameters as "{name}" and
// catch-alls as "{*name}". It reads the patterns of http.ServeMux, chi, gorilla/mux, httprouter, gin and echo: the method and the host
// of "GET example.org/users/{id}", the regular expression of "{id:[0-9]+}" and the "{$}" at the end are no part of the route, and
// ":id", "*rest", "*" and "{rest...}" are parameters. A catch-all without a name is "{*rest}".
func RoutePattern(pattern string) string {
	_, _, path := splitPattern(pattern)
	if !strings.ContainsAny(path, "{:*") {
		return path
	}
	var route strings.Builder
	for rest := path; rest != ""; {
		switch start := rest[0]; {
		case start == '{':
			end := braceEnd(rest)
			route.WriteString(braced(rest[1:end]))
			rest = rest[min(end+1, len(rest)):]
		case (start == ':' || start == '*') && strings.HasSuffix(path[:len(path)-len(rest)], "/"):
			name, after, _ := strings.Cut(rest[1:], "/")
			if start == '*' {
				name = "*" + orRest(name)
			}
			route.WriteString("{" + name + "}")
			rest = rest[len(rest)-len(after):]
			if after != "" || strings.HasSuffix(path, "/") {
				route.WriteByte('/')
			}
		default:
			route.WriteByte(start)
			rest = rest[1:]
		}
	}
	return route.String()
}

// splitPattern is the method, the host and the path of a pattern of http.ServeMux; those of other routers are paths.
func splitPattern(pattern string) (method, host, path string) {
	path = pattern
	if at := strings.IndexAny(path, " \t"); at >= 0 && !strings.Contains(path[:at], "/") {
		method, path = path[:at], strings.TrimLeft(path[at:], " \t")
	}
	if at := strings.IndexByte(path, '/'); at >= 0 {
		host, path = path[:at], path[at:]
	}
	return method, host, path
}

// braceEnd is where the brace at the start is closed; a regular expression may have braces of its own.
func braceEnd(text string) int {
	depth := 0
	for at, one := range text {
		switch one {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return at
			}
		}
	}
	return len(text)
}

// braced is a parameter in braces, as a route has it.
func braced(inside string) string {
	name, _, _ := strings.Cut(inside, ":")
	if name == "$" {
		return ""
	}
	if name, isMany := strings.CutSuffix(name, "..."); isMany {
		return "{*" + orRest(name) + "}"
	}
	return "{" + name + "}"
}

func orRest(name string) string {
	if name == "" {
		return "rest"
	}
	return name
}

// JoinRoute puts a stripped prefix before the path of a pattern.
func JoinRoute(prefix, pattern string) string {
	method, host, path := splitPattern(pattern)
	joined := host + strings.TrimSuffix(prefix, "/") + path
	if method == "" {
		return joined
	}
	return method + " " + joined
}

// StrippedPrefix is what handlers such as http.StripPrefix took from the start of a request's path; empty for nothing.
func StrippedPrefix(request *http.Request) string {
	target, err := url.ParseRequestURI(request.RequestURI)
	if err != nil {
		return ""
	}
	prefix, isSuffix := strings.CutSuffix(target.Path, request.URL.Path)
	if !isSuffix {
		return ""
	}
	return prefix
}

// pathOf is the path that the rules of a configuration see: with the prefixes that handlers have stripped, or what a handler made of it
// that has rewritten it.
func pathOf(request *http.Request) string {
	target, err := url.ParseRequestURI(request.RequestURI)
	if err != nil || !strings.HasSuffix(target.Path, request.URL.Path) {
		return request.URL.EscapedPath()
	}
	return target.EscapedPath()
}
