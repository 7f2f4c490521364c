package ephemeraljob_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob"
	. "github.com/afloat-project/afloat/internal/kinds/ephemeraljob/ephemeraljobtest"
)

type change = func(*appsv1alpha1.EphemeralJob)

func parallelism(n int32) change {
	return func(job *appsv1alpha1.EphemeralJob) { job.Spec.Parallelism = &n }
}

func replicas(n int32) change {
	return func(job *appsv1alpha1.EphemeralJob) { job.Spec.Replicas = &n }
}

func paused(job *appsv1alpha1.EphemeralJob) { job.Spec.Paused = true }

func deadline(n int64) change {
	return func(job *appsv1alpha1.EphemeralJob) { job.Spec.ActiveDeadlineSeconds = &n }
}

func started(job *appsv1alpha1.EphemeralJob) { job.Status.StartTime = &metav1.Time{Time: Noon} }

func counted(succeeded, failed, running, waiting int32) change {
	return func(job *appsv1alpha1.EphemeralJob) {
		job.Status.Succeeded, job.Status.Failed, job.Status.Running, job.Status.Waiting = succeeded, failed, running, waiting
	}
}

func plan(job *appsv1alpha1.EphemeralJob, pods ...*corev1.Pod) *ephemeraljob.Plan {
	return ephemeraljob.NewPlan(ephemeraljob.Snapshot{Job: job, Pods: pods, Now: Noon})
}

func names(pods []*corev1.Pod) string {
	var all []string
	for _, pod := range pods {
		all = append(all, pod.Name)
	}
	return strings.Join(all, " ")
}

// line shows a status in one line.
func line(p *ephemeraljob.Plan) string {
	s := p.Status
	var conditions []string
	for _, c := range s.Conditions {
		if c.Status != corev1.ConditionTrue {
			conditions = append(conditions, "NOT")
		}
		conditions = append(conditions, fmt.Sprintf("%s/%s", c.Type, c.Reason))
	}
	return fmt.Sprintf("%s match %d: %d+%d+%d+%d ended %t %s", s.Phase, s.Matches, s.Succeeded, s.Failed, s.Running, s.Waiting,
		s.CompletionTime != nil, strings.Join(conditions[1:], " "))
}

func after(d time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(Noon.Add(d)) }
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

func going(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: Noon} }

func moved(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "other"} }

func nowhere(pod *corev1.Pod) { pod.Spec.NodeName = "" }

