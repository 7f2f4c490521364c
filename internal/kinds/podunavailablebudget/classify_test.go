package podunavailablebudget_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
)

// classified is a pod as the API server sends it.
const classified = `
metadata: {name: p, labels: {app: web}, annotations: {note: a}}
spec:
  nodeName: node
  tolerations: []
  initContainers:
  - {name: prepare, image: "a:1", resources: {requests: {cpu: "1"}}}
  - {name: mesh, image: "m:1", restartPolicy: Always, resources: {requests: {cpu: "1"}}}
  containers:
  - name: one
    image: "a:1"
    resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: memory, restartPolicy: RestartContainer}]
    resources: {requests: {cpu: "1", memory: 1Gi, ephemeral-storage: 1Gi}, limits: {cpu: "2", memory: 2Gi}}
  - name: two
    image: "a:1"
    resources: {requests: {memory: 1Gi}}
status: {phase: Running}
`

func podDocument(t failing) map[string]any {
	var document map[string]any
	if err := yaml.Unmarshal([]byte(classified), &document); err != nil {
		t.Fatal(err)
	}
	return document
}

// set changes a member of a document; a nil removes it.
func set(t failing, document map[string]any, value any, path ...any) {
	t.Helper()
	var at any = document
	for _, step := range path[:len(path)-1] {
		switch step := step.(type) {
		case string:
			inner, found := at.(map[string]any)[step]
			if !found {
				inner = map[string]any{}
				at.(map[string]any)[step] = inner
			}
			at = inner
		case int:
			at = at.([]any)[step]
		}
	}
	into, key := at.(map[string]any), path[len(path)-1].(string)
	if into[key] = value; value == nil {
		delete(into, key)
	}
}

func changed(t failing, before, after map[string]any) policyv1beta1.PodUnavailableBudgetOperation {
	t.Helper()
	was, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	is, err := json.Marshal(after)
	if err != nil {
		t.Fatal(err)
	}
	by, err := podunavailablebudget.Changed(was, is)
	if err != nil {
		t.Fatal(err)
	}
	return by
}

