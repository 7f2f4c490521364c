package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob"
	. "github.com/afloat-project/afloat/internal/kinds/ephemeraljob/ephemeraljobtest"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

type events []string

// Event implements reconcile.Recorder.
func (e *events) Event(_ client.Object, kind, reason, note string) {
	*e = append(*e, fmt.Sprintf("%s %s: %s", kind, reason, note))
}

// stage is a cluster with a job, pods and a manager whose caches keep up.
type stage struct {
	*simulation.Cluster
	t      *testing.T
	r      *Reconciler
	c      *controller
	events events
}

func newStage(t *testing.T, job *appsv1alpha1.EphemeralJob, pods ...*corev1.Pod) *stage {
	t.Helper()
	s := &stage{Cluster: simulation.New(1), t: t}
	job.ResourceVersion = ""
	s.Store(jobKey, job)
	for _, pod := range pods {
		pod.ResourceVersion = ""
		s.Store(podKey(pod.Name), pod)
	}
	_ = s.IndexField(t.Context(), &appsv1alpha1.EphemeralJob{}, unfinished, indexUnfinished)
	s.start()
	return s
}

func (s *stage) start() {
	s.r = &Reconciler{API: s.API(), Events: &s.events, Pods: s.Pods(), meters: newMeters()}
	s.c = s.r.controller()
}

// pass lets the caches keep up, and makes a pass.
func (s *stage) pass() (reconcile.Outcome, error) {
	s.t.Helper()
	s.Deliver(1000)
	return s.c.Run(s.t.Context(), types.NamespacedName{Namespace: "shop", Name: "dump"}, "job")
}

func (s *stage) job() *appsv1alpha1.EphemeralJob {
	job, _ := s.Get(jobKey).(*appsv1alpha1.EphemeralJob)
	return job
}

func (s *stage) treated() (names string) {
	for _, object := range s.List("Pod", false) {
		if len(object.(*corev1.Pod).Spec.EphemeralContainers) > 0 {
			names += object.GetName() + " "
		}
	}
	return strings.TrimSpace(names)
}

func many(n int) (pods []*corev1.Pod) {
	for i := range n {
		pods = append(pods, Pod(fmt.Sprintf("p%02d", i)))
	}
	return pods
}

func parallel(n int32) func(*appsv1alpha1.EphemeralJob) {
	return func(job *appsv1alpha1.EphemeralJob) { job.Spec.Parallelism = &n }
}

// EJ-045: all containers of a pod come with one patch of the subresource; the pods in batches of 1, 2, 4, and
// none after a batch in which one failed. EJ-084: an event for each batch. EJ-047 (part): what failed is told
// once, and tried again later.
func TestPodsAreInjectedInGrowingBatches(t *testing.T) {
	job := Job(parallel(10), With(`[{"name":"dump","image":"a"},{"name":"two","image":"b"}]`))
	s := newStage(t, job, many(10)...)
	refuse := true
	s.Refused = func(w simulation.Write) bool { return false }
	s.Answer = func(r *simulation.Request) error {
		if r.Subresource == subresource && r.Key.Name == "p01" && refuse {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p01", errors.New("pod security"))
		}
		return nil
	}
	done, err := s.pass()
	if err != nil {
		t.Fatalf("unexpected error: %v; %v, treated %s", err, err, s.treated())
	} else if got := s.treated(); got != "p00 p02" {
		t.Fatalf("treated: got %q, want %q; %v, treated %s", got, "p00 p02", err, s.treated())
	}
	if done.After <= 0 {
		t.Errorf("time to the next pass: got %v, want more than 0", done.After)
	}
	if done.After > time.Second {
		t.Errorf("time to the next pass: got %v, want at most %v", done.After, time.Second)
	}
	want := []string{"Normal Injected: added the ephemeral containers to p00", "Normal Injected: added the ephemeral containers to p02",
		`Warning CreateFailed: the ephemeral containers could not be added to p01: pods "p01" is forbidden: pod security`}
	if !slices.Equal(s.events, want) {
		t.Errorf("events: got %q, want %q", s.events, want)
	}
	for range 3 { // it is held, and the others are not
		if _, err := s.pass(); err != nil {
			t.Fatalf("unexpected error: %v; %v, treated %s", err, err, s.treated())
		} else if got := s.treated(); got != "p00 p02 p03 p04 p05 p06 p07 p08 p09" {
			t.Fatalf("treated: got %q, want %q; %v, treated %s", got, "p00 p02 p03 p04 p05 p06 p07 p08 p09", err, s.treated())
		}
	}
	if n := len(s.events); n != 6 { // of 1, 2 and 4 more
		t.Errorf("%d events: %q", n, s.events)
	}
	refuse = false
	s.Pass(time.Second)
	if _, err := s.pass(); err != nil {
		t.Fatalf("unexpected error: %v; %v, treated %s", err, err, s.treated())
	} else if got := s.treated(); got != "p00 p01 p02 p03 p04 p05 p06 p07 p08 p09" {
		t.Fatalf("treated: got %q, want %q; %v, treated %s", got, "p00 p01 p02 p03 p04 p05 p06 p07 p08 p09", err, s.treated())
	}
	for _, w := range s.Writes {
		if w.Key.Kind == "Pod" && w.Subresource != subresource {
			t.Errorf("subresource: got %q, want %q\n%+v", w.Subresource, subresource, w)
		}
	}
	for _, pod := range s.List("Pod", false) {
		if c := pod.(*corev1.Pod).Spec.EphemeralContainers; len(c) != 2 {
			t.Errorf("number of conditions: got %d, want 2\n%+v", len(c), c)
		} else if c[1].Name != "two" {
			t.Errorf("name of the second condition: got %q, want %q\n%+v", c[1].Name, "two", c)
		}
	}
}

