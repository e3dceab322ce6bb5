// Command validate checks manifests as a Kubernetes API server does when they are created, with its own code: unknown and duplicate
// fields are errors, defaults are set, and each object is validated. Warnings are errors, too:
//
//	validate FILE...
//
// The Prometheus operator validates its objects by the schema that it installs in a cluster. Here they are only decoded strictly.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
)

var scheme = legacyscheme.Scheme

// What the server does before it stores an object of a kind.
var strategies = map[string]rest.RESTCreateStrategy{
	"ConfigMap":           configmap.Strategy,
	"Deployment":          deployment.Strategy,
	"NetworkPolicy":       networkpolicy.Strategy,
	"PodDisruptionBudget": poddisruptionbudget.Strategy,
	"Service":             service.Strategy,
}

func check(document []byte) error {
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	object, kind, err := decoder.Decode(document, nil, nil)
	if err != nil {
		return err
	}
	if kind.Group == "monitoring.coreos.com" {
		return nil
	}
	strategy := strategies[kind.Kind]
	if strategy == nil {
		return fmt.Errorf("there is no check of the kind %s", kind.Kind)
	}
	scheme.Default(object)
	internal, err := scheme.UnsafeConvertToVersion(object, runtime.InternalGroupVersioner)
	if err != nil {
		return err
	}
	// `helm install` and `kubectl apply` name the namespace, which the manifests leave open.
	accessor, err := meta.Accessor(internal)
	if err != nil {
		return err
	}
	accessor.SetNamespace("default")
	rest.FillObjectMetaSystemFields(accessor)
	of := request.RequestInfo{APIGroup: kind.Group, APIVersion: kind.Version}
	ctx := request.WithRequestInfo(request.WithNamespace(context.Background(), "default"), &of)
	if err := rest.BeforeCreate(strategy, ctx, internal); err != nil {
		return err
	}
	if warnings := strategy.WarningsOnCreate(ctx, internal); len(warnings) > 0 {
		return fmt.Errorf("%s %q: warning: %s", kind.Kind, accessor.GetName(), strings.Join(warnings, "; "))
	}
	return nil
}

func documents(path string) ([][]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var found [][]byte
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		// A part may have only comments.
		if value, err := yaml.ToJSON(document); err != nil || string(value) != "null" {
			found = append(found, document)
		}
	}
}

func main() {
	if err := monitoring.AddToScheme(scheme); err != nil {
		panic(err)
	}
	count, failures := 0, 0
	for _, path := range os.Args[1:] {
		found, err := documents(path)
		if err != nil {
			fmt.Println(err)
			os.Exit(2)
		}
		for _, document := range found {
			count++
			if err := check(document); err != nil {
				failures++
				fmt.Printf("%s: %v\n", path, err)
			}
		}
	}
	fmt.Printf("%d objects, %d of them invalid\n", count, failures)
	if failures > 0 || count == 0 {
		os.Exit(1)
	}
}
