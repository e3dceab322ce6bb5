package nethttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/internal/guardtest"
	"polylimit.dev/polylimit/nethttp"
)

const document = `
polylimit = 1
[policies.login]
quotas = "2/day fixed_window"
[policies.tokens]
quotas = "100/day fixed_window"
plans = { gold = "1000/day fixed_window" }
[policies.jobs]
quotas = "1 concurrent"
[[rules]]
match = { method = "POST", path = "/login" }
apply = [{ policy = "login", key = "{client}" }]
[[rules]]
match = { path = "/v1/{model}" }
apply = [{ policy = "tokens", key = "{user}|{path.model}", cost = "{header.x-tokens}", missing = "deny" }]
[[rules]]
match = { path = "/batch" }
apply = [{ policy = "tokens", key = "{user}", cost = "{units}" }]
[[rules]]
match = { path = "/model" }
apply = [{ policy = "tokens", key = "{user}", cost = 60, spent = "usage:total" }]
[[rules]]
match = { path = "/jobs" }
apply = [{ policy = "jobs", key = "all" }]
[lists]
deny = ["user mallory", "header.x-bot 1"]
`

// configured starts a server whose limits are those of the limiter's configuration. The request's header says what the program knows
// of it.
func configured(t *testing.T, url string, handler http.Handler, settings ...polylimit.Option) (*polylimit.Limiter, *httptest.Server) {
	t.Helper()
	limiter, err := polylimit.Open(url, settings...)
	if err != nil {
		t.Fatal(err)
	}
	limit, err := nethttp.New(nethttp.Options{
		Limiter: limiter,
		User:    func(request *http.Request) string { return request.Header.Get("X-Login") },
		Attributes: func(request *http.Request) map[string]string {
			return map[string]string{"plan": request.Header.Get("X-Plan"), "units": request.URL.Query().Get("units")}
		}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(limit(handler))
	t.Cleanup(func() {
		server.Close()
		limiter.Close()
	})
	return limiter, server
}

func post(t *testing.T, url string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// onStores runs a test with a document in the program, in memory and in a file, and with one that is published in Redis. `change`
// replaces it.
func onStores(t *testing.T, run func(t *testing.T, limiter *polylimit.Limiter, server *httptest.Server, change func(string))) {
	for name, url := range map[string]string{"memory": "memory:", "local": "file://" + t.TempDir() + "/store?size=1MiB"} {
		t.Run(name, func(t *testing.T) {
			limiter, server := configured(t, url, hello, polylimit.WithDocument(document))
			run(t, limiter, server, func(document string) {
				if _, err := limiter.Admin().SetDocument(document); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
	t.Run("redis", func(t *testing.T) {
		prefix := fmt.Sprintf("%s-%d", t.Name(), os.Getpid())
		settings := []polylimit.Option{
			polylimit.WithConfiguration("store"), polylimit.WithOption("prefix", prefix), polylimit.WithOption("deadline", "30s"),
		}
		// Another process publishes, and the server follows.
		writer, err := polylimit.Open(os.Getenv("REDIS_URL"), settings...)
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		if _, err := writer.Admin().Publish(context.Background(), document, polylimit.PublishOptions{}); err != nil {
			t.Fatal(err)
		}
		limiter, server := configured(t, os.Getenv("REDIS_URL"), hello, settings...)
		run(t, limiter, server, func(document string) {
			status, err := writer.Admin().Publish(context.Background(), document, polylimit.PublishOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := limiter.Admin().WaitForVersion(context.Background(), status.Version, time.Minute); err != nil {
				t.Fatal(err)
			}
		})
	})
}

func TestRulesOfTheConfigurationDecide(t *testing.T) {
	onStores(t, func(t *testing.T, _ *polylimit.Limiter, server *httptest.Server, _ func(string)) {
		// By method and path: the query does not count.
		for _, expected := range []int{200, 200, 429} {
			if status := post(t, server.URL+"/login?next=%2F"); status != expected {
				t.Error(status, expected)
			}
		}
		if answer := get(t, server.URL+"/login"); answer.status != 200 || answer.header.Get("ratelimit") != "" {
			t.Errorf("%+v", answer)
		}
		// The cost is that of a header, and the numbers are those of a plan.
		for _, step := range []struct {
			path, user, tokens, plan string
			status                   int
			left                     string
		}{
			{"/v1/large", "alice", "60", "", 200, `"tokens";r=40;`},
			{"/v1/large", "alice", "60", "", 429, `"tokens";r=40;`},
			{"/v1/large", "alice", "60", "gold", 200, `"tokens";r=880;`},
			{"/v1/small", "alice", "60", "", 200, `"tokens";r=40;`},
			{"/v1/large", "bob", "1", "", 200, `"tokens";r=99;`},
			{"/batch?units=70", "carol", "", "", 200, `"tokens";r=30;`},
			{"/batch?units=70", "carol", "", "", 429, `"tokens";r=30;`},
			{"/batch?units=many", "carol", "", "", 400, ""},
			{"/v1/large", "alice", "many", "", 400, ""},
			{"/v1/large", "alice", "", "", 400, ""},
			{"/v1/large", "", "1", "", 400, ""},
		} {
			answer := get(t, server.URL+step.path, "X-Login", step.user, "X-Tokens", step.tokens, "X-Plan", step.plan)
			fields := answer.header.Get("ratelimit")
			if answer.status != step.status || !strings.HasPrefix(fields, step.left) || step.left == "" && fields != "" {
				t.Errorf("%+v: %d %q", step, answer.status, fields)
			}
		}
	})
}

func TestRuleChargesWhatTheResponseReports(t *testing.T) {
	model := http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Content-Type", "text/event-stream")
		for _, part := range []string{"data: {\"usage\": {\"prompt_tok", "ens\": 5, \"completion_tokens\": 2}}\n\n"} {
			_, _ = writer.Write([]byte(part))
			_ = http.NewResponseController(writer).Flush()
		}
	})
	limiter, server := configured(t, "memory:", model, polylimit.WithDocument(document))
	for _, remaining := range []uint64{93, 86} {
		if answer := get(t, server.URL+"/model", "X-Login", "dave"); answer.status != 200 {
			t.Errorf("%+v", answer)
		}
		guardtest.Left{Policy: "tokens", Key: "dave", Remaining: remaining}.Await(t, "after a response", limiter)
	}
}

func TestDenyListOfTheConfigurationIsAnsweredBy403(t *testing.T) {
	onStores(t, func(t *testing.T, limiter *polylimit.Limiter, server *httptest.Server, _ func(string)) {
		for _, header := range [][]string{{"X-Login", "mallory"}, {"X-Bot", "1"}} {
			answer := get(t, server.URL+"/", header...)
			if answer.status != 403 || answer.header.Get("retry-after") != "" || strings.Contains(answer.body, "hello") {
				t.Errorf("%v: %+v", header, answer)
			}
		}
		denied, err := limiter.Admin().SetEntry(context.Background(), "deny user alice", nil)
		if err != nil {
			t.Fatal(err)
		}
		if status := get(t, server.URL+"/", "X-Login", "alice").status; status != 403 {
			t.Error(status, denied)
		}
		if _, err := limiter.Admin().DeleteEntry(context.Background(), "deny user alice"); err != nil {
			t.Fatal(err)
		}
		if status := get(t, server.URL+"/", "X-Login", "alice").status; status != 200 {
			t.Error(status)
		}
	})
}

func TestDocumentChangesWhileTheServerRuns(t *testing.T) {
	onStores(t, func(t *testing.T, _ *polylimit.Limiter, server *httptest.Server, change func(string)) {
		for _, expected := range []int{200, 200, 429} {
			if status := post(t, server.URL+"/login"); status != expected {
				t.Error(status, expected)
			}
		}
		// What was used stays used.
		change(strings.Replace(document, "2/day", "3/day", 1))
		for _, expected := range []int{200, 429} {
			if status := post(t, server.URL+"/login"); status != expected {
				t.Error(status, expected)
			}
		}
		change(strings.Replace(document, "polylimit = 1", "polylimit = 1\nenabled = false", 1))
		if status := post(t, server.URL+"/login"); status != 200 {
			t.Error(status)
		}
		change(strings.Replace(document, `method = "POST", path = "/login"`, `path = "/elsewhere"`, 1))
		if status := post(t, server.URL+"/login"); status != 200 {
			t.Error(status)
		}
	})
}

func TestSlotOfTheConfigurationIsHeldUntilTheResponseIsDone(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	limiter, server := configured(t, "memory:", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	}), polylimit.WithDocument(document))
	first := make(chan int)
	go func() {
		answer, err := http.Get(server.URL + "/jobs")
		if err != nil {
			first <- 0
			return
		}
		_ = answer.Body.Close()
		first <- answer.StatusCode
	}()
	<-entered
	if status := get(t, server.URL+"/jobs").status; status != 429 {
		t.Error(status)
	}
	close(leave)
	if status := <-first; status != 200 {
		t.Error(status)
	}
	// The slot is free once the handler has returned and its end is reported.
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		decision, err := limiter.Peek(context.Background(), polylimit.Key("all").Policy("jobs"))
		if err != nil || time.Since(begin) > time.Minute {
			t.Fatal(decision, err)
		}
		if decision.Allowed {
			break
		}
	}
}

// exampleOfThePoliciesPage is the example of docs/policies.md, word for word, with another store.
func exampleOfThePoliciesPage(store string, handler http.Handler) (http.Handler, error) {
	limiter, err := polylimit.Open(store, polylimit.WithConfiguration("store"))
	if err != nil {
		return nil, err
	}
	plan := func(request *http.Request) map[string]string {
		return map[string]string{"plan": request.Header.Get("X-Plan")}
	}
	limit, err := nethttp.New(nethttp.Options{Limiter: limiter, Attributes: plan})
	if err != nil {
		return nil, err
	}
	return limit(handler), nil
}

func TestExampleOfThePoliciesPageDecides(t *testing.T) {
	url := fmt.Sprintf("%s&prefix=%s-%d", os.Getenv("REDIS_URL"), t.Name(), os.Getpid())
	writer, err := polylimit.Open(url, polylimit.WithConfiguration("store"))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	denied := "polylimit = 1\nlists.deny = ['plan none']\n"
	if _, err := writer.Admin().Publish(context.Background(), denied, polylimit.PublishOptions{}); err != nil {
		t.Fatal(err)
	}
	handler, err := exampleOfThePoliciesPage(url, hello)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	for plan, expected := range map[string]int{"none": 403, "gold": 200} {
		if status := get(t, server.URL, "X-Plan", plan).status; status != expected {
			t.Error(plan, status)
		}
	}
}

func TestPoliciesPageHasThatExample(t *testing.T) {
	page, err := os.ReadFile("../../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("configuration_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")
	if len(blocks) != 2 {
		t.Fatal(len(blocks))
	}
	block, _, _ := strings.Cut(blocks[1], "```")
	var lines []string
	for line := range strings.Lines(strings.Replace(block, `"redis://localhost"`, "store", 1)) {
		lines = append(lines, "\t"+line)
	}
	if !strings.Contains(string(source), strings.Join(lines, "")) {
		t.Errorf("configuration_test.go does not say:\n%s", block)
	}
}