// TestWhichChangesAreDisruptions tells updates and resizes from changes that budgets have nothing to say to
// (PUB-082, PUB-083).
func TestWhichChangesAreDisruptions(t *testing.T) {
	const nothing, update, resize = "", policyv1beta1.Update, policyv1beta1.Resize
	container := func(n int, path ...any) []any { return append([]any{"spec", "containers", n}, path...) }
	resources := func(n int, path ...any) []any { return append(container(n, "resources"), path...) }
	label, annotation := []any{"metadata", "labels"}, []any{"metadata", "annotations"}
	type change struct {
		value any
		path  []any
	}
	of := func(value any, path ...any) change { return change{value, path} }
	down := of("", append(label, "unavailable-pod.kruise.io/a")...)
	more := of("1500m", resources(0, "requests", "cpu")...)
	for name, tt := range map[string]struct {
		// both is done to the pod as it was and as it is, change to the latter.
		both, change []change
		want         policyv1beta1.PodUnavailableBudgetOperation
	}{
		"nothing":                        {nil, nil, nothing},
		"a label":                        {nil, []change{of("db", append(label, "app")...)}, nothing},
		"an annotation":                  {nil, []change{of("b", append(annotation, "note")...)}, nothing},
		"the status":                     {nil, []change{of("Failed", "status", "phase")}, nothing},
		"an image":                       {nil, []change{of("a:2", container(1, "image")...)}, update},
		"an image of an init container":  {nil, []change{of("a:2", "spec", "initContainers", 0, "image")}, update},
		"a toleration":                   {nil, []change{of([]any{map[string]any{"key": "k"}}, "spec", "tolerations")}, update},
		"a deadline":                     {nil, []change{of(int64(1), "spec", "activeDeadlineSeconds")}, update},
		"a field that our types lack":    {nil, []change{of(true, "spec", "brandNew")}, update},
		"one of a container":             {nil, []change{of(true, container(0, "brandNew")...)}, update},
		"it is said to be unavailable":   {nil, []change{down}, update},
		"likewise, with more CPU":        {nil, []change{down, more}, update},
		"it was so before":               {[]change{down}, []change{of("", append(label, "unavailable-pod.kruise.io/b")...)}, nothing},
		"it is so no more":               {[]change{down}, []change{of(nil, down.path...)}, nothing},
		"more CPU, for one that is down": {[]change{down}, []change{more}, resize},
		"more CPU":                       {nil, []change{more}, resize},
		"no limit of CPU":                {nil, []change{of(nil, resources(0, "limits", "cpu")...)}, resize},
		"a limit of CPU":                 {nil, []change{of("2", resources(1, "limits", "cpu")...)}, resize},
		"no resources at all":            {nil, []change{of(nil, resources(1)...)}, resize},
		"memory, without a policy":       {nil, []change{of("3Gi", resources(1, "requests", "memory")...)}, resize},
		"memory, which restarts":         {nil, []change{of("3Gi", resources(0, "requests", "memory")...)}, update},
		"both of one container": {nil, []change{more, of("3Gi", resources(0, "limits", "memory")...)},
			update},
		"an empty policy": {[]change{of([]any{map[string]any{"resourceName": "cpu", "restartPolicy": ""}}, container(0, "resizePolicy")...)},
			[]change{more}, resize},
		"CPU of both":              {nil, []change{more, of("1", resources(1, "requests", "cpu")...)}, resize},
		"another resource":         {nil, []change{of("2Gi", resources(0, "requests", "ephemeral-storage")...)}, update},
		"claims of devices":        {nil, []change{of([]any{map[string]any{"name": "gpu"}}, resources(0, "claims")...)}, update},
		"CPU and an image":         {nil, []change{more, of("a:2", container(0, "image")...)}, update},
		"a policy of resizes":      {nil, []change{of([]any{}, container(0, "resizePolicy")...)}, update},
		"a container more":         {nil, []change{of([]any{map[string]any{"name": "one"}}, "spec", "containers")}, update},
		"another name":             {nil, []change{of("three", container(1, "name")...)}, update},
		"CPU of the whole pod":     {nil, []change{of("4", "spec", "resources", "limits", "cpu")}, update},
		"CPU of an init container": {nil, []change{of("2", "spec", "initContainers", 0, "resources", "requests", "cpu")}, update},
		"CPU of a native sidecar":  {nil, []change{of("2", "spec", "initContainers", 1, "resources", "requests", "cpu")}, resize},
		"its image too": {nil, []change{of("2", "spec", "initContainers", 1, "resources", "requests", "cpu"),
			of("m:2", "spec", "initContainers", 1, "image")}, update},
		"CPU of a static pod":          {[]change{of("file", append(annotation, "kubernetes.io/config.source")...)}, []change{more}, update},
		"CPU of its mirror":            {[]change{of("x", append(annotation, "kubernetes.io/config.mirror")...)}, []change{more}, update},
		"CPU of one of the API server": {[]change{of("api", append(annotation, "kubernetes.io/config.source")...)}, []change{more}, resize},
	} {
		before, after := podDocument(t), podDocument(t)
		for _, c := range tt.both {
			set(t, before, c.value, c.path...)
		}
		for _, c := range append(tt.both, tt.change...) {
			set(t, after, c.value, c.path...)
		}
		if got := changed(t, before, after); got != tt.want {
			t.Errorf("%s: %q, not %q", name, got, tt.want)
		}
	}
	if got := changed(t, map[string]any{}, podDocument(t)); got != update {
		t.Errorf("a pod without spec: %q", got)
	}
	for _, documents := range [][2]string{{"{", "{}"}, {"{}", `{"spec":1}`}} {
		if by, err := podunavailablebudget.Changed([]byte(documents[0]), []byte(documents[1])); err == nil {
			t.Errorf("the change of %v: got %q, want an error", documents, by)
		}
	}
}

// TestChangesOfAnySpec shows that whatever changes outside of resources of containers is an update, and that
// going back is what going there was (PUB-082 (part), PUB-083 (part)).
func TestChangesOfAnySpec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := podDocument(t), podDocument(t)
		sized, other := false, false
		for i := range rapid.IntRange(0, 3).Draw(t, "changes") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				set(t, after, fmt.Sprint(3+i), "spec", "containers", i%2, "resources", "limits", "cpu")
				sized = true
			case 1:
				set(t, after, fmt.Sprint("x", i), "spec", rapid.StringMatching("[a-z]{6,9}X").Draw(t, "field"))
				other = true
			case 2:
				set(t, after, fmt.Sprint("x", i), "metadata", "labels", rapid.StringMatching("[a-z]{1,9}").Draw(t, "label"))
			case 3:
				set(t, after, fmt.Sprint("x", i), "spec", "containers", i%2, rapid.StringMatching("[a-z]{6,9}X").Draw(t, "field"))
				other = true
			}
		}
		want := policyv1beta1.PodUnavailableBudgetOperation("")
		switch {
		case other:
			want = policyv1beta1.Update
		case sized:
			want = policyv1beta1.Resize
		}
		there, back := changed(t, before, after), changed(t, after, before)
		if there != want {
			t.Fatalf("there: got %q, want %q: %v", there, want, unstructured.Unstructured{Object: after})
		}
		if back != want {
			t.Fatalf("back: got %q, want %q: %v", back, want, unstructured.Unstructured{Object: after})
		}
	})
}