// A policy that refuses all pods is asked ever more rarely, whatever calls the controller, and told of once.
func TestEverythingIsRefused(t *testing.T) {
	s := newStage(t, Job(), many(50)...)
	asked := 0
	s.Answer = func(r *simulation.Request) error {
		if r.Subresource != subresource {
			return nil
		}
		asked++
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("pod security"))
	}
	for range 6000 { // ten minutes
		if _, err := s.pass(); err != nil {
			t.Fatal(err)
		}
		s.Pass(100 * time.Millisecond)
	}
	if asked < 10 {
		t.Errorf("asked: got %d, want at least 10", asked)
	}
	if asked > 20 {
		t.Errorf("asked: got %d, want at most 20", asked)
	}
	if len(s.events) > asked {
		t.Errorf("number of events: got %d, want at most %d", len(s.events), asked)
	}
}

// EJ-047: an injection whose answer was lost is not repeated, though the caches show nothing of it.
func TestAnInjectionWhoseAnswerWasLostIsNotRepeated(t *testing.T) {
	s := newStage(t, Job(), many(2)...)
	s.Faults.Lose = 1
	s.Deliver(1000)
	pass := func() error {
		_, err := s.c.Run(t.Context(), types.NamespacedName{Namespace: "shop", Name: "dump"}, "job")
		return err
	}
	for range 5 {
		if err := pass(); err == nil && s.treated() == "" {
			t.Fatal("nothing was lost")
		}
	}
	s.Faults.Lose = 0
	for range 3 {
		if err := pass(); err != nil {
			t.Fatal(err)
		}
	}
	if s.treated() != "p00" {
		t.Errorf("treated %s", s.treated())
	}
}

