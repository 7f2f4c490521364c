package controller

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

func revisionKey(name string) simulation.Key {
	return simulation.Key{Kind: "ControllerRevision", Name: name}
}

// storeRevision stores a revision of another image, with these labels and owners.
func (s *simulated) storeRevision(name string, labels map[string]string, owners ...metav1.OwnerReference) {
	s.Store(revisionKey(name), &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels,
		OwnerReferences: owners}, Revision: 1, Data: runtime.RawExtension{Raw: []byte(`{"spec":{"template":{"$patch":"replace",` +
		`"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":"` + name + `"}]}}}}`)}})
}

func controllerOf(object client.Object) types.UID {
	if owner := metav1.GetControllerOf(object); owner != nil {
		return owner.UID
	}
	return ""
}

// TestRevisionsAreAdoptedFirst shows ASTS-071: those that match the selector and have no controller, in each
// pass, before anything else is written, and only if the set lives in the API server.
func TestRevisionsAreAdoptedFirst(t *testing.T) {
	ours, yes := map[string]string{"app": "web"}, true
	orphans := func(s *simulated) {
		s.storeRevision("left", ours)
		s.storeRevision("unlike", map[string]string{"app": "other"})
		s.storeRevision("taken", ours, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n",
			UID: s.List("Node", false)[0].GetUID(), Controller: &yes})
	}
	s := simulate(1, makeSet(2), statefulset.Features{})
	orphans(s)
	var asked []string
	s.Answer = func(r *simulation.Request) error {
		asked = append(asked, r.Verb+" "+r.Key.Kind+" "+r.Key.Name)
		return nil
	}
	s.ActFor(time.Minute)
	if len(asked) < 3 {
		t.Errorf("number asked: got %d, want at least 3; it begins with %v", len(asked), asked[:min(len(asked), 4)])
	} else if !slices.Equal(asked[:2], []string{"get StatefulSet web", "patch ControllerRevision left"}) {
		t.Errorf("asked: got %q, want %q; it begins with %v", asked[:2],
			[]string{"get StatefulSet web", "patch ControllerRevision left"}, asked[:min(len(asked), 4)])
	}
	for name, want := range map[string]types.UID{"left": s.set().UID, "unlike": "", "taken": s.List("Node", false)[0].GetUID()} {
		if got := controllerOf(s.Get(revisionKey(name))); got != want {
			t.Errorf("revision %s is controlled by %q", name, got)
		}
	}
	s.Change(revisionKey("left"), func(o client.Object) { o.SetOwnerReferences(nil) })
	s.Events(10)
	s.Queue.Add() // any pass does
	s.ActFor(time.Minute)
	if controllerOf(s.Get(revisionKey("left"))) != s.set().UID {
		t.Error("a later pass does not adopt it again")
	}
	for name, meanwhile := range map[string]func(*simulated){
		"is being deleted": func(s *simulated) {
			s.Change(setKey, func(o client.Object) {
				now := metav1.NewTime(s.Now())
				o.SetDeletionTimestamp(&now)
				o.SetFinalizers([]string{"example.org/hold"})
			})
		},
		"is gone": func(s *simulated) { s.Remove(setKey) },
		"is another one": func(s *simulated) {
			s.Remove(setKey)
			s.Store(setKey, makeSet(2))
		},
	} {
		s := simulate(1, makeSet(2), statefulset.Features{})
		orphans(s)
		s.Events(10)
		meanwhile(s) // which the caches do not show yet
		s.Queue.Add()
		s.Manage()
		if owners := s.Get(revisionKey("left")).GetOwnerReferences(); len(owners) > 0 {
			t.Errorf("adopted by a set that %s: %v", name, owners)
		}
	}
}

