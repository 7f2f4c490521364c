package explain

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

// An object that is being deleted has no rollout, and nobody counts passes over it.
func TestAnObjectThatIsBeingDeletedHasNoRollout(t *testing.T) {
	w, set := rolledOut(t, "", 2, "1")
	now := metav1.NewTime(noon)
	set.DeletionTimestamp, set.Finalizers = &now, []string{"example.com/keep"}
	f := withImage(t, w, set, "nginx:2")
	if len(f.Waves) > 0 {
		t.Errorf("waves: got %v, want none", f.Waves)
	}
	if f.Cut != "it is being deleted" {
		t.Errorf("cut: got %q, want that it is being deleted", f.Cut)
	}
}

// A budget that nobody has counted yet, because it comes with the manifests, holds pods like any other.
func TestAnUncountedBudgetHoldsPods(t *testing.T) {
	const all = 300
	for name, updated := range map[string]int{"maxUnavailable: 0": 0, "minAvailable: 50%": all} {
		w, set := rolledOut(t, "PodUnavailableBudgetUpdateGate=true", all, "100%")
		budget := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(`{apiVersion: policy.kruise.io/v1beta1, kind: PodUnavailableBudget,
metadata: {name: web, namespace: shop, generation: 1, uid: budget}, spec: {selector: {matchLabels: {app: web}}, `+name+`}}`), &budget.Object); err != nil {
			t.Fatal(err)
		}
		if err := w.takeBudgets([]*unstructured.Unstructured{budget}); err != nil {
			t.Fatal(err)
		}
		f := withImage(t, w, set, "nginx:2")
		got := f.Touched()["update in place"]
		if len(got) != updated {
			t.Errorf("%s: got %d pods updated in place, want %d", name, len(got), updated)
		}
		if updated > 0 && len(f.Waves) != 2 {
			t.Errorf("%s: got %d waves, want 2", name, len(f.Waves))
		}
		if waits := f.Last.Waiting != ""; waits == (updated > 0) {
			t.Errorf("%s: a reason to wait at the end: got %q, want one: %t", name, f.Last.Waiting, !waits)
		}
	}
}

// What objects hold does not steer the terminal; documents have all of it.
func TestObjectsDoNotSteerTheTerminal(t *testing.T) {
	const hostile = "\x1b[2J\u009b\u202e\r\nb"
	e := &Explanation{Kind: "CloneSet", Name: "web", Summary: []string{hostile}, Waiting: hostile, Problems: []string{hostile}, Warnings: []string{hostile},
		Notes: []string{hostile}, Pods: []Pod{{Name: "web-a", Revision: hostile, State: Waiting, Reason: "NotReady", Message: hostile}}, now: noon}
	p := &Preview{Kind: "CloneSet", Name: "web", Held: hostile, Warnings: map[string]string{hostile: hostile}, Notes: []string{hostile}, Left: e.Pods,
		Waves: []Wave{{Hooks: []string{hostile}, Steps: []Step{{Pod: "web-a", Action: "delete", Message: hostile, Restarts: []string{hostile}}}}}}
	for _, output := range []string{"yaml", "json", "", "wide"} {
		out := &bytes.Buffer{}
		streams := genericiooptions.IOStreams{Out: out}
		if err := (&planOptions{IOStreams: streams, output: output}).print([]*Preview{p}); err != nil {
			t.Fatal(err)
		}
		if err := (&whyOptions{IOStreams: streams, output: output}).print([]*Explanation{e}); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if strings.ContainsAny(text, "\x1b\r\u009b") {
			t.Errorf("%s: control characters are printed: %q", output, text)
		}
		if output != "yaml" && strings.Contains(text, "\u202e") {
			t.Errorf("%s: the direction of writing is changed: %q", output, text)
		}
		if strings.Contains(text, "\nb") {
			t.Errorf("%s: a name begins a line: %q", output, text)
		}
		if output != "yaml" && output != "json" {
			continue
		}
		out.Reset()
		if err := document(out, output, []*Preview{p}); err != nil {
			t.Fatal(err)
		}
		got := &Preview{}
		if err := yaml.Unmarshal(out.Bytes(), got); err != nil {
			t.Errorf("%s: reading the output: %v", output, err)
		}
		if got.Held != hostile {
			t.Errorf("%s: got held by %q, want %q", output, got.Held, hostile)
		}
	}
}