// EJ-035: active pods that the selector matches, by creation time and then by name. EJ-036 (part): those with
// a foreign container of such a name are left out. EJ-011, EJ-037, EJ-081, EJ-085: the first replicas are the
// targets, all of them without, or where there are fewer, and treated pods stay targets. EJ-044: as many at
// once as parallelism leaves. EJ-012: which is 1 by default. EJ-013: paused treats no more.
func TestTargetsAreActivePodsInOrder(t *testing.T) {
	const job = "job"
	for name, c := range map[string]struct {
		job    *appsv1alpha1.EphemeralJob
		pods   []*corev1.Pod
		inject string
		match  int32
	}{
		"the oldest first, then by name": {Job(parallelism(2)), []*corev1.Pod{Pod("c"), Pod("a", after(time.Second)), Pod("b")}, "b c", 3},
		"one at a time by default":       {Job(), []*corev1.Pod{Pod("b"), Pod("a")}, "a", 2},
		"active ones that match": {Job(parallelism(9)), []*corev1.Pod{Pod("a", phase(corev1.PodFailed)), Pod("b", phase(corev1.PodSucceeded)),
			Pod("c", going), Pod("d", moved), Pod("e", phase(corev1.PodPending)), Pod("f")}, "e f", 2},
		"replicas":                    {Job(parallelism(9), replicas(2)), []*corev1.Pod{Pod("a"), Pod("b"), Pod("c")}, "a b", 2},
		"more replicas than pods":     {Job(parallelism(9), replicas(5)), []*corev1.Pod{Pod("a"), Pod("b")}, "a b", 2},
		"replicas 0":                  {Job(parallelism(9), replicas(0)), []*corev1.Pod{Pod("a")}, "", 0},
		"treated pods stay targets":   {Job(replicas(1)), []*corev1.Pod{Pod("a"), Pod("b", Treated(job, Ended(0)))}, "", 1},
		"whatever their labels are":   {Job(parallelism(9)), []*corev1.Pod{Pod("a", moved, Treated(job, Runs())), Pod("b")}, "b", 2},
		"replicas made smaller":       {Job(replicas(1), parallelism(9)), []*corev1.Pod{Pod("a", Treated(job, Runs())), Pod("b", Treated(job, Runs())), Pod("c")}, "", 2},
		"names of others":             {Job(parallelism(9), replicas(1)), []*corev1.Pod{Pod("a", Treated("other", Runs())), Pod("b", Treated("", nil)), Pod("c")}, "c", 1},
		"other names":                 {Job(), []*corev1.Pod{Pod("a", Container("shell", "other", Runs()))}, "a", 1},
		"unfinished ones count":       {Job(parallelism(2)), []*corev1.Pod{Pod("a", Treated(job, Waits("ContainerCreating"))), Pod("b"), Pod("c")}, "b", 3},
		"those not reported yet, too": {Job(), []*corev1.Pod{Pod("a", Treated(job, nil)), Pod("b")}, "", 2},
		"more than parallelism":       {Job(), []*corev1.Pod{Pod("a", Treated(job, Runs())), Pod("b", Treated(job, Runs())), Pod("c")}, "", 3},
		"finished ones do not":        {Job(), []*corev1.Pod{Pod("a", Treated(job, Ended(1))), Pod("b", Treated(job, Ended(0))), Pod("c")}, "c", 3},
		"failed, and one still runs":  {Job(), []*corev1.Pod{Pod("a", Treated(job, Ended(1)), Container("two", job, Runs())), Pod("b")}, "", 2},
		"parallelism 0":               {Job(parallelism(0)), []*corev1.Pod{Pod("a")}, "", 1},
		"paused":                      {Job(paused), []*corev1.Pod{Pod("a")}, "", 1},
		"a pod without a node waits":  {Job(), []*corev1.Pod{Pod("a", nowhere), Pod("b", after(1))}, "b", 2},
	} {
		p := plan(c.job, c.pods...)
		if got := names(p.Inject); got != c.inject {
			t.Errorf("%s: pods that are injected: got %q, want %q; inject %q, match %d: %s", name, got, c.inject,
				names(p.Inject), p.Status.Matches, p)
		}
		if p.Status.Matches != c.match {
			t.Errorf("%s: matches: got %d, want %d; inject %q, match %d: %s", name, p.Status.Matches, c.match,
				names(p.Inject),
				p.Status.Matches, p)
		}
		for _, v := range p.Verdicts {
			if v.Message == "" {
				t.Errorf("%s: message: got nothing, want some text; nothing is said about %s", name, v.Pod)
			}
			if v.Reason == "" {
				t.Errorf("%s: reason: got nothing, want some text; nothing is said about %s", name, v.Pod)
			}
		}
	}
}

