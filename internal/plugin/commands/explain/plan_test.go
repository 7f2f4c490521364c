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
	"github.com/afloat-project/afloat/internal/plugin/plugintest/fakeapi"
)

// An object that is being deleted has no rollout, and nobody counts passes over it.
func TestAnObjectThatIsBeingDeletedHasNoRollout(t *testing.T) {
	w, set := rolledOut(t, "", 2, "1")
	now := metav1.NewTime(noon)
	set.DeletionTimestamp, set.Finalizers = &now, []string{"example.com/keep"}
	f := withImage(t, w, set, "nginx:2")
	if len(f.Waves) > 0 || f.Cut != "it is being deleted" {
		t.Errorf("%v, %q", f.Waves, f.Cut)
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
		if len(got) != updated || updated > 0 && len(f.Waves) != 2 || (f.Last.Waiting == "") != (updated > 0) {
			t.Errorf("%s: %d pods in %d waves; %s", name, len(got), len(f.Waves), f.Last.Waiting)
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
		if text := out.String(); strings.ContainsAny(text, "\x1b\r\u009b") || output != "yaml" && strings.Contains(text, "\u202e") || strings.Contains(text, "\nb") {
			t.Errorf("%s: %q", output, text)
		}
		if output != "yaml" && output != "json" {
			continue
		}
		out.Reset()
		if err := document(out, output, []*Preview{p}); err != nil {
			t.Fatal(err)
		}
		got := &Preview{}
		if err := yaml.Unmarshal(out.Bytes(), got); err != nil || got.Held != hostile {
			t.Errorf("%s: %v, %q", output, err, got.Held)
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
	s := fakeapi.New(t, set, pod("web-a", "web"), pod("db-0", "db"))
	for name, spec := range map[string]string{
		"another selector":   `{selector: {matchExpressions: [{key: app, operator: Exists}]}, `,
		"namespace selector": `{selector: {matchLabels: {app: web}}, namespaceSelector: {matchExpressions: [{key: none, operator: DoesNotExist}]}, `,
	} {
		r, _, err := connect(s.Factory(), installation.Namespace)
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
	s := fakeapi.New(t, fmt.Sprintf(united, "same", 1), fmt.Sprintf(united, "other", 1))
	r, _, err := connect(s.Factory(), installation.Namespace)
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
		documents = append(documents, fakeapi.Object(t, text))
	}
	var out, errOut bytes.Buffer
	o := &planOptions{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}, output: "json"}
	previews, err := o.previews(t.Context(), r, documents)
	if len(previews) != 1 || previews[0].Name != "good" || previews[0].code() != codeTouched {
		t.Error(previews, err)
	}
	if err == nil || !strings.Contains(err.Error(), "CloneSet bad") || !strings.Contains(err.Error(), "UnitedDeployment other") || strings.Contains(err.Error(), "same") {
		t.Error(err)
	}
	if out.Len() > 0 || errOut.String() != "Note: no plans are made for ConfigMap web: it has no pods of its own\n"+
		"Note: UnitedDeployment same is as the manifest wants it\n" {
		t.Errorf("%q, %q", &out, &errOut)
	}
	if err := o.print(nil); err != nil || !strings.Contains(out.String(), `"items": []`) {
		t.Errorf("%v, %q", err, &out)
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
	if p.fill(w, f); p.code() != codeHeld || p.Held != "the time is over in which plans are made (--timeout)" {
		t.Errorf("%+v", p)
	}
}

// TestWhatIsKnown: what could be found out about a pod is told beside the error of what could not.
func TestWhatIsKnown(t *testing.T) {
	s := fakeapi.New(t, `{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web, uid: set}, spec: {replicas: 1,
selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: a}]}}}}`,
		`{apiVersion: v1, kind: Pod, metadata: {name: web-a, labels: {app: web}, annotations: {kruise.io/sidecarset-injected-list: mesh},
ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: web, uid: set, controller: true}]}, spec: {containers: [{name: app, image: a}]}}`).
		Without("sidecarsets.apps.kruise.io")
	out, _, err := s.Run(NewWhy, "", "why", "pod/web-a")
	if !strings.Contains(out, "CloneSet shop/web") || err == nil || !strings.Contains(err.Error(), "SidecarSet") {
		t.Error(out, err)
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
		if len(f.Touched()["update in place"]) != updated || (f.Last.Waiting == "") != (updated > 0) {
			t.Errorf("%s: %+v, %s", image, f.Waves, f.Last.Waiting)
		}
	}
}
