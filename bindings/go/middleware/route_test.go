package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"polylimit.dev/polylimit/middleware"
)

func TestRoutePatternReadsTheNotationOfEachRouter(t *testing.T) {
	for pattern, expected := range map[string]string{
		"": "", "/": "/", "/users": "/users",
		// http.ServeMux
		"GET /users/{id}": "/users/{id}", "POST example.org/users/{id}/": "/users/{id}/", "example.org/": "/", "GET \t/a b": "/a b",
		"/files/{path...}": "/files/{*path}", "/files/{$}": "/files/", "GET /{$}": "/",
		// chi and gorilla/mux
		"/users/{id:[0-9]+}": "/users/{id}", "/users/{id:[0-9]{2,3}}/posts/{post}": "/users/{id}/posts/{post}", "/files/*": "/files/{*rest}",
		"/{month}-{day}": "/{month}-{day}", "/{name:[a-z]+}.json": "/{name}.json",
		// httprouter, gin and echo
		"/users/:id": "/users/{id}", "/users/:id/": "/users/{id}/", "/:tenant/files/*path": "/{tenant}/files/{*path}", "/static*": "/static*",
		"/files/*/": "/files/{*rest}/", "/things:batch": "/things:batch", "/unclosed/{id": "/unclosed/{id}",
	} {
		if route := middleware.RoutePattern(pattern); route != expected {
			t.Errorf("%q is %q, expected %q", pattern, route, expected)
		}
	}
}

func TestJoinRouteKeepsMethodAndHost(t *testing.T) {
	for _, one := range [][3]string{
		{"/v1", "/users/{id}", "/v1/users/{id}"}, {"/v1/", "GET /users", "GET /v1/users"}, {"/v1", "PUT example.org/", "PUT example.org/v1/"},
	} {
		if joined := middleware.JoinRoute(one[0], one[1]); joined != one[2] {
			t.Error(one, joined)
		}
	}
}

func TestStrippedPrefixIsWhatTheHandlerDoesNotSee(t *testing.T) {
	for target, expected := range map[string]string{
		"/v1/users": "/v1", "http://example.org/v1/users?a=/users": "/v1", "/v1%2Fx/users": "/v1/x", "/users": "", "/elsewhere": "",
	} {
		request := httptest.NewRequest(http.MethodGet, target, nil)
		request.URL.Path = "/users"
		if prefix := middleware.StrippedPrefix(request); prefix != expected {
			t.Errorf("%s: %q", target, prefix)
		}
	}
}