// EJ-055, EJ-056 (part): results of pods.
func TestPodsHaveTheResultOfTheirContainers(t *testing.T) {
	const job = "job"
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want [4]int32 // succeeded, failed, running, waiting
		done bool
	}{
		"all ended with 0":      {Pod("a", Treated(job, Ended(0)), Container("two", job, Ended(0))), [4]int32{1}, true},
		"one ended with 3":      {Pod("a", Treated(job, Ended(3)), Container("two", job, Ended(0))), [4]int32{0, 1}, true},
		"one failed, one runs":  {Pod("a", Treated(job, Ended(3)), Container("two", job, Runs())), [4]int32{0, 1}, false},
		"RunContainerError":     {Pod("a", Treated(job, Waits("RunContainerError"))), [4]int32{0, 1}, true},
		"one runs, one waits":   {Pod("a", Treated(job, Runs()), Container("two", job, Waits("x"))), [4]int32{0, 0, 1}, false},
		"one ended, one waits":  {Pod("a", Treated(job, Ended(0)), Container("two", job, Waits("x"))), [4]int32{0, 0, 0, 1}, false},
		"not reported yet":      {Pod("a", Treated(job, nil)), [4]int32{0, 0, 0, 1}, false},
		"stuck since now":       {Pod("a", Treated(job, Waits("ErrImageNeverPull"))), [4]int32{0, 0, 0, 1}, false},
		"those of others":       {Pod("a", Treated(job, Ended(0)), Container("two", "other", Ended(1))), [4]int32{1}, true},
		"the pod ended first":   {Pod("a", phase(corev1.PodFailed), Treated(job, Runs())), [4]int32{0, 1}, true},
		"the pod ended after":   {Pod("a", phase(corev1.PodSucceeded), Treated(job, Ended(0))), [4]int32{1}, true},
		"the pod is being gone": {Pod("a", going, Treated(job, Runs())), [4]int32{0, 0, 1}, false},
	} {
		p := plan(Job(paused), c.pod)
		got := [4]int32{p.Status.Succeeded, p.Status.Failed, p.Status.Running, p.Status.Waiting}
		if got != c.want {
			t.Errorf("%s: got %v, want %v\n%s", name, got, c.want, p)
		}
		if (p.Status.CompletionTime != nil) != c.done {
			t.Errorf("%s: it is completed: got %t, want %t\n%s", name, p.Status.CompletionTime != nil, c.done, p)
		}
	}
}

// EJ-056: what waits for what cannot heal counts as failed after a minute, also for the manager that takes
// over from one that has counted it.
func TestWaitsThatCannotHealCountAsFailed(t *testing.T) {
	for _, reason := range []string{"ErrImageNeverPull", "InvalidImageName", "CreateContainerError"} {
		job, pod := Job(), Pod("a", Treated("job", Waits(reason)))
		first := plan(job, pod)
		if got := line(first); got != "Waiting match 1: 0+0+0+1 ended false " {
			t.Errorf("%s: first line: got %q, want %q", reason, got, "Waiting match 1: 0+0+0+1 ended false ")
		}
		if first.After != time.Minute {
			t.Errorf("%s: time to the next pass the first time: got %v, want %v", reason, first.After, time.Minute)
		}
		job.Status = *first.Status
		s := ephemeraljob.Snapshot{Job: job, Pods: []*corev1.Pod{pod, Pod("b", after(1))}, Ledger: first.Ledger, Now: Noon.Add(59 * time.Second)}
		if p := ephemeraljob.NewPlan(s); p.Status.Failed != 0 {
			t.Errorf("%s: failed: got %d, want 0\n%s\n%s", reason, p.Status.Failed, line(p), p)
		} else if p.After != time.Second {
			t.Errorf("%s: time to the next pass: got %v, want %v\n%s\n%s", reason, p.After, time.Second, line(p), p)
		} else if len(p.Inject) > 0 {
			t.Errorf("%s: injected: got %v, want none\n%s\n%s", reason, p.Inject, line(p), p)
		}
		s.Now = Noon.Add(time.Minute)
		p := ephemeraljob.NewPlan(s)
		if got := line(p); got != "Waiting match 2: 0+1+0+0 ended false JobFailed/CreateFailed" {
			t.Errorf("%s: plan: got %q, want %q\n%s", reason, got,
				"Waiting match 2: 0+1+0+0 ended false JobFailed/CreateFailed", p)
		}
		if got := names(p.Inject); got != "b" {
			t.Errorf("%s: pods that are injected: got %q, want %q\n%s", reason, got, "b", p)
		}
		job.Status, s.Ledger = *p.Status, ephemeraljob.Ledger{}
		if taken := ephemeraljob.NewPlan(s); line(taken) != line(p) {
			t.Errorf("%s: after a takeover %s", reason, line(taken))
		}
	}
	p := plan(Job(), Pod("a", Treated("job", Waits("ImagePullBackOff"))))
	if p.After != 0 {
		t.Errorf("time to the next pass: got %v, want 0\n%s", p.After, p)
	}
	if p.Status.Waiting != 1 {
		t.Errorf("number waiting: got %d, want 1\n%s", p.Status.Waiting, p)
	}
}

