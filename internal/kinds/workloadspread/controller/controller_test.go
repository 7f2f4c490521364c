package controller

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// requested is what a queue has been asked for.
type requested struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]
	names []string
}

func (q *requested) Add(r ctrl.Request) { q.names = append(q.names, r.String()) }

// cachedSpreads is a client with WorkloadSpreads, indexed as the manager's.
func cachedSpreads(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(appsv1beta1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&appsv1beta1.WorkloadSpread{}).
		WithIndex(&appsv1beta1.WorkloadSpread{}, byTarget, func(o client.Object) []string {
			return []string{targetKey(workloadspread.TargetOf(o.(*appsv1beta1.WorkloadSpread)))}
		}).Build()
}

func cachedAPI(t *testing.T, objects ...client.Object) *reconcile.API {
	t.Helper()
	return &reconcile.API{Client: cachedSpreads(t, objects...)}
}

func spreadTo(name, namespace, apiVersion, kind, target string) *appsv1beta1.WorkloadSpread {
	spread := workloadspreadtest.Spread()
	spread.Name, spread.Namespace, spread.UID, spread.ResourceVersion = name, namespace, types.UID("uid-"+namespace+name), ""
	spread.Spec.TargetReference = &appsv1beta1.TargetReference{APIVersion: apiVersion, Kind: kind, Name: target}
	return spread
}

