package pod

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/api/pub"
)

// launched returns the pod as the step leaves it.
func launched(t *testing.T, manifest string) *corev1.Pod {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	changes, err := mutate(raw, Launch())
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(changes)
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) > 0 {
		patch, err := jsonpatch.DecodePatch(text)
		if err != nil {
			t.Fatal(err)
		}
		if raw, err = patch.Apply(raw); err != nil {
			t.Fatal(err)
		}
		if again, err := mutate(raw, Launch()); err != nil {
			t.Errorf("a second time: %v", err)
		} else if len(again) > 0 {
			t.Errorf("a second time: got changes %v, want none", again)
		}
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(raw, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// barriers returns the barrier variables of each container.
func barriers(containers []corev1.Container) []string {
	var all []string
	for _, container := range containers {
		var own []string
		for _, env := range container.Env {
			if env.Name != pub.ContainerBarrierEnv {
				continue
			}
			if env.ValueFrom == nil || env.ValueFrom.ConfigMapKeyRef == nil || env.ValueFrom.ConfigMapKeyRef.Optional != nil ||
				env.Value != "" {
				own = append(own, "broken")
				continue
			}
			own = append(own, env.ValueFrom.ConfigMapKeyRef.Name+"/"+env.ValueFrom.ConfigMapKeyRef.Key)
		}
		all = append(all, strings.Join(own, " "))
	}
	return all
}

func TestLaunch(t *testing.T) {
	cases := map[string]struct {
		pod  string
		want []string
	}{
		"Ordered (ND-120, ND-127)": {`{metadata: {name: p, annotations: {apps.kruise.io/container-launch-priority: Ordered}},
			spec: {initContainers: [{name: i}], containers: [{name: a}, {name: b, env: [{name: KRUISE_CONTAINER_PRIORITY, value: "7"}]}, {name: c}]}}`,
			[]string{"p-barrier/p_0", "p-barrier/p_-1", "p-barrier/p_-2"}},
		"Ordered wins over a value that is none (ND-127)": {
			`{metadata: {name: p, annotations: {apps.kruise.io/container-launch-priority: Ordered}},
			spec: {containers: [{name: a, env: [{name: KRUISE_CONTAINER_PRIORITY, value: x}]}, {name: b}]}}`,
			[]string{"p-barrier/p_0", "p-barrier/p_-1"}},
		"another value of the annotation": {`{metadata: {name: p, annotations: {apps.kruise.io/container-launch-priority: ordered}}, spec: {containers: [{name: a}, {name: b}]}}`, []string{"", ""}},
		"by environment (ND-121, ND-128, ND-130)": {`{metadata: {name: p}, spec: {containers: [{name: a, env: [{name: KRUISE_CONTAINER_PRIORITY, value: "-2147483647"}]}, {name: b, env: []},
			{name: c, env: [{name: KRUISE_CONTAINER_PRIORITY, value: "2147483647"}]}, {name: d, env: [{name: KRUISE_CONTAINER_PRIORITY, value: "+5"}]}]}}`,
			[]string{"p-barrier/p_-2147483647", "p-barrier/p_0", "p-barrier/p_2147483647", "p-barrier/p_5"}},
		"the last of one name counts": {`{metadata: {name: p}, spec: {containers: [{name: a},
			{name: b, env: [{name: KRUISE_CONTAINER_PRIORITY, value: x}, {name: KRUISE_CONTAINER_PRIORITY, value: "3"}]}]}}`,
			[]string{"p-barrier/p_0", "p-barrier/p_3"}},
		"one container (ND-126)": {`{metadata: {name: p, annotations: {apps.kruise.io/container-launch-priority: Ordered}},
			spec: {initContainers: [{name: i}], containers: [{name: a, env: [{name: KRUISE_CONTAINER_PRIORITY, value: x}]}]}}`,
			[]string{""}},
		"all zero (ND-129)": {
			`{metadata: {name: p}, spec: {containers: [{name: a, env: [{name: KRUISE_CONTAINER_PRIORITY, value: "0"}]}, {name: b}]}}`,
			[]string{"", ""}},
		"all equal (ND-129)": {`{metadata: {name: p}, spec: {containers: [{name: a, env: [{name: KRUISE_CONTAINER_PRIORITY, value: "5"}]}, {name: b, env: [{name: KRUISE_CONTAINER_PRIORITY, value: "5"}]}]}}`, []string{"", ""}},
		"barriers of somebody else are overwritten (ND-132)": {`{metadata: {name: p}, spec: {containers: [
			{name: a, env: [{name: KRUISE_CONTAINER_BARRIER, value: x}, {name: A, value: "1"}, {name: KRUISE_CONTAINER_BARRIER, value: z}, {name: KRUISE_CONTAINER_BARRIER, value: "y"}]},
			{name: b, env: [{name: KRUISE_CONTAINER_PRIORITY, value: "5"}, {name: KRUISE_CONTAINER_BARRIER, valueFrom: {configMapKeyRef: {name: other-barrier, key: p, optional: true}}}]}]}}`,
			[]string{"p-barrier/p_0", "p-barrier/p_5"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			pod := launched(t, test.pod)
			if diff := cmp.Diff(test.want, barriers(pod.Spec.Containers)); diff != "" {
				t.Errorf("barriers (-want +got):\n%s", diff)
			}
			if got := barriers(pod.Spec.InitContainers); strings.Join(got, "") != "" { // ND-123
				t.Errorf("init containers: %v", got)
			}
			if env := pod.Spec.Containers[0].Env; len(env) == 2 && env[1].Name == "A" && env[1].Value != "1" {
				t.Errorf("the variable of the pod: got %+v, want its value 1", env[1])
			}
		})
	}
}

// ND-131: the name is made here, because the ConfigMap's depends on it, and a long prefix is cut as the API
// server does.
func TestNameIsGenerated(t *testing.T) {
	const rest = `, annotations: {apps.kruise.io/container-launch-priority: Ordered, apps.kruise.io/container-launch-priority-completed: "true", own: x}}, spec: {containers: [{name: a}, {name: b}]}}`
	long := strings.Repeat("l", 80)
	for prefix, want := range map[string]string{"web-": "web-", long: long[:58]} {
		one, two := launched(t, `{metadata: {generateName: `+prefix+rest), launched(t, `{metadata: {generateName: `+prefix+rest)
		if !strings.HasPrefix(one.Name, want) {
			t.Errorf("generated name: got %s, want it to begin with %s", one.Name, want)
		}
		if len(one.Name) != len(want)+5 {
			t.Errorf("generated name: got %s of length %d, want %d", one.Name, len(one.Name), len(want)+5)
		}
		if one.Name == two.Name {
			t.Errorf("two pods have the name %s", one.Name)
		}
		if diff := cmp.Diff([]string{one.Name + "-barrier/p_0", one.Name + "-barrier/p_-1"}, barriers(one.Spec.Containers)); diff != "" {
			t.Errorf("barriers (-want +got):\n%s", diff)
		}
		// otherwise its keys would be written at once
		if value, ok := one.Annotations[pub.LaunchCompleted]; ok {
			t.Errorf("a new pod has completed its launch: %s", value)
		}
		if one.Annotations["own"] != "x" {
			t.Errorf("annotations: got %v, want what the pod has of its own kept", one.Annotations)
		}
	}
	if pod := launched(t, `{metadata: {generateName: web-}, spec: {containers: [{name: a}, {name: b}]}}`); pod.Name != "" {
		t.Errorf("a name for a pod without launch priority: %s", pod.Name)
	}
}

// ND-128, ND-133: an invalid priority is refused with the container, the value and the limit.
func TestLaunchIsRefused(t *testing.T) {
	container := func(env string) string {
		return `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a"},{"name":"b","env":[{"name":"X","value":"1"},{"name":"KRUISE_CONTAINER_PRIORITY",` + env + `}]}]}}`
	}
	named := func(name string) string {
		return `{"metadata":{"name":"` + name +
			`","annotations":{"apps.kruise.io/container-launch-priority":"Ordered"}},"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`
	}
	cases := map[string]struct {
		pod, field string
		want       []string
	}{
		"no integer": {container(`"value":"high"`), "spec.containers[1].env[1].value", []string{"container b ", `"high"`}},
		"a fraction": {container(`"value":"1.5"`), "spec.containers[1].env[1].value", []string{"container b ", `"1.5"`}},
		"nothing":    {container(`"value":""`), "spec.containers[1].env[1].value", []string{"container b ", `""`}},
		"a reference": {container(`"valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}`), "spec.containers[1].env[1].valueFrom",
			[]string{"container b ", "metadata.name"}},
		"a name of 246":      {named(strings.Repeat("p", 246)), "metadata.name", []string{"253"}},
		"a name of 245 goes": {named(strings.Repeat("p", 245)), "", nil},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := mutate([]byte(test.pod), Launch())
			if test.field == "" {
				if err != nil {
					t.Errorf("launch: %v", err)
				}
				return
			}
			var list utilerrors.Aggregate
			if !errors.As(err, &list) || len(list.Errors()) != 1 {
				t.Fatalf("launch: got %v, want one error", err)
			}
			var got *field.Error
			if !errors.As(list.Errors()[0], &got) || got.Field != test.field {
				t.Errorf("launch: got %v, want an error of %s", err, test.field)
			}
			for _, text := range test.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q is not in %v", text, err)
				}
			}
		})
	}
}

// ND-125: containers that an earlier step adds take part.
func TestInjectedContainersTakePart(t *testing.T) {
	inject := simple("inject", func(*corev1.Pod) ([]operations.Operation, error) {
		return []operations.Operation{{Operation: "add", Path: "/spec/containers/-",
			Value: map[string]any{"name": "side", "env": []any{map[string]any{"name": pub.LaunchPriorityEnv, "value": "1"}}}}}, nil
	})
	changes, err := mutate([]byte(`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a"}]}}`), inject, Launch())
	if err != nil {
		t.Errorf("launch after injection: %v", err)
	}
	if len(changes) != 3 {
		t.Errorf("changes: got %+v, want 3", changes)
	} else if changes[1].Path != "/spec/containers/0/env" || changes[2].Path != "/spec/containers/1/env/-" {
		t.Errorf("changes: got %+v, want the environment of both containers", changes)
	}
}