// EJ-038: treated pods that are gone keep their result. One that was not done counts as failed.
// EJ-037 (part): they are targets still.
func TestGonePodsKeepTheirResults(t *testing.T) {
	job := Job(replicas(4), parallelism(4))
	pods := []*corev1.Pod{Pod("a", Treated("job", Ended(0))), Pod("b", Treated("job", Ended(1))), Pod("c", Treated("job", Runs())),
		Pod("d", Treated("job", Runs())), Pod("e")}
	first := plan(job, pods...)
	if got := line(first); got != "Running match 4: 1+1+2+0 ended false JobFailed/CreateFailed" {
		t.Fatalf("first line: got %q, want %q", got, "Running match 4: 1+1+2+0 ended false JobFailed/CreateFailed")
	}
	job.Status = *first.Status
	for name, ledger := range map[string]ephemeraljob.Ledger{"seen": first.Ledger, "after a takeover": {}} {
		p := ephemeraljob.NewPlan(ephemeraljob.Snapshot{Job: job, Pods: pods[3:], Ledger: ledger, Now: Noon})
		if got := line(p); got != "Running match 4: 1+2+1+0 ended false JobFailed/CreateFailed" {
			t.Errorf("%s: plan: got %q, want %q\n%s", name, got,
				"Running match 4: 1+2+1+0 ended false JobFailed/CreateFailed", p)
		}
		if len(p.Inject) > 0 {
			t.Errorf("%s: injected: got %v, want none\n%s", name, p.Inject, p)
		}
		next := job.DeepCopy()
		next.Status = *p.Status
		again := ephemeraljob.NewPlan(ephemeraljob.Snapshot{Job: next, Pods: pods[3:], Ledger: p.Ledger, Now: Noon})
		if diff := cmp.Diff(p.Status, again.Status); diff != "" {
			t.Errorf("%s: status after another pass (-first +second):\n%s", name, diff)
		}
		last := ephemeraljob.NewPlan(ephemeraljob.Snapshot{Job: next, Ledger: again.Ledger, Now: Noon})
		if got := line(last); got != "Failed match 4: 1+3+0+0 ended true JobFailed/JobFailed" {
			t.Errorf("%s: last line: got %q, want %q", name, got,
				"Failed match 4: 1+3+0+0 ended true JobFailed/JobFailed")
		}
	}
	// It ended between the last status and its end: only who saw it knows.
	ended := ephemeraljob.NewPlan(ephemeraljob.Snapshot{Job: job, Pods: []*corev1.Pod{pods[0], pods[1], Pod("c", Treated("job", Ended(0))), pods[3]},
		Ledger: first.Ledger, Now: Noon})
	p := ephemeraljob.NewPlan(ephemeraljob.Snapshot{Job: job, Pods: pods[3:], Ledger: ended.Ledger, Now: Noon})
	if got := line(p); got != "Running match 4: 2+1+1+0 ended false JobFailed/CreateFailed" {
		t.Errorf("plan: got %q, want %q", got, "Running match 4: 2+1+1+0 ended false JobFailed/CreateFailed")
	}
}

// The numbers of a status are written by others, too: they must neither break anything nor be believed for
// ever.
func TestOddNumbersInTheStatus(t *testing.T) {
	for _, job := range []*appsv1alpha1.EphemeralJob{Job(counted(-5, -5, -5, -5)), Job(counted(1<<31-1, 1<<31-1, 1<<31-1, 1<<31-1))} {
		p := plan(job, Pod("a"))
		s := p.Status
		if s.Matches < 1 {
			t.Errorf("matches: got %d, want at least 1\n%s", s.Matches, line(p))
		}
		if s.Succeeded < 0 {
			t.Errorf("succeeded: got %d, want at least 0\n%s", s.Succeeded, line(p))
		}
		if s.Failed < 0 {
			t.Errorf("failed: got %d, want at least 0\n%s", s.Failed, line(p))
		}
	}
}

