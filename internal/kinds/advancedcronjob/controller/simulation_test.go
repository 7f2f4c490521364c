package controller

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/schedule"
	"github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
	"github.com/afloat-project/afloat/internal/kinds/advancedcronjob/advancedcronjobtest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// world is a cluster with an AdvancedCronJob, its manager, the controllers of its children, and users.
type world struct {
	simulation.Play
	t    *testing.T
	kind string
	loop *reconcile.Loop
	// runs are the times of runs that began, by the UID of the AdvancedCronJob.
	runs map[string]time.Time
	told []string
	// still: all others wait.
	still bool
}

var schedules = []string{"@every 5s", "@every 1m", "* * * * *", "*/3 * * * *", "@hourly", "0 0 30 2 *"}

func newWorld(t *testing.T, seed uint64) *world {
	c := simulation.New(seed)
	w := &world{t: t, runs: map[string]time.Time{}}
	c.Slim, c.Apart = slim.Any, true
	w.Play = simulation.Play{Cluster: c, Queue: simulation.NewQueue(c, "nightly"), Start: w.start, EnvironmentStep: w.environmentStep, Describe: w.describe,
		Reconcile: func() (time.Duration, error) {
			result, err := w.loop.Reconcile(t.Context(), reconcile.Request("shop", "nightly"))
			return result.RequeueAfter, err
		}}
	w.kind = string(advancedcronjob.Kinds[c.Rand.IntN(3)])
	c.BeforeWrite = w.check
	c.Delivered = func(before, after client.Object) {
		for _, object := range []client.Object{before, after} {
			if object == nil {
				continue
			}
			if _, ok := object.(*appsv1beta1.AdvancedCronJob); ok || len(requests(t.Context(), object)) > 0 {
				w.Queue.Add()
			}
		}
	}
	for _, kind := range advancedcronjob.Kinds {
		for _, index := range indexes(kind) {
			if err := index.Add(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.create()
	w.start()
	return w
}

// create creates the AdvancedCronJob, as a user does.
func (w *world) create() {
	r := w.Rand
	policies := []appsv1beta1.ConcurrencyPolicy{appsv1beta1.ConcurrencyAllow, appsv1beta1.ConcurrencyForbid, appsv1beta1.ConcurrencyReplace}
	cronJob := advancedcronjobtest.CronJob(w.kind, schedules[r.IntN(len(schedules))], advancedcronjobtest.Policy(policies[r.IntN(3)]))
	cronJob.UID, cronJob.ResourceVersion = "", ""
	w.changeSpec(cronJob)
	w.Store(w.key(), cronJob)
}

// changeSpec lets a user want something else of the timing.
func (w *world) changeSpec(cronJob *appsv1beta1.AdvancedCronJob) {
	r, spec := w.Rand, &cronJob.Spec
	switch r.IntN(5) {
	case 0:
		spec.Schedule = schedules[r.IntN(len(schedules))]
	case 1:
		spec.StartingDeadlineSeconds = []*int64{nil, new(int64(0)), new(int64(20))}[r.IntN(3)]
	case 2:
		spec.Paused = new(r.IntN(2) == 0)
	case 3:
		spec.SuccessfulJobsHistoryLimit, spec.FailedJobsHistoryLimit = new(int32(r.IntN(3))), new(int32(r.IntN(2)))
	}
}

func (w *world) key() simulation.Key {
	return simulation.Key{Kind: advancedcronjob.Name, Name: "nightly"}
}

func (w *world) start() {
	w.Restart()
	api := w.API()
	r := &Reconciler{API: api, Events: w, Zone: time.UTC, meters: newMeters()}
	for _, kind := range advancedcronjob.Kinds {
		r.served.Add(kind)
	}
	w.loop = r.controller().Loop(nil)
	w.Queue = simulation.NewQueue(w.Cluster, "nightly")
}

// Event implements reconcile.Recorder.
func (w *world) Event(_ client.Object, _, reason, message string) {
	w.told = append(w.told, fmt.Sprintf("%s %s: %s", w.Now().Format(time.TimeOnly), reason, message))
}

func (w *world) describe() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %+v\n", w.Now(), w.Get(w.key()))
	for _, child := range w.children() {
		fmt.Fprintf(&text, "%s %s %v %v\n", child, child.Phase, child.Nominal, child.Object.GetFinalizers())
	}
	return text.String() + strings.Join(w.told, "\n")
}

func (w *world) children() (children []advancedcronjob.Child) {
	for _, object := range w.List(w.kind, false) {
		children = append(children, advancedcronjob.ChildOf(object))
	}
	return children
}

// check holds each write of the manager against what it may do.
func (w *world) check(write simulation.Write, before, after client.Object) {
	if os.Getenv("TRACE") != "" {
		w.t.Logf("%s %+v", w.Now().Format(time.TimeOnly), write)
	}
	cronJob, _ := w.Cached(w.key()).(*appsv1beta1.AdvancedCronJob)
	switch {
	case write.Key.Kind == advancedcronjob.Name:
		old, status := before.(*appsv1beta1.AdvancedCronJob).Status, after.(*appsv1beta1.AdvancedCronJob).Status
		if old.LastScheduleTime != nil && (status.LastScheduleTime == nil || status.LastScheduleTime.Before(old.LastScheduleTime)) {
			w.t.Errorf("ACJ-101: back from %s to %s", old.LastScheduleTime, status.LastScheduleTime)
		}
	case write.Verb == "create":
		w.begins(cronJob, advancedcronjob.ChildOf(after))
	case write.Verb == "delete":
		child := advancedcronjob.ChildOf(before)
		if child.Phase == advancedcronjob.Active && cronJob.Spec.ConcurrencyPolicy != appsv1beta1.ConcurrencyReplace {
			w.t.Errorf("ACJ-093: %s is active and deleted", child)
		}
		if status := w.Get(w.key()).(*appsv1beta1.AdvancedCronJob).Status; status.LastScheduleTime.Time.Before(child.Nominal) {
			w.t.Errorf("ACJ-092: %s is deleted before its run is noted", child)
		}
	}
}

// begins holds a run that begins against what may begin.
func (w *world) begins(cronJob *appsv1beta1.AdvancedCronJob, child advancedcronjob.Child) {
	owner := string(advancedcronjob.OwnerOf(child.Object))
	if !child.Nominal.After(w.runs[owner]) {
		w.t.Errorf("ACJ-053: the run of %s begins after that of %s", child.Nominal, w.runs[owner])
	}
	w.runs[owner] = child.Nominal
	if cronJob == nil {
		w.t.Fatalf("%s is created for nobody", child)
	}
	if child.Nominal.After(w.Now()) {
		w.t.Errorf("ACJ-052, ACJ-059: child.Nominal.After(w.Now()): got true, want false; the run of %s begins at %s", child.Nominal,
			w.Now())
	}
	if !child.Nominal.After(cronJob.CreationTimestamp.Time) {
		w.t.Errorf("ACJ-052, ACJ-059: child.Nominal.After(cronJob.CreationTimestamp.Time): got false, want true; the run of %s begins at %s",
			child.Nominal, w.Now())
	}
	if paused := cronJob.Spec.Paused; paused != nil && *paused || cronJob.DeletionTimestamp != nil {
		w.t.Errorf("ACJ-042, ACJ-080: %s is created", child)
	}
	if deadline := cronJob.Spec.StartingDeadlineSeconds; deadline != nil && w.Now().Sub(child.Nominal) >= time.Duration(*deadline+1)*time.Second {
		w.t.Errorf("ACJ-055: the run of %s begins at %s", child.Nominal, w.Now())
	}
	for _, other := range w.children() {
		if other.Phase == advancedcronjob.Active && cronJob.Spec.ConcurrencyPolicy == appsv1beta1.ConcurrencyForbid &&
			string(advancedcronjob.OwnerOf(other.Object)) == owner {
			w.t.Errorf("ACJ-061: %s begins while %s is active", child, other)
		}
	}
}

// environmentStep lets the controllers of children and the garbage collector act.
func (w *world) environmentStep() bool {
	if w.still {
		return false
	}
	before := len(w.told)
	moved := false
	for _, child := range w.children() {
		key := simulation.Key{Kind: w.kind, Name: child.Object.GetName()}
		owner := w.Get(w.key())
		switch {
		case owner == nil || owner.GetUID() != advancedcronjob.OwnerOf(child.Object):
			if child.Object.GetDeletionTimestamp() == nil {
				w.EndGracefully(key)
				moved = true
			}
		case child.Phase == advancedcronjob.Active && w.Chance(0.3):
			w.Change(key, func(o client.Object) {
				advancedcronjobtest.Ended(w.Chance(0.5))(o)
				if w.Chance(0.8) {
					advancedcronjobtest.Started(w.Now().Sub(advancedcronjobtest.Noon))(o)
				}
			})
			moved = true
		case child.Phase != advancedcronjob.Active && w.Chance(0.2) && child.Object.GetDeletionTimestamp() == nil: // its TTL is over
			w.EndGracefully(key)
			moved = true
		}
	}
	return moved || len(w.told) > before
}

// users let somebody do something.
func (w *world) users() {
	switch children := w.children(); {
	case w.Chance(0.5):
		w.Change(w.key(), func(o client.Object) { w.changeSpec(o.(*appsv1beta1.AdvancedCronJob)) })
	case w.Chance(0.5) && len(children) > 0:
		w.EndGracefully(simulation.Key{Kind: w.kind, Name: children[w.Rand.IntN(len(children))].Object.GetName()})
	case w.Chance(0.1):
		w.Remove(w.key())
		if w.Chance(0.8) {
			w.create()
		}
	}
}

// TestSimulatedSchedules (ACJ-053 (part), ACJ-092 (part)): each run begins once and none is forgotten,
// whatever dies, lags, is lost or deleted; and nothing is written at rest.
func TestSimulatedSchedules(t *testing.T) {
	simulationtest.Seeds(t, 300, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		for range 4 {
			w.Faults = simulation.Faults{Refuse: 0.05, Lose: 0.05, Die: 0.04}
			for range 40 {
				switch w.Rand.IntN(5) {
				case 0:
					w.users()
				case 1:
					w.Pass(time.Duration(w.Rand.IntN(20_000)) * time.Millisecond)
				case 2:
					w.environmentStep()
				default:
					w.Events(w.Rand.IntN(6))
					w.Manage()
				}
				if w.Dead() {
					w.start()
				}
			}
			w.rest()
			if t.Failed() {
				t.Fatalf("the simulated run failed:\n%s", w.describe())
			}
		}
	})
}

// quiet lets all act until nothing is left to do now.
func (w *world) quiet() {
	for range 1000 {
		if !w.Round() && !w.Dead() && (w.Queue.Due().IsZero() || w.Queue.Due().After(w.Now())) {
			return
		}
	}
	w.t.Fatal("no rest: ", w.describe())
}

// rest lets what is under way come to rest, without faults, and checks what holds then.
func (w *world) rest() {
	w.Faults = simulation.Faults{}
	for range 6 { // retries of what failed, and doubts
		w.quiet()
		w.Queue.Wait()
	}
	w.still = true
	defer func() { w.still = false }()
	w.quiet()
	writes := len(w.Writes)
	w.Queue.Add()
	w.quiet()
	if len(w.Writes) > writes {
		w.t.Errorf("written at rest: %v", w.Writes[writes:])
	}
	cronJob, _ := w.Get(w.key()).(*appsv1beta1.AdvancedCronJob)
	children := w.children()
	if cronJob == nil {
		if len(children) > 0 {
			w.t.Errorf("%d children are left of what is gone", len(children))
		}
		return
	}
	active, ended := 0, map[advancedcronjob.Phase]int{}
	for _, child := range children {
		if child.Held() {
			w.t.Errorf("%s is held for ever", child)
		}
		if ended[child.Phase]++; child.Phase == advancedcronjob.Active {
			active++
		}
	}
	spec := &cronJob.Spec
	if limit := spec.SuccessfulJobsHistoryLimit; limit != nil && (ended[advancedcronjob.Succeeded] > int(*limit) ||
		ended[advancedcronjob.Failed] > int(*spec.FailedJobsHistoryLimit)) {
		w.t.Errorf("ACJ-090: %v are kept, the limits are %d and %d", ended, *limit, *spec.FailedJobsHistoryLimit)
	}
	if len(cronJob.Status.Active) != active {
		w.t.Errorf("ACJ-100: %d of %d active children are told", len(cronJob.Status.Active), active)
	}
	if spec.Paused != nil && *spec.Paused || spec.StartingDeadlineSeconds != nil || spec.ConcurrencyPolicy == appsv1beta1.ConcurrencyForbid && active > 0 {
		return
	}
	last := cronJob.CreationTimestamp
	if cronJob.Status.LastScheduleTime != nil {
		last = *cronJob.Status.LastScheduleTime
	}
	times, _, err := schedule.Parse(spec.Schedule)
	if err != nil {
		w.t.Fatal(err)
	}
	if missed, ok := times.Latest(last.Time, last.Time, w.Now()); ok {
		w.t.Errorf("ACJ-052: the run of %s is forgotten at %s", missed, w.Now())
	}
}
