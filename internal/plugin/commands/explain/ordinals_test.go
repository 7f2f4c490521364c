package explain

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/rehearsal"
)

// OPS-187 (part): a StatefulSet whose ordinals.start another manager has ignored has pods from 0 on. With the
// gate as it was there nothing happens to them; with the gate on they would go, and whoever asks is told
// before.
func TestAStartOfOrdinalsThatWasIgnoredIsForeseen(t *testing.T) {
	set := &appsv1beta1.StatefulSet{}
	if err := yaml.UnmarshalStrict([]byte(`
metadata: {name: db, namespace: shop}
spec:
  replicas: 3
  ordinals: {start: 5}
  serviceName: db
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  updateStrategy: {type: RollingUpdate}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: app, image: "nginx:1"}]}
`), set); err != nil {
		t.Fatal(err)
	}
	set.UID, set.Generation, set.CreationTimestamp = "set", 1, metav1.NewTime(noon.Add(-time.Hour))
	w := &World{Stage: rehearsal.New(noon), Kind: kindByName("StatefulSet"), Object: set, more: map[types.UID]int32{}}
	w.Key = w.Stage.KeyOf("StatefulSet", set)
	w.Stage.Add("StatefulSet", set)
	with := func(gates string) {
		parsed, err := features.Parse(gates)
		if err != nil {
			t.Fatal(err)
		}
		w.environment = &framework.Environment{Gates: parsed, Minor: 34, Namespace: "kruise-system",
			Resizes: func(featuregate.Feature) (bool, error) { return true, nil }}
	}
	touched := func() map[string]string {
		e, err := w.Ask(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		actions := map[string]string{}
		for _, pod := range e.Pods {
			if pod.State == Next {
				actions[pod.Name] = pod.Action
			}
		}
		if e.Create > 0 {
			actions["new"] = "create"
		}
		return actions
	}
	with("StatefulSetStartOrdinal=false")
	if f, err := w.Play(t.Context()); err != nil {
		t.Fatalf("playing the first rollout: %v", err)
	} else if n := len(f.Touched()["create"]); n != 3 {
		t.Fatalf("created pods of the first rollout: got %d, want 3", n)
	}
	if actions := touched(); len(actions) > 0 {
		t.Errorf("what is done without the gate: got %v, want nothing", actions)
	}
	with("")
	if actions := touched(); len(actions) == 0 {
		t.Error("pods that would go are not foreseen")
	} else {
		t.Log(actions)
	}
}