// A SidecarSet that shall be for other pods, or for pods of other namespaces, is played with these.
func TestASidecarSetIsPlayedWithThePodsItWillHave(t *testing.T) {
	pod := func(name, app string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `, labels: {app: ` + app + `}, annotations: {
kruise.io/sidecarset-injected-list: mesh, kruise.io/sidecarset-hash: '{"mesh":{"updateTimestamp":"2026-01-01T00:00:00Z","hash":"old","sidecarSetName":"mesh","sidecarList":["mesh"]}}',
kruise.io/sidecarset-hash-without-image: '{"mesh":{"updateTimestamp":"2026-01-01T00:00:00Z","hash":"old","sidecarSetName":"mesh","sidecarList":["mesh"]}}'}},
spec: {nodeName: one, containers: [{name: app, image: a}, {name: mesh, image: "mesh:1"}]}, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`
	}
	const set = `{apiVersion: apps.kruise.io/v1beta1, kind: SidecarSet, metadata: {name: mesh}, spec: {selector: {matchLabels: {app: web}},
updateStrategy: {type: RollingUpdate}, containers: [{name: mesh, image: "mesh:1"}]}}`
	s := plugintest.NewIn(t, "shop", "v1beta1", set, pod("web-a", "web"), pod("db-0", "db"))
	for name, spec := range map[string]string{
		"another selector":   `{selector: {matchExpressions: [{key: app, operator: Exists}]}, `,
		"namespace selector": `{selector: {matchLabels: {app: web}}, namespaceSelector: {matchExpressions: [{key: none, operator: DoesNotExist}]}, `,
	} {
		r, _, err := connect(s.Factory(t), installation.Namespace)
		if err != nil {
			t.Fatal(err)
		}
		wanted := &appsv1beta1.SidecarSet{}
		if err := yaml.Unmarshal([]byte(`{metadata: {name: mesh}, spec: `+spec+`updateStrategy: {type: RollingUpdate}, containers: [{name: mesh, image: "mesh:2"}]}}`),
			wanted); err != nil {
			t.Fatal(err)
		}
		p, err := r.Preview(t.Context(), "SidecarSet", wanted, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]int{"another selector": 2, "namespace selector": 1}[name]; len(p.Left) != want {
			t.Errorf("%s: %v, want %d", name, p.Left, want)
		}
	}
}

// TestPlansOfSeveral: an object that fails keeps no other from being planned for, and pods of kinds that no
// plans are made for are not passed over as if they stayed as they are.
func TestPlansOfSeveral(t *testing.T) {
	const united = `{apiVersion: apps.kruise.io/v1beta1, kind: UnitedDeployment, metadata: {name: %s, namespace: shop}, spec: {replicas: 2, template: {cloneSetTemplate: {spec:
{template: {spec: {containers: [{name: app, image: "nginx:%d"}]}}}}}}}`
	s := plugintest.NewIn(t, "shop", "v1beta1", fmt.Sprintf(united, "same", 1), fmt.Sprintf(united, "other", 1))
	r, _, err := connect(s.Factory(t), installation.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	set := func(name, replicas string) string {
		return `{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: ` + name + `, namespace: shop}, spec: {replicas: ` + replicas + `,
selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: a}]}}}}`
	}
	var documents []*unstructured.Unstructured
	for _, text := range []string{`{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: shop}}`, set("bad", "many"), fmt.Sprintf(united, "same", 1),
		fmt.Sprintf(united, "other", 2), set("good", "1")} {
		documents = append(documents, plugintest.Object(t, text))
	}
	var out, errOut bytes.Buffer
	o := &planOptions{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}, output: "json"}
	previews, err := o.previews(t.Context(), r, documents)
	if len(previews) != 1 || previews[0].Name != "good" {
		t.Errorf("plans: got %+v, want one of CloneSet good", previews)
	} else if code := previews[0].code(); code != codeTouched {
		t.Errorf("code of the plan: got %d, want %d", code, codeTouched)
	}
	if err == nil {
		t.Error("plans of bad documents: want an error")
	} else {
		for _, name := range []string{"CloneSet bad", "UnitedDeployment other"} {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("error: got %q, want %s in it", err, name)
			}
		}
		if strings.Contains(err.Error(), "same") {
			t.Errorf("error: got %q, want no UnitedDeployment same in it", err)
		}
	}
	if out.Len() > 0 {
		t.Errorf("output: got %q, want none", &out)
	}
	if want := "Note: no plans are made for ConfigMap web: it has no pods of its own\n" +
		"Note: UnitedDeployment same is as the manifest wants it\n"; errOut.String() != want {
		t.Errorf("notes: got %q, want %q", &errOut, want)
	}
	if err := o.print(nil); err != nil {
		t.Errorf("printing no plans: %v", err)
	}
	if !strings.Contains(out.String(), `"items": []`) {
		t.Errorf("output of no plans: got %q, want an empty list", &out)
	}
}

