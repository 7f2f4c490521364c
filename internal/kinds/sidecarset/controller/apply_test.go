package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestOnePodFails: one pod that is refused, as by a PodUnavailableBudget, does not keep the others from being
// upgraded, is told of, and is tried again (SS-230, SS-253 (part)).
func TestOnePodFails(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(sidecarsettest.AllAtOnce), 3)
	refuse := true
	s.Refused = func(w simulation.Write) bool { return refuse && w.Key.Name == "web-0" }
	s.change(sidecarsettest.Image("proxy", "proxy:2"))
	for range 30 {
		s.Round()
	}
	images := func() string {
		var all []string
		for _, pod := range s.AllPods() {
			all = append(all, pod.Spec.Containers[0].Image)
		}
		return strings.Join(all, " ")
	}
	if got := images(); got != "proxy:1 proxy:2 proxy:2" {
		t.Errorf("images %s", got)
	}
	if !strings.Contains(strings.Join(s.Recorded, "\n"), "Warning FailedUpgradePod failed to upgrade pod default/web-0") {
		t.Errorf("events %v", s.Recorded)
	}
	refuse = false
	if err := s.Settle(200); err != nil {
		t.Errorf("coming to rest: unexpected error: %v\n%q", err, images())
	} else if got := images(); got != "proxy:2 proxy:2 proxy:2" {
		t.Errorf("images: got %q, want %q\n%v", got, "proxy:2 proxy:2 proxy:2", err)
	}
}

// TestOnePodFailsAtATime: a pod that is refused again and again does not take up all of maxUnavailable for
// ever: once it was refused the others come first (SS-230).
func TestOnePodFailsAtATime(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(), 3)
	refuse, tried := true, 0
	s.Refused = func(w simulation.Write) bool {
		if refuse && w.Key.Name == "web-0" {
			tried++
			return true
		}
		return false
	}
	s.change(sidecarsettest.Image("proxy", "proxy:2"))
	for range 30 {
		s.Round()
		s.Pass(time.Second)
	}
	images := map[string]string{}
	for _, pod := range s.AllPods() {
		images[pod.Name] = sidecarset.ImageOf(pod, "proxy")
	}
	if diff := cmp.Diff(map[string]string{"web-0": "proxy:1", "web-1": "proxy:2", "web-2": "proxy:2"}, images); diff != "" {
		t.Errorf("images (-want +got):\n%s\n%s", diff, s.describe())
	}
	if tried < 2 {
		t.Errorf("tried: got %d, want at least 2\n%s", tried, s.describe())
	}
	refuse = false
	if err := s.Settle(200); err != nil {
		t.Errorf("coming to rest: unexpected error: %v\n%s", err, s.describe())
	} else if got := sidecarset.ImageOf(s.AllPods()[0], "proxy"); got != "proxy:2" {
		t.Errorf("image of proxy: got %q, want %q\n%v\n%s", got, "proxy:2", err, s.describe())
	} else if s.pass.Kept(s.set().UID).known.Refused(s.set(), s.AllPods()[0].UID) {
		t.Errorf("the pod counts as refused: got true, want false\n%v\n%s", err, s.describe())
	}
}

// TestOneResetFails: a hot upgrade that cannot be ended is told of and tried again, and the other pods go on
// (SS-230, SS-262).
func TestOneResetFails(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(sidecarsettest.AllAtOnce, sidecarsettest.Containers(sidecarsettest.Hot("proxy", "proxy:1"))), 3)
	refuse := true
	s.Refused = func(w simulation.Write) bool { // all that follows its upgrade
		return refuse && w.Key.Name == "web-0" && w.Subresource == "" && sidecarset.ImageOf(s.AllPods()[0], "proxy-2") == "proxy:2"
	}
	s.change(sidecarsettest.Image("proxy", "proxy:2"),
		sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.MaxUnavailable = new(intstr.FromInt32(2)) }))
	for range 60 {
		s.Round()
		s.Pass(time.Second)
	}
	images := map[string]string{}
	for _, pod := range s.AllPods() {
		images[pod.Name] = sidecarset.ImageOf(pod, "proxy-1") + " " + sidecarset.ImageOf(pod, "proxy-2")
	}
	if diff := cmp.Diff(map[string]string{"web-0": "proxy:1 proxy:2", "web-1": "empty:1 proxy:2", "web-2": "empty:1 proxy:2"},
		images); diff != "" {
		t.Errorf("images (-want +got):\n%s\n%s", diff, s.describe())
	}
	if !strings.Contains(strings.Join(s.Recorded, "\n"), "pod web-0 Warning ResetContainerFailed reset sidecar container image empty failed: ") {
		t.Errorf("events: got %q, want it to contain %q", strings.Join(s.Recorded, "\n"),
			"pod web-0 Warning ResetContainerFailed reset sidecar container image empty failed: ")
	}
	refuse = false
	if err := s.Settle(200); err != nil {
		t.Errorf("coming to rest: unexpected error: %v\n%s", err, s.describe())
	} else if got := sidecarset.ImageOf(s.AllPods()[0], "proxy-1"); got != "empty:1" {
		t.Errorf("image of proxy-1: got %q, want %q\n%v\n%s", got, "empty:1", err, s.describe())
	}
}

