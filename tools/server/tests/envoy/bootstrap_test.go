package envoy

import (
	"fmt"
	"os"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"
)

const bootstrapFile = "../../../../deploy/proxies/envoy.yaml"

// readBootstrap reads a configuration as Envoy does: an unknown field is an error, in what the fields of type Any hold as well.
func readBootstrap(text []byte) (*bootstrap.Bootstrap, error) {
	json, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, err
	}
	read := &bootstrap.Bootstrap{}
	if err := protojson.Unmarshal(json, read); err != nil {
		return nil, err
	}
	return read, validate(read.ProtoReflect())
}

// validate applies the rules of the definitions to a message, and to what stands in its fields of type Any.
func validate(message protoreflect.Message) error {
	if rules, ok := message.Interface().(interface{ ValidateAll() error }); ok {
		if err := rules.ValidateAll(); err != nil {
			return err
		}
	}
	if packed, ok := message.Interface().(*anypb.Any); ok {
		inner, err := packed.UnmarshalNew()
		if err != nil {
			return err
		}
		return validate(inner.ProtoReflect())
	}
	var wrong error
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		each := func(value protoreflect.Value) bool {
			wrong = validate(value.Message())
			return wrong == nil
		}
		switch {
		case field.IsMap() && field.MapValue().Message() != nil:
			value.Map().Range(func(_ protoreflect.MapKey, value protoreflect.Value) bool { return each(value) })
		case field.IsList() && field.Message() != nil:
			for at := 0; at < value.List().Len() && wrong == nil; at++ {
				each(value.List().Get(at))
			}
		case !field.IsMap() && !field.IsList() && field.Message() != nil:
			each(value)
		}
		return wrong == nil
	})
	return wrong
}

func unpack[T proto.Message](t *testing.T, packed *anypb.Any) T {
	t.Helper()
	inner, err := packed.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	typed, ok := inner.(T)
	if !ok {
		t.Fatalf("%T", inner)
	}
	return typed
}

func address(t *testing.T, made *cluster.Cluster) string {
	t.Helper()
	socket := made.LoadAssignment.Endpoints[0].LbEndpoints[0].GetEndpoint().Address.GetSocketAddress()
	return fmt.Sprintf("%s:%d", socket.Address, socket.GetPortValue())
}

func TestBootstrapIsOneOfEnvoy(t *testing.T) {
	text, err := os.ReadFile(bootstrapFile)
	if err != nil {
		t.Fatal(err)
	}
	read, err := readBootstrap(text)
	if err != nil {
		t.Fatal(err)
	}
	clusters := map[string]*cluster.Cluster{}
	for _, made := range read.StaticResources.Clusters {
		clusters[made.Name] = made
	}
	filters := read.StaticResources.Listeners[0].FilterChains[0].Filters
	manager := unpack[*hcm.HttpConnectionManager](t, filters[0].GetTypedConfig())
	names := []string{}
	var limit *ratelimit.RateLimit
	for _, filter := range manager.HttpFilters {
		names = append(names, filter.Name)
		if filter.Name == "envoy.filters.http.ratelimit" {
			limit = unpack[*ratelimit.RateLimit](t, filter.GetTypedConfig())
		}
	}
	if len(names) != 2 || limit == nil || names[1] != "envoy.filters.http.router" {
		t.Fatalf("the filters are %v: the limit has to stand before the router, which is the last one", names)
	}
	service := clusters[limit.RateLimitService.GrpcService.GetEnvoyGrpc().ClusterName]
	if service == nil {
		t.Fatal("the cluster of the rate limit service is missing")
	}
	route := manager.GetRouteConfig().VirtualHosts[0].Routes[0].GetRoute()
	if clusters[route.GetCluster()] == nil || len(route.RateLimits) != 1 {
		t.Fatal(route)
	}
	if address(t, service) != "127.0.0.1:8180" || limit.Domain != "shop" {
		t.Fatal(service, limit)
	}
	health := service.HealthChecks[0].GetGrpcHealthCheck().ServiceName
	if health != rls.RateLimitService_ServiceDesc.ServiceName {
		t.Fatal(health)
	}
}

func TestBootstrapThatIsWrongIsNotRead(t *testing.T) {
	for name, text := range map[string]string{
		"an unknown field":            "static_resources: {listener: []}",
		"a cluster without a name":    "static_resources: {clusters: [{type: STATIC}]}",
		"an unknown field in an Any":  filterOf("domian: shop"),
		"a filter without a domain":   filterOf("timeout: 1s"),
		"a filter of an unknown type": "static_resources: {listeners: [{filter_chains: [{filters: [{name: f, typed_config: {\"@type\": type.googleapis.com/no.such.Type}}]}]}]}",
	} {
		if _, err := readBootstrap([]byte(text)); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

// filterOf is a configuration with one filter of limits, which has this field besides its service.
func filterOf(field string) string {
	return fmt.Sprintf(`static_resources: {listeners: [{filter_chains: [{filters: [{name: f, typed_config: {
  "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, %s,
  rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: polylimit}}}}}]}]}]}`, field)
}