// TestOutOfTime: a plan that takes too long is not told as one that touches nothing.
func TestOutOfTime(t *testing.T) {
	w, set := rolledOut(t, "", 2, "1")
	wanted := set.DeepCopy()
	wanted.Spec.Template.Spec.Containers[0].Image = "nginx:2"
	w.become(wanted)
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	f, err := w.Play(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := &Preview{}
	p.fill(w, f)
	if p.code() != codeHeld {
		t.Errorf("code: got %d, want %d", p.code(), codeHeld)
	}
	if want := "the time is over in which plans are made (--timeout)"; p.Held != want {
		t.Errorf("held: got %q, want %q", p.Held, want)
	}
}

// TestWhatIsKnown: what could be found out about a pod is told beside the error of what could not.
func TestWhatIsKnown(t *testing.T) {
	s := plugintest.NewIn(t, "shop", "v1beta1", `{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web, uid: set}, spec: {replicas: 1,
selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: a}]}}}}`,
		`{apiVersion: v1, kind: Pod, metadata: {name: web-a, labels: {app: web}, annotations: {kruise.io/sidecarset-injected-list: mesh},
ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: web, uid: set, controller: true}]}, spec: {containers: [{name: app, image: a}]}}`)
	s.Without("sidecarsets.apps.kruise.io")
	out, err := s.Run(t, NewWhy, "why", "pod/web-a").Output()
	if !strings.Contains(out, "CloneSet shop/web") {
		t.Errorf("output: got %q, want CloneSet shop/web in it", out)
	}
	if err == nil || !strings.Contains(err.Error(), "SidecarSet") {
		t.Errorf("error: got %v, want one about the SidecarSet", err)
	}
}

// A pod whose update in place is stuck is not taken to become ready by itself.
func TestAStuckPodDoesNotBecomeReadyByItself(t *testing.T) {
	w, set := rolledOut(t, "", 2, "1")
	withImage(t, w, set, "nginx:2")
	present, _ := w.Stage.Get(w.Key).DeepCopyObject().(*appsv1beta1.CloneSet)
	for image, updated := range map[string]int{"nginx:2": 0, "nginx:3": 2} {
		fresh := worldOf(t, "", present.DeepCopy())
		for _, kind := range []string{"Pod", "ControllerRevision"} {
			for i, object := range w.Stage.List(kind, false) {
				object, _ := object.DeepCopyObject().(client.Object)
				if pod, ok := object.(*corev1.Pod); ok && i == 0 {
					pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
					pod.Status.ContainerStatuses[0].Ready = false
					for i := range pod.Status.Conditions {
						pod.Status.Conditions[i].Status = corev1.ConditionFalse
					}
				}
				fresh.Stage.Add(kind, object)
			}
		}
		f := withImage(t, fresh, present, image)
		if n := len(f.Touched()["update in place"]); n != updated {
			t.Errorf("%s: got %d pods updated in place, want %d: %+v", image, n, updated, f.Waves)
		}
		if waits := f.Last.Waiting != ""; waits == (updated > 0) {
			t.Errorf("%s: a reason to wait at the end: got %q, want one: %t", image, f.Last.Waiting, !waits)
		}
	}
}
