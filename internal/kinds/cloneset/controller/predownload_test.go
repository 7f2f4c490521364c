package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// refusing is a cluster that does not take jobs.
type refusing struct {
	err      error
	attempts int
}

func (c *refusing) answer(r *simulation.Request) error {
	if r.Verb == "create" && r.Key.Kind == podplan.PullJobKind.Kind {
		c.attempts++
		return c.err
	}
	return nil
}

// pulling is a set of five pods that run, on a cluster with jobs.
func pulling(t *testing.T, seed uint64, options ...func(*appsv1beta1.CloneSet)) *simulated {
	t.Helper()
	s := simulate(seed, clonesettest.Set(5, options...), cloneset.Features{PreDownload: true, PreparingUpdateAsUpdate: true})
	s.serveJobs(true)
	if err := s.Settle(500); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *simulated) jobs() []string {
	var names []string
	for _, job := range s.List("ImagePullJob", false) {
		names = append(names, job.GetName())
	}
	return names
}

// marks are the labels of CS-206 on the update revision.
func (s *simulated) marks() string {
	r := s.Get(revisionKey(s.set().Status.UpdateRevision))
	return r.GetLabels()[pub.PreDownloadCreated] + "/" + r.GetLabels()[pub.PreDownloadIgnored]
}

func (s *simulated) reported(reason string) []string {
	return slices.DeleteFunc(slices.Clone(s.Recorded), func(e string) bool { return !strings.Contains(e, reason) })
}

// TestJobsThatCannotBeCreated stop nothing, are told as a Warning once, and are created when that is possible
// (CS-201, CS-235 to 237).
func TestJobsThatCannotBeCreated(t *testing.T) {
	s := pulling(t, 1)
	cluster := &refusing{err: apierrors.NewForbidden(schema.GroupResource{Resource: "imagepulljobs"}, "x",
		errors.New("gate ImagePullJobGate is off"))}
	s.Answer = cluster.answer
	s.Edit(clonesettest.Both(clonesettest.Image("nginx:2"), clonesettest.Partition(2)))
	for range 200 {
		if !s.Round() && !s.Queue.Due().IsZero() {
			s.Pass(s.Queue.Due().Sub(s.Now()))
		}
		if s.set().Status.UpdatedReadyReplicas == 3 {
			break
		}
	}
	if got := s.set().Status.UpdatedReadyReplicas; got != 3 {
		t.Fatalf("the rollout stands still at %d pods", got)
	}
	warnings := s.reported("FailedCreateImagePullJob")
	if len(warnings) != 1 {
		t.Errorf("number of warnings: got %d, want 1; events %q", len(warnings), warnings)
	} else if !strings.HasPrefix(warnings[0], "Warning FailedCreateImagePullJob ") {
		t.Errorf("first warning: got %q, want it to begin with %q; events %q", warnings[0],
			"Warning FailedCreateImagePullJob ", warnings)
	} else if !strings.Contains(warnings[0], "gate ImagePullJobGate is off") {
		t.Errorf("first warning: got %q, want it to contain %q; events %q", warnings[0],
			"gate ImagePullJobGate is off", warnings)
	}
	if got := s.marks(); got != "/" {
		t.Errorf("marks: got %q, want %q; marks %s, %d attempts within %s", got, "/", s.marks(), cluster.attempts,
			30*time.Second)
	}
	if cluster.attempts != 1 {
		t.Errorf("attempts: got %d, want 1; marks %s, %d attempts within %s", cluster.attempts, s.marks(),
			cluster.attempts,
			30*time.Second)
	}
	if conditions := s.set().Status.Conditions; len(conditions) > 0 {
		t.Errorf("conditions %v", conditions)
	}
	cluster.err = nil
	if err := s.Settle(500); err != nil {
		t.Fatal(err)
	}
	if got := s.marks(); got != "true/" {
		t.Errorf("marks: got %q, want %q; marks %s, jobs %v, events %v", got, "true/", s.marks(), s.jobs(),
			s.Recorded)
	}
	if got := len(s.jobs()); got != 1 {
		t.Errorf("number of jobs: got %d, want 1; marks %s, jobs %v, events %v", got, s.marks(), s.jobs(), s.Recorded)
	}
	if got := len(s.reported("Normal CreatedImagePullJob")); got != 1 {
		t.Errorf(`number of events CreatedImagePullJob: got %d, want 1; marks %s, jobs %v, events %v`, got,
			s.marks(), s.jobs(),
			s.Recorded)
	}
	s.Edit(clonesettest.Both(clonesettest.Image("nginx:3")))
	cluster.err = apierrors.NewAlreadyExists(schema.GroupResource{}, "x")
	if err := s.Settle(500); err != nil {
		t.Fatal(err)
	}
	if got := s.marks(); got != "true/" {
		t.Errorf("a name that is taken: marks: got %q, want %q; marks %s, events %v", got, "true/", s.marks(),
			s.Recorded)
	}
	if got := len(s.reported("FailedCreateImagePullJob")); got != 1 {
		t.Errorf(`a name that is taken: number of events FailedCreateImagePullJob: got %d, want 1; marks %s, events %v`, got, s.marks(),
			s.Recorded)
	}
}

