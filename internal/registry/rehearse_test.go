package registry

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/rehearsal"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func environment(t *testing.T) *framework.Environment {
	t.Helper()
	gates, err := features.Parse("")
	if err != nil {
		t.Fatal(err)
	}
	return &framework.Environment{Gates: gates, Minor: 36, Namespace: "kruise-system",
		Resizes: func(featuregate.Feature) (bool, error) { return false, nil }}
}

func kindNamed(t *testing.T, name string) *framework.Kind {
	t.Helper()
	for i := range Kinds {
		if Kinds[i].Name == name {
			return &Kinds[i]
		}
	}
	t.Fatal("no kind", name)
	return nil
}

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// told prints a forecast, a line for each wave.
func told(f *rehearsal.Forecast) string {
	var text strings.Builder
	for i, wave := range f.Waves {
		fmt.Fprintf(&text, "%d after %s:", i+1, wave.After)
		for _, step := range wave.Steps {
			if step.Created {
				fmt.Fprint(&text, " create")
			} else {
				fmt.Fprintf(&text, " %s %s %v", step.Action, step.Pod, step.Restarts)
			}
		}
		text.WriteString("\n")
	}
	return text.String()
}

const web = `
apiVersion: apps.kruise.io/v1beta1
kind: CloneSet
metadata: {namespace: shop, name: web}
spec:
  replicas: 5
  minReadySeconds: 30
  selector: {matchLabels: {app: web}}
  updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 2, partition: 1}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: "nginx:1"}]}
`

// A forecast has waves by the budget, with the time between them, and says who is left and why. What others
// say of a pod that is not ready is not foreseen: it stays so until it is touched.
func TestAForecastHasWavesByTheBudget(t *testing.T) {
	e, s := environment(t), rehearsal.New(start)
	set := parse[appsv1beta1.CloneSet](t, web)
	s.Add("CloneSet", set)
	player, err := Rehearse(t.Context(), e, kindNamed(t, "CloneSet"), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	key := s.KeyOf("CloneSet", set)
	play := func(want string, took time.Duration) *rehearsal.Forecast {
		t.Helper()
		f, err := s.Play(t.Context(), player, key)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, object := range s.List("Pod", false) {
			names = append(names, object.GetName(), "pod")
		}
		if diff := cmp.Diff(want, strings.NewReplacer(names...).Replace(told(f))); diff != "" {
			t.Error(diff)
		}
		if got := f.Took.Truncate(time.Second); got != took || f.Cut != "" {
			t.Errorf("it took %s, %q", got, f.Cut)
		}
		return f
	}
	play("1 after 0s: create create create create create\n", 30*time.Second)
	image := func(version string) {
		s.Change(key, func(o client.Object) {
			set := o.(*appsv1beta1.CloneSet)
			set.Generation++
			set.Spec = parse[appsv1beta1.CloneSet](t, strings.ReplaceAll(web, "nginx:1", version)).Spec
		})
	}
	image("nginx:2")
	f := play("1 after 0s: update in place pod [app] update in place pod [app]\n"+
		"2 after 30.001s: update in place pod [app] update in place pod [app]\n", time.Minute)
	if v := f.Last.Verdicts[4]; v.Reason != "Partition" || f.Last.Waiting != "" {
		t.Errorf("%+v %s", v, f.Last.Waiting)
	}
	image("nginx:1")
	s.Kubelet.Digests["nginx:1"] = "" // it cannot be pulled any more
	f = play("1 after 0s: update in place pod [app] update in place pod [app]\n", 0)
	if !strings.HasPrefix(f.Last.Waiting, "UpdatedPodsUnavailable") {
		t.Error(f.Last.Waiting)
	}
}

// Every workload and what changes pods in place can be asked why, and what would be.
func TestEveryWorkloadCanBeRehearsed(t *testing.T) {
	for _, name := range []string{"CloneSet", "StatefulSet", "DaemonSet", "SidecarSet"} {
		if kindNamed(t, name).Rehearse == nil {
			t.Error(name)
		}
	}
	if _, err := Rehearse(t.Context(), environment(t), kindNamed(t, "NodeImage"), rehearsal.New(start), nil); err == nil {
		t.Error("a NodeImage has no plan for pods")
	}
}