// EJ-046: without the subresource the job is in error, with a message, not succeeded; the API server is asked
// again once a minute, and nothing is written at rest.
func TestWithoutTheSubresourceTheJobIsInError(t *testing.T) {
	for name, answer := range map[string]error{
		"no details": &apierrors.StatusError{ErrStatus: metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound}},
		"no name":    apierrors.NewNotFound(schema.GroupResource{}, ""),
		"no status": apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", schema.GroupResource{Resource: "pods"}, "p00",
			"404 page not found", 0, true),
	} {
		s := newStage(t, Job(), many(3)...)
		asked := 0
		s.Answer = func(r *simulation.Request) error {
			if r.Subresource == subresource {
				asked++
				return answer
			}
			return nil
		}
		done, err := s.pass()
		if status := &s.job().Status; err != nil {
			t.Errorf("%s: unexpected error: %v\n%+v", name, err, status)
		} else if status.Phase != "Error" {
			t.Errorf("%s: phase: got %q, want %q\n%v\n%+v", name, status.Phase, "Error", err, status)
		} else if status.Conditions[1].Type != "JobError" {
			t.Errorf("%s: type of the second condition: got %q, want %q\n%v\n%+v", name, status.Conditions[1].Type, "JobError", err, status)
		} else if status.CompletionTime != nil {
			t.Errorf("%s: time of completion: got %v, want nil\n%v\n%+v", name, status.CompletionTime, err, status)
		} else if !strings.Contains(status.Conditions[1].Message, "no pods/ephemeralcontainers") {
			t.Errorf("%s: message of the second condition: got %q, want it to contain %q\n%v\n%+v", name, status.Conditions[1].Message,
				"no pods/ephemeralcontainers", err, status)
		}
		if done.After > time.Minute {
			t.Errorf("%s: time to the next pass: got %v, want at most %v", name, done.After, time.Minute)
		}
		if done.After <= 0 {
			t.Errorf("%s: time to the next pass: got %v, want more than 0", name, done.After)
		}
		if asked != 1 {
			t.Errorf("%s: asked: got %d, want 1", name, asked)
		}
		writes := len(s.Writes)
		s.Pass(time.Minute)
		if _, err := s.pass(); err != nil {
			t.Errorf("%s: unexpected error: %v; %v, asked %d times, %d writes", name, err, err, asked, len(s.Writes)-writes)
		} else if asked != 2 {
			t.Errorf("%s: asked: got %d, want 2; %v, asked %d times, %d writes", name, asked, err, asked, len(s.Writes)-writes)
		} else if len(s.Writes) != writes {
			t.Errorf("%s: number of writes: got %d, want %d; %v, asked %d times, %d writes", name, len(s.Writes), writes, err, asked,
				len(s.Writes)-writes)
		}
	}
	// A pod that is not there is something else.
	s := newStage(t, Job(), many(1)...)
	s.Answer = func(r *simulation.Request) error {
		if r.Subresource == subresource {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p00")
		}
		return nil
	}
	if done, err := s.pass(); err != nil {
		t.Errorf("unexpected error: %v\n%+v\n%s", err, s.job().Status, done.After)
	} else if got := s.job().Status.Phase; got != "Waiting" {
		t.Errorf("phase: got %q, want %q\n%v\n%+v\n%s", got, "Waiting", err, s.job().Status, done.After)
	} else if done.After != reconcile.RetrySoon {
		t.Errorf("time to the next pass: got %v, want %v\n%v\n%+v", done.After, reconcile.RetrySoon, err, s.job().Status)
	}
}

// EJ-048: pods for which the containers are invalid are tried once, and count as failed in the end; policies
// that answer with the same code are asked again.
func TestInvalidContainersAreTriedOnce(t *testing.T) {
	s := newStage(t, Job(parallel(5)), many(2)...)
	asked := 0
	answer := error(apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p00", field.ErrorList{field.NotFound(field.NewPath("spec"), "volume")}))
	s.Answer = func(r *simulation.Request) error {
		if r.Subresource == subresource && r.Key.Name == "p00" {
			asked++
			return answer
		}
		return nil
	}
	for range 4 {
		if _, err := s.pass(); err != nil {
			t.Fatal(err)
		}
		s.Pass(time.Minute)
	}
	if got := s.treated(); got != "p01" {
		t.Fatalf("treated: got %q, want %q", got, "p01")
	}
	if asked != 1 {
		t.Fatalf("asked: got %d, want 1", asked)
	}
	s.Change(podKey("p01"), func(o client.Object) {
		o.(*corev1.Pod).Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "dump", State: *Ended(0)}}
	})
	if _, err := s.pass(); err != nil {
		t.Errorf("unexpected error: %v\n%+v", err, s.job().Status)
	} else if got := s.job().Status.Phase; got != "Failed" {
		t.Errorf("phase: got %q, want %q\n%v\n%+v", got, "Failed", err, s.job().Status)
	} else if got := s.job().Status.Failed; got != 1 {
		t.Errorf("failed: got %d, want 1\n%v\n%+v", got, err, s.job().Status)
	} else if got := s.job().Status.Succeeded; got != 1 {
		t.Errorf("succeeded: got %d, want 1\n%v\n%+v", got, err, s.job().Status)
	}
	policy := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p00", nil)
	policy.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: "denied"}}
	for _, err := range []error{policy, &apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Message: "admission webhook \"x\" denied",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "spec"}}}}}} {
		if invalid(err) {
			t.Errorf("%v is for ever", err)
		}
	}
}

