// Package envoy asks `polylimit serve` with Envoy's own definitions of its rate limit service, in the module go-control-plane, and with
// gRPC's own client, and with the client of envoyproxy/ratelimit. The limits are a file of envoyproxy/ratelimit that `polylimit policies import` has read.
package envoy

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const limits = `
domain: shop
descriptors:
  - key: user
    rate_limit: {name: per_user, unit: day, requests_per_unit: 2}
  - key: user
    value: robot
    rate_limit: {name: robots, unit: day, requests_per_unit: 0}
  - key: plan
    value: gold
    rate_limit: {unlimited: true, replaces: [{name: per_user}]}
  - key: path
    descriptors:
      - key: method
        value: POST
        rate_limit: {unit: week, requests_per_unit: 7}
`

// usage has limits on tokens, which are reported when a stream has ended.
const usage = `
domain: ai
descriptors:
  - key: tenant
    rate_limit: {unit: day, requests_per_unit: 1000}
`

func program(t *testing.T) string {
	t.Helper()
	program := os.Getenv("POLYLIMIT")
	if program == "" {
		t.Fatal("POLYLIMIT is not set: it names the program")
	}
	return program
}

// serve starts the program with limits that are imported with these flags, and returns the address of its listener.
func serve(t *testing.T, limits string, flags ...string) string {
	t.Helper()
	yaml := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(yaml, []byte(limits), 0o600); err != nil {
		t.Fatal(err)
	}
	imported, err := exec.Command(program(t), append(append([]string{"policies", "import", "--from", "envoy-ratelimit"}, flags...), yaml)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return serveDocument(t, string(imported))
}

// serveDocument starts the program with these policies, and returns the address of its listener.
func serveDocument(t *testing.T, policies string) string {
	t.Helper()
	document := filepath.Join(t.TempDir(), "limits.toml")
	if err := os.WriteFile(document, []byte(policies), 0o600); err != nil {
		t.Fatal(err)
	}
	server := exec.Command(program(t), "--policies", document, "serve", "--listen", "http://127.0.0.1:0", "--admin", "off")
	told, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(told)
	t.Cleanup(func() {
		if err := server.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		for lines.Scan() {
			t.Log(lines.Text())
		}
		if err := server.Wait(); err != nil {
			t.Errorf("the server ends with %v", err)
		}
	})
	for lines.Scan() {
		if _, address, found := strings.Cut(lines.Text(), "listening on http://"); found {
			return address
		}
	}
	t.Fatal("the server does not listen")
	return ""
}

func descriptor(entries ...string) *common.RateLimitDescriptor {
	made := &common.RateLimitDescriptor{}
	for at := 0; at+1 < len(entries); at += 2 {
		made.Entries = append(made.Entries, &common.RateLimitDescriptor_Entry{Key: entries[at], Value: entries[at+1]})
	}
	return made
}

// ratelimitClient asks about a descriptor with client_cmd, the program of envoyproxy/ratelimit for its own service.
func ratelimitClient(t *testing.T, address, descriptor string) string {
	t.Helper()
	command := exec.Command("go", "tool", "client_cmd", "-dial_string", address, "-domain", "shop", "-descriptors", descriptor)
	command.Dir = filepath.Join("..", "ratelimit_client")
	told, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, told)
	}
	_, response, found := strings.Cut(string(told), "response: ")
	if !found {
		t.Fatalf("no response in %s", told)
	}
	return response
}

