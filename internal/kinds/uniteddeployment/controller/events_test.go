package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

// heard tells whether an event of the reason was told.
func (w *world) heard(reason, about string) bool {
	for _, event := range w.Recorded {
		if strings.Contains(event, " "+reason+": ") && strings.Contains(event, about) {
			return true
		}
	}
	return false
}

// blind fails lists of children.
type blind struct{ client.Client }

// List implements client.Reader.
func (blind) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("the caches are gone")
}

// UD-144: each of the events, when it is due.
func TestEachEventIsToldWhenItIsDue(t *testing.T) {
	w := newWorld(t, 1, played, united(t, uniteddeployment.CloneSet, 4, "a", "b"))
	forbidden := ""
	w.Answer = func(r *simulation.Request) error {
		if forbidden != "" && r.Verb+" "+r.Key.Kind == forbidden {
			return apierrors.NewForbidden(appsv1beta1.GroupVersion.WithResource("x").GroupResource(), r.Key.Name, errors.New("no"))
		}
		return nil
	}
	step := func(forbid, reason, about string) {
		t.Helper()
		forbidden = forbid
		for range 3 {
			w.Queue.Add()
			w.Deliver(1 << 10)
			w.Manage()
		}
		if !w.heard(reason, about) {
			t.Errorf("nobody hears of %s %s: %v", reason, about, w.Recorded)
		}
	}
	step("create ControllerRevision", "FailedRevisionProvision", "no")
	step("create CloneSet", "FailedUpdateSubset", "creating CloneSet")
	w.rest()
	step("", "SuccessfulUpdateSubset", "created 2 CloneSets")
	w.rest()
	twin := w.children()[0].Object.(*appsv1beta1.CloneSet).DeepCopy()
	twin.Name, twin.UID, twin.Spec.Replicas, twin.Status = "twin", "", new(int32(0)), appsv1beta1.CloneSetStatus{}
	w.Pass(time.Hour)
	w.Store(simulation.Key{Kind: "CloneSet", Name: "twin"}, twin)
	step("delete CloneSet", "FailedDeleteDuplicatedSubsets", "deleting CloneSet twin")
	step("delete CloneSet", "FailedUpdateSubset", "deleting CloneSet twin")
	step("", "SuccessfulUpdateSubset", "deleted 1 CloneSet")
	w.Edit(func(u *appsv1beta1.UnitedDeployment) { u.Spec.Topology.Subsets[0].Replicas = number(9) })
	step("", "FailedSpecifySubsetReplicas", "9 replicas together, more than spec.replicas, 4")
	r := w.manager()
	r.Client = blind{r.Client}
	if _, err := r.controller().Run(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, w.united().UID); err == nil {
		t.Errorf("error: got nil, want an error\n%q", w.Recorded)
	} else if !w.heard("FailedFindSubsets", "the caches are gone") {
		t.Errorf("FailedFindSubsets is told: got false, want true\n%v\n%q", err, w.Recorded)
	}
}

// UD-074, UD-137 (part): pods of Deployments are found by way of their ReplicaSets, and never written without
// reservation.
func TestPodsOfDeployments(t *testing.T) {
	w := newWorld(t, 1, played, united(t, uniteddeployment.Deployment, 4, "a", "b"))
	w.BeforeWrite = func(write simulation.Write, _, _ client.Object) {
		if write.Key.Kind == "Pod" {
			t.Errorf("kind of the key of the write: got %q, want another value\n%+v", write.Key.Kind, write)
		}
		if write.Key.Kind == "ReplicaSet" {
			t.Errorf("kind of the key of the write: got %q, want another value\n%+v", write.Key.Kind, write)
		}
	}
	w.rest()
	status := w.united().Status
	if status.UpdatedReplicas != 4 {
		t.Errorf("updated replicas: got %d, want 4\n%+v", status.UpdatedReplicas, status)
	}
	if status.UpdatedReadyReplicas != 4 {
		t.Errorf("updated and ready replicas: got %d, want 4\n%+v", status.UpdatedReadyReplicas, status)
	}
}