// EJ-036: pods with a container of such a name are left out, counted and told once.
func TestPodsWithATakenNameAreLeftOut(t *testing.T) {
	s := newStage(t, Job(), Pod("a", Container("dump", "", Runs())), Pod("b", Container("dump", "other", nil)), Pod("c"))
	for range 3 {
		if _, err := s.pass(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"Normal Injected: added the ephemeral containers to c",
		"Warning NameTaken: 2 pods have an ephemeral container of the same name from somebody else, and are left out: a, b"}
	if !slices.Equal(s.events, want) {
		t.Errorf("events: got %q, want %q\n%+v", s.events, want, s.job().Status)
	}
	if got := s.job().Status.Matches; got != 1 {
		t.Errorf("matches: got %d, want 1\n%+v", got, s.job().Status)
	}
}

// EJ-041, EJ-082: the finalizer is added to live jobs, and taken off when they are deleted, also if pods
// cannot be listed and nothing else can be written. EJ-042: a finished job is deleted after its time to live.
// EJ-073: metrics.
func TestLifeOfAJob(t *testing.T) {
	job := Job()
	job.Finalizers = []string{"mine"}
	s := newStage(t, job, Pod("a"))
	if _, err := s.pass(); err != nil {
		t.Fatalf("unexpected error: %v\n%v", err, s.job().Finalizers)
	} else if got := s.job().Finalizers; !slices.Equal(got, []string{"mine", pub.EphemeralContainersCleanup}) {
		t.Fatalf("finalizers: got %q, want %q\n%v", got, []string{"mine", pub.EphemeralContainersCleanup}, err)
	}
	gauge := func(phase string) float64 { return testutil.ToFloat64(s.r.meters.jobs.WithLabelValues(phase)) }
	if gauge("Waiting") != 1 {
		t.Error("the job is not counted")
	}
	s.Change(podKey("a"), func(o client.Object) {
		o.(*corev1.Pod).Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "dump", State: *Ended(0)}}
	})
	if done, err := s.pass(); err != nil {
		t.Fatalf("unexpected error: %v\n%+v", err, s.job().Status)
	} else if got := s.job().Status.Phase; got != "Succeeded" {
		t.Fatalf("phase: got %q, want %q\n%v\n%+v", got, "Succeeded", err, s.job().Status)
	} else if done.After <= 0 {
		t.Fatalf("time to the next pass: got %v, want more than 0\n%v\n%+v", done.After, err, s.job().Status)
	}
	if got := gauge("Waiting"); got != 0 {
		t.Errorf(`the end is not counted: requests that wait: got %v, want 0`, got)
	}
	if got := gauge("Succeeded"); got != 1 {
		t.Errorf(`the end is not counted: requests that succeeded: got %v, want 1`, got)
	}
	if got := testutil.ToFloat64(s.r.meters.pods.WithLabelValues("succeeded")); got != 1 {
		t.Errorf(`the end is not counted: counted pods that succeeded: got %v, want 1`, got)
	}
	if got := testutil.ToFloat64(s.r.meters.pods.WithLabelValues("failed")); got != 0 {
		t.Errorf(`the end is not counted: counted pods that failed: got %v, want 0`, got)
	}
	if last := s.events[len(s.events)-1]; last != "Normal Succeeded: all containers ended with 0 in 1 pod" {
		t.Errorf("last event: got %q, want %q", last, "Normal Succeeded: all containers ended with 0 in 1 pod")
	}
	if done, err := s.pass(); err != nil {
		t.Fatalf("unexpected error: %v; %v, again in %s", err, err, done.After)
	} else if done.After != 1800*time.Second {
		t.Fatalf("time to the next pass: got %v, want %v; %v, again in %s", done.After, 1800*time.Second, err, done.After)
	}
	s.Pass(1800 * time.Second)
	if _, err := s.pass(); err != nil {
		t.Fatalf("unexpected error: %v\n%+v", err, s.job())
	} else if got := s.job().DeletionTimestamp; got == nil {
		t.Fatalf("time of deletion: got nil, want a value\n%v\n%+v", err, s.job())
	}
	s.r.Pods.Add(broken{})
	if _, err := s.r.plan(t.Context(), &session{Object: Job(), Kept: &memory{}}); err == nil {
		t.Fatal("pods can be listed")
	}
	if _, err := s.pass(); err != nil {
		t.Fatalf("unexpected error: %v\n%v", err, s.job().Finalizers)
	} else if got := s.job().Finalizers; !slices.Equal(got, []string{"mine"}) {
		t.Fatalf("finalizers: got %q, want %q\n%v", got, []string{"mine"}, err)
	}
	s.r.meters.forget(types.NamespacedName{Namespace: "shop", Name: "dump"})
	if gauge("Succeeded") != 0 {
		t.Error("it is counted although it is gone")
	}
	s.r.meters.set(types.NamespacedName{}, "x")
	s.r.meters.phase(types.NamespacedName{}, &appsv1alpha1.EphemeralJob{Status: appsv1alpha1.EphemeralJobStatus{Phase: "anything"}}, &ephemeraljob.Plan{})
	if got := gauge("anything"); got != 0 {
		t.Errorf(`a phase that somebody else wrote is a metric: requests of any result: got %v, want 0`, got)
	}
	if got := gauge("Unknown"); got != 1 {
		t.Errorf(`a phase that somebody else wrote is a metric: requests of an unknown result: got %v, want 1`, got)
	}
}

