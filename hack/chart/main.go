// Command chart writes the files of the Helm chart: the objects that it installs, from the manifests in
// config (docs/decisions/0028), the defaults of its values, and the feature gates. The templates load the
// objects and lay over them what values say, so that none is written twice.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/config"
	"github.com/afloat-project/afloat/internal/platform/features"
)

func main() {
	if err := errors.Join(write(os.Args[1], os.Args[2]),
		tabulate(filepath.Join(os.Args[2], "values.yaml"), os.Args[3])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write renders the manifests below from, and replaces the files of a chart.
func write(from, chart string) error {
	to := filepath.Join(chart, "files")
	own, err := objects(filepath.Join(from, "default"))
	if err != nil {
		return err
	}

	external, err := objects(filepath.Join(from, "external-certs"))
	if err != nil {
		return err
	}

	distribution, err := objects(filepath.Join(from, "resource-distribution"))
	if err != nil {
		return err
	}

	policy, err := os.ReadFile(filepath.Join(from, "network-policy/policy.yaml"))
	if err != nil {
		return fmt.Errorf("reading the network policy: %w", err)
	}

	network, err := parse(policy)
	if err != nil {
		return err
	}

	files := map[string][]*unstructured.Unstructured{
		"network-policy.yaml":        network,
		"resource-distribution.yaml": distribution,
	}
	known := map[string]*unstructured.Unstructured{}

	for _, name := range []string{"service", "servicemonitor", "rules", "dashboards"} {
		text, err := os.ReadFile(filepath.Join(from, "monitoring", name+".yaml"))
		if err != nil {
			return fmt.Errorf("reading what is monitored: %w", err)
		}
		if files["monitoring/"+name+".yaml"], err = parse(text); err != nil {
			return err
		}
	}

	for _, object := range own {
		name := fileOf(object)
		files[name] = append(files[name], object)
		known[key(object)] = object
	}

	// Of the manifests with certificates of somebody else, what is another object, or an object with other
	// content.
	for _, object := range external {
		// The templates themselves know gates, which change the Deployment, and annotations, which change
		// definitions.
		if kind := object.GetKind(); kind != "CustomResourceDefinition" && kind != "Deployment" &&
			!same(known[key(object)], object) {
			files["external-certs.yaml"] = append(files["external-certs.yaml"], object)
		}
	}

	if err := os.RemoveAll(to); err != nil {
		return fmt.Errorf("removing what was written before: %w", err)
	}

	for name, list := range files {
		items := make([]any, len(list))
		for i, object := range list {
			items[i] = object.Object
		}
		var document any = map[string]any{"items": items}
		if strings.HasPrefix(name, "crds/") {
			document = items[0]
		}
		if err := save(filepath.Join(to, name), document); err != nil {
			return err
		}
	}

	var defaults map[string]any
	values, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err == nil {
		err = yaml.Unmarshal(values, &defaults)
	}
	if err != nil {
		return fmt.Errorf("reading the values: %w", err)
	}

	return errors.Join(save(filepath.Join(to, "values.yaml"), defaults),
		save(filepath.Join(to, "features.yaml"), gates()))
}

// fileOf tells in which file an object goes.
func fileOf(object *unstructured.Unstructured) string {
	daemons := strings.HasPrefix(object.GetName(), "kruise-daemon")
	switch kind := object.GetKind(); kind {
	case "CustomResourceDefinition":
		return "crds/" + object.GetName() + ".yaml"
	case "Namespace":
		return "namespaces.yaml"
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding":
		if !daemons {
			return "webhooks.yaml"
		}
	case "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding":
		if !daemons {
			return "rbac.yaml"
		}
	}

	if daemons {
		return "daemon.yaml"
	}

	return "manager.yaml"
}

// gates are the feature gates as the templates need them: what is on by default, and what one does to others.
func gates() any {
	type gate struct {
		Default bool   `json:"default"`
		Stage   string `json:"stage"`
	}
	known := map[string]gate{}
	for name, spec := range features.Known() {
		known[string(name)] = gate{spec.Default, string(spec.PreRelease)}
	}

	type implication struct {
		Cause  string   `json:"cause"`
		Value  bool     `json:"value"`
		Forced bool     `json:"forced"`
		Others []string `json:"others"`
	}
	var implications []implication
	for _, rule := range features.Implications {
		others := make([]string, len(rule.Others))
		for i, other := range rule.Others {
			others[i] = string(other)
		}
		implications = append(implications, implication{string(rule.Cause), rule.Value, rule.Forced, others})
	}

	return map[string]any{"gates": known, "implications": implications, "aliases": features.Aliases()}
}

func save(path string, document any) error {
	text, err := yaml.Marshal(document)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	text = append([]byte("# Written by make generate.\n"), text...)
	return os.WriteFile(path, text, 0o644) //nolint:gosec // sources are for everybody
}

func objects(folder string) ([]*unstructured.Unstructured, error) {
	text, err := config.Folder(folder)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

func parse(text []byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return nil, fmt.Errorf("reading the manifests: %w", err)
		}
		if len(object.Object) > 0 { // a document may have comments only
			all = append(all, object)
		}
	}
	return all, nil
}

func key(object *unstructured.Unstructured) string {
	return object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
}

func same(a, b *unstructured.Unstructured) bool {
	if a == nil {
		return false
	}
	x, err := json.Marshal(a.Object)
	y, err2 := json.Marshal(b.Object)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}
