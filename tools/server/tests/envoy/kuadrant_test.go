package envoy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/bufbuild/protocompile"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// A client that is made from kuadrant.proto.
type kuadrant struct {
	connection *grpc.ClientConn
	service    protoreflect.ServiceDescriptor
}

func newKuadrant(t *testing.T, address string) kuadrant {
	t.Helper()
	imports := protocompile.ResolverFunc(func(path string) (protocompile.SearchResult, error) {
		file, err := protoregistry.GlobalFiles.FindFileByPath(path)
		if err != nil {
			return protocompile.SearchResult{}, err
		}
		return protocompile.SearchResult{Proto: protodesc.ToFileDescriptorProto(file)}, nil
	})
	compiler := protocompile.Compiler{Resolver: protocompile.CompositeResolver{&protocompile.SourceResolver{}, imports}}
	files, err := compiler.Compile(context.Background(), "kuadrant.proto")
	if err != nil {
		t.Fatal(err)
	}
	return kuadrant{connect(t, address), files[0].Services().ByName("RateLimitService")}
}

// call sends a message, which is JSON, and returns that of the response, without spaces.
func (client kuadrant) call(t *testing.T, name, sent string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	method := client.service.Methods().ByName(protoreflect.Name(name))
	request, response := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
	if err := protojson.Unmarshal([]byte(sent), request); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/%s/%s", client.service.FullName(), name)
	if err := client.connection.Invoke(ctx, path, request, response); err != nil {
		return "", err
	}
	got, err := protojson.Marshal(response)
	return strings.ReplaceAll(string(got), " ", ""), err
}

// about is a message about these tenants.
func about(fields string, tenants ...string) string {
	var descriptors []string
	for _, tenant := range tenants {
		descriptors = append(descriptors, fmt.Sprintf(`{"entries": [{"key": "tenant", "value": %q}]}`, tenant))
	}
	return fmt.Sprintf(`{"domain": "ai", "descriptors": [%s], %s}`, strings.Join(descriptors, ","), fields)
}

// reserve returns the id of the reservation, or "" for a denial.
func (client kuadrant) reserve(t *testing.T, fields string, tenants ...string) string {
	t.Helper()
	got, err := client.call(t, "Reserve", about(fields, tenants...))
	if err != nil {
		t.Fatal(err)
	}
	if got == `{"code":"OVER_LIMIT"}` {
		return ""
	}
	id, found := strings.CutPrefix(got, `{"code":"OK","reservationId":"`)
	if id = strings.TrimSuffix(id, `"}`); !found || id == "" {
		t.Fatal(got)
	}
	return id
}

func (client kuadrant) commit(t *testing.T, id string, amount int, tenants ...string) (wasReleased bool) {
	t.Helper()
	got, err := client.call(t, "Commit", about(fmt.Sprintf(`"reservationId": %q, "actualAmount": %d`, id, amount), tenants...))
	if err != nil || got != `{}` && got != `{"reservationReleased":true}` {
		t.Fatal(got, err)
	}
	return got != `{}`
}

// expectLeft fails unless a check of exactly this many hits is admitted.
func (client kuadrant) expectLeft(t *testing.T, tenant string, left int) {
	t.Helper()
	// CheckRateLimit is about one hit, so a reservation asks, and ends at once.
	if left > 0 {
		id := client.reserve(t, fmt.Sprintf(`"amount": %d`, left), tenant)
		if id == "" || !client.commit(t, id, 0, tenant) {
			t.Fatalf("less than %d are left", left)
		}
	}
	if client.reserve(t, fmt.Sprintf(`"amount": %d`, left+1), tenant) != "" {
		t.Fatalf("more than %d are left", left)
	}
}