// TestReferencesToTheSet shows ASTS-072: what pods and revisions refer to, that references of any version
// count, and that pods without a controller call the set too.
func TestReferencesToTheSet(t *testing.T) {
	s := simulate(1, makeSet(2, inPlace), statefulset.Features{})
	s.ActFor(time.Minute)
	yes := true
	want := []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: "web", UID: s.set().UID,
		Controller: &yes, BlockOwnerDeletion: &yes}}
	owned := append(s.List("Pod", false), s.List("ControllerRevision", false)...)
	if len(owned) != 3 {
		t.Errorf("%d objects", len(owned))
	}
	for _, object := range owned {
		if diff := cmp.Diff(want, object.GetOwnerReferences()); diff != "" {
			t.Errorf("%s: owners of the object (-want +got):\n%s", object.GetName(), diff)
		}
	}
	for version, called := range map[string]bool{"apps.kruise.io/v1alpha1": true, "apps.kruise.io/v1beta1": true, "apps.kruise.io/v7": true,
		"apps/v1": false, "apps.kruise.io.example.org/v1": false} {
		for _, kind := range []string{"StatefulSet", "CloneSet"} {
			pod := s.Pod("web-0").DeepCopy()
			pod.Name, pod.OwnerReferences[0].APIVersion, pod.OwnerReferences[0].Kind = "other", version, kind
			if requests := s.kube.setsOf(context.Background(), pod); (len(requests) == 1 && requests[0].Name == "web") !=
				(called && kind == "StatefulSet") {
				t.Errorf("a pod of %s %s calls %v", version, kind, requests)
			}
		}
	}
	// A pod that lost its label is nobody's, and has a name that the set needs. It calls the set when it gets
	// the label back.
	uid := s.Pod("web-1").UID
	s.Change(podKey("web-1"), func(o client.Object) { o.GetLabels()["app"] = "debug" })
	s.ActFor(5 * time.Minute)
	pod := s.Pod("web-1")
	if got := controllerOf(pod); got != "" {
		t.Fatalf("owner of the pod: got %q, want %q\n%s", got, "", s.describe())
	}
	if pod.UID != uid {
		t.Fatalf("UID of the pod: got %q, want %q\n%s", pod.UID, uid, s.describe())
	}
	s.Change(podKey("web-1"), func(o client.Object) { o.GetLabels()["app"] = "web" })
	if s.Events(1); !s.Queue.Added() {
		t.Error("the change of a label does not call the set")
	}
	s.ActFor(time.Minute)
	if pod := s.Pod("web-1"); controllerOf(pod) != s.set().UID {
		t.Errorf("pod web-1 does not belong to the set: %s", s.describe())
	} else if pod.UID != uid {
		t.Errorf("pod web-1 is another one: %s", s.describe())
	}
	// One that somebody creates calls the set as well.
	made := s.Pod("web-1").DeepCopy()
	made.Name, made.UID, made.OwnerReferences = "web-2", "", nil
	s.Store(podKey("web-2"), made)
	if s.Events(1); !s.Queue.Added() {
		t.Error("the creation of a pod does not call the set")
	}
}

// TestADeletedSet shows ASTS-073: whatever there is to do, nothing but its status is written; then its pods
// go all at once, with the PVCs of the retention policy.
func TestADeletedSet(t *testing.T) {
	const keep, remove = appsv1beta1.RetainStatefulSetClaims, appsv1beta1.DeleteStatefulSetClaims
	for _, whenDeleted := range []appsv1beta1.StatefulSetClaimRetention{keep, remove} {
		s := simulate(1, makeSet(5, inPlace, func(set *appsv1beta1.StatefulSet) {
			setClaims(set, []string{"data"}, "1Gi")
			set.Spec.VolumeClaimUpdateStrategy.Type = appsv1beta1.OnPodRollingUpdateStatefulSetClaimUpdate
			set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1beta1.StatefulSetClaimRetentionPolicy{WhenDeleted: whenDeleted, WhenScaled: keep}
		}), statefulset.Features{DeleteClaims: true, ResizeClaims: true, PodIndexLabel: true})
		s.ActFor(time.Minute)
		s.storeRevision("left", map[string]string{"app": "web"})
		s.Edit(func(set *appsv1beta1.StatefulSet) {
			now := metav1.NewTime(s.Now())
			set.DeletionTimestamp, set.Finalizers = &now, []string{"example.org/hold"}
			image("nginx:2")(set)
			setClaims(set, []string{"data"}, "2Gi")
			replicas := int32(4)
			set.Spec.Replicas = &replicas
			set.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled = remove
		})
		s.Node.Fail("web-0")
		s.Remove(podKey("web-1"))
		s.Change(podKey("web-2"), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "" })
		s.Change(podKey("web-3"), func(o client.Object) {
			delete(o.GetLabels(), appsv1.StatefulSetPodNameLabel)
			o.GetLabels()["app"] = "debug"
		})
		s.Remove(claimKey("data-web-3"))
		writes := len(s.Writes)
		s.ActFor(10 * time.Minute)
		for _, w := range s.Writes[writes:] {
			if w.Key != setKey {
				t.Errorf("key: got %+v, want %+v; whenDeleted %s: %v", w.Key, setKey, whenDeleted, w)
			}
			if w.Subresource != "status" {
				t.Errorf("subresource: got %q, want %q; whenDeleted %s: %v", w.Subresource, "status", whenDeleted, w)
			}
		}
		is := s.set().Status
		if want := s.set().Generation; is.ObservedGeneration != want {
			t.Errorf("observed generation: got %d, want %d; whenDeleted %s: status %+v", is.ObservedGeneration, want,
				whenDeleted, is)
		}
		if is.Replicas != 4 {
			t.Errorf("replicas: got %d, want 4; whenDeleted %s: status %+v", is.Replicas, whenDeleted, is)
		}
		if is.ReadyReplicas != 3 {
			t.Errorf("ready replicas: got %d, want 3; whenDeleted %s: status %+v", is.ReadyReplicas, whenDeleted, is)
		}
		s.Change(setKey, func(o client.Object) { o.SetFinalizers(nil) })
		s.CollectGarbage()
		for _, pod := range s.AllPods() {
			if pod.DeletionTimestamp == nil {
				t.Errorf("pod %s stays", pod.Name)
			}
		}
		if claims := len(s.List("PersistentVolumeClaim", false)); claims != map[appsv1beta1.StatefulSetClaimRetention]int{keep: 4}[whenDeleted] {
			t.Errorf("whenDeleted %s: %d claims are left", whenDeleted, claims)
		}
	}
}