// TestManagerDiesWhilePullingAhead ends the manager after each of its writes in turn: the jobs and the label
// come all the same, once (CS-201, CS-206), and nothing is left when the revisions are equal (CS-207).
func TestManagerDiesWhilePullingAhead(t *testing.T) {
	for n := 1; ; n++ {
		s := pulling(t, uint64(n), clonesettest.TwoImages("nginx:1", "agent:1"))
		writes, creations := 0, 0
		s.AfterWrite = func(w simulation.Write) {
			if w.Key.Kind == "ImagePullJob" && w.Verb == "create" {
				creations++
			}
			if writes++; writes == n {
				s.Faults.Die = 1
			}
		}
		s.Edit(clonesettest.Both(clonesettest.TwoImages("nginx:2", "agent:2"), clonesettest.Partition(2)))
		for range 50 { // not settle, which begins by ending all faults
			if s.Dead() {
				break
			}
			if !s.Round() && !s.Queue.Due().IsZero() {
				s.Pass(s.Queue.Due().Sub(s.Now()))
			}
		}
		if err := s.Settle(500); err != nil {
			t.Fatalf("dead after write %d: %v", n, err)
		}
		if got := s.marks(); got != "true/" {
			t.Errorf("marks: got %q, want %q; dead after write %d: marks %s, jobs %v, %d creations", got, "true/", n,
				s.marks(), s.jobs(),
				creations)
		}
		if got := len(s.jobs()); got != 2 {
			t.Errorf("number of jobs: got %d, want 2; dead after write %d: marks %s, jobs %v, %d creations", got, n,
				s.marks(), s.jobs(),
				creations)
		}
		if creations != 2 {
			t.Errorf("creations: got %d, want 2; dead after write %d: marks %s, jobs %v, %d creations", creations, n, s.marks(), s.jobs(),
				creations)
		}
		s.AfterWrite = nil
		s.Edit(clonesettest.Partition(0))
		if err := s.Settle(500); err != nil {
			t.Fatalf("dead after write %d: %v", n, err)
		}
		if len(s.jobs()) > 0 {
			t.Errorf("dead after write %d: left %v", n, s.jobs())
		}
		if writes < n {
			return
		}
	}
}

