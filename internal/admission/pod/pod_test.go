package pod

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
)

// CRR-087: the gate is given once, to pods of workloads of ours, or with feature gate KruisePodReadinessGate
// to all.
func TestGate(t *testing.T) {
	owned := func(version, controller string) string {
		return `{"metadata":{"ownerReferences":[{"apiVersion":"` + version + `","kind":"X","controller":` + controller +
			`}]},"spec":{"future":12345678901234567890}}`
	}
	const fresh, more = `[{"op":"add","path":"/spec/readinessGates","value":[{"conditionType":"KruisePodReady"}]}]`,
		`[{"op":"add","path":"/spec/readinessGates/-","value":{"conditionType":"KruisePodReady"}}]`
	cases := map[string]struct {
		pod  string
		all  bool
		want string
	}{
		"of ours":              {owned("apps.kruise.io/v1beta1", "true"), false, fresh},
		"of ours, old version": {owned("apps.kruise.io/v1alpha1", "true"), false, fresh},
		"not controlled":       {owned("apps.kruise.io/v1beta1", "false"), false, `null`},
		"of others":            {owned("apps/v1", "true"), false, `null`},
		"of a similar group":   {owned("my.apps.kruise.io/v1", "true"), false, `null`},
		"nobody's, all":        {`{"spec":{}}`, true, fresh},
		"with other gates":     {`{"spec":{"readinessGates":[{"conditionType":"Own"}]}}`, true, more},
		"with the gate":        {`{"spec":{"readinessGates":[{"conditionType":"KruisePodReady"}]}}`, true, `null`},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			patch, err := mutate([]byte(test.pod), Gate(test.all), Gate(test.all)) // the second step sees the change of the first
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(patch)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(text)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
	no := errors.New("no")
	if _, err := mutate([]byte(`{}`), simple("no", func(*corev1.Pod) ([]operations.Operation, error) { return nil, no })); !errors.Is(err,
		no) {
		t.Errorf("a refusal: %v", err)
	}
	if _, err := mutate([]byte(`[]`), Gate(true)); err == nil {
		t.Error("no pod is taken for one")
	}
}

// mutate applies steps to a pod.
func mutate(raw []byte, steps ...Step) ([]operations.Operation, error) {
	changes, _, err := NewChain(steps...).Mutate(context.Background(), Request{Raw: raw})
	return changes, err
}