// Cpu of a sidecar changes one pod at a time without a restart; a node that cannot give it stops the upgrade,
// and the pod says so, until the SidecarSet asks for less (SS-W02).
func TestASidecarIsResizedOnePodAtATime(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(sidecarsettest.Sized("1")), 2)
	s.features.Resize = true
	s.Start()
	is := func(what, cpu, upgradable string, restarts int32) {
		t.Helper()
		if err := s.Settle(300); err != nil {
			t.Fatal(err)
		}
		var all, entries []string
		for _, pod := range s.AllPods() {
			all = append(all, pod.Spec.Containers[0].Resources.Requests.Cpu().String())
			entries = append(entries, fmt.Sprint(sidecarset.UpgradableOf(pod)["mesh"]))
			if pod.Status.ContainerStatuses[0].RestartCount != restarts {
				t.Errorf("%s: %d restarts", what, pod.Status.ContainerStatuses[0].RestartCount)
			}
		}
		if diff := cmp.Diff([]string{cpu, upgradable}, []string{strings.Join(all, " "), strings.Join(entries, " ")}); diff != "" {
			t.Errorf("%s: resources and what can be upgraded (-want +got):\n%s%s", what, diff, s.describe())
		}
	}
	is("at first", "1 1", "false false", 0)
	s.change(sidecarsettest.Sized("2"))
	is("resources alone", "2 2", "true true", 0)
	s.change(sidecarsettest.Sized("3"), sidecarsettest.Image("proxy", "proxy:2"))
	is("an image, too", "3 3", "true true", 1)
	s.Node.Unfit = map[string]bool{string(s.AllPods()[0].UID): true}
	s.change(sidecarsettest.Sized("9"))
	is("more than the node has", "9 3", "false true", 1)
	s.Node.Unfit = nil
	s.change(sidecarsettest.Sized("4"))
	is("less", "4 4", "true true", 1)
}

// TestResizeThatIsTakenBackHalfWay: a pod was given other resources, the manager died before it wrote that
// down, and the user wants the former ones again: the pod gets them, although its record never told of others
// (SS-231, SS-W02).
func TestResizeThatIsTakenBackHalfWay(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(sidecarsettest.Sized("1")), 1)
	s.features.Resize = true
	s.Start()
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	s.AfterWrite = func(w simulation.Write) {
		if w.Subresource == "resize" {
			s.AfterWrite = nil
			s.Faults.Die = 1
		}
	}
	s.change(sidecarsettest.Sized("2"))
	for range 10 {
		s.Round()
	}
	cpu := s.AllPods()[0].Spec.Containers[0].Resources.Requests.Cpu().String()
	if !s.Dead() {
		t.Fatalf("dead: got false, want true\n%s", s.describe())
	}
	if cpu != "2" {
		t.Fatalf("CPU of the requests of the resources: got %q, want %q\n%s", cpu, "2", s.describe())
	}
	s.change(sidecarsettest.Sized("1"))
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	pod := s.AllPods()[0]
	if cpu := pod.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "1" {
		t.Errorf("CPU of the requests of the resources: got %q, want %q\n%s", cpu, "1", s.describe())
	} else if got := s.set().Status.UpdatedReadyPods; got != 1 {
		t.Errorf("updated and ready pods: got %d, want 1\n%q\n%s", got, cpu, s.describe())
	} else if strings.Contains(pod.Annotations[pub.SidecarSetInPlaceUpdateState], "resizing") {
		t.Errorf("annotation sidecar set in place update state of the pod: got %q, want it not to contain %q\n%q\n%s",
			pod.Annotations[pub.SidecarSetInPlaceUpdateState], "resizing", cpu, s.describe())
	}
}

