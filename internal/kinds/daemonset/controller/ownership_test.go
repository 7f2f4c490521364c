package controller

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestWhatCallsASet shows ADS-040, with the tests of nodes, and ADS-D1: its own changes, those of its pods,
// whatever version their owner reference has, and those of pods of nobody that its selector matches.
func TestWhatCallsASet(t *testing.T) {
	yes := true
	owned := func(apiVersion, kind, name string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: pod.OwnerReferences[0].UID,
				Controller: &yes}}
		}
	}
	orphan := func(label string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.OwnerReferences, pod.Labels["app"] = nil, label }
	}
	for name, tt := range map[string]struct {
		first func(*corev1.Pod)
		calls bool
	}{
		"a pod":                            {func(*corev1.Pod) {}, true},
		"a pod of v1alpha1":                {owned("apps.kruise.io/v1alpha1", "DaemonSet", "agent"), true},
		"a pod of a version to come":       {owned("apps.kruise.io/v2", "DaemonSet", "agent"), true},
		"a pod of the native kind":         {owned("apps/v1", "DaemonSet", "agent"), false},
		"a pod of another kind":            {owned("apps.kruise.io/v1beta1", "StatefulSet", "agent"), false},
		"a pod of another set":             {owned("apps.kruise.io/v1beta1", "DaemonSet", "other"), false},
		"a pod of nobody, with its labels": {orphan("agent"), true},
		"a pod of nobody, with others":     {orphan("other"), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t, makeSet(), everything, "n1")
			quiet := func() { // the events are delivered, and nobody acts on them
				s.Events(1 << 20)
				for s.Queue.Take() {
					s.Queue.Done(0, nil)
				}
			}
			s.edit(t, "n1", tt.first)
			quiet()
			pod := s.PodsOn("n1")[0].DeepCopy()
			called := func(what string) {
				t.Helper()
				if s.Events(1 << 20); s.Queue.Added() != tt.calls {
					t.Errorf("%s: called %t", what, s.Queue.Added())
				}
				quiet()
			}
			s.Change(podKey(pod.Name), func(o client.Object) { o.GetLabels()["touched"] = "yes" })
			called("a change")
			s.Remove(podKey(pod.Name))
			called("the end")
			pod.UID = ""
			s.Store(podKey(pod.Name), pod)
			called("the beginning")
		})
	}
	s := started(t, makeSet(), everything, "n1")
	s.Edit(func(set *appsv1beta1.DaemonSet) { set.Spec.MinReadySeconds = 3 })
	if s.Events(1); !s.Queue.Added() {
		t.Error("a change of the set does not call it")
	}
	orphan("agent")(s.PodsOn("n1")[0])
	s.Store(simulation.Key{Kind: "DaemonSet", Name: "another"}, makeSet(func(set *appsv1beta1.DaemonSet) { set.Name = "another" }))
	s.Events(1 << 20)
	var names []string
	for _, request := range s.kube.setsOf(context.Background(), s.PodsOn("n1")[0]) {
		names = append(names, request.Name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"agent", "another"}) {
		t.Errorf("a pod of nobody calls %q", names)
	}
}

// TestADeletedSet shows ADS-041: whatever there is to do, nothing is written, not even its status; its pods
// go with it.
func TestADeletedSet(t *testing.T) {
	s := started(t, makeSet(inPlace), everything, "n1", "n2", "n3")
	s.Edit(func(set *appsv1beta1.DaemonSet) {
		now := metav1.NewTime(s.Now())
		set.DeletionTimestamp, set.Finalizers = &now, []string{"example.org/hold"}
		image("agent:2")(set)
	})
	s.storeRevision("left", map[string]string{"app": "agent"})
	s.Node.Fail(s.only(t, "n1").Name)
	s.Remove(podKey(s.only(t, "n2").Name))
	s.taint("n3", "broken", corev1.TaintEffectNoExecute)
	s.addNode("n4", nil)
	writes := len(s.Writes)
	s.RunFor(10 * time.Minute)
	extra := s.Writes[writes:]
	if len(extra) > 0 {
		t.Errorf("written: writes: got %v, want none", extra)
	}
	if len(s.Recorded) > 0 {
		t.Errorf("written: events: got %q, want none", s.Recorded)
	}
	s.Change(setKey, func(o client.Object) { o.SetFinalizers(nil) })
	s.Queue.Add()
	s.RunFor(time.Minute)
	if got := len(s.AllPods()); got > 0 {
		t.Errorf("pods: got %d, want none\n%v\n%v", got, s.AllPods(), s.Writes[writes:])
	}
	if len(s.Writes) > writes {
		t.Errorf("number of writes: got %d, want at most %d\n%v\n%v", len(s.Writes), writes, s.AllPods(),
			s.Writes[writes:])
	}
}