// EJ-043, EJ-062, EJ-063 (part): the first pass sets the start and Initialized; nothing is written at rest.
func TestNothingIsWrittenAtRest(t *testing.T) {
	for name, job := range map[string]*appsv1alpha1.EphemeralJob{"nothing matches": Job(func(j *appsv1alpha1.EphemeralJob) {
		j.Spec.Selector.MatchLabels = map[string]string{"app": "none"}
	}), "nothing to add": Job(With(`[]`)), "treated": Job()} {
		s := newStage(t, job, Pod("a"))
		for range 2 {
			if _, err := s.pass(); err != nil {
				t.Fatal(err)
			}
			s.Pass(time.Second)
		}
		status := &s.job().Status
		if status.StartTime == nil {
			t.Errorf("%s: time of the start: got nil, want a value\n%+v", name, status)
		} else if status.Conditions[0].Type != "Initialized" {
			t.Errorf("%s: type of the first condition: got %q, want %q\n%+v", name, status.Conditions[0].Type, "Initialized", status)
		} else if got := len(s.job().Status.Conditions); got > 2 {
			t.Errorf("%s: number of conditions: got %d, want at most 2\n%+v", name, got, status)
		}
		writes := len(s.Writes)
		for range 5 {
			if _, err := s.pass(); err != nil {
				t.Fatal(err)
			}
			s.Pass(time.Hour)
		}
		if len(s.Writes) != writes {
			t.Errorf("%s: number of writes: got %d, want %d\n%+v", name, len(s.Writes), writes, s.Writes[writes:])
		}
	}
}

type broken struct{}

// ByIndex implements podindex.Source.
func (broken) ByIndex(string, string) ([]any, error) { return nil, errors.New("broken") }

// List implements podindex.Source.
func (broken) List() []any { return nil }