// WS-120: which events of pods ask for which WorkloadSpreads.
func TestPodEvents(t *testing.T) {
	r := &reconciler{kube: &kubeReader{&Kube{API: cachedAPI(t, spreadTo("ws", "default", "apps/v1", "Deployment", "web"), spreadTo("set",
		"default", "apps.kruise.io/v1alpha1", "CloneSet", "api"),
		spreadTo("custom", "default", "x.io/v1", "Rollout", "r"), spreadTo("elsewhere", "other", "apps/v1", "Deployment", "web"))}}}
	h := &podEvents{r: r, versioned: versioned}
	stranger := workloadspreadtest.Pod("p", workloadspreadtest.Homeless)
	ofCloneSet := workloadspreadtest.Pod("p", func(p *corev1.Pod) {
		p.OwnerReferences[0] = metav1.OwnerReference{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "api", UID: "uid-api",
			Controller: p.OwnerReferences[0].Controller}
	})
	placed := func(pod *corev1.Pod) *corev1.Pod {
		pod = pod.DeepCopy()
		workloadspreadtest.In("a")(pod)
		return pod
	}
	update := func(before, after *corev1.Pod) func(*requested) {
		return func(q *requested) { h.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q) }
	}
	create := func(pod *corev1.Pod, initial bool) func(*requested) {
		return func(q *requested) { h.Create(t.Context(), event.CreateEvent{Object: pod, IsInInitialList: initial}, q) }
	}
	condition := func(reason string) workloadspreadtest.PodOption {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "False", Reason: reason}}
		}
	}
	formerly := func(name string) workloadspreadtest.PodOption {
		return func(p *corev1.Pod) {
			p.Annotations = map[string]string{pub.MatchedWorkloadSpread: pub.Placement{Name: name, Subset: "a"}.String()}
		}
	}
	for name, test := range map[string]struct {
		do   func(*requested)
		want []string
	}{
		"a placed pod comes":                  {create(workloadspreadtest.Pod("p", workloadspreadtest.In("a")), false), []string{"default/ws"}},
		"a placed pod was there at the start": {create(workloadspreadtest.Pod("p", workloadspreadtest.In("a")), true), nil},
		"a placed pod goes": {func(q *requested) {
			h.Delete(t.Context(), event.DeleteEvent{Object: workloadspreadtest.Pod("p",
				workloadspreadtest.In("a"))}, q)
		}, []string{"default/ws"}},
		"a pod of a target goes that was in no subset": {func(q *requested) {
			h.Delete(t.Context(), event.DeleteEvent{Object: workloadspreadtest.Pod("p")},
				q)
		}, []string{"default/custom", "default/ws"}},
		"a placed pod ends (WS-107)": {update(workloadspreadtest.Pod("p", workloadspreadtest.In("a")),
			workloadspreadtest.Pod("p", workloadspreadtest.In("a"), workloadspreadtest.Phase(corev1.PodSucceeded))),
			[]string{"default/ws"}},
		"a placed pod fails (WS-107)": {update(workloadspreadtest.Pod("p", workloadspreadtest.In("a")),
			workloadspreadtest.Pod("p", workloadspreadtest.In("a"), workloadspreadtest.Phase(corev1.PodFailed))),
			[]string{"default/ws"}},
		"a placed pod begins to be deleted": {update(workloadspreadtest.Pod("p", workloadspreadtest.In("a")),
			workloadspreadtest.Pod("p", workloadspreadtest.In("a"), workloadspreadtest.Ending)), []string{"default/ws"}},
		"a placed pod changes its version": {update(workloadspreadtest.Pod("p", workloadspreadtest.In("a")),
			workloadspreadtest.Pod("p", workloadspreadtest.In("a"), workloadspreadtest.Version("v2"))),
			[]string{"default/ws"}},
		"its workload lets a placed pod go": {update(placed(ofCloneSet), workloadspreadtest.Pod("p", workloadspreadtest.In("a"),
			func(p *corev1.Pod) { p.OwnerReferences = nil })), []string{"default/ws"}},
		"a placed pod cannot be scheduled": {update(workloadspreadtest.Pod("p", workloadspreadtest.In("a"), workloadspreadtest.Homeless),
			workloadspreadtest.Pod("p", workloadspreadtest.In("a"), workloadspreadtest.Unschedulable)),
			[]string{"default/ws"}},
		"why a placed pod is not scheduled": {update(workloadspreadtest.Pod("p", workloadspreadtest.In("a"), condition("SchedulingGated")),
			workloadspreadtest.Pod("p", workloadspreadtest.In("a"),
				condition(corev1.PodReasonUnschedulable))), []string{"default/ws"}},
		"a placed pod becomes ready": {update(workloadspreadtest.Pod("p", workloadspreadtest.In("a")),
			workloadspreadtest.Pod("p", workloadspreadtest.In("a"), workloadspreadtest.Ready(0))), nil},
		"somebody writes its cost (WS-169)": {update(workloadspreadtest.Pod("p", workloadspreadtest.In("a")),
			workloadspreadtest.Pod("p", workloadspreadtest.In("a"), workloadspreadtest.Cost("5"))), nil},
		"a pod is placed elsewhere": {update(workloadspreadtest.Pod("p",
			workloadspreadtest.Note(pub.MatchedWorkloadSpread, `{"name":"x","subset":"a"}`)),
			workloadspreadtest.Pod("p", workloadspreadtest.In("a"))), []string{"default/x", "default/ws"}},
		"a pod of a target comes without a subset": {create(stranger, false), []string{"default/custom", "default/ws"}},
		"it was there at the start":                {create(stranger, true), nil},
		"it gets its node":                         {update(stranger, workloadspreadtest.Pod("p")), []string{"default/custom", "default/ws"}},
		"a pod of one that is gone is scheduled": {update(workloadspreadtest.Pod("p", workloadspreadtest.Homeless, formerly("gone")),
			workloadspreadtest.Pod("p", formerly("gone"))),
			[]string{"default/gone", "default/custom", "default/ws"}},
		"a pod of another's is scheduled": {update(workloadspreadtest.Pod("p", workloadspreadtest.Homeless, formerly("set")),
			workloadspreadtest.Pod("p", formerly("set"))),
			[]string{"default/set", "default/custom", "default/ws"}},
		"it becomes ready":           {update(workloadspreadtest.Pod("p"), workloadspreadtest.Pod("p", workloadspreadtest.Ready(0))), nil},
		"a pod of another target":    {create(ofCloneSet, false), []string{"default/custom", "default/set"}},
		"a pod without a controller": {create(workloadspreadtest.Pod("p", func(p *corev1.Pod) { p.OwnerReferences = nil }), false), nil},
	} {
		t.Run(name, func(t *testing.T) {
			q := &requested{}
			test.do(q)
			if diff := cmp.Diff(test.want, q.names); diff != "" {
				t.Errorf("q.names (-want +got):\n%s", diff)
			}
		})
	}
}

