package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/reconcile/booking"
	"github.com/afloat-project/afloat/internal/simulation"
)

// PUB-105 (part): a budget counts anew when one of its pods leaves service, also if the pod names another
// budget that covers it too. Once that one is gone it would allow too much.
func TestABudgetCountsPodsThatAnotherOneDecidesAbout(t *testing.T) {
	for app, target := range map[string]policyv1beta1.TargetReference{
		"web": {APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: setName},
		"dep": {APIVersion: "apps/v1", Kind: "Deployment", Name: "dep"},
	} {
		t.Run(target.Kind, func(t *testing.T) {
			r := newWorld(1)
			r.withSet(3, 1)
			r.withDeployment(3)
			r.begin()
			add := func(name string, spec policyv1beta1.PodUnavailableBudgetSpec) {
				spec.MaxUnavailable = new(intstr.FromInt32(1))
				r.Store(budgetKey(name), &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec})
				r.rest()
			}
			all, one := policyv1beta1.PodUnavailableBudgetSpec{}, policyv1beta1.PodUnavailableBudgetSpec{}
			all.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
			one.TargetReference = &target
			add("all", all) // its name is on the pods from now on
			add("one", one)
			pods := r.pods()
			pod := pods[slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Labels["app"] == app })]
			r.node.Crash(pod.Name)
			r.node.Frozen = map[string]bool{pod.Name: true}
			r.rest()
			if r.exact(); r.failure != "" {
				t.Errorf("the count: %s", r.failure)
			}
			if got := pod.Annotations["pub.kruise.io/related-pub"]; got != "all" {
				t.Errorf("budget of the pod: got %q, want all", got)
			}
		})
	}
}

// PUB-073: of two budgets that cover a pod the one of its workload decides, whichever counts first, and those
// that do not decide are told, as is the one that does where the other has a selector. TestWhichBudgetDecides
// shows who decides otherwise. PUB-071 (part): no webhook is asked.
func TestPodsAreToldOfTheBudgetOfTheirWorkload(t *testing.T) {
	r := newWorld(1)
	r.unasked = true
	r.withSet(3, 1)
	r.withDeployment(3)
	for name, target := range map[string]*policyv1beta1.TargetReference{"a-of-all": nil,
		"of-set":        {APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: setName},
		"of-deployment": {APIVersion: "apps/v1", Kind: "Deployment", Name: "dep"}} {
		b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		b.Spec.MaxUnavailable, b.Spec.TargetReference = new(intstr.FromInt32(1)), target
		if target == nil {
			b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
		}
		r.Store(budgetKey(name), b)
	}
	r.protect("of-replicaset", target("apps/v1", "ReplicaSet", "dep-1"))
	r.beginOnTime()
	r.rest()
	for _, pod := range r.pods() {
		want := map[string]string{"web": "of-set", "dep": "of-deployment"}[pod.Labels["app"]]
		if got := pod.Annotations["pub.kruise.io/related-pub"]; got != want {
			t.Errorf("pod %s is told of budget %s", pod.Name, got)
		}
	}
	told := map[string]string{} // the last of each
	for _, event := range r.events("MultipleBudgets") {
		name, rest, _ := strings.Cut(event, ": Warning MultipleBudgets some of its pods are covered by ")
		told[name], _, _ = strings.Cut(rest, " too")
	}
	if diff := cmp.Diff(map[string]string{"a-of-all": "of-deployment, of-set", "of-set": "a-of-all", "of-deployment": "a-of-all",
		"of-replicaset": "a-of-all, of-deployment"}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// PUB-105 (part): a budget that is changed while many of its pods change was counted a minute later, since
// each of their events between two passes passed for a pass that asks to be repeated at once (OPS-106 (part)).
func TestABudgetThatIsChangedWhileManyPodsChangeIsCountedAtOnce(t *testing.T) {
	r := newWorld(1)
	r.withSet(3, 1)
	r.protect("all")
	r.beginOnTime()
	r.rest()
	pod := r.pods()[0]
	r.node.Frozen = map[string]bool{pod.Name: true}
	for i := range 50 { // the first one has a pass at once, and the others wait for the next
		r.Change(podKey(pod.Name), func(o client.Object) {
			o.SetLabels(map[string]string{"app": "web", "team": "a", "written": fmt.Sprint(i)})
		})
		r.Pass(time.Millisecond)
		r.count()
	}
	r.edit("all", func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.MaxUnavailable = new(intstr.FromInt32(2)) })
	r.count()
	r.Pass(passEvery)
	r.count()
	b := r.budget("all")
	if b.Status.ObservedGeneration != b.Generation {
		t.Errorf("observed generation: got %d, want %d", b.Status.ObservedGeneration, b.Generation)
	}
	if n := b.Status.UnavailableAllowed; n != 2 {
		t.Errorf("pods that may become unavailable: got %d, want 2: %+v", n, b.Status)
	}
}

// OPS-106 (part), CS-076 (part): a budget whose status cannot be written is tried less and less often, not ten
// times a second for ever, and is counted at once when something happens.
func TestABudgetThatCannotBeWrittenIsTriedLessAndLessOften(t *testing.T) {
	r := newWorld(1)
	r.withSet(3, 1)
	r.beginOnTime()
	r.rest()
	r.protect("all")
	tries, refused := 0, true
	r.Answer = func(request *simulation.Request) error {
		if request.Key.Kind != "PodUnavailableBudget" || request.Subresource != "status" || !refused {
			return nil
		}
		tries++
		return apierrors.NewInternalError(errors.New("a policy is down"))
	}
	for end := r.Now().Add(time.Minute); r.Now().Before(end); {
		r.Pass(10 * time.Millisecond)
		r.count()
	}
	if tries < 5 || tries > 20 { // 5 ms, 10 ms, ... 16 s
		t.Errorf("%d tries in a minute", tries)
	}
	refused = false
	r.edit("all", func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.MaxUnavailable = new(intstr.FromInt32(2)) })
	r.count()
	if b := r.budget("all"); b.Status.UnavailableAllowed != 2 {
		t.Errorf("after a change: %+v", b.Status)
	}
}

