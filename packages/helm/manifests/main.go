// Command waymaker-manifests reads rendered manifests from standard input, and prints each as a line of JSON. As the API server
// does, it refuses fields that the type of the object does not have, and keys that occur twice.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	manifest "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Types of the objects of the chart. A ServiceMonitor is not part of Kubernetes, so its fields are not checked here.
var types = map[string]func() any{
	"v1/ConfigMap":                            func() any { return new(core.ConfigMap) },
	"v1/Service":                              func() any { return new(core.Service) },
	"v1/ServiceAccount":                       func() any { return new(core.ServiceAccount) },
	"apps/v1/StatefulSet":                     func() any { return new(apps.StatefulSet) },
	"policy/v1/PodDisruptionBudget":           func() any { return new(policy.PodDisruptionBudget) },
	"monitoring.coreos.com/v1/ServiceMonitor": func() any { return new(any) },
}

func convert(text []byte) ([]byte, error) {
	document, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	var object meta.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(document, &object); err != nil {
		return nil, err
	}
	name := object.APIVersion + "/" + object.Kind
	create, known := types[name]
	if !known {
		return nil, fmt.Errorf("%s is not a type of the chart", name)
	}
	// Unlike encoding/json this tells the case of letters apart.
	problems, err := json.UnmarshalStrict(document, create())
	if err := errors.Join(append(problems, err)...); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return document, nil
}

func main() {
	documents := manifest.NewYAMLReader(bufio.NewReader(os.Stdin))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			text, err = convert(text)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(string(text))
	}
}
