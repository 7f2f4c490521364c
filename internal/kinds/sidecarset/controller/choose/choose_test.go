package choose

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/inject"
)

func labelled(pairs ...string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: matching(pairs...).MatchLabels}}
}

func chosen(t *testing.T, w *world, pod *corev1.Pod, namespace string) string {
	t.Helper()
	templates, err := w.chooser().Choose(t.Context(), pod, namespace)
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, template := range templates {
		names = append(names, template.Name+template.Revision)
	}
	return strings.Join(names, " ")
}

// SS-080, SS-082, SS-D16: the labels of the Namespace decide, it is asked for only if a SidecarSet asks, and
// a pod whose namespace cannot be read is refused with the SidecarSet and the field.
func TestNamespaces(t *testing.T) {
	w := &world{namespaces: map[string]map[string]string{"shop": {"team": "payments"}, "bare": nil}, err: errors.New("no answer")}
	w.index.Set(selecting("everywhere", matching("app", "x"), nil))
	w.index.Set(selecting("payments", matching("app", "x"), matching("team", "payments")))
	w.index.Set(selecting("others", matching("app", "x"), requiring("team", metav1.LabelSelectorOpNotIn, "payments")))
	w.index.Set(selecting("press", matching("app", "y"), matching("team", "press")))
	w.index.Set(selecting("plain", matching("app", "z"), nil))
	got := chosen(t, w, labelled("app", "z"), "gone")
	if got != "plain" {
		t.Errorf(`chosen for app z in gone: got %q, want %q`, got, "plain")
	}
	if w.asked != 0 {
		t.Errorf("asked: got %d, want 0", w.asked)
	}
	w.err = nil
	if got := chosen(t, w, labelled("app", "x"), "shop"); got != "everywhere payments" {
		t.Errorf(`chosen for app x in shop: got %q, want %q; %s, asked %d times`, got, "everywhere payments", got,
			w.asked)
	} else if w.asked != 1 {
		t.Errorf("asked: got %d, want 1; %s, asked %d times", w.asked, got, w.asked)
	}
	if got := chosen(t, w, labelled("app", "x"), "bare"); got != "everywhere others" {
		t.Errorf(`chosen for app x in bare: got %q, want %q`, got, "everywhere others")
	}
	w.err = errors.New("no answer")
	if got := chosen(t, w, labelled("app", "x"), "gone"); got != "SidecarSet others: spec.namespaceSelector: reading namespace gone: namespace gone: no answer" {
		t.Errorf(`chosen for app x in gone: got %q, want %q`, got,
			"SidecarSet others: spec.namespaceSelector: reading namespace gone: namespace gone: no answer")
	}
}

// SS-083: a pod that is created is active, whatever it says of its status: the API server drops that, and the
// pod would run without.
func TestStatusOfNewPods(t *testing.T) {
	w := &world{}
	w.index.Set(selecting("a", matching("app", "x"), nil))
	for _, phase := range []corev1.PodPhase{"", corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed} {
		pod := labelled("app", "x")
		pod.Status.Phase = phase
		if got := chosen(t, w, pod, "d"); got != "a" {
			t.Errorf("phase %q: %q", phase, got)
		}
	}
}

// SS-091, SS-081: what is known follows every event.
func TestTheIndexFollowsEveryEvent(t *testing.T) {
	w := &world{namespaces: map[string]map[string]string{"d": {}}}
	steps := []struct {
		name string
		do   func()
		x, y string
	}{
		{"created", func() { w.index.Set(selecting("a", matching("app", "x"), nil)) }, "a", ""},
		{"another", func() { w.index.Set(selecting("b", requiring("app", metav1.LabelSelectorOpIn, "x", "y"), nil)) }, "a b", "b"},
		{"a selector without a value", func() { w.index.Set(selecting("c", requiring("app", metav1.LabelSelectorOpNotIn, "x"), nil)) },
			"a b", "b c"},
		{"other labels", func() { w.index.Set(selecting("a", matching("app", "y"), nil)) }, "b", "a b c"},
		{"paused", func() {
			set := selecting("b", matching("app", "x"), nil)
			set.Spec.InjectionStrategy.Paused = true
			w.index.Set(set)
		}, "", "a c"},
		{"other namespaces", func() {
			w.index.Set(selecting("a", matching("app", "y"), matching("kubernetes.io/metadata.name", "e")))
		}, "", "c"},
		{"deleted", func() { w.index.Delete("c") }, "", ""},
		{"deleted again", func() { w.index.Delete("c") }, "", ""},
	}
	for _, step := range steps {
		step.do()
		x, y := chosen(t, w, labelled("app", "x"), "d"), chosen(t, w, labelled("app", "y", "more", "z"), "d")
		if x != step.x {
			t.Errorf("%s: x: got %q, want %q", step.name, x, step.x)
		}
		if y != step.y {
			t.Errorf("%s: y: got %q, want %q", step.name, y, step.y)
		}
	}
}

