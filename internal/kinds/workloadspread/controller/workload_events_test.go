package controller

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/slim"
)

// WS-121: creation, deletion, and a change of the replicas of each kind are told, with the revision of a
// CloneSet and of a Deployment, and a ReplicaSet's with its Deployment; a change of what nobody reads is not.
// Whose WorkloadSpread is asked for then is shown by TestEventsOfTargets.
func TestWhatOfWorkloadsIsTold(t *testing.T) {
	list := workloadspread.AllowList{}
	if parsed, err := workloadspread.ParseAllowList(fmt.Sprintf(`{"workloads":[{"Group":%q,"Version":%q,"Kind":%q}]}`, gameKind.Group,
		gameKind.Version,
		gameKind.Kind)); err == nil {
		list = parsed
	}
	object := func(kind schema.GroupKind, owner string) client.Object {
		yes := true
		meta := metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", Generation: 1}
		if owner != "" {
			meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: owner, UID: "d",
				Controller: &yes}}
		}
		switch kind {
		case workloadkind.Deployment:
			return &appsv1.Deployment{ObjectMeta: meta}
		case workloadkind.ReplicaSet:
			return &appsv1.ReplicaSet{ObjectMeta: meta}
		case workloadkind.StatefulSet:
			return &appsv1.StatefulSet{ObjectMeta: meta}
		case workloadkind.Job:
			return &batchv1.Job{ObjectMeta: meta}
		case workloadkind.CloneSet:
			return &appsv1beta1.CloneSet{ObjectMeta: meta}
		}
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetGroupVersionKind(kind.WithVersion("v1"))
		u.SetNamespace("shop")
		u.SetName("web")
		u.SetUID("u")
		u.SetGeneration(1)
		return u
	}
	// spec is changed as the API server does, which counts the generation up.
	respecified := func(o client.Object) { o.SetGeneration(2) }
	type change = func(client.Object)
	for name, test := range map[string]struct {
		kind   schema.GroupKind
		owner  string
		change change
		want   []string
	}{
		"replicas of a CloneSet": {workloadkind.CloneSet, "", func(o client.Object) {
			respecified(o)
			three := int32(3)
			o.(*appsv1beta1.CloneSet).Spec.Replicas = &three
		}, []string{"CloneSet web"}},
		"the update revision of a CloneSet": {workloadkind.CloneSet, "",
			func(o client.Object) { o.(*appsv1beta1.CloneSet).Status.UpdateRevision = "web-2" }, []string{"CloneSet web"}},
		"the pods of a CloneSet": {workloadkind.CloneSet, "",
			func(o client.Object) { o.(*appsv1beta1.CloneSet).Status.ReadyReplicas = 3 }, nil},
		"replicas of a Deployment": {workloadkind.Deployment, "", respecified, []string{"Deployment web"}},
		"the revision of a Deployment": {workloadkind.Deployment, "",
			func(o client.Object) { o.SetAnnotations(map[string]string{"deployment.kubernetes.io/revision": "2"}) }, []string{"Deployment web"}},
		"another annotation of a Deployment": {workloadkind.Deployment, "",
			func(o client.Object) { o.SetAnnotations(map[string]string{"note": "2"}) }, nil},
		"the pods of a Deployment": {workloadkind.Deployment, "", func(o client.Object) { o.(*appsv1.Deployment).Status.ReadyReplicas = 3 },
			nil},
		"replicas of a ReplicaSet":              {workloadkind.ReplicaSet, "", respecified, []string{"ReplicaSet web"}},
		"replicas of a Deployment's ReplicaSet": {workloadkind.ReplicaSet, "api", respecified, []string{"ReplicaSet web", "Deployment api"}},
		"replicas of a StatefulSet":             {workloadkind.StatefulSet, "", respecified, []string{"StatefulSet web"}},
		"the pods of a StatefulSet": {workloadkind.StatefulSet, "",
			func(o client.Object) { o.(*appsv1.StatefulSet).Status.ReadyReplicas = 3 }, nil},
		"replicas of an Advanced StatefulSet": {workloadkind.AdvancedStatefulSet, "", respecified, []string{"StatefulSet web"}},
		"parallelism of a Job":                {workloadkind.Job, "", respecified, []string{"Job web"}},
		"the pods of a Job":                   {workloadkind.Job, "", func(o client.Object) { o.(*batchv1.Job).Status.Active = 3 }, nil},
		"the spec of a listed kind":           {gameKind.GroupKind(), "", respecified, []string{"Game web"}},
		"a label of a listed kind": {gameKind.GroupKind(), "",
			func(o client.Object) { o.SetLabels(map[string]string{"a": "b"}) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			k := kindsOf(t, list, "deployment,replicaset")
			var got []string
			k.Tell(func(namespace string, changed workloadspread.Reference) {
				if got = append(got, changed.Kind+" "+changed.Name); namespace != "shop" {
					t.Errorf("namespace: got %q, want %q\n%v", namespace, "shop", changed)
				}
				if changed.Kind == test.kind.Kind && changed.GroupKind != test.kind {
					t.Errorf("group kind: got %v, want %v\n%v", changed.GroupKind, test.kind, changed)
				}
			})
			handler := k.handler(test.kind)
			// cached is what the caches keep.
			cached := func(changes ...change) any {
				o := object(test.kind, test.owner)
				for _, change := range changes {
					change(o)
				}
				if test.kind == workloadkind.CloneSet {
					return o
				}
				kept, err := slim.Workload(o)
				if err != nil {
					t.Fatal(err)
				}
				return kept
			}
			expect := func(when string, want []string) {
				t.Helper()
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: (-want +got):\n%s", when, diff)
				}
				got = nil
			}
			every := []string{test.kind.Kind + " web"}
			if test.owner != "" {
				every = append(every, "Deployment "+test.owner)
			}
			handler.OnAdd(cached(), false)
			expect("it comes", every)
			handler.OnUpdate(cached(), cached(test.change))
			expect("it changes", test.want)
			handler.OnUpdate(cached(), cached())
			expect("it is listed again", nil)
			handler.OnDelete(cached())
			expect("it goes", every)
			handler.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: cached()})
			expect("it is gone", every)
		})
	}
}
