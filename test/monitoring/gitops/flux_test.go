package gitops

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"go.yaml.in/yaml/v3"
)

// manifests are the documents of a file.
func manifests(t *testing.T, file string) []map[string]any {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var one map[string]any
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
}

type expression struct {
	APIVersion      string `yaml:"apiVersion"`
	Kind            string
	Current, Failed string
}

// holds evaluates an expression as Flux does: the fields of the object are its variables.
func holds(t *testing.T, text string, object map[string]any) bool {
	t.Helper()
	if text == "" {
		return false
	}
	env, err := cel.NewEnv(cel.Variable("metadata", cel.DynType), cel.Variable("spec", cel.DynType), cel.Variable("status", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	tree, issues := env.Compile(text)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	if !tree.OutputType().IsExactType(cel.BoolType) {
		t.Fatalf("%s is a %s", text, tree.OutputType())
	}
	program, err := env.Program(tree)
	if err != nil {
		t.Fatal(err)
	}
	result, _, err := program.Eval(object)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return result.Value() == true
}

// Flux waits for workloads until they are ready, and knows those that fail.
func TestFluxKnowsWhatIsReady(t *testing.T) {
	const folder = "../../../config/flux/"
	var shop struct {
		Spec struct {
			HealthCheckExprs []expression `yaml:"healthCheckExprs"`
		}
	}
	shop = read[struct {
		Spec struct {
			HealthCheckExprs []expression `yaml:"healthCheckExprs"`
		}
	}](t, folder+"kustomization.yaml")
	byKind := map[string]expression{}
	for _, one := range shop.Spec.HealthCheckExprs {
		byKind[one.Kind] = one
	}
	strategy := map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"partition": 0}}
	seen := map[string]map[string]bool{}
	for _, c := range []struct {
		kind, name, want string
		spec, status     map[string]any
	}{
		{"CloneSet", "new", "", map[string]any{"replicas": 3}, nil},
		{"CloneSet", "lagging", "", map[string]any{"replicas": 3}, map[string]any{"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3}},
		{"CloneSet", "under way", "", map[string]any{"replicas": 3},
			map[string]any{"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "expectedUpdatedReplicas": 3, "availableReplicas": 3}},
		{"CloneSet", "up to its partition", "current", map[string]any{"replicas": 3},
			map[string]any{"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "expectedUpdatedReplicas": 1, "availableReplicas": 3}},
		{"CloneSet", "not available", "", map[string]any{"replicas": 3},
			map[string]any{"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "expectedUpdatedReplicas": 3, "availableReplicas": 2}},
		{"CloneSet", "too late", "failed", map[string]any{"replicas": 3}, map[string]any{"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1,
			"expectedUpdatedReplicas": 3, "availableReplicas": 3, "conditions": []any{map[string]any{"type": "Progressing", "status": "False"}}}},
		{"StatefulSet", "done", "current", map[string]any{"replicas": 3},
			map[string]any{"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3}},
		{"StatefulSet", "under way", "", map[string]any{"replicas": 3},
			map[string]any{"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 3}},
		{"StatefulSet", "failing", "failed", map[string]any{"replicas": 3}, map[string]any{"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1,
			"availableReplicas": 1, "conditions": []any{map[string]any{"type": "FailedCreatePod", "status": "True"}}}},
		{"DaemonSet", "under way", "", map[string]any{"updateStrategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{}}},
			map[string]any{"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 2, "numberAvailable": 3}},
		{"DaemonSet", "done", "current", map[string]any{"updateStrategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{}}},
			map[string]any{"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberAvailable": 3}},
		{"DaemonSet", "failing", "failed", nil, map[string]any{"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 1,
			"conditions": []any{map[string]any{"type": "FailedUpdatePod", "status": "True"}}}},
		{"SidecarSet", "under way", "", map[string]any{"updateStrategy": map[string]any{"type": "RollingUpdate"}}, map[string]any{"observedGeneration": 2, "matchedPods": 3, "updatedPods": 1}},
		{"SidecarSet", "done", "current", nil, map[string]any{"observedGeneration": 2, "matchedPods": 3, "updatedPods": 3}},
		{"ImagePullJob", "under way", "", nil, map[string]any{"desired": 3}},
		{"ImagePullJob", "done", "current", nil, map[string]any{"desired": 3, "completionTime": "now"}},
		{"ImagePullJob", "failed", "failed", nil, map[string]any{"desired": 3, "failed": 1, "completionTime": "now"}},
		{"ImageListPullJob", "under way", "", nil, map[string]any{}},
		{"ImageListPullJob", "done", "current", nil, map[string]any{"completionTime": "now"}},
		{"ImageListPullJob", "failed", "failed", nil, map[string]any{"completionTime": "now", "failedImageStatuses": []any{}}},
		{"PodUnavailableBudget", "new", "", nil, map[string]any{}},
		{"PodUnavailableBudget", "counted", "current", nil, map[string]any{"observedGeneration": 2}},
		{"WorkloadSpread", "new", "", nil, map[string]any{}},
		{"WorkloadSpread", "counted", "current", nil, map[string]any{"observedGeneration": 2}},
	} {
		t.Run(c.kind+" "+c.name, func(t *testing.T) {
			if c.spec == nil {
				c.spec = map[string]any{}
			}
			if _, ok := c.spec["updateStrategy"]; !ok {
				c.spec["updateStrategy"] = strategy
			}
			if c.status == nil {
				c.status = map[string]any{}
			}
			object := map[string]any{"metadata": map[string]any{"generation": 2}, "spec": c.spec, "status": c.status}
			rule, got := byKind[c.kind], ""
			switch {
			case holds(t, rule.Failed, object):
				got = "failed"
			case holds(t, rule.Current, object):
				got = "current"
			}
			if got != c.want {
				t.Errorf("it is %q, want %q", got, c.want)
			}
			if seen[c.kind] == nil {
				seen[c.kind] = map[string]bool{}
			}
			seen[c.kind][got] = true
		})
	}
	for kind, rule := range byKind {
		if !seen[kind][""] || !seen[kind]["current"] || rule.Failed != "" && !seen[kind]["failed"] {
			t.Errorf("of %s there were only %v", kind, seen[kind])
		}
	}
	for _, object := range manifests(t, folder+"helmrelease.yaml") {
		spec, _ := object["spec"].(map[string]any)
		switch object["kind"] {
		case "OCIRepository":
			if url, _ := spec["url"].(string); !strings.HasPrefix(url, "oci://") {
				t.Errorf("url %q", url)
			}
		case "HelmRelease":
			for _, when := range []string{"install", "upgrade"} {
				if policy, _ := spec[when].(map[string]any); policy["crds"] != "CreateReplace" {
					t.Errorf("%s: %v", when, policy)
				}
			}
		default:
			t.Errorf("an object %v", object["kind"])
		}
	}
}

// Flux makes the namespace, to store the release in, before it installs the chart: that must not make it,
// too, or no first installation succeeds.
func TestFluxMakesTheNamespaceOnce(t *testing.T) {
	for _, object := range manifests(t, "../../../config/flux/helmrelease.yaml") {
		var release struct {
			Kind string
			Spec struct {
				Install struct {
					CreateNamespace bool `yaml:"createNamespace"`
				}
				Values struct {
					Installation struct {
						CreateNamespace *bool `yaml:"createNamespace"`
					}
				}
			}
		}
		text, err := yaml.Marshal(object)
		if err == nil {
			err = yaml.Unmarshal(text, &release)
		}
		if err != nil {
			t.Fatal(err)
		}
		byChart := release.Spec.Values.Installation.CreateNamespace
		if release.Kind == "HelmRelease" && release.Spec.Install.CreateNamespace == (byChart == nil || *byChart) {
			t.Error("the namespace is made by both, or by none")
		}
	}
}
