package explain

import (
	"fmt"
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

// worldOf is a world with that object, as a manager with those gates sees it.
func worldOf(t testing.TB, gates string, object *appsv1beta1.CloneSet) *World {
	t.Helper()
	w := &World{Stage: rehearsal.New(noon), Kind: kindByName("CloneSet"), Object: object, more: map[types.UID]int32{}}
	w.Key = w.Stage.KeyOf("CloneSet", object)
	parsed, err := features.Parse(gates)
	if err != nil {
		t.Fatal(err)
	}
	w.environment = &framework.Environment{Gates: parsed, Minor: 34, Namespace: "kruise-system",
		Resizes: func(featuregate.Feature) (bool, error) { return true, nil }}
	w.Stage.Add("CloneSet", object)
	return w
}

func cloneSetOf(t testing.TB, manifest string) *appsv1beta1.CloneSet {
	t.Helper()
	set := &appsv1beta1.CloneSet{}
	if err := yaml.UnmarshalStrict([]byte(manifest), set); err != nil {
		t.Fatal(err)
	}
	set.UID, set.Generation, set.CreationTimestamp = "set", 1, metav1.NewTime(noon.Add(-time.Hour))
	return set
}

// setOf is a CloneSet of so many pods.
const setOf = `
metadata: {name: web, namespace: shop}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: %s}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: "nginx:1"}]}
`

// rolledOut is a world with a CloneSet of so many pods, all of which run.
func rolledOut(t testing.TB, gates string, pods int, maxUnavailable string) (*World, *appsv1beta1.CloneSet) {
	t.Helper()
	set := cloneSetOf(t, fmt.Sprintf(setOf, pods, maxUnavailable))
	w := worldOf(t, gates, set)
	f, err := w.Play(t.Context())
	if err != nil {
		t.Fatalf("playing the first rollout: %v", err)
	}
	if n := len(f.Touched()["create"]); n != pods {
		t.Fatalf("created pods of the first rollout: got %d, want %d", n, pods)
	}
	if f.Cut != "" {
		t.Fatalf("the first rollout was cut: %s", f.Cut)
	}
	return w, set
}

// withImage plays what another image does.
func withImage(t testing.TB, w *World, set *appsv1beta1.CloneSet, image string) *rehearsal.Forecast {
	t.Helper()
	wanted := set.DeepCopy()
	wanted.Spec.Template.Spec.Containers[0].Image = image
	w.become(wanted)
	f, err := w.Play(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Kubelets are asked about pods that changed, not about all of them in each wave. Else the time that a
// forecast takes grows with the square of the pods.
func TestKubeletsAreAskedAboutChangedPodsAlone(t *testing.T) {
	const pods = 100
	w, set := rolledOut(t, "", pods, "1")
	w.Stage.Kubelet.Steps = 0
	f := withImage(t, w, set, "nginx:2")
	if len(f.Waves) != pods {
		t.Errorf("waves: got %d, want %d", len(f.Waves), pods)
	}
	if n := len(f.Touched()["update in place"]); n != pods {
		t.Errorf("pods updated in place: got %d, want %d", n, pods)
	}
	if f.Cut != "" {
		t.Errorf("the rollout was cut: %s", f.Cut)
	}
	if most := 20 * pods; w.Stage.Kubelet.Steps > most {
		t.Errorf("kubelets were asked %d times about %d pods", w.Stage.Kubelet.Steps, pods)
	}
}