// TestASelectorThatCannotBeRead shows ASTS-074: it is logged, and nothing is tried again.
func TestASelectorThatCannotBeRead(t *testing.T) {
	s := simulate(1, makeSet(2), statefulset.Features{})
	s.ActFor(time.Minute)
	s.Edit(func(set *appsv1beta1.StatefulSet) {
		set.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Sometimes"}}}
	})
	s.Node.Fail("web-1")
	s.Events(10)
	writes := len(s.Writes)
	if _, outcome, err := s.controller.Run(context.Background(), client.ObjectKeyFromObject(s.set()), s.set().UID); err != nil {
		t.Errorf("unexpected error: %v; again after %s, %v", err, outcome.After, err)
	} else if outcome.After != 0 {
		t.Errorf("time to the next pass: got %v, want 0; again after %s, %v", outcome.After, outcome.After, err)
	}
	for _, w := range s.Writes[writes:] {
		if w.Key != setKey {
			t.Errorf("key: got %+v, want %+v; %v is written", w.Key, setKey, w)
		}
		if w.Subresource != "status" {
			t.Errorf("subresource: got %q, want %q; %v is written", w.Subresource, "status", w)
		}
	}
	var logged []string
	ctx := log.IntoContext(context.Background(), funcr.New(func(_, args string) { logged = append(logged, args) },
		funcr.Options{Verbosity: 2}))
	pass := func(ctx context.Context, name types.NamespacedName, uid types.UID) (reconcile.Outcome, error) {
		plan, outcome, err := s.controller.Run(ctx, name, uid)
		return outcome.Loop(plan.Shared()), err
	}
	loop := reconcile.NewLoop(reconcile.Loop{Now: s.Now, Owner: reconcile.UIDs[*appsv1beta1.StatefulSet](s.kube.API), Pass: pass,
		Forget: func(types.NamespacedName, types.UID) {}}, time.Second, nil)
	if _, err := loop.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.set())}); err != nil {
		t.Errorf("the pass: %v", err)
	}
	if !strings.Contains(strings.Join(logged, " "), `spec.selector: \"Sometimes\" is not a valid label selector operator`) {
		t.Errorf("logged: got %q, want it to contain %q", strings.Join(logged, " "),
			`spec.selector: \"Sometimes\" is not a valid label selector operator`)
	}
	if pod, _ := s.Get(podKey("web-1")).(*corev1.Pod); pod == nil {
		t.Error("a pod goes: web-1 is not there any more")
	} else if pod.DeletionTimestamp != nil {
		t.Errorf("a pod goes: web-1 is being deleted since %v", pod.DeletionTimestamp)
	}
}