// TestJobsThatLinger: a job of before that its own controller still holds keeps its name; it is waited for by
// nobody but its successor (CS-201, CS-208).
func TestJobsThatLinger(t *testing.T) {
	s := pulling(t, 5, clonesettest.Partition(4))
	s.Edit(clonesettest.Image("nginx:2"))
	if err := s.Settle(500); err != nil {
		t.Fatal(err)
	}
	name := s.set().Status.UpdateRevision + "-nginx"
	s.Change(jobKey(name), func(o client.Object) { o.SetFinalizers([]string{"apps.kruise.io/deletion-protection"}) })
	for _, next := range []string{"nginx:3", "nginx:2"} {
		s.Edit(clonesettest.Image(next))
		if err := s.Settle(500); err != nil {
			t.Fatal(err)
		}
	}
	if job := s.Get(jobKey(name)); job.GetDeletionTimestamp() == nil {
		t.Errorf("job %v is not deleted", job)
	}
	if s.marks() != "/" {
		t.Errorf("marks: got %s, want none", s.marks())
	}
	if status := s.set().Status; status.UpdatedReadyReplicas != 1 {
		t.Errorf("updated and ready pods: got %+v, want 1", status)
	}
	s.Remove(jobKey(name))
	if err := s.Settle(500); err != nil {
		t.Fatal(err)
	}
	if got := s.Get(jobKey(name)); got == nil {
		t.Errorf("job: got nil, want a value; jobs %v, marks %s", s.jobs(), s.marks())
	} else if got := s.marks(); got != "true/" {
		t.Errorf("marks: got %q, want %q; jobs %v, marks %s", got, "true/", s.jobs(), s.marks())
	}
	s.Remove(jobKey(name)) // its time is over: once is enough (CS-206)
	if err := s.Settle(500); err != nil {
		t.Errorf("coming to rest: unexpected error: %v; %v, jobs %v", err, err, s.jobs())
	} else if got := len(s.jobs()); got > 0 {
		t.Errorf("jobs: got %d, want none; %v, jobs %v", got, err, s.jobs())
	}
}

// TestRaisedRevisionLosesItsLabels in the very write that raises its number, whether images are pulled ahead
// or not (CS-208, CS-352).
func TestRaisedRevisionLosesItsLabels(t *testing.T) {
	for _, on := range []bool{true, false} {
		s := pulling(t, 6, clonesettest.Partition(4))
		s.Edit(clonesettest.Image("nginx:2"))
		if err := s.Settle(500); err != nil {
			t.Fatal(err)
		}
		second := s.set().Status.UpdateRevision
		s.Change(revisionKey(second), func(o client.Object) { o.GetLabels()[pub.PreDownloadIgnored] = "true" })
		s.Edit(clonesettest.Image("nginx:3"))
		if err := s.Settle(500); err != nil {
			t.Fatal(err)
		}
		s.kind.Features.PreDownload = on
		raised := 0
		s.BeforeWrite = func(_ simulation.Write, before, after client.Object) {
			was, ok := before.(*appsv1.ControllerRevision)
			if !ok || after == nil || after.(*appsv1.ControllerRevision).Revision == was.Revision {
				return
			}
			raised++
			if was.Labels[pub.PreDownloadCreated] != "true" {
				t.Errorf("labels before: %v", was.Labels)
			}
			labels := after.GetLabels()
			if labels[pub.PreDownloadCreated]+labels[pub.PreDownloadIgnored] != "" {
				t.Errorf("labels after: labels about pulls ahead: got %q, want %q\n%v",
					labels[pub.PreDownloadCreated]+labels[pub.PreDownloadIgnored], "", labels)
			}
			if labels["app"] != "web" {
				t.Errorf("labels after: label app: got %q, want %q\n%v", labels["app"], "web", labels)
			}
		}
		s.Edit(clonesettest.Image("nginx:2"))
		if err := s.Settle(500); err != nil {
			t.Fatal(err)
		}
		if raised != 1 {
			t.Errorf("the revision was raised %d times, want once", raised)
		}
		if got := s.set().Status.UpdateRevision; got != second {
			t.Errorf("update revision: got %s, want %s", got, second)
		}
		if want := map[bool]string{true: "true/", false: "/"}[on]; s.marks() != want {
			t.Errorf("marks: got %s, want %s", s.marks(), want)
		}
	}
}