// TestASelectorOfAll shows ADS-042: a selector that selects everything is told of, and nothing else happens.
func TestASelectorOfAll(t *testing.T) {
	s := simulate(1, makeSet(func(set *appsv1beta1.DaemonSet) { set.Spec.Selector = &metav1.LabelSelector{} }), everything, "n1")
	s.Store(podKey("stray"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stray"},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "x", Image: "x:1"}}}})
	for range 20 {
		s.Queue.Add()
		s.RunFor(time.Minute)
	}
	if len(s.Writes) > 0 {
		t.Errorf("written: writes: got %v, want none; %v, told: %q", s.Writes, s.Writes, s.Recorded)
	} else if len(s.Recorded) != 1 {
		t.Errorf("written: number of events: got %d, want 1; %v, told: %q", len(s.Recorded), s.Writes, s.Recorded)
	} else if !strings.HasPrefix(s.Recorded[0], "Warning SelectingAll ") {
		t.Errorf("written: first event: got %q, want it to begin with %q; %v, told: %q", s.Recorded[0],
			"Warning SelectingAll ", s.Writes,
			s.Recorded)
	}
}

// TestPodsAndRevisionsOfNobodyAreAdopted shows ADS-046: pods and revisions of nobody with the labels of the
// set become its own, after a look at the set as it is now; those that lost the labels are given up. Owner
// references name v1beta1.
func TestPodsAndRevisionsOfNobodyAreAdopted(t *testing.T) {
	yes := true
	s := started(t, makeSet(), everything, "n1", "n2", "n3")
	want := []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "DaemonSet", Name: "agent", UID: s.set().UID,
		Controller: &yes, BlockOwnerDeletion: &yes}}
	check := func(when string) {
		t.Helper()
		for _, object := range slices.Concat(s.List("Pod", false), s.List("ControllerRevision", false)) {
			if diff := cmp.Diff(want, object.GetOwnerReferences()); diff != "" {
				t.Errorf("%s, %s: owners of the object (-want +got):\n%s", when, object.GetName(), diff)
			}
		}
	}
	check("made")
	uid := s.only(t, "n1").UID
	s.edit(t, "n1", func(pod *corev1.Pod) { pod.OwnerReferences = nil })
	s.Change(revisionKey(s.List("ControllerRevision", false)[0].GetName()), func(o client.Object) { o.SetOwnerReferences(nil) })
	var asked []string
	s.Answer = func(r *simulation.Request) error {
		asked = append(asked, r.Verb+" "+r.Key.Kind)
		return nil
	}
	s.RunFor(time.Minute)
	s.Answer = nil
	check("adopted")
	if got := s.only(t, "n1").UID; got != uid {
		t.Errorf(`UID of the pod on n1: got %q, want %q; asked %q, %s`, got, uid, asked, s.describe())
	} else if len(asked) == 0 {
		t.Errorf("asked: got none, want some; asked %q, %s", asked, s.describe())
	} else if asked[0] != "get DaemonSet" {
		t.Errorf("first asked: got %q, want %q; asked %q, %s", asked[0], "get DaemonSet", asked, s.describe())
	}
	given := s.only(t, "n2").Name
	s.edit(t, "n2", func(pod *corev1.Pod) { pod.Labels["app"] = "debug" })
	s.RunFor(time.Minute)
	pod := s.Get(podKey(given))
	if owners := pod.GetOwnerReferences(); len(owners) > 0 {
		t.Errorf("a pod without its labels: it has owners %v: %s", owners, s.describe())
	}
	if pod.GetDeletionTimestamp() != nil {
		t.Errorf("a pod without its labels: it is being deleted: %s", s.describe())
	}
	if n := len(s.PodsOn("n2")); n != 2 {
		t.Errorf("a pod without its labels: got %d pods on its node, want 2: %s", n, s.describe())
	}
	for name, meanwhile := range map[string]func(*simulated){
		"is being deleted": func(s *simulated) {
			s.Change(setKey, func(o client.Object) {
				now := metav1.NewTime(s.Now())
				o.SetDeletionTimestamp(&now)
				o.SetFinalizers([]string{"example.org/hold"})
			})
		},
		"is gone":        func(s *simulated) { s.Remove(setKey) },
		"is another one": func(s *simulated) { s.Remove(setKey); s.Store(setKey, makeSet()) },
	} {
		s := started(t, makeSet(), everything, "n1")
		revision := revisionKey(s.List("ControllerRevision", false)[0].GetName())
		s.edit(t, "n1", func(pod *corev1.Pod) { pod.OwnerReferences = nil })
		s.Change(revision, func(o client.Object) { o.SetOwnerReferences(nil) })
		s.Events(1 << 20)
		meanwhile(s) // which the caches do not show yet
		s.Queue.Add()
		s.Manage()
		if len(s.PodsOn("n1")[0].OwnerReferences)+len(s.Get(revision).GetOwnerReferences()) > 0 {
			t.Errorf("adopted by a set that %s", name)
		}
	}
}