// A pod that changed meanwhile is upgraded in the same pass, from what it is now, if the decision still holds
// (SS-229).
func TestAPodThatChangedMeanwhileIsUpgradedInTheSamePass(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"somebody else's annotation": {func(pod *corev1.Pod) { pod.Annotations["x"] = "y" }, "proxy:2"},
		"it is being deleted":        {func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: sidecarsettest.Now} }, "proxy:1"},
		"it was upgraded":            {func(pod *corev1.Pod) { pod.Annotations[pub.SidecarSetHash] = `{"mesh":"later"}` }, "proxy:1"},
		"it does not match any more": {func(pod *corev1.Pod) { pod.Labels["app"] = "other" }, "proxy:1"},
		"its application has finished": {func(pod *corev1.Pod) {
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		}, "proxy:1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, sidecarsettest.Set(sidecarsettest.AllAtOnce), 1)
			if err := s.Settle(50); err != nil {
				t.Fatal(err)
			}
			s.change(sidecarsettest.Image("proxy", "proxy:2"))
			s.Events(99)
			s.Change(podKey("web-0"), func(o client.Object) { tt.change(o.(*corev1.Pod)) })
			s.Manage()
			if got := s.AllPods()[0].Spec.Containers[0].Image; got != tt.want {
				t.Errorf("image %s", got)
			}
		})
	}
}

// TestFreeBeforeConflict: a pod that was not ready, and therefore free of charge, is left alone if it has
// become ready meanwhile (SS-219).
func TestFreeBeforeConflict(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.MaxUnavailable = new(intstr.FromInt32(0)) })), 1)
	s.Change(podKey("web-0"), func(o client.Object) { sidecarsettest.Ready(o.(*corev1.Pod), false) })
	s.Events(99)
	s.Manage()
	s.change(sidecarsettest.Image("proxy", "proxy:2"))
	s.Events(99)
	s.Change(podKey("web-0"), func(o client.Object) { sidecarsettest.Ready(o.(*corev1.Pod), true) })
	s.Manage()
	if got := s.AllPods()[0].Spec.Containers[0].Image; got != "proxy:1" {
		t.Errorf("image %s", got)
	}
}

// TestNameTaken: a revision whose name is taken by one of a former SidecarSet of that name is waited for; one
// with other content counts as a collision (SS-185).
func TestNameTaken(t *testing.T) {
	for name, tt := range map[string]struct {
		mutate func(*appsv1.ControllerRevision)
		want   int32
	}{
		"another content":   {func(r *appsv1.ControllerRevision) { r.Data.Raw, r.Labels = []byte(`{"spec":{"containers":null}}`), nil }, 1},
		"of a former one":   {func(r *appsv1.ControllerRevision) { sidecarsettest.OwnedBy("former")(r) }, 0},
		"one that we wrote": {func(*appsv1.ControllerRevision) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, sidecarsettest.Set(), 1)
			r := sidecarsettest.Stored("proxy:1", 1)
			r.Namespace, r.OwnerReferences[0].UID = "kruise-system", s.set().UID
			tt.mutate(r)
			former := s.Store(revisionKey(r.Name), r) // the cache does not show it yet
			s.Manage()
			s.Events(99)
			if name == "of a former one" {
				s.Remove(revisionKey(former.GetName()))
			}
			if err := s.Settle(100); err != nil {
				t.Fatal(err)
			}
			status := s.set().Status
			collisions := int32(0)
			if status.CollisionCount != nil {
				collisions = *status.CollisionCount
			}
			latest, ok := s.Get(revisionKey(status.LatestRevision)).(*appsv1.ControllerRevision)
			if collisions != tt.want {
				t.Errorf("collisions: got %d, want %d; status %+v", collisions, tt.want, status)
			} else if !ok {
				t.Errorf("ok: got false, want true; status %+v", status)
			} else if !sidecarset.SameContent(latest.Data.Raw, sidecarsettest.Stored("proxy:1", 1).Data.Raw) {
				t.Errorf(`the latest revision has the content of the first: got false, want true; status %+v`,
					status)
			} else if (status.LatestRevision != r.Name) != (tt.want > 0) {
				t.Errorf("the latest revision is another one: got %t, want %t; status %+v",
					status.LatestRevision != r.Name, tt.want > 0, status)
			}
		})
	}
}