func connect(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// Envoy Gateway, with the token limits of its AI Gateway, asks twice with the same descriptor: before the request, whose cost is 0 hits,
// and when its stream has ended, with the tokens that it has used.
func TestUsageOfStreams(t *testing.T) {
	client := rls.NewRateLimitServiceClient(connect(t, serve(t, usage, "--spend", "always")))
	ask := func(t *testing.T, hits uint64) *rls.RateLimitResponse_DescriptorStatus {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		sent := descriptor("tenant", "a")
		sent.HitsAddend = wrapperspb.UInt64(hits)
		request := &rls.RateLimitRequest{Domain: "ai", Descriptors: []*common.RateLimitDescriptor{sent}}
		response, err := client.ShouldRateLimit(ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		return response.Statuses[0]
	}
	expect := func(t *testing.T, hits uint64, code rls.RateLimitResponse_Code, left uint32) {
		t.Helper()
		if status := ask(t, hits); status.Code != code || status.LimitRemaining != left {
			t.Fatalf("%d hits: %v", hits, status)
		}
	}
	const ok, over = rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT
	// A request is admitted while there is anything left, whatever it will use.
	expect(t, 0, ok, 1000)
	expect(t, 901, ok, 99)
	expect(t, 0, ok, 99)
	expect(t, 1200, over, 0)
	expect(t, 0, over, 0)
	// Streams that had begun before report more.
	expect(t, 1200, over, 0)
	expect(t, 0, over, 0)
}

func TestEnvoysClient(t *testing.T) {
	connection := connect(t, serve(t, limits))
	client := rls.NewRateLimitServiceClient(connection)
	// Each call has its own time: a test between them compiles Envoy's client, which may download.
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		t.Cleanup(cancel)
		return ctx
	}
	ask := func(t *testing.T, descriptors ...*common.RateLimitDescriptor) *rls.RateLimitResponse {
		t.Helper()
		response, err := client.ShouldRateLimit(soon(), &rls.RateLimitRequest{Domain: "shop", Descriptors: descriptors})
		if err != nil {
			t.Fatal(err)
		}
		// A field that Envoy does not know would be one that polylimit has got wrong.
		if unknown := response.ProtoReflect().GetUnknown(); len(unknown) > 0 {
			t.Fatalf("unknown fields: %v", unknown)
		}
		return response
	}

	t.Run("limit", func(t *testing.T) {
		for left := uint32(2); left > 0; left-- {
			status := ask(t, descriptor("user", "alice")).Statuses[0]
			limit := status.GetCurrentLimit()
			if status.Code != rls.RateLimitResponse_OK || status.LimitRemaining != left-1 || limit.RequestsPerUnit != 2 ||
				limit.Unit != rls.RateLimitResponse_RateLimit_DAY || limit.Name != "per_user" {
				t.Fatalf("%v with %d left", status, left)
			}
		}
		denied := ask(t, descriptor("user", "alice"))
		wait := denied.Statuses[0].DurationUntilReset.AsDuration()
		if denied.OverallCode != rls.RateLimitResponse_OVER_LIMIT || wait <= 0 || wait > 24*time.Hour {
			t.Fatal(denied)
		}
		headers := map[string]string{}
		for _, header := range denied.ResponseHeadersToAdd {
			headers[header.Key] = header.Value
		}
		if headers["retry-after"] == "" || headers["content-type"] != "application/problem+json" {
			t.Fatal(headers)
		}
		if !strings.Contains(string(denied.RawBody), "quota-exceeded") {
			t.Fatalf("%s", denied.RawBody)
		}
		fields := denied.DynamicMetadata.AsMap()
		if fields["policy"] != "per_user" || fields["quota"] != "2/day fixed_window aligned" || fields["degraded"] != nil {
			t.Fatal(fields)
		}
	})

	t.Run("nesting and units", func(t *testing.T) {
		status := ask(t, descriptor("path", "/orders", "method", "POST")).Statuses[0]
		if status.CurrentLimit.Unit != rls.RateLimitResponse_RateLimit_WEEK || status.LimitRemaining != 6 {
			t.Fatal(status)
		}
		if ask(t, descriptor("path", "/orders")).Statuses[0].CurrentLimit != nil {
			t.Fatal("a limit counts only where the descriptor ends")
		}
		if ask(t, descriptor("user", "robot")).OverallCode != rls.RateLimitResponse_OVER_LIMIT {
			t.Fatal("0 a day admits nothing")
		}
	})

	t.Run("hits", func(t *testing.T) {
		of := func(hits uint64, isNegative bool) *common.RateLimitDescriptor {
			made := descriptor("user", "bob")
			made.HitsAddend, made.IsNegativeHits = wrapperspb.UInt64(hits), isNegative
			return made
		}
		for _, step := range []struct {
			hits       uint64
			isNegative bool
			code       rls.RateLimitResponse_Code
			remaining  uint32
		}{
			{2, false, rls.RateLimitResponse_OK, 0},
			{0, false, rls.RateLimitResponse_OVER_LIMIT, 0},
			{1, true, rls.RateLimitResponse_OK, 1},
			{0, false, rls.RateLimitResponse_OK, 1},
		} {
			response := ask(t, of(step.hits, step.isNegative))
			if response.OverallCode != step.code || response.Statuses[0].LimitRemaining != step.remaining {
				t.Fatalf("%+v: %v", step, response)
			}
		}
	})

	t.Run("a denial spends nothing, and a limit replaces another", func(t *testing.T) {
		carol, robot := descriptor("user", "carol"), descriptor("user", "robot")
		for range 3 {
			if ask(t, carol, robot).OverallCode != rls.RateLimitResponse_OVER_LIMIT {
				t.Fatal("the robot is admitted")
			}
			if ask(t, carol, descriptor("plan", "gold")).OverallCode != rls.RateLimitResponse_OK {
				t.Fatal("the plan does not replace the limit of users")
			}
		}
		if status := ask(t, carol).Statuses[0]; status.LimitRemaining != 1 {
			t.Fatal(status)
		}
	})

	t.Run("the client of envoyproxy/ratelimit", func(t *testing.T) {
		for _, expected := range []string{"overall_code:OK", "overall_code:OK", "overall_code:OVER_LIMIT"} {
			told := ratelimitClient(t, connection.Target(), "user=dave")
			// Go's text of a message may have one space or two after a colon.
			if !strings.Contains(strings.ReplaceAll(told, ": ", ":"), expected) || !strings.Contains(told, "per_user") {
				t.Fatalf("%s is missing in %s", expected, told)
			}
		}
	})

	t.Run("health", func(t *testing.T) {
		health := grpc_health_v1.NewHealthClient(connection)
		response, err := health.Check(soon(), &grpc_health_v1.HealthCheckRequest{Service: rls.RateLimitService_ServiceDesc.ServiceName})
		if err != nil || response.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Fatal(response, err)
		}
	})
}