// EJ-016, EJ-017, EJ-057, EJ-058, EJ-059, EJ-061, EJ-064, EJ-080: phases and conditions. EJ-043: the start is
// set at once. EJ-014, EJ-060: deadlines.
func TestJobsGoThroughTheirPhases(t *testing.T) {
	const job = "job"
	hour := func(job *appsv1alpha1.EphemeralJob) { job.Status.StartTime = &metav1.Time{Time: Noon.Add(-time.Hour)} }
	done, failed, runs := Pod("a", Treated(job, Ended(0))), Pod("b", Treated(job, Ended(1))), Pod("c", Treated(job, Runs()))
	for name, c := range map[string]struct {
		job  *appsv1alpha1.EphemeralJob
		pods []*corev1.Pod
		want string
	}{
		"nothing to add":                  {Job(With(`[]`)), []*corev1.Pod{Pod("a")}, "Error match 1: 0+0+0+0 ended false JobError/Error"},
		"null":                            {Job(With(`null`)), []*corev1.Pod{Pod("a")}, "Error match 1: 0+0+0+0 ended false JobError/Error"},
		"nothing that can be read":        {Job(With(`[{"name":5}]`)), []*corev1.Pod{Pod("a")}, "Error match 1: 0+0+0+0 ended false JobError/Error"},
		"no selector":                     {Job(func(j *appsv1alpha1.EphemeralJob) { j.Spec.Selector = nil }), []*corev1.Pod{Pod("a")}, "Error match 0: 0+0+0+0 ended false JobError/Error"},
		"a selector of nothing":           {Job(func(j *appsv1alpha1.EphemeralJob) { j.Spec.Selector = &metav1.LabelSelector{} }), []*corev1.Pod{Pod("a")}, "Error match 0: 0+0+0+0 ended false JobError/Error"},
		"no pod":                          {Job(), nil, "Waiting match 0: 0+0+0+0 ended false MatchedEmpty/MatchEmpty"},
		"no pod, for an hour":             {Job(hour), nil, "Waiting match 0: 0+0+0+0 ended false MatchedEmpty/MatchEmpty"},
		"no pod until the deadline":       {Job(hour, deadline(60)), nil, "Failed match 0: 0+0+0+0 ended true MatchedEmpty/MatchEmpty JobFailed/DeadlineExceeded"},
		"succeeded":                       {Job(), []*corev1.Pod{done}, "Succeeded match 1: 1+0+0+0 ended true JobSucceeded/JobSucceeded"},
		"failed":                          {Job(), []*corev1.Pod{failed}, "Failed match 1: 0+1+0+0 ended true JobFailed/JobFailed"},
		"mixed":                           {Job(), []*corev1.Pod{done, failed}, "Failed match 2: 1+1+0+0 ended true JobFailed/JobFailed"},
		"mixed, of more replicas":         {Job(replicas(9)), []*corev1.Pod{done, failed}, "Failed match 2: 1+1+0+0 ended true JobFailed/JobFailed"},
		"of replicas":                     {Job(replicas(1)), []*corev1.Pod{done, Pod("z")}, "Succeeded match 1: 1+0+0+0 ended true JobSucceeded/JobSucceeded"},
		"fewer replicas than treated":     {Job(replicas(1)), []*corev1.Pod{done, runs}, "Running match 2: 1+0+1+0 ended false "},
		"running":                         {Job(), []*corev1.Pod{done, runs}, "Running match 2: 1+0+1+0 ended false "},
		"one failed":                      {Job(), []*corev1.Pod{failed, runs}, "Running match 2: 0+1+1+0 ended false JobFailed/CreateFailed"},
		"waiting":                         {Job(), []*corev1.Pod{done, Pod("z")}, "Waiting match 2: 1+0+0+0 ended false "},
		"paused":                          {Job(paused), []*corev1.Pod{done, Pod("z")}, "Paused match 2: 1+0+0+0 ended false "},
		"paused, nothing matches":         {Job(paused), nil, "Paused match 0: 0+0+0+0 ended false MatchedEmpty/MatchEmpty"},
		"paused and done":                 {Job(paused), []*corev1.Pod{done}, "Succeeded match 1: 1+0+0+0 ended true JobSucceeded/JobSucceeded"},
		"paused beyond the deadline":      {Job(paused, hour, deadline(60)), []*corev1.Pod{runs}, "Paused match 1: 0+0+1+0 ended false "},
		"beyond the deadline":             {Job(hour, deadline(60)), []*corev1.Pod{failed, runs, Pod("z")}, "Failed match 3: 0+1+1+0 ended true JobFailed/DeadlineExceeded"},
		"at the deadline":                 {Job(hour, deadline(3600)), []*corev1.Pod{runs}, "Failed match 1: 0+0+1+0 ended true JobFailed/DeadlineExceeded"},
		"before the deadline":             {Job(hour, deadline(3601)), []*corev1.Pod{runs}, "Running match 1: 0+0+1+0 ended false "},
		"done in time, seen later":        {Job(hour, deadline(60)), []*corev1.Pod{done}, "Succeeded match 1: 1+0+0+0 ended true JobSucceeded/JobSucceeded"},
		"a deadline that is no time":      {Job(hour, deadline(1<<62)), []*corev1.Pod{runs}, "Running match 1: 0+0+1+0 ended false "},
		"an unfinished one of a failed":   {Job(), []*corev1.Pod{Pod("a", Treated(job, Ended(1)), Container("two", job, Runs()))}, "Waiting match 1: 0+1+0+0 ended false JobFailed/CreateFailed"},
		"a job of the reference, unknown": {Job(func(j *appsv1alpha1.EphemeralJob) { j.Status.Phase = "Unknown" }, counted(1, 1, 0, 0)), []*corev1.Pod{done, failed}, "Failed match 2: 1+1+0+0 ended true JobFailed/JobFailed"},
	} {
		p := plan(c.job, c.pods...)
		if got := line(p); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
		if s := p.Status; s.StartTime == nil {
			t.Errorf("%s: time of the start: got nil, want a value\n%+v", name, s)
		} else if c.job.Status.StartTime == nil && !s.StartTime.Time.Equal(Noon) {
			t.Errorf("%s: time of the start: got %v, want %v\n%+v", name, s.StartTime.Time, Noon, s)
		} else if p.Ended != (s.CompletionTime != nil) {
			t.Errorf("%s: ended: got %t, want %t\n%+v", name, p.Ended, s.CompletionTime != nil, s)
		}
		if p.Ended && len(p.Inject) > 0 {
			t.Errorf("%s: it ended, and injects: %s", name, p)
		}
		if p.Ended && !p.Status.CompletionTime.Time.Equal(Noon) {
			t.Errorf("%s: ended at %s, want %s: %s", name, p.Status.CompletionTime, Noon, p)
		}
		if p.Status.Conditions[0].Type != appsv1alpha1.EphemeralJobConditionInitialized {
			t.Errorf("%s: type of the first condition: got %q, want %q\n%+v", name, p.Status.Conditions[0].Type,
				appsv1alpha1.EphemeralJobConditionInitialized, p.Status.Conditions)
		}
	}
	if p := plan(Job(started, deadline(90)), Pod("a")); p.After != 90*time.Second {
		t.Errorf("deadline: %s", p)
	}
	mixed := plan(Job(), failed, runs)
	if c := mixed.Status.Conditions[1]; c.Message != "1 pod failed" {
		t.Errorf("message: got %q, want %q\n%+v", c.Message, "1 pod failed", c)
	}
}