// TestOnePodPanics: what nobody thought of in one pod ends neither the manager, with the webhooks in it, nor
// the upgrade of the others (SS-230, SS-D07).
func TestOnePodPanics(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(sidecarsettest.AllAtOnce), 2)
	if err := s.Settle(50); err != nil {
		t.Fatal(err)
	}
	s.change(sidecarsettest.Image("proxy", "proxy:2"))
	s.Events(99)
	snapshot, err := s.kube.Snapshot(t.Context(), s.set())
	if err != nil {
		t.Fatal(err)
	}
	plan := sidecarset.Make(*snapshot)
	plan.Verdicts[0].Change = func(*corev1.Pod, time.Time) ([]*podpatch.Patch, error) { panic("what is this?") }
	result := s.pass.Applier.Apply(t.Context(), plan)
	if result.Err == nil {
		t.Errorf("error: got nil, want an error\n%q", s.Recorded)
	} else if !strings.Contains(result.Err.Error(), "what is this?") {
		t.Errorf("error: got %q, want it to contain %q\n%q", result.Err.Error(), "what is this?", s.Recorded)
	} else if !strings.Contains(strings.Join(s.Recorded, "\n"), "FailedUpgradePod") {
		t.Errorf("events: got %q, want it to contain %q\n%v", strings.Join(s.Recorded, "\n"), "FailedUpgradePod",
			result.Err)
	}
	if got := sidecarset.ImageOf(s.AllPods()[1], "proxy"); got != "proxy:2" {
		t.Errorf("the other pod has %s", got)
	}
}

// TestRevisionThatIsRefused: what keeps the revision from being stored, and with it all that names it, is
// told (SS-183, SS-262).
func TestRevisionThatIsRefused(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(), 1)
	refuse := true
	s.Refused = func(w simulation.Write) bool { return refuse && w.Key.Kind == "ControllerRevision" }
	for range 5 {
		s.Round()
	}
	if !strings.Contains(strings.Join(s.Recorded, "\n"), "Warning FailedStoreRevision failed to store revision mesh-") {
		t.Errorf("events: got %q, want it to contain %q\n%+v", strings.Join(s.Recorded, "\n"),
			"Warning FailedStoreRevision failed to store revision mesh-", s.set().Status)
	}
	if got := s.set().Status.ObservedGeneration; got != 0 {
		t.Errorf("observed generation: got %d, want 0\n%+v", got, s.set().Status)
	}
	refuse = false
	if err := s.Settle(100); err != nil {
		t.Errorf("coming to rest: unexpected error: %v\n%+v", err, s.set().Status)
	} else if got := s.set().Status.MatchedPods; got != 1 {
		t.Errorf("matched pods: got %d, want 1\n%v\n%+v", got, err, s.set().Status)
	}
}

// TestCacheThatNeverShowsAWrite: a cache that does not show what was written holds up nothing, and nothing is
// written twice for it (SS-193).
func TestCacheThatNeverShowsAWrite(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(), 2)
	s.Manage() // its writes are never delivered
	writes := len(s.Writes)
	if writes == 0 {
		t.Fatal("nothing was written")
	}
	for _, later := range []time.Duration{0, time.Second, 5 * time.Minute} {
		s.Pass(later)
		if outcome, err := s.run(); err != nil {
			t.Fatalf("unexpected error: %v\n%+v", err, outcome)
		} else if outcome.Plan == nil {
			t.Fatalf("plan: got nil, want a value\n%+v\n%v", outcome, err)
		}
	}
	if again := len(s.Writes) - writes; again > 0 {
		t.Errorf("written again: %v", s.Writes[writes:])
	}
}

