package polylimit_test

import (
	"testing"

	"polylimit.dev/polylimit"
)

func TestRulesReadPathsAsTheRouterDoes(t *testing.T) {
	limiter, err := polylimit.Open("memory:", polylimit.WithDocument(`
polylimit = 1
policies.login.quotas = "5/minute"
[[rules]]
match = { path = "/login" }
apply = [{ policy = "login", key = "all" }]
`))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	for _, one := range []struct {
		path   string
		router polylimit.RouterPaths
		found  int
	}{
		{"http://h/login", 0, 1}, {"/LOGIN", 0, 0}, {"/LOGIN", polylimit.PathsIgnoreCase, 1}, {"/login;a=1", 0, 0},
		{"/login;a=1", polylimit.PathsDropParameters, 1}, {"/Login.json", polylimit.PathsIgnoreCase | polylimit.PathsDropSuffix, 1},
		{"/x/..%2flogin", 0, 1}, {"/x/..%2flogin", polylimit.PathsEveryReading, 1},
	} {
		found, err := limiter.Admin().Matching(polylimit.RequestAttributes{Method: "POST", Path: one.path, RouterPaths: one.router})
		if err != nil || len(found) != one.found {
			t.Errorf("%+v: %v %v", one, found, err)
		}
	}
}