// EJ-062, EJ-063: conditions get new times only when they appear or their reason changes; at rest nothing
// changes.
func TestTimesOfConditions(t *testing.T) {
	job := Job()
	pods := []*corev1.Pod{Pod("a", Treated("job", Ended(1))), Pod("b", Treated("job", Runs()))}
	first := plan(job, pods...)
	job.Status = *first.Status
	s := ephemeraljob.Snapshot{Job: job, Pods: pods, Ledger: first.Ledger, Now: Noon.Add(time.Hour)}
	if diff := cmp.Diff(first.Status, ephemeraljob.NewPlan(s).Status); diff != "" {
		t.Errorf("status after another pass (-first +second):\n%s", diff)
	}
	s.Ledger = ephemeraljob.Ledger{}
	if again := ephemeraljob.NewPlan(s); cmp.Diff(first.Status, again.Status) != "" {
		t.Errorf("after a takeover: %s", cmp.Diff(first.Status, again.Status))
	}
	s.Pods = append(slices.Clone(pods[:1]), Pod("b", Treated("job", Ended(2))))
	last := ephemeraljob.NewPlan(s)
	for i, want := range []struct {
		reason string
		at     time.Time
	}{{"Initialized", Noon}, {"JobFailed", s.Now}} {
		c := last.Status.Conditions[i]
		if c.Reason != want.reason {
			t.Errorf("reason: got %q, want %q\n%+v", c.Reason, want.reason, c)
		}
		if !c.LastTransitionTime.Time.Equal(want.at) {
			t.Errorf("time of the last change: got %v, want %v\n%+v", c.LastTransitionTime.Time, want.at, c)
		}
		if !c.LastProbeTime.Time.Equal(want.at) {
			t.Errorf("time of the last probe: got %v, want %v\n%+v", c.LastProbeTime.Time, want.at, c)
		}
	}
}