// UD-075: what happens to a child or its pods calls for a pass over its UnitedDeployment, as far as plans
// read it.
func TestChangesOfChildrenCallForAPass(t *testing.T) {
	for _, kind := range played {
		w := newWorld(t, 1, played, united(t, kind, 1, "a"))
		w.rest()
		r, c := w.manager(), w.children()[0]
		want := reconcile.Request("shop", "web")
		if got := r.ofChild(t.Context(), c.Object.(client.Object)); len(got) != 1 {
			t.Errorf("%s: number of results: got %d, want 1\n%v", kind, len(got), got)
		} else if got[0] != want {
			t.Errorf("%s: first result: got %v, want %v\n%v", kind, got[0], want, got)
		}
		pod := w.pods(c)[0]
		if got := r.ofPod(t.Context(), pod); len(got) != 1 {
			t.Errorf("number of results: got %d, want 1; pod of %s: %v", len(got), kind, got)
		} else if got[0] != want {
			t.Errorf("first result: got %v, want %v; pod of %s: %v", got[0], want, kind, got)
		}
		for name, tt := range map[string]struct {
			change func(*corev1.Pod)
			want   bool
		}{
			"phase":        {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
			"readiness":    {func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionFalse }, true},
			"PodScheduled": {func(p *corev1.Pod) { p.Status.Conditions[0].Reason = corev1.PodReasonUnschedulable }, true},
			"else":         {func(p *corev1.Pod) { p.Annotations["x"] = "y" }, false},
			"of others":    {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed; delete(p.Labels, uniteddeployment.SubsetName) }, true},
		} {
			next := pod.DeepCopy()
			tt.change(next)
			if got := podChanges.Update(event.UpdateEvent{ObjectOld: pod, ObjectNew: next}); got != tt.want {
				t.Errorf("%s: got %t, want %t", name, got, tt.want)
			}
		}
		orphan := c.Object.(client.Object).DeepCopyObject().(client.Object)
		orphan.SetOwnerReferences(nil)
		if got := r.ofChild(t.Context(), orphan); len(got) != 1 {
			t.Errorf("number of results: got %d, want 1; orphan %s: %v", len(got), kind, got)
		} else if got[0] != want {
			t.Errorf("first result: got %v, want %v; orphan %s: %v", got[0], want, kind, got)
		}
		orphan.SetLabels(map[string]string{uniteddeployment.SubsetName: "a", "app": "other"})
		if got := r.ofChild(t.Context(), orphan); len(got) > 0 {
			t.Errorf("an orphan of others: %v", got)
		}
	}
	if got := indexOwner(&appsv1.Deployment{}); got != nil {
		t.Errorf("owners of a Deployment without one: got %q, want nil", got)
	}
}

// UD-076, UD-139: a status is written once, though the caches show the old one; a conflict ends in a new
// pass; at rest nothing is written.
func TestStatusIsWrittenOnce(t *testing.T) {
	w := newWorld(t, 1, played, united(t, uniteddeployment.CloneSet, 4, "a", "b"))
	w.Deliver(1 << 10)
	w.Manage()
	stale := w.Cached(key).GetResourceVersion()
	w.Queue.Add()
	writes := len(w.Writes)
	w.Manage()
	if len(w.Writes) > writes {
		t.Errorf("written again from an old cache: number of writes: got %d, want at most %d\n%+v", len(w.Writes),
			writes, w.Writes[writes:])
	}
	if got := w.Cached(key).GetResourceVersion(); got != stale {
		t.Errorf("written again from an old cache: cached resource version: got %q, want %q\n%+v", got, stale,
			w.Writes[writes:])
	}
	w.Change(key, func(o client.Object) { o.SetAnnotations(map[string]string{"by": "others"}) })
	w.rest()
	status := w.united().Status
	if status.ReadyReplicas != 4 {
		t.Errorf("ready replicas: got %d, want 4\n%+v", status.ReadyReplicas, status)
	}
	if want := w.united().Generation; status.ObservedGeneration != want {
		t.Errorf("observed generation: got %d, want %d\n%+v", status.ObservedGeneration, want, status)
	}
	writes = len(w.Writes)
	w.now(time.Hour)
	if len(w.Writes) > writes {
		t.Errorf("at rest: %+v", w.Writes[writes:])
	}
}

// UD-132 (part), UD-172: the name of a revision that another has is passed over; the count is stored, and
// then nothing is written any more.
func TestCollisionsOfRevisions(t *testing.T) {
	w := newWorld(t, 1, played, united(t, uniteddeployment.CloneSet, 1, "a"))
	w.rest()
	taken := w.united().Status.UpdatedRevision
	w = newWorld(t, 1, played, united(t, uniteddeployment.CloneSet, 1, "a"))
	w.Store(simulation.Key{Kind: "ControllerRevision", Name: taken}, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: taken}})
	w.rest()
	status := w.united().Status
	if status.CollisionCount == nil {
		t.Errorf("collision count: got nil, want a value\n%+v", status)
	} else if *status.CollisionCount != 1 {
		t.Errorf("collision count: got %d, want 1\n%+v", *status.CollisionCount, status)
	} else if status.UpdatedRevision == taken {
		t.Errorf("updated revision: got %q, want another value\n%+v", status.UpdatedRevision, status)
	}
	writes := len(w.Writes)
	w.now(time.Hour)
	if len(w.Writes) > writes {
		t.Errorf("at rest: %+v", w.Writes[writes:])
	}
}