// WS-013, WS-121 (part): a change of a workload asks for its WorkloadSpread, whatever version that names.
func TestEventsOfTargets(t *testing.T) {
	r := &reconciler{kube: &kubeReader{&Kube{API: cachedAPI(t, spreadTo("old", "default", "apps.kruise.io/v1alpha1", "CloneSet", "web"),
		spreadTo("plain", "default", "apps/v1", "StatefulSet", "web"),
		spreadTo("advanced", "default", "apps.kruise.io/v1beta1", "StatefulSet", "web"))}}}
	for name, test := range map[string]struct {
		namespace string
		changed   workloadspread.Reference
		want      []string
	}{
		"CloneSet": {"default", workloadspread.Reference{GroupKind: workloadkind.CloneSet, Name: "web"}, []string{"default/old"}},
		"StatefulSet": {"default", workloadspread.Reference{GroupKind: workloadkind.StatefulSet, Name: "web"},
			[]string{"default/plain"}},
		"Advanced StatefulSet": {"default", workloadspread.Reference{GroupKind: workloadkind.AdvancedStatefulSet, Name: "web"},
			[]string{"default/advanced"}},
		"another name":      {"default", workloadspread.Reference{GroupKind: workloadkind.CloneSet, Name: "api"}, nil},
		"another namespace": {"other", workloadspread.Reference{GroupKind: workloadkind.CloneSet, Name: "web"}, nil},
		"nobody's kind of group": {"default", workloadspread.Reference{GroupKind: schema.GroupKind{Group: "x", Kind: "CloneSet"}, Name: "web"},
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			q := &requested{}
			r.ofTarget(t.Context(), q, test.namespace, test.changed)
			if diff := cmp.Diff(test.want, q.names); diff != "" {
				t.Errorf("q.names (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMayLead(t *testing.T) {
	rollout := schema.GroupKind{Group: "x.io", Kind: "Rollout"}
	for name, test := range map[string]struct {
		target, controller workloadspread.Reference
		want               bool
	}{
		"itself": {workloadspread.Reference{GroupKind: workloadkind.Job, Name: "j"},
			workloadspread.Reference{GroupKind: workloadkind.Job, Name: "j"}, true},
		"another one": {workloadspread.Reference{GroupKind: workloadkind.Job, Name: "j"},
			workloadspread.Reference{GroupKind: workloadkind.Job, Name: "k"}, false},
		"a Deployment's ReplicaSet": {workloadspread.Reference{GroupKind: workloadkind.Deployment, Name: "web"},
			workloadspread.Reference{GroupKind: workloadkind.ReplicaSet, Name: "web-1"}, true},
		"another Deployment's ReplicaSet": {workloadspread.Reference{GroupKind: workloadkind.Deployment, Name: "web"},
			workloadspread.Reference{GroupKind: workloadkind.ReplicaSet, Name: "api-1"}, false},
		"a ReplicaSet of a ReplicaSet": {workloadspread.Reference{GroupKind: workloadkind.ReplicaSet, Name: "web"},
			workloadspread.Reference{GroupKind: workloadkind.ReplicaSet, Name: "web-1"}, false},
		"a custom kind, indirectly": {workloadspread.Reference{GroupKind: rollout, Name: "web"},
			workloadspread.Reference{GroupKind: workloadkind.ReplicaSet, Name: "x"}, true},
		"another object of a custom kind": {workloadspread.Reference{GroupKind: rollout, Name: "web"},
			workloadspread.Reference{GroupKind: rollout, Name: "x"}, false},
		"kinds that are not connected": {workloadspread.Reference{GroupKind: workloadkind.CloneSet, Name: "web"},
			workloadspread.Reference{GroupKind: workloadkind.Job, Name: "x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mayLead(test.target, test.controller); got != test.want {
				t.Errorf("mayLead(test.target, test.controller): got %t, want %t", got, test.want)
			}
		})
	}
}

// WS-014, WS-020: the pods of a target, by controller, by selector, and by what the scale of a custom kind
// selects.
func TestPodsOfTarget(t *testing.T) {
	source := fcache.NewFakeControllerSource()
	label := func(key, value string) workloadspreadtest.PodOption {
		return func(p *corev1.Pod) { p.Labels[key] = value }
	}
	var objects []client.Object
	for _, pod := range []*corev1.Pod{workloadspreadtest.Pod("one"), workloadspreadtest.Pod("two", label("role", "worker")),
		workloadspreadtest.Pod("other",
			func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }),
		workloadspreadtest.Pod("free", label("app", "free"), label("role", "worker"), func(p *corev1.Pod) { p.OwnerReferences = nil })} {
		source.Add(pod)
		pod.ResourceVersion = ""
		objects = append(objects, pod)
	}
	index := &podindex.Index{}
	informer := index.NewInformer(source, &corev1.Pod{}, 0, toolscache.Indexers{})
	go informer.RunWithContext(t.Context())
	if !toolscache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("not synced")
	}
	k := &kubeReader{&Kube{API: &reconcile.API{Client: cachedSpreads(t, objects...)}, Pods: index}}
	fallback := func(text string) func() (labels.Selector, error) {
		return func() (labels.Selector, error) {
			if text == "" {
				return nil, nil
			}
			return labels.Parse(text)
		}
	}
	for name, test := range map[string]struct {
		target workloadspread.Target
		filter *appsv1beta1.TargetFilter
		want   []string
	}{
		"by controllers": {workloadspread.Target{Controllers: []types.UID{"uid-web-v1", "other"}}, nil,
			[]string{"one", "other", "two"}},
		"by the filter": {workloadspread.Target{Controllers: []types.UID{"uid-web-v1"}},
			&appsv1beta1.TargetFilter{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "worker"}}}, []string{"two"}},
		"by an empty filter": {workloadspread.Target{Controllers: []types.UID{"uid-web-v1"}},
			&appsv1beta1.TargetFilter{ReplicasPathList: []string{"x"}}, []string{"one", "two"}},
		"by controller and a Job's selector": {workloadspread.Target{Controllers: []types.UID{"uid-web-v1"},
			Selector: labels.SelectorFromSet(labels.Set{"role": "worker"})}, nil, []string{"two"}},
		"by the scale's selector": {workloadspread.Target{Controllers: []types.UID{"nobody"}, Fallback: fallback("app=free")}, nil,
			[]string{"free"}},
		"not by it if there are controlled": {workloadspread.Target{Controllers: []types.UID{"other"}, Fallback: fallback("app=free")}, nil,
			[]string{"other"}},
		"a scale without selector": {workloadspread.Target{Controllers: []types.UID{"nobody"}, Fallback: fallback("")}, nil, nil},
		"nobody":                   {workloadspread.Target{Controllers: []types.UID{"nobody"}}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			spread := workloadspreadtest.Spread()
			spread.Spec.TargetFilter = test.filter
			found, err := k.Pods(t.Context(), spread, &test.target)
			var names []string
			for _, pod := range found {
				names = append(names, pod.Name)
			}
			slices.Sort(names)
			if diff := cmp.Diff(test.want, names); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			if err != nil {
				t.Errorf("unexpected error: %v", err)
			}
			spread.Namespace = "other"
			if elsewhere, err := k.Pods(t.Context(), spread, &test.target); len(elsewhere) > 0 || err != nil { // WS-022
				t.Error("pods of another namespace", err)
			}
		})
	}
}

// WS-178: after some conflicts in a row the queue decides.
func TestConflictsWithoutEnd(t *testing.T) {
	s := newBookServer(t, workloadspreadtest.Read(t, two))
	b, spread := s.behind(t, nil)
	s.before = func(int) error { return conflicting() }
	_, err := b.WriteStatus(t.Context(), spread, func(*appsv1beta1.WorkloadSpread) ([]byte, error) { return []byte(`{}`), nil })
	if !apierrors.IsConflict(err) {
		t.Errorf("error: got %v, want one of kind Conflict\n%d", err, len(s.bodies))
	} else if len(s.bodies) != 4 {
		t.Errorf("len(s.bodies): got %d, want 4\n%v", len(s.bodies), err)
	}
	result := Result{}
	result.add(err)
	if !result.Retry {
		t.Errorf("a conflict: got %+v, want it tried again", result)
	}
	if result.Err != nil {
		t.Errorf("a conflict: got the error %v, want none", result.Err)
	}
}