// EJ-046 (part): without the subresource the job is in error, says why, and asks again. EJ-048: pods for
// which the containers are invalid count as failed when all others are done, and hold up none of them.
func TestWhatTheServerRefuses(t *testing.T) {
	job := Job()
	s := ephemeraljob.Snapshot{Job: job, Pods: []*corev1.Pod{Pod("a"), Pod("b")}, Now: Noon, Unsupported: "no such thing",
		UnsupportedUntil: Noon.Add(time.Minute)}
	p := ephemeraljob.NewPlan(s)
	if got := line(p); got != "Error match 2: 0+0+0+0 ended false JobError/Error" {
		t.Errorf("plan: got %q, want %q\n%s", got, "Error match 2: 0+0+0+0 ended false JobError/Error", p)
	} else if p.Status.Conditions[1].Message != "no such thing" {
		t.Errorf("message of the second condition: got %q, want %q\n%s\n%s", p.Status.Conditions[1].Message,
			"no such thing", line(p), p)
	} else if p.After != time.Minute {
		t.Errorf("time to the next pass: got %v, want %v\n%s\n%s", p.After, time.Minute, line(p), p)
	} else if len(p.Inject) > 0 {
		t.Errorf("injected: got %v, want none\n%s\n%s", p.Inject, line(p), p)
	}
	if s.Now = s.UnsupportedUntil; len(ephemeraljob.NewPlan(s).Inject) != 1 {
		t.Error("it is not asked again")
	}
	s = ephemeraljob.Snapshot{Job: job, Pods: []*corev1.Pod{Pod("a"), Pod("b"), Pod("c")}, Now: Noon, Refused: map[types.UID]string{"uid-a": "no volume x"}}
	s.Held = func(pod types.UID) (time.Time, string) {
		if pod == "uid-b" {
			return Noon.Add(time.Second), "a policy says no"
		}
		return time.Time{}, ""
	}
	p = ephemeraljob.NewPlan(s)
	if got := names(p.Inject); got != "c" {
		t.Errorf("pods that are injected: got %q, want %q\n%s", got, "c", p)
	}
	if p.After != time.Second {
		t.Errorf("time to the next pass: got %v, want %v\n%s", p.After, time.Second, p)
	}
	if got := line(p); got != "Waiting match 3: 0+0+0+0 ended false JobFailed/CreateFailed" {
		t.Errorf("plan: got %q, want %q\n%s", got, "Waiting match 3: 0+0+0+0 ended false JobFailed/CreateFailed", p)
	}
	s.Pods = []*corev1.Pod{Pod("a"), Pod("b", Treated("job", Ended(0)))}
	p = ephemeraljob.NewPlan(s)
	if got := line(p); got != "Failed match 2: 1+1+0+0 ended true JobFailed/JobFailed" {
		t.Errorf("plan: got %q, want %q\n%+v", got, "Failed match 2: 1+1+0+0 ended true JobFailed/JobFailed",
			p.Status.Conditions)
	} else if !strings.Contains(p.Status.Conditions[1].Message, "refuses the containers in a: no volume x") {
		t.Errorf("message of the second condition: got %q, want it to contain %q\n%s\n%+v",
			p.Status.Conditions[1].Message,
			"refuses the containers in a: no volume x", line(p), p.Status.Conditions)
	}
}