// asked is a queue that notes when which budget is to be looked at.
type asked struct {
	queue
	of []string
}

func (a *asked) Add(r ctrl.Request) { a.of = append(a.of, r.Name+" now") }

func (a *asked) AddAfter(r ctrl.Request, after time.Duration) {
	a.of = append(a.of, fmt.Sprint(r.Name, " after ", after))
}

// PUB-105: when budgets are counted again: one that is new, says something else, or was booked in; one of
// which a pod comes, goes, or changes in what is counted, and 5 s after its deletion began. Events of
// creation come for all there is when the manager starts. TestWhenWorkloadsTell shows the workloads,
// TestReplicasOfOtherKinds those of other kinds, and TestTheEndOfABooking the ends of bookings.
func TestWhenBudgetsAreCounted(t *testing.T) {
	r := newWorld(1)
	r.withSet(1, 1)
	r.protect("all")
	r.protect("set", target("apps.kruise.io/v1beta1", "CloneSet", setName))
	r.protect("other", func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.Selector.MatchLabels["team"] = "other" })
	r.beginOnTime()
	r.rest()
	of := r.pods()[0]
	changed := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := of.DeepCopy()
		change(pod)
		return pod
	}
	deleted := changed(func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: r.Now()} })
	budget := r.budget("all")
	edited, booked, opened := budget.DeepCopy(), budget.DeepCopy(), budget.DeepCopy()
	edited.Generation, booked.Status.UnavailableAllowed, opened.Status.UnavailableAllowed = 2, 0, 9
	noted := budget.DeepCopy()
	noted.Annotations = map[string]string{"pub.kruise.io/protect-total-replicas": "7"}
	both := []string{"all now", "set now"}
	for name, tt := range map[string]struct {
		old, now client.Object
		want     []string
	}{
		"a new pod": {nil, of, both},
		"one of no budget": {nil, changed(func(pod *corev1.Pod) {
			pod.Labels, pod.OwnerReferences, pod.Annotations["pub.kruise.io/related-pub"] = nil, nil, "other"
		}), nil},
		"a pod that is gone":       {of, nil, both},
		"one without annotations":  {nil, changed(func(pod *corev1.Pod) { pod.Annotations = nil }), both},
		"deletion begins":          {of, deleted, []string{"all now", "all after 5s", "set now", "set after 5s"}},
		"nothing that is counted":  {of, changed(func(pod *corev1.Pod) { pod.Status.Message = "x" }), nil},
		"not ready":                {of, changed(func(pod *corev1.Pod) { pod.Status.Conditions = nil }), both},
		"ready":                    {changed(func(pod *corev1.Pod) { pod.Status.Conditions = nil }), of, both},
		"ended":                    {of, changed(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }), both},
		"an update in place":       {of, changed(func(pod *corev1.Pod) { pod.Annotations["apps.kruise.io/inplace-update-grace"] = `{"revision":"x"}` }), both},
		"it leaves one of them":    {of, changed(func(pod *corev1.Pod) { pod.Labels["team"] = "b" }), both},
		"it names another":         {of, changed(func(pod *corev1.Pod) { pod.Annotations["pub.kruise.io/related-pub"] = "x" }), both},
		"it is released":           {of, changed(func(pod *corev1.Pod) { pod.OwnerReferences = nil }), both},
		"a new budget":             {nil, budget, []string{"all now"}},
		"a budget that is gone":    {budget, nil, []string{"all now"}},
		"it says something else":   {budget, edited, []string{"all now"}},
		"so its annotations":       {budget, noted, []string{"all now"}},
		"somebody books":           {budget, booked, []string{"all after 5s"}},
		"somebody writes a status": {budget, opened, []string{"all now"}},
	} {
		queue, on := &asked{}, r.leader.led.handler
		_, was := tt.old.(*policyv1beta1.PodUnavailableBudget)
		if _, is := tt.now.(*policyv1beta1.PodUnavailableBudget); is || was {
			on = budgets()
		}
		switch {
		case tt.old == nil:
			on.Create(t.Context(), event.CreateEvent{Object: tt.now}, queue)
		case tt.now == nil:
			on.Delete(t.Context(), event.DeleteEvent{Object: tt.old}, queue)
		default:
			on.Update(t.Context(), event.UpdateEvent{ObjectOld: tt.old, ObjectNew: tt.now}, queue)
		}
		if !slices.Equal(queue.of, tt.want) {
			t.Errorf("%s: queued: got %q, want %q", name, queue.of, tt.want)
		}
	}
}