// EJ-040: which events of jobs and of pods call the controller.
func TestEventsOfJobsAndPodsCallTheController(t *testing.T) {
	change := func(do func(*appsv1alpha1.EphemeralJob)) bool {
		before, after := Job(), Job()
		do(after)
		return jobEvents.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}
	if change(func(j *appsv1alpha1.EphemeralJob) { j.Status.Phase = "Running" }) {
		t.Error("a status calls")
	}
	if !change(func(j *appsv1alpha1.EphemeralJob) { j.Generation++ }) {
		t.Error("a change does not call: a new generation calls: got false, want true")
	} else if !change(func(j *appsv1alpha1.EphemeralJob) { j.DeletionTimestamp = &metav1.Time{} }) {
		t.Error("a change does not call: the begin of a deletion calls: got false, want true")
	} else if !change(func(j *appsv1alpha1.EphemeralJob) { j.Finalizers = nil }) {
		t.Error("a change does not call: other finalizers call: got false, want true")
	}
	if !jobEvents.Create(event.CreateEvent{Object: Job()}) {
		t.Error("creation or deletion does not call: a creation calls: got false, want true")
	}
	if !jobEvents.Delete(event.DeleteEvent{Object: Job()}) {
		t.Error("creation or deletion does not call: a deletion calls: got false, want true")
	}

	s := newStage(t, Job())
	finished := Job(func(j *appsv1alpha1.EphemeralJob) { j.Status.CompletionTime = &metav1.Time{Time: Noon} })
	leaving := Job(func(j *appsv1alpha1.EphemeralJob) { j.DeletionTimestamp = &metav1.Time{Time: Noon} })
	odd := Job(func(j *appsv1alpha1.EphemeralJob) { j.Spec.Selector, j.UID = nil, "odd" })
	for name, job := range map[string]*appsv1alpha1.EphemeralJob{"finished": finished, "leaving": leaving, "odd": odd} {
		job.Name, job.ResourceVersion = name, ""
		s.Store(simulation.Key{Kind: "EphemeralJob", Name: name}, job)
	}
	s.Deliver(1000)
	h := podEvents(&reconcile.API{Client: s.Client()})
	called := func(do func(q reconcile.Queue)) string {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		defer q.ShutDown()
		do(q)
		var names []string
		for q.Len() > 0 {
			request, _ := q.Get()
			names = append(names, request.Name)
		}
		return strings.Join(names, " ")
	}
	update := func(before, after *corev1.Pod) string {
		return called(func(q reconcile.Queue) {
			h.Update(context.Background(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
		})
	}
	other := func(p *corev1.Pod) { p.Labels = nil }
	status := func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}} }
	for name, c := range map[string]struct{ got, want string }{
		"creation":           {called(func(q reconcile.Queue) { h.Create(context.Background(), event.CreateEvent{Object: Pod("a")}, q) }), "dump"},
		"creation of others": {called(func(q reconcile.Queue) { h.Create(context.Background(), event.CreateEvent{Object: Pod("a", other)}, q) }), ""},
		"deletion":           {called(func(q reconcile.Queue) { h.Delete(context.Background(), event.DeleteEvent{Object: Pod("a")}, q) }), "dump"},
		"deletion of a treated one": {called(func(q reconcile.Queue) {
			h.Delete(context.Background(), event.DeleteEvent{Object: Pod("a", other, Treated("job", nil))}, q)
		}), "dump"},
		"it begins to match":            {update(Pod("a", other), Pod("a")), "dump"},
		"it matches no more":            {update(Pod("a"), Pod("a", other)), "dump"},
		"other changes":                 {update(Pod("a"), Pod("a", status)), ""},
		"a state":                       {update(Pod("a", other, Treated("job", Runs())), Pod("a", other, Treated("job", Ended(0)))), "dump"},
		"a state of somebody else's":    {update(Pod("a", other, Treated("x", Runs())), Pod("a", other, Treated("x", Ended(0)))), ""},
		"the same state":                {update(Pod("a", Treated("job", Runs())), Pod("a", status, Treated("job", Runs()))), ""},
		"a node":                        {update(Pod("a", func(p *corev1.Pod) { p.Spec.NodeName = "" }), Pod("a")), "dump"},
		"the end of the pod":            {update(Pod("a"), Pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })), "dump"},
		"one of a job without selector": {update(Pod("a", other, Treated("odd", Runs())), Pod("a", other, Treated("odd", Ended(0)))), "odd"},
		"in another namespace": {called(func(q reconcile.Queue) {
			h.Create(context.Background(), event.CreateEvent{Object: Pod("a", func(p *corev1.Pod) { p.Namespace = "x" })}, q)
		}), ""},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, not %q", name, c.got, c.want)
		}
	}
}