// EJ-041 (part): the finalizer comes first, and goes with the job whatever else is wrong with it. EJ-015,
// EJ-042: a finished job goes after its time to live.
func TestBeginningAndEnd(t *testing.T) {
	bare := func(job *appsv1alpha1.EphemeralJob) { job.Finalizers = []string{"mine"} }
	leaving := func(job *appsv1alpha1.EphemeralJob) { job.DeletionTimestamp = &metav1.Time{Time: Noon} }
	finished := func(job *appsv1alpha1.EphemeralJob) {
		job.Status.Phase, job.Status.CompletionTime = appsv1alpha1.EphemeralJobFailed, &metav1.Time{Time: Noon.Add(-time.Minute)}
	}
	ttl := func(n int32) change {
		return func(job *appsv1alpha1.EphemeralJob) { job.Spec.TTLSecondsAfterFinished = &n }
	}
	for name, c := range map[string]struct {
		job    *appsv1alpha1.EphemeralJob
		add    bool
		remove bool
		del    bool
		after  time.Duration
	}{
		"new":                    {Job(bare), true, false, false, 0},
		"live":                   {Job(), false, false, false, 0},
		"leaving":                {Job(leaving, With(`"x"`)), false, true, false, 0},
		"leaving, of others":     {Job(bare, leaving), false, false, false, 0},
		"finished, default":      {Job(finished), false, false, false, 29 * time.Minute},
		"finished, 0":            {Job(finished, ttl(0)), false, false, true, 0},
		"finished, negative":     {Job(finished, ttl(-1)), false, false, true, 0},
		"finished, 60":           {Job(finished, ttl(60)), false, false, true, 0},
		"finished, 61":           {Job(finished, ttl(61)), false, false, false, time.Second},
		"finished and leaving":   {Job(finished, leaving, ttl(0)), false, true, false, 0},
		"finished, nobody holds": {Job(finished, bare), false, false, false, 29 * time.Minute},
	} {
		p := plan(c.job)
		if p.AddFinalizer != c.add {
			t.Errorf("%s: the finalizer is added: got %t, want %t", name, p.AddFinalizer, c.add)
		}
		if p.RemoveFinalizer != c.remove {
			t.Errorf("%s: the finalizer is removed: got %t, want %t", name, p.RemoveFinalizer, c.remove)
		}
		if p.Delete != c.del {
			t.Errorf("%s: deleted: got %t, want %t", name, p.Delete, c.del)
		}
		if c.after > 0 && p.After != c.after {
			t.Errorf("%s: time to the next pass: got %v, want %v", name, p.After, c.after)
		}
		if p.String() == "" {
			t.Errorf("%s: p: got nothing, want some text", name)
		}
		if c.job.Status.CompletionTime != nil && p.Status != nil {
			t.Errorf("%s: a finished job is judged again", name)
		}
	}
}
