package polylimitfasthttp

import "testing"

func TestPatternsOfFiberAreRoutesOfRules(t *testing.T) {
	for pattern, expected := range map[string]string{
		"":                           "",
		"/":                          "/",
		"/users/:id":                 "/users/{id}",
		"/users/:id?":                "/users/{id}",
		"/users/:id<int>/posts":      "/users/{id}/posts",
		"/users/:id<min(1);max(9)>?": "/users/{id}",
		"/files/*":                   "/files/{*rest}",
		"/files/+":                   "/files/{*rest}",
	} {
		if found := routePath(pattern); found != expected {
			t.Errorf("%q is %q, not %q", pattern, found, expected)
		}
	}
}