// SS-174: 0 % is never and 100 % always the named revision, an integer is 0 %, whatever the dice say.
func TestShareDecidesForTheNamedRevision(t *testing.T) {
	old := admitted(t, selecting("a", matching("app", "x"), nil))
	cases := map[string]struct {
		partition *intstr.IntOrString
		random    float64
		named     bool
	}{
		"absent": {nil, 0, false}, "an integer": {new(intstr.FromInt32(100)), 0, false}, "0 %": {new(intstr.FromString("0%")), 0, false},
		"100 %": {new(intstr.FromString("100%")), 0.999999, true}, "50 %, below": {new(intstr.FromString("50%")), 0.499, true},
		"50 %, above": {new(intstr.FromString("50%")), 0.5, false}, "1 %": {new(intstr.FromString("1%")), 0.0099,
			true}, "nonsense": {new(intstr.FromString("x")), 0, false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := &world{random: test.random}
			w.revisions = append(w.revisions, revisionOf(t, "a-1", old, 1))
			set := old.DeepCopy()
			set.Spec.UpdateStrategy.Partition = test.partition
			set.Spec.InjectionStrategy.Revision = &appsv1beta1.SidecarSetInjectRevision{RevisionName: new("a-1"),
				Policy: appsv1beta1.PartialSidecarSetInjectRevisionPolicy}
			w.index.Set(set)
			if got := chosen(t, w, labelled("app", "x"), "d") == "aa-1"; got != test.named {
				t.Errorf("the named revision: %t", got)
			}
		})
	}
}

// SS-251, SS-170: a pod that its workload makes anew is a pod like any other: without a revision that is
// named for injection it gets the latest sidecar, whatever the partition of the update, or a pause of it,
// keeps the running pods at.
func TestPodsMadeAnewGetTheLatest(t *testing.T) {
	old := admitted(t, selecting("a", matching("app", "x"), nil))
	for _, partition := range []*intstr.IntOrString{nil, new(intstr.FromInt32(7)), new(intstr.FromString("100%"))} {
		for _, paused := range []bool{false, true} {
			for name, revision := range map[string]*appsv1beta1.SidecarSetInjectRevision{"none": nil, "an empty one": {},
				"one by name": {RevisionName: new("a-1")}} {
				for policy, named := range map[appsv1beta1.SidecarSetInjectRevisionPolicy]bool{appsv1beta1.AlwaysSidecarSetInjectRevisionPolicy: true,
					appsv1beta1.PartialSidecarSetInjectRevisionPolicy: paused || partition != nil && partition.String() == "100%"} {
					w := &world{random: 0.5}
					w.revisions = append(w.revisions, revisionOf(t, "a-1", old, 1))
					set := old.DeepCopy()
					set.Spec.UpdateStrategy.Partition, set.Spec.UpdateStrategy.Paused = partition, paused
					if revision != nil {
						set.Spec.InjectionStrategy.Revision = revision.DeepCopy()
						set.Spec.InjectionStrategy.Revision.Policy = policy
					}
					w.index.Set(set)
					want := "a"
					if name == "one by name" && named {
						want = "aa-1"
					}
					if got := chosen(t, w, labelled("app", "x", "pod-template-hash", "anew"), "d"); got != want {
						t.Errorf("partition %v, paused %t, revision %s, %s: %q, want %q", partition, paused, name, policy, got, want)
					}
				}
			}
		}
	}
}