// TestACollisionOfNames shows ADS-064 and ADS-D4: where the name of a new revision is taken by another
// content, whether or not the caches show it, the set raises its own collision count and finds another name.
func TestACollisionOfNames(t *testing.T) {
	name := "agent-" + started(t, makeSet(), everything, "n1").set().Status.UpdateRevision
	for kind, labels := range map[string]map[string]string{"one that the selector matches": {"app": "agent"}, "one of others": nil} {
		t.Run(kind, func(t *testing.T) {
			s := simulate(1, makeSet(), everything, "n1")
			s.storeRevision(name, labels)
			s.RunFor(time.Minute)
			is := s.set().Status
			if is.CollisionCount == nil {
				t.Errorf("collision count: got nil, want a value; status %+v", is)
			} else if *is.CollisionCount != 1 {
				t.Errorf("collision count: got %d, want 1; status %+v", *is.CollisionCount, is)
			} else if "agent-"+is.UpdateRevision == name {
				t.Errorf(`name of the update revision: got %q, want another value; status %+v`,
					"agent-"+is.UpdateRevision, is)
			} else if is.NumberAvailable != 1 {
				t.Errorf("available pods: got %d, want 1; status %+v", is.NumberAvailable, is)
			} else if is.UpdatedNumberScheduled != 1 {
				t.Errorf("updated pods: got %d, want 1; status %+v", is.UpdatedNumberScheduled, is)
			}
			made, _ := s.Get(revisionKey("agent-" + is.UpdateRevision)).(*appsv1.ControllerRevision)
			if made == nil {
				t.Error("made: got nil, want a value")
			} else if !strings.Contains(string(made.Data.Raw), "agent:1") {
				t.Errorf("data: got %q, want it to contain %q\n%+v", string(made.Data.Raw), "agent:1", made)
			}
		})
	}
}

// TestPodsOfTheNativeKindAreKnownAgain shows ADS-061, ADS-062 (part) and ADS-063 (part): what the native
// kind leaves, completed revision and all, is known again: no pod is touched but for its owner; and an update
// then rolls out although the generation annotation stays.
func TestPodsOfTheNativeKindAreKnownAgain(t *testing.T) {
	s := started(t, makeSet(), everything, "n1", "n2")
	uids := []any{s.only(t, "n1").UID, s.only(t, "n2").UID}
	native(s)
	s.RunFor(time.Minute)
	if got := []any{s.only(t, "n1").UID, s.only(t, "n2").UID}; !cmp.Equal(uids, got) {
		t.Fatalf("pods: got %v, want the same, %v: %s", got, uids, s.describe())
	}
	if n := s.set().Status.UpdatedNumberScheduled; n != 2 {
		t.Fatalf("updated pods: got %d, want 2: %s", n, s.describe())
	}
	if n := len(s.List("ControllerRevision", false)); n != 1 {
		t.Fatalf("revisions: got %d, want 1: %s", n, s.describe())
	}
	s.Edit(image("agent:2"))
	s.RunFor(5 * time.Minute)
	if got := s.images(); got != "2 2" {
		t.Errorf("images: got %q, want %q\n%s", got, "2 2", s.describe())
	}
	if got := s.set().Status.UpdatedNumberScheduled; got != 2 {
		t.Errorf("updated pods: got %d, want 2\n%s", got, s.describe())
	}
}

// native makes the pods and the revision of the set what a set of the native kind leaves that is deleted
// without them.
func native(s *simulated) {
	for _, object := range s.List("ControllerRevision", false) {
		left := object.DeepCopyObject().(*appsv1.ControllerRevision)
		s.Remove(revisionKey(left.Name))
		left.Name, left.UID, left.OwnerReferences = "agent-native", "", nil
		left.Annotations = map[string]string{"deprecated.daemonset.template.generation": "1"}
		left.Labels = map[string]string{"app": "agent"}
		left.Data.Raw = []byte(strings.Replace(string(left.Data.Raw), `"spec":{"containers"`,
			`"spec":{"dnsPolicy":"ClusterFirst","restartPolicy":"Always","containers"`, 1))
		s.Store(revisionKey(left.Name), left)
	}
	for _, pod := range s.AllPods() {
		s.Change(podKey(pod.Name), func(o client.Object) {
			pod := o.(*corev1.Pod)
			pod.OwnerReferences, pod.Annotations, pod.Spec.ReadinessGates = nil, nil, nil
			pod.Labels = map[string]string{"app": "agent", "controller-revision-hash": "native", "pod-template-generation": "1"}
		})
	}
	s.Change(setKey, func(o client.Object) {
		o.(*appsv1beta1.DaemonSet).Status = appsv1beta1.DaemonSetStatus{}
		o.SetAnnotations(map[string]string{"deprecated.daemonset.template.generation": "1"})
	})
	s.kind.Features = daemonset.Features{}
	s.Start()
}