// PUB-105 (part): a workload that comes, goes, begins to be deleted, is another one, or changes its spec has
// those budgets counted whose numbers depend on it.
func TestWhenWorkloadsTell(t *testing.T) {
	kind := func(group, kind string) schema.GroupKind { return schema.GroupKind{Group: group, Kind: kind} }
	for _, of := range []schema.GroupKind{kind("apps", "Deployment"), kind("apps", "StatefulSet"), kind("apps", "ReplicaSet"),
		kind("", "ReplicationController"), kind("apps.kruise.io", "CloneSet"), kind("apps.kruise.io", "StatefulSet")} {
		if !counted(of) {
			t.Errorf("%v is not watched", of)
		}
		w, told := NewWorkloads(nil, nil, nil, nil), []string(nil)
		w.Tell(func(namespace string, changed podunavailablebudget.Reference, moved bool) {
			told = append(told, fmt.Sprint(namespace+" "+changed.Group+" "+changed.Kind+" "+changed.Name+" ", moved))
		})
		object := func(change func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
			o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "a", Generation: 1}}
			change(o)
			return o
		}
		same := object(func(*metav1.PartialObjectMetadata) {})
		on := w.handler(of)
		for i, tt := range []struct {
			do          func()
			want, moved bool
		}{
			{func() { on.OnAdd(same, true) }, true, false}, {func() { on.OnAdd(same, false) }, true, false}, {func() { on.OnDelete(same) }, true, true},
			{func() { on.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: same}) }, true, true},
			{func() { on.OnUpdate(same, object(func(o *metav1.PartialObjectMetadata) { o.Generation++ })) }, true, false},
			{func() { on.OnUpdate(same, object(func(o *metav1.PartialObjectMetadata) { o.UID = "b" })) }, true, true},
			{func() {
				on.OnUpdate(same, object(func(o *metav1.PartialObjectMetadata) { o.DeletionTimestamp = &metav1.Time{} }))
			}, true, false},
			{func() {
				on.OnUpdate(same, object(func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = controlledBy(o, "apps/v1", "Deployment") }))
			}, true, true},
			{func() { on.OnUpdate(same, object(func(o *metav1.PartialObjectMetadata) { o.ResourceVersion = "9" })) }, false, false},
		} {
			told = nil
			if tt.do(); (len(told) == 1) != tt.want {
				t.Errorf("%v, %d: told %q, want one: %t", of, i, told, tt.want)
			} else if want := fmt.Sprint("shop "+of.Group+" "+of.Kind+" web ", tt.moved); tt.want && told[0] != want {
				t.Errorf("%v, %d: told %q, want %q", of, i, told, want)
			}
		}
	}
	r := newWorld(1)
	r.withSet(1, 1)
	r.withDeployment(1)
	r.replicaSet("rs", "rs", 1, nil)
	r.protect("all")
	r.protect("set", target("apps.kruise.io/v1beta1", "CloneSet", setName))
	r.protect("elsewhere", target("apps/v1", "Deployment", "other"))
	r.beginOnTime()
	r.rest()
	for name, want := range map[podunavailablebudget.Reference][]string{
		{GroupKind: kind("apps.kruise.io", "CloneSet"), Name: setName}:    {"all now", "set now"},
		{GroupKind: kind("apps", "Deployment"), Name: "dep"}:              {"all now"},
		{GroupKind: kind("apps", "ReplicaSet"), Name: "dep-1"}:            nil, // the Deployment counts
		{GroupKind: kind("apps", "ReplicaSet"), Name: "rs"}:               {"all now"},
		{GroupKind: kind("apps", "Deployment"), Name: "other"}:            {"elsewhere now"},
		{GroupKind: kind("apps.kruise.io", "StatefulSet"), Name: "other"}: nil,
	} {
		queue := &asked{}
		if r.leader.led.budgets.ofWorkload(queue, namespace, name, false); !slices.Equal(queue.of, want) {
			t.Errorf("budgets of %v: got %q, want %q", name, queue.of, want)
		}
	}
	queue, between := &asked{}, podunavailablebudget.Reference{GroupKind: kind("apps", "ReplicaSet"), Name: "dep-1"}
	if r.leader.led.budgets.ofWorkload(queue, namespace, between, true); !slices.Contains(queue.of, "all now") {
		t.Errorf("a ReplicaSet whose Deployment is another: %v", queue.of)
	}
}