// TestEventsOfPods: what a plan reads of a pod leads to its SidecarSets, nothing else does (SS-190, SS-191).
func TestEventsOfPods(t *testing.T) {
	set := sidecarsettest.Set()
	sidecarsettest.Stamp(set)
	sim := simulate(1, sidecarsettest.Set(), 0)
	for _, name := range []string{"logs", "third"} {
		sim.Store(simulation.Key{Kind: sidecarset.Kind, Name: name}, &appsv1beta1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	sim.Events(99)
	podEvents := (&reconciler{pass: sim.pass}).podEvents()
	asked := func(do func(queue)) int {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		do(q)
		return q.Len()
	}
	pod := sidecarsettest.Pod(set, "p", sidecarsettest.Running, sidecarsettest.Annotated(pub.SidecarSetInjectedList, "mesh,logs"))
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   int
	}{
		"nothing":                    {func(*corev1.Pod) {}, 0},
		"somebody else's annotation": {sidecarsettest.Annotated("x", "y"), 0},
		"another condition": {func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "Other"})
		}, 0},
		"it is not ready any more": {sidecarsettest.NotReady, 2},
		"it is being deleted":      {func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: sidecarsettest.Now} }, 2},
		"a label":                  {sidecarsettest.Labelled("a", "b"), 2},
		"a container":              {func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].ContainerID = "other" }, 2},
		"an image":                 {func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "other" }, 2},
		"one more in the list":     {sidecarsettest.Annotated(pub.SidecarSetInjectedList, "mesh,logs,third"), 3},
		"a condition of ours": {func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: pub.SidecarSetUpgradable})
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			after := pod.DeepCopy()
			tt.change(after)
			if got := asked(func(q queue) {
				podEvents.UpdateFunc(t.Context(), event.UpdateEvent{ObjectOld: pod, ObjectNew: after}, q)
			}); got != tt.want {
				t.Errorf("%d are asked, want %d", got, tt.want)
			}
		})
	}
	if got := asked(func(q queue) { podEvents.CreateFunc(t.Context(), event.CreateEvent{Object: pod}, q) }); got != 2 {
		t.Errorf("creation: %d", got)
	}
	if got := asked(func(q queue) { podEvents.DeleteFunc(t.Context(), event.DeleteEvent{Object: pod}, q) }); got != 2 {
		t.Errorf("deletion: %d", got)
	}
	if got := asked(func(q queue) { podEvents.CreateFunc(t.Context(), event.CreateEvent{Object: &corev1.Pod{}}, q) }); got != 0 {
		t.Errorf("a pod without sidecars: %d", got)
	}
	for _, name := range []string{setKey.Name, "logs", "third"} { // pods list what is gone as long as they live
		sim.Remove(simulation.Key{Kind: sidecarset.Kind, Name: name})
	}
	sim.Events(1 << 20)
	if got := asked(func(q queue) { podEvents.DeleteFunc(t.Context(), event.DeleteEvent{Object: pod}, q) }); got != 0 {
		t.Errorf("%d passes for SidecarSets that are gone", got)
	}
	noted := pod.DeepCopy()
	noted.Status.Conditions = append(noted.Status.Conditions, corev1.PodCondition{Type: pub.SidecarSetUpgradable, Message: `{"logs":true}`})
	if got := asked(func(q queue) { podEvents.CreateFunc(t.Context(), event.CreateEvent{Object: noted}, q) }); got != 1 {
		t.Errorf("%d passes for one that a condition names", got)
	}
	status := set.DeepCopy()
	status.Status.MatchedPods = 3
	spec := set.DeepCopy()
	spec.Generation++
	if setEvents.Update(event.UpdateEvent{ObjectOld: set, ObjectNew: status}) {
		t.Error("SS-190: the status is no event, the spec is: a change of the status calls: got true, want false")
	}
	if !setEvents.Update(event.UpdateEvent{ObjectOld: set, ObjectNew: spec}) {
		t.Error("SS-190: the status is no event, the spec is: a change of the spec calls: got false, want true")
	}
	namespace, labelledNamespace := &corev1.Namespace{}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}
	if !namespaceEvents.Update(event.UpdateEvent{ObjectOld: namespace, ObjectNew: labelledNamespace}) {
		t.Error("SS-191: labels of namespaces are events: other labels call: got false, want true")
	}
	if namespaceEvents.Update(event.UpdateEvent{ObjectOld: namespace, ObjectNew: namespace}) {
		t.Error("SS-191: labels of namespaces are events: the same labels call: got true, want false")
	}
}

// Numbers by state, revision and reason, which go with the SidecarSet (SS-264, SS-W09).
func TestMetricsGoWithTheSidecarSet(t *testing.T) {
	s := sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Image("proxy", "proxy:2")), sidecarsettest.Set(), 3)
	m := newMeters()
	plan := sidecarset.Make(s)
	m.observe(plan, nil)
	if n := len(m.known["mesh"]); n != 2 { // one revision, one reason
		t.Errorf("series of the SidecarSet: got %v, want one revision and one reason", m.known)
	}
	s.Set.Spec.UpdateStrategy.Paused = true
	m.observe(sidecarset.Make(s), nil)
	if !m.known["mesh"]["wPaused"] {
		t.Errorf("series of pods that wait while paused: got false, want true\n%v", m.known)
	}
	if m.known["mesh"]["wMaxUnavailable"] {
		t.Errorf("series of pods that wait for MaxUnavailable: got true, want false\n%v", m.known)
	}
	m.forget("mesh")
	if len(m.known) != 0 {
		t.Errorf("number of series: got %d, want 0\n%v", len(m.known), m.known)
	}
}