// TestPreDownloadNarrative plays what users of issue #1419 saw: images were pulled ahead once, and never
// again (CS-208, CS-352).
func TestPreDownloadNarrative(t *testing.T) {
	const title = "#1419 pre-download is repeated and re-evaluated"
	features := cloneset.Features{PreDownload: true, PreparingUpdateAsUpdate: true}
	n := &tale{t: t, simulated: simulate(7, clonesettest.Set(3, clonesettest.Partition(2)), features)}
	n.serveJobs(true)
	n.Planned = n.note
	marks := func() {
		for _, object := range n.List("ControllerRevision", false) {
			r := object.(*appsv1.ControllerRevision)
			fmt.Fprintf(&n.text, "Revision %s, number %d: created %q, ignored %q\n", r.Name, r.Revision, r.Labels[pub.PreDownloadCreated],
				r.Labels[pub.PreDownloadIgnored])
		}
		fmt.Fprintf(&n.text, "Jobs %v\n", n.jobs())
	}
	then := func(title string, do func(*appsv1beta1.CloneSet)) {
		t.Helper()
		n.then(title, do)
		marks()
	}
	then("3 pods are created", nil)
	then("image nginx:2: too few pods to pull ahead for", clonesettest.Image("nginx:2"))
	then("replicas 5: now it is worth it", clonesettest.Both(clonesettest.Replicas(5), clonesettest.Partition(4)))
	then("image nginx:3 instead: what was pulled for nginx:2 is not wanted any more", clonesettest.Image("nginx:3"))
	then("image nginx:2 again: pulled again", clonesettest.Image("nginx:2"))
	then("partition 0: all pods are updated, and the jobs go", clonesettest.Partition(0))
	then("image nginx:1 again, partition 4: that revision is pulled ahead although it is an old one",
		clonesettest.Both(clonesettest.Image("nginx:1"), clonesettest.Partition(4)))
	simulationtest.Golden(t, title, n.text.String(), n.Recorded, *update)
}

// TestSimulatedRolloutsWithJobs plays random rollouts with pulling ahead: under faults, deaths, jobs whose
// time is over and jobs that linger, the rollout keeps its invariants, nothing is written at rest, and the
// jobs that are left belong there (CS-201 to 208).
func TestSimulatedRolloutsWithJobs(t *testing.T) {
	var created atomic.Int32
	many := simulationtest.Some(t, 80, 10, func(t *testing.T, seed uint64) {
		r := newRun(seed)
		r.kind.Features.PreDownload = true
		r.serveJobs(seed%8 > 0)
		r.AfterWrite = func(w simulation.Write) {
			if w.Key.Kind != "ImagePullJob" || w.Verb != "create" {
				return
			}
			created.Add(1)
			if r.Chance(0.2) {
				r.Change(w.Key, func(o client.Object) { o.SetFinalizers([]string{"apps.kruise.io/deletion-protection"}) })
			} else if r.Chance(0.3) {
				r.Remove(w.Key)
			}
		}
		r.play(100 + r.Rand.IntN(150))
		for _, job := range r.List("ImagePullJob", false) {
			r.Change(jobKey(job.GetName()), func(o client.Object) { o.SetFinalizers(nil) })
		}
		r.AfterWrite = nil
		r.finish()
		if r.pullsAtRest(); r.failure != "" {
			t.Errorf("the simulated rollout: %s", r.failure)
		}
	})
	if many && created.Load() == 0 {
		t.Error("no run created a job")
	}
}

// pullsAtRest checks what must hold of jobs when a random rollout has come to rest.
func (r *rolloutRun) pullsAtRest() {
	status := r.set().Status
	jobs := r.List("ImagePullJob", false)
	if status.CurrentRevision == status.UpdateRevision && len(jobs) > 0 {
		r.fail("jobs %v are left although the revisions are equal", r.jobs())
	}
	for _, job := range jobs {
		if !strings.HasPrefix(job.GetName(), status.UpdateRevision+"-") {
			r.fail("job %s is of another revision than %s", job.GetName(), status.UpdateRevision)
		}
	}
	if !r.servesJobs && len(jobs) > 0 {
		r.fail("jobs %v where their kind is not served", r.jobs())
	}
}