// SS-171, SS-188: a revision of a former SidecarSet of the name, which is about to be collected, is none of
// this one's.
func TestRevisionsOfAFormerSidecarSet(t *testing.T) {
	old := admitted(t, selecting("a", matching("app", "x"), nil))
	old.Spec.CustomVersion = "v"
	for name, test := range map[string]struct {
		owner types.UID
		named appsv1beta1.SidecarSetInjectRevision
		want  string
	}{
		"its own, by version":    {"new", appsv1beta1.SidecarSetInjectRevision{CustomVersion: new("v")}, "aa-1"},
		"its own, by name":       {"new", appsv1beta1.SidecarSetInjectRevision{RevisionName: new("a-1")}, "aa-1"},
		"of nobody, by version":  {"", appsv1beta1.SidecarSetInjectRevision{CustomVersion: new("v")}, "aa-1"},
		"of nobody, by name":     {"", appsv1beta1.SidecarSetInjectRevision{RevisionName: new("a-1")}, "aa-1"},
		"a former's, by version": {"former", appsv1beta1.SidecarSetInjectRevision{CustomVersion: new("v")}, "a"}, // SS-D22
		"a former's, by name": {"former", appsv1beta1.SidecarSetInjectRevision{RevisionName: new("a-1")},
			"SidecarSet a: spec.injectionStrategy.revision.revisionName: ControllerRevision a-1 is of a former SidecarSet of this name"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{revisions: []*appsv1.ControllerRevision{revisionOf(t, "a-1", old, 1)}}
			if test.owner != "" {
				w.revisions[0].OwnerReferences = []metav1.OwnerReference{{UID: test.owner, Controller: new(true)}}
			}
			set := old.DeepCopy()
			set.UID, set.Spec.InjectionStrategy.Revision = "new", &test.named
			w.index.Set(set)
			if got := chosen(t, w, labelled("app", "x"), "d"); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// SS-107, SS-174: the second time the pod's record decides, also where all that was injected are init
// containers.
func TestShareOfInitContainers(t *testing.T) {
	set := selecting("a", matching("app", "x"), nil)
	set.Spec.InitContainers = make([]appsv1beta1.SidecarContainer, 1)
	set.Spec.InitContainers[0].Name, set.Spec.InitContainers[0].Image, set.Spec.InitContainers[0].RestartPolicy = "s", "s:1", new(corev1.ContainerRestartPolicyAlways)
	old := admitted(t, set.DeepCopy())
	now := set.DeepCopy()
	now.Spec.InitContainers[0].Image = "s:2"
	now.Spec.UpdateStrategy.Partition = new(intstr.FromString("50%"))
	now.Spec.InjectionStrategy.Revision = &appsv1beta1.SidecarSetInjectRevision{RevisionName: new("a-1"),
		Policy: appsv1beta1.PartialSidecarSetInjectRevisionPolicy}
	w := &world{random: 0.1, revisions: []*appsv1.ControllerRevision{revisionOf(t, "a-1", old, 1)}}
	w.index.Set(admitted(t, now))
	once, _, err := w.inject(t, []byte(`{"metadata":{"name":"p","labels":{"app":"x"}},"spec":{"containers":[{"name":"app","image":"app"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	w.random = 0.9
	again, _, err := w.inject(t, once)
	if err != nil {
		t.Errorf("unexpected error: %v\n%s\n%s", err, once, again)
	} else if !strings.Contains(string(once), `"s:1"`) {
		t.Errorf("once: got %q, want it to contain %q\n%v\n%s", string(once), `"s:1"`, err, again)
	} else if string(once) != string(again) {
		t.Errorf("once: got %q, want %q\n%v\n%s", string(once), string(again), err, again)
	}
}

// SS-172: what cannot be read is not taken for what is not there.
func TestRevisionsCannotBeRead(t *testing.T) {
	for field, named := range map[string]*appsv1beta1.SidecarSetInjectRevision{"revisionName": {RevisionName: new("a-1")},
		"customVersion": {CustomVersion: new("v")}} {
		w := &world{err: errors.New("no answer")}
		set := selecting("a", matching("app", "x"), nil)
		set.Spec.CustomVersion, set.Spec.InjectionStrategy.Revision = "v", named
		w.index.Set(set)
		got := chosen(t, w, labelled("app", "x"), "d")
		if !strings.HasPrefix(got, "SidecarSet a: spec.injectionStrategy.revision."+field) {
			t.Errorf(`chosen for app x in d: got %q, want it to begin with %q`, got,
				"SidecarSet a: spec.injectionStrategy.revision."+field)
		}
		if !strings.HasSuffix(got, "no answer") {
			t.Errorf(`chosen for app x in d: got %q, want it to end with %q`, got, "no answer")
		}
	}
}

// SS-181: the name of the revision is known once the status is of this spec, without reading the containers
// anew in between.
func TestRevisionOfTheLatest(t *testing.T) {
	w := &world{}
	set := admitted(t, selecting("a", matching("app", "x"), nil))
	set.Generation, set.Status.ObservedGeneration, set.Status.LatestRevision = 2, 1, "-old"
	w.index.Set(set)
	if got := chosen(t, w, labelled("app", "x"), "d"); got != "a" {
		t.Errorf(`chosen for app x in d: got %q, want %q`, got, "a")
	}
	set = set.DeepCopy()
	set.Status.ObservedGeneration, set.Status.LatestRevision = 2, "-new"
	w.index.Set(set)
	if got := chosen(t, w, labelled("app", "x"), "d"); got != "a-new" {
		t.Errorf(`chosen for app x in d: got %q, want %q`, got, "a-new")
	}
	before := w.index.entries["a"].template
	set = set.DeepCopy()
	set.Status.MatchedPods = 7
	w.index.Set(set)
	if w.index.entries["a"].template != before {
		t.Error("a count made the template anew")
	}
}

// many is an index of n SidecarSets of which one selects the pod.
func many(n int) *world {
	w := &world{namespaces: map[string]map[string]string{"d": {"team": "a"}}}
	for i := range n {
		set := selecting(fmt.Sprintf("set-%03d", i), matching("app", fmt.Sprint("app-", i)), matching("team", "a"))
		set.Spec.Containers = []appsv1beta1.SidecarContainer{{}}
		set.Spec.Containers[0].Name, set.Spec.Containers[0].Image = fmt.Sprint("side-", i), "i"
		w.index.Set(set)
	}
	return w
}

// BenchmarkChoose: choosing among SidecarSets costs microseconds, however many there are.
func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{0, 10, 200} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			chooser, pod := many(n).chooser(), labelled("app", "app-7", "version", "1", "zone", "a")
			for b.Loop() {
				if templates, err := chooser.Choose(b.Context(), pod, "d"); err != nil {
					b.Fatalf("unexpected error: %v\n%v", err, templates)
				} else if len(templates) != min(n, 1) {
					b.Fatalf("len(templates): got %d, want %d\n%v\n%v", len(templates), min(n, 1), templates, err)
				}
			}
		})
	}
}

// BenchmarkInject is one pod with one sidecar.
func BenchmarkInject(b *testing.B) {
	chooser, pod := many(10).chooser(), labelled("app", "app-7")
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "i"}}
	raw, err := json.Marshal(pod)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		templates, err := chooser.Choose(b.Context(), pod, "d")
		if err != nil {
			b.Fatal(err)
		}
		if result, err := inject.Inject(raw, pod, templates, inject.Options{Now: time.Unix(1, 0)}); err != nil {
			b.Fatalf("unexpected error: %v\n%+v", err, result)
		} else if len(result.Operations) == 0 {
			b.Fatalf("result.Operations: got none, want some\n%+v\n%v", result, err)
		}
	}
}

// The bound that the benchmark shows: what is looked at does not grow with the SidecarSets that select by
// other values.
func TestChooseLooksAtFew(t *testing.T) {
	w := many(200)
	if at := len(w.index.byLabel[label{"app", "app-7"}]) + len(w.index.rest); at != 1 {
		t.Errorf("%d SidecarSets are looked at", at)
	}
	all := w.index.all()
	if len(all) != 200 {
		t.Errorf("SidecarSets of the index: got %d, want 200", len(all))
	}
	if !slices.IsSortedFunc(all, func(a, b *entry) int { return strings.Compare(a.name, b.name) }) {
		t.Error("SidecarSets of the index are not in the order of their names")
	}
}