func TestKuadrantsReservations(t *testing.T) {
	client := newKuadrant(t, serve(t, usage))
	t.Run("what is held is not given to others", func(t *testing.T) {
		id := client.reserve(t, `"amount": 600`, "a")
		client.expectLeft(t, "a", 400)
		if !client.commit(t, id, 250, "a") {
			t.Fatal("nothing was released")
		}
		client.expectLeft(t, "a", 750)
		// More was used than was held.
		if !client.commit(t, client.reserve(t, `"amount": 750`, "a"), 900, "a") {
			t.Fatal("nothing was released")
		}
		if client.reserve(t, `"amount": 0`, "a") != "" {
			t.Fatal("nothing is left, and a request is admitted")
		}
	})
	t.Run("concurrent requests share a limit exactly", func(t *testing.T) {
		var admitted atomic.Int32
		var requests sync.WaitGroup
		for range 64 {
			requests.Go(func() {
				if client.reserve(t, `"amount": 100`, "b") != "" {
					admitted.Add(1)
				}
			})
		}
		requests.Wait()
		if admitted.Load() != 10 {
			t.Fatal(admitted.Load())
		}
	})
	t.Run("a commit that is repeated charges once", func(t *testing.T) {
		id := client.reserve(t, `"amount": 100`, "c")
		if !client.commit(t, id, 100, "c") || client.commit(t, id, 100, "c") {
			t.Fatal("released other than once")
		}
		client.expectLeft(t, "c", 900)
	})
	t.Run("a commit of what is not held charges as a report", func(t *testing.T) {
		for _, id := range []string{"", "unknown"} {
			if client.commit(t, id, 100, "d") {
				t.Fatalf("%q was released", id)
			}
		}
		client.expectLeft(t, "d", 800)
	})
	t.Run("what is held ends by itself", func(t *testing.T) {
		id := client.reserve(t, `"amount": 1000, "ttl": "0.010s"`, "e")
		for client.reserve(t, `"amount": 1000, "ttl": "0.001s"`, "e") == "" {
			time.Sleep(time.Millisecond)
		}
		if client.commit(t, id, 10, "e") {
			t.Fatal("released after its end")
		}
	})
	t.Run("all descriptors or none", func(t *testing.T) {
		client.commit(t, "", 500, "g")
		if client.reserve(t, `"amount": 600`, "f", "g") != "" {
			t.Fatal("admitted")
		}
		client.expectLeft(t, "f", 1000)
		id := client.reserve(t, `"amount": 500`, "f", "g")
		client.expectLeft(t, "f", 500)
		client.expectLeft(t, "g", 0)
		client.commit(t, id, 100, "f", "g")
		client.expectLeft(t, "f", 900)
		client.expectLeft(t, "g", 400)
	})
	t.Run("descriptors with the same key are held and charged together", func(t *testing.T) {
		id := client.reserve(t, `"amount": 100`, "i", "i")
		client.expectLeft(t, "i", 800)
		if !client.commit(t, id, 50, "i", "i") || client.commit(t, id, 50, "i", "i") {
			t.Fatal("released other than once")
		}
		client.expectLeft(t, "i", 900)
	})
	t.Run("messages that make no sense", func(t *testing.T) {
		for _, wrong := range []struct{ method, sent, message string }{
			{"Reserve", about(`"amount": "4294967296000000"`, "h"), "amount is 4294967296000000: allowed is 0 to "},
			{"Reserve", about(`"amount": 1, "ttl": "-1s"`, "h"), "ttl is -1 s and 0 ns: allowed is 1 ms to 48 h"},
			{"Reserve", about(`"amount": 1, "ttl": "0s"`, "h"), "ttl of a reservation is 0 us: allowed is 1 ms to 48 h"},
			{"Reserve", about(`"amount": 1`), "there is no descriptor"},
			{"Commit", about(fmt.Sprintf(`"reservationId": %q`, strings.Repeat("x", 65)), "h"), "has 65 bytes: allowed are 1 to 64"},
			{"Commit", about(`"actualAmount": "4294967296000000"`, "h"), "actual_amount is 4294967296000000"},
		} {
			got, err := client.call(t, wrong.method, wrong.sent)
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), wrong.message) {
				t.Errorf("%s %s: %s %v", wrong.method, wrong.sent, got, err)
			}
		}
	})
	health, err := grpc_health_v1.NewHealthClient(client.connection).Check(context.Background(),
		&grpc_health_v1.HealthCheckRequest{Service: string(client.service.FullName())})
	if err != nil || health.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatal(health, err)
	}
}

func TestKuadrantsReservationsOfConcurrency(t *testing.T) {
	client := newKuadrant(t, serveDocument(t, `polylimit = 1
[policies.tokens]
quotas = "1 concurrent; 1000/day"

[[rules]]
match = { domain = "ai" }
apply = [{ policy = "tokens", key = "{tenant}" }]
`))
	id := client.reserve(t, `"amount": 0`, "a")
	if id == "" || client.reserve(t, `"amount": 0`, "a") != "" {
		t.Fatal("the limit is one request at a time")
	}
	if !client.commit(t, id, 999, "a") {
		t.Fatal("nothing was released")
	}
	client.expectLeft(t, "a", 1)
}

// In quota mode a request is denied where all limits deny it.
func TestKuadrantsReservationsInQuotaMode(t *testing.T) {
	client := newKuadrant(t, serve(t, `
domain: ai
descriptors:
  - key: tenant
    value: small
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: tenant
    value: large
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 100}
`))
	id := client.reserve(t, `"amount": 50`, "small", "large")
	if id == "" || client.reserve(t, `"amount": 60`, "small", "large") != "" {
		t.Fatal("another limit decides")
	}
	client.expectLeft(t, "small", 10)
	client.expectLeft(t, "large", 50)
	if !client.commit(t, id, 1, "small", "large") {
		t.Fatal("nothing was released")
	}
	client.expectLeft(t, "small", 9)
	client.expectLeft(t, "large", 99)
}

// The calls whose messages are Envoy's.
func TestKuadrantsChecksAndReports(t *testing.T) {
	client := newKuadrant(t, serve(t, usage))
	for _, step := range []struct {
		method string
		hits   int
		code   string
	}{
		// A check spends nothing, whatever it says.
		{"CheckRateLimit", 1000, "OK"},
		{"CheckRateLimit", 1, "OK"},
		{"Report", 999, "OK"},
		{"CheckRateLimit", 0, "OK"},
		// No hits are one.
		{"Report", 0, "OK"},
		{"CheckRateLimit", 1, "OVER_LIMIT"},
		{"Report", 1200, "OVER_LIMIT"},
		{"CheckRateLimit", 1, "OVER_LIMIT"},
	} {
		got, err := client.call(t, step.method, about(fmt.Sprintf(`"hitsAddend": %d`, step.hits), "a"))
		if err != nil || !strings.Contains(got, fmt.Sprintf(`"overallCode":%q`, step.code)) {
			t.Fatalf("%s of %d hits: %s %v", step.method, step.hits, got, err)
		}
	}
}
