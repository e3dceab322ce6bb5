package polylimitgrpc_test

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/middleware"
	"polylimit.dev/polylimit/polylimitgrpc"
)

// The examples of docs/grpc.md, word for word.
func exampleServer(limiter *polylimit.Limiter, serve func(*grpc.Server)) error {
	calls, err := polylimitgrpc.New(polylimitgrpc.Options{
		Limiter:  limiter,
		Policies: []string{"100/minute", "20 concurrent"},
		KeyParts: []polylimitgrpc.KeyPart{middleware.Header("x-tenant"), middleware.Address()},
	})
	if err != nil {
		return err
	}
	messages, err := polylimitgrpc.New(polylimitgrpc.Options{
		Limiter: limiter,
		Policy:  "1000000/minute",
		Cost:    func(call *polylimitgrpc.Call) int64 { return int64(proto.Size(call.Request.(proto.Message))) },
	})
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(calls.Unary),
		// Each stream when it begins, and each message that a client sends on it.
		grpc.ChainStreamInterceptor(calls.Stream, messages.Received),
	)
	serve(server)
	return nil
}

func exampleClient(limiter *polylimit.Limiter, target string, credentials credentials.TransportCredentials, use func(*grpc.ClientConn)) error {
	throttled, err := polylimitgrpc.NewClient(polylimitgrpc.ClientOptions{Limiter: limiter, Policy: "10/s token_bucket"})
	if err != nil {
		return err
	}
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(credentials), grpc.WithUnaryInterceptor(throttled))
	use(connection)
	return err
}

func TestExamplesOfThePageRun(t *testing.T) {
	err := exampleServer(open(t), func(server *grpc.Server) {
		service := &service{counts: &counts{}}
		grpc_testing.RegisterTestServiceServer(server, service)
		err := exampleClient(open(t), listen(t, server), insecure.NewCredentials(), func(connection *grpc.ClientConn) {
			defer connection.Close()
			client := grpc_testing.NewTestServiceClient(connection)
			if _, err := client.EmptyCall(calling(t, "x-tenant", "acme"), &empty{}); err != nil {
				t.Error(err)
			}
			stream, err := client.StreamingInputCall(calling(t, "x-tenant", "acme"))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				_ = stream.Send(&input{Payload: payload(strings.Repeat("x", 600_000))})
			}
			_, err = stream.CloseAndRecv()
			expectCode(t, codes.ResourceExhausted, err)
		})
		if err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPageHasTheseExamples(t *testing.T) {
	page, err := os.ReadFile("../../../docs/grpc.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	for _, rest := range blocks {
		block, _, _ := strings.Cut(rest, "```")
		indented := "\t" + strings.ReplaceAll(strings.TrimSuffix(block, "\n"), "\n", "\n\t")
		if !strings.Contains(string(source), indented) {
			t.Errorf("example_test.go does not have: %s", block)
		}
	}
	if len(blocks) != 2 {
		t.Error(len(blocks))
	}
}