// PUB-089 (part): a budget that is gone holds nobody as soon as that is known, and another one that covers the pod decides in its
// place. While the caches of a replica show neither that it is gone nor another one, nobody knows whether one was made before it
// went: the pod waits. Who replaced a budget by one of another name once left its pods unprotected for a moment.
func TestAnotherBudgetDecidesInThePlaceOfOneThatIsGone(t *testing.T) {
	for _, both := range []bool{false, true} {
		r := newWorld(1)
		r.withSet(3, 1)
		r.begin()
		add := func(name, label, value string) {
			b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			b.Spec.MaxUnavailable, b.Spec.Selector = new(intstr.FromInt32(0)), &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}
			r.Store(budgetKey(name), b)
		}
		add("old", "team", "a")
		if both {
			add("new", "app", "web")
		}
		r.rest()
		r.Remove(budgetKey("old"))
		book := func(m *replica) (Answer, error) {
			return m.watch.Guard.Book(t.Context(), Request{Pod: r.pods()[0], By: policyv1beta1.Delete})
		}
		for _, m := range r.managers { // no event has come yet
			if answer, err := book(m); both && (err != nil || answer.Allowed) || !both && !errors.Is(err, booking.ErrBehind) {
				t.Errorf("both %t, before it is known: got %+v, %v", both, answer, err)
			}
		}
		r.rest()
		for _, m := range r.managers {
			if answer, err := book(m); err != nil || answer.Allowed == both {
				t.Errorf("both %t, when it is known: got %+v, %v", both, answer, err)
			}
		}
	}
}

// PUB-070 (part), PUB-076 (part): who writes the name of a budget on a pod frees it from none that covers it.
// A budget of a workload of another kind may have pods that only its scale subresource selects, which was
// believed of each pod that names it.
func TestAPodCannotChooseABudgetThatDoesNotCoverIt(t *testing.T) {
	for _, strict := range []string{"target", "selector"} {
		r := newWorld(1)
		r.withDeployment(3)
		r.begin()
		for _, name := range []string{strict, "lax"} {
			b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			if covered(b, name); name == "lax" { // its workload does not exist, so that it lets all pods go
				b.Spec.Selector, b.Spec.TargetReference = nil, &policyv1beta1.TargetReference{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: "gone"}
			}
			r.Store(budgetKey(name), b)
		}
		r.rest()
		pod := r.pods()[0]
		for _, annotation := range []string{"pub.kruise.io/related-pub", "kruise.io/related-pub"} {
			pod.Annotations = map[string]string{annotation: "lax"}
			for _, m := range r.managers {
				answer, err := m.watch.Guard.Book(t.Context(), Request{Pod: pod, By: policyv1beta1.Delete})
				if err != nil {
					t.Errorf("%s, %s: unexpected error: %v\n%+v", strict, annotation, err, answer)
				} else if answer.Allowed {
					t.Errorf("%s, %s: allowed: got true, want false\n%+v\n%v", strict, annotation, answer, err)
				}
			}
		}
		r.Store(podKey(pod.Name), pod)
		if r.rest(); r.pods()[0].Annotations["pub.kruise.io/related-pub"] != strict {
			t.Errorf("budget of the pod: got annotations %v, want %s", r.pods()[0].Annotations, strict)
		}
	}
}

// Events ask which budgets a workload counts for while these are counted. This once ended the process: a map
// was read and written.
func TestEventsComeDuringAPass(t *testing.T) {
	r := newWorld(1)
	r.withSet(3, 1)
	r.newBudget(1)
	r.begin()
	r.rest()
	pass, rules, counts := r.leader.led.budgets.pass, r.leader.watch.Index.In(namespace)[0], make(chan bool)
	stop := make(chan struct{})
	go func() {
		known := true
		for {
			select {
			case counts <- known:
			case <-stop:
				return
			default:
				known = pass.Counts(rules, podunavailablebudget.Reference{GroupKind: appsv1beta1.GroupVersion.WithKind("CloneSet").GroupKind(), Name: setName}, false)
			}
		}
	}()
	for range 100 {
		r.leader.led.queue.Add(requestOf("b1"))
		r.Pass(time.Second)
		r.leader.work()
	}
	if !<-counts {
		t.Error("the budget does not count for the CloneSet")
	}
	close(stop)
}