// TestPodsAreGivenUpBeforeTheirRevision shows that no pod is restarted when it changes hands, though the
// garbage collector has not taken its revision from the former owner yet, or the caches do not show that it
// has (ASTS-083 (part)). The new set was there first.
func TestPodsAreGivenUpBeforeTheirRevision(t *testing.T) {
	for name, hide := range map[string]bool{"it is somebody else's": false, "it is not in the caches": true} {
		for policy, option := range map[string]func(*appsv1beta1.StatefulSet){"recreate": parallel, "in place": inPlace} {
			t.Run(name+" "+policy, func(t *testing.T) {
				s := started(t, makeSet(2, option), statefulset.Features{})
				before, yes := s.AllPods(), true
				revision := s.set().Status.UpdateRevision
				native := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", Controller: &yes,
					UID: s.List("Node", false)[0].GetUID()}
				owned := []simulation.Key{revisionKey(revision), podKey("web-0"), podKey("web-1")}
				for _, key := range owned {
					s.Change(key, func(o client.Object) { o.SetOwnerReferences([]metav1.OwnerReference{native}) })
				}
				s.Remove(setKey)
				s.Store(setKey, makeSet(2, option))
				s.kind.Features = statefulset.Features{}
				s.Start()
				s.ActFor(time.Minute) // its own revision has another name
				for _, key := range owned[1:] {
					s.Change(key, func(o client.Object) { o.SetOwnerReferences(nil) })
				}
				if hide {
					s.Change(owned[0], func(o client.Object) { o.SetOwnerReferences(nil) })
					s.Events(1 << 20)
					s.Hide(owned[0])
				}
				s.ActFor(time.Minute)
				s.Change(owned[0], func(o client.Object) { o.SetOwnerReferences(nil) })
				s.ActFor(time.Minute)
				for _, pod := range before {
					if now := s.Pod(pod.Name); now == nil {
						t.Errorf("pod: got nil, want a value\n%s", s.describe())
					} else if now.UID != pod.UID {
						t.Errorf("UID: got %q, want %q\n%s", now.UID, pod.UID, s.describe())
					} else if got, want := controllerOf(now), s.set().UID; got != want {
						t.Errorf("owner of the pod: got %q, want %q\n%s", got, want, s.describe())
					}
				}
				if is := s.set().Status; is.UpdatedAvailableReplicas != 2 {
					t.Errorf("updated and available replicas: got %d, want 2\n%s", is.UpdatedAvailableReplicas, s.describe())
				}
			})
		}
	}
}

// TestAPodThatIsGivenUpIsNotUpdated shows that an update in place does not go on, after a conflict, with a
// pod that is not the set's any more, as while it changes hands: the pod got the label of the new revision,
// and not its image, of which the caches keep nothing then.
func TestAPodThatIsGivenUpIsNotUpdated(t *testing.T) {
	for _, subresource := range []string{"status", ""} {
		s := started(t, makeSet(1, inPlace), everything)
		revision := s.Pod("web-0").Labels[pub.ControllerRevisionHash]
		s.Answer = func(r *simulation.Request) error {
			if r.Verb == "patch" && r.Key == podKey("web-0") && r.Subresource == subresource {
				s.Answer = nil
				s.edit("web-0", func(pod *corev1.Pod) { pod.OwnerReferences = nil })
			}
			return nil
		}
		s.Edit(image("nginx:2"))
		s.onePass() // the revision is new
		for s.Answer != nil {
			s.onePass()
		}
		pod := s.Pod("web-0")
		if pod.Labels[pub.ControllerRevisionHash] != revision {
			t.Errorf("label controller revision hash of the pod: got %q, want %q; after a conflict about %q: %s",
				pod.Labels[pub.ControllerRevisionHash], revision, subresource, s.describe())
		}
		if pod.Annotations[pub.InPlaceUpdateState] != "" {
			t.Errorf("annotation in place update state of the pod: got %q, want %q; after a conflict about %q: %s",
				pod.Annotations[pub.InPlaceUpdateState], "", subresource, s.describe())
		}
		s.ActFor(5 * time.Minute) // the set adopts it again
		pod = s.Pod("web-0")
		if metav1.GetControllerOf(pod) == nil {
			t.Errorf("pod web-0 is not adopted: %s", s.describe())
		}
		if image := pod.Spec.Containers[0].Image; image != "nginx:2" {
			t.Errorf("image of web-0: got %s, want nginx:2: %s", image, s.describe())
		}
		if n := s.set().Status.UpdatedAvailableReplicas; n != 1 {
			t.Errorf("updated and available pods: got %d, want 1: %s", n, s.describe())
		}
	}
}
