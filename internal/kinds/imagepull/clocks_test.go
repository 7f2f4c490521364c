package imagepull

import (
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-051: a node whose clock is ahead gets its NodeImage once it has been there for the delay.
func TestANodeWhoseClockIsAheadIsServed(t *testing.T) {
	for name, tt := range map[string]struct {
		there, ready, left time.Duration
	}{
		"ready for a while":              {-time.Hour, -time.Hour, 0},
		"ready just now":                 {-time.Hour, 0, 30 * time.Second},
		"six hours ahead":                {-time.Hour, 6 * time.Hour, 0},
		"six hours ahead, and a new one": {-10 * time.Second, 6 * time.Hour, 20 * time.Second},
	} {
		s := nodeSnapshot(nil, 0)
		s.Node.CreationTimestamp = *imagepulltest.At(tt.there)
		s.Node.Status.Conditions[0].LastTransitionTime = *imagepulltest.At(tt.ready)
		plan := PlanNode(s)
		if plan.Create != (tt.left == 0) {
			t.Errorf("%s: created: got %t, want %t", name, plan.Create, tt.left == 0)
		}
		if plan.After != tt.left {
			t.Errorf("%s: time to the next pass: got %v, want %v", name, plan.After, tt.left)
		}
	}
}

// IMG-054 d: a tag goes when its time is over, also if the clock of the node was a month ahead when the pull
// ended.
func TestATagOfANodeWhoseClockWasAheadGoes(t *testing.T) {
	const month = 30 * 24 * time.Hour
	for name, tt := range map[string]struct {
		took, after time.Duration // its time is 60 s
		gone        bool
	}{
		"at once":                     {0, 59 * time.Second, false},
		"its time is over":            {0, time.Minute, true},
		"the pull took ten minutes":   {10 * time.Minute, 10*time.Minute + 50*time.Second, false},
		"and its time is over":        {10 * time.Minute, 11 * time.Minute, true},
		"it is told from the future":  {2 * time.Hour, time.Minute, false},
		"and another day has passed":  {2 * time.Hour, 26 * time.Hour, true},
		"the clock was set back then": {-time.Hour, time.Minute, true},
	} {
		n := imagepulltest.Tagged("n", imagepulltest.Result(appsv1beta1.ImagePhaseSucceeded, 2))
		status := &n.Status.ImageStatuses["app"].Tags[0]
		status.StartTime, status.CompletionTime = imagepulltest.At(month-tt.took), imagepulltest.At(month)
		plan := PlanNode(nodeSnapshot(n, tt.after))
		if image, changed := plan.Images["app"]; (changed && image == nil) != tt.gone {
			t.Errorf("%s: %s, again in %s", name, shownNode(plan), plan.After)
		}
	}
}

// IMG-098: a node that is not ready gives its slot back after a minute, also if it told so by a clock that is
// ahead.
func TestANodeWhoseClockIsAheadGivesItsSlotBack(t *testing.T) {
	for since, silent := range map[time.Duration]bool{-2 * time.Minute: true, -30 * time.Second: false, 6 * time.Hour: true} {
		s := &JobSnapshot{Now: imagepulltest.Noon, NotReadySince: func(string) (time.Time, bool) { return imagepulltest.Noon.Add(since), true }}
		entry := &appsv1beta1.ImageTagSpec{Version: 1, CreatedAt: imagepulltest.At(0)}
		if got := s.silent("n", entry, &appsv1beta1.ImageTagStatus{Version: 1}, &clock{now: s.Now}); got != silent {
			t.Errorf("%s: got %t, want %t", since, got, silent)
		}
	}
}

// IMG-059, IMG-133: an image that waits for its turn on a node that gets ahead is not given up before it was
// tried; one of a node that does nothing any more is.
func TestAnImageThatWaitsForItsTurnIsNotGivenUp(t *testing.T) {
	deadline := func(seconds int64) *appsv1beta1.ImageTagPullPolicy {
		return &appsv1beta1.ImageTagPullPolicy{ActiveDeadlineSeconds: &seconds}
	}
	for name, tt := range map[string]struct {
		phase    appsv1beta1.ImagePullPhase
		other    *appsv1beta1.ImageTagPullPolicy // of a pull that is under way
		progress time.Duration                   // when the node got ahead last; negative if that is not known
		after    time.Duration
		givenUp  bool
	}{
		"waits, and nothing is known":      {"Waiting", nil, -1, 24 * time.Hour, false},
		"waits, and the node gets ahead":   {"Waiting", nil, 40 * time.Minute, 50 * time.Minute, false},
		"waits for a node that is dead":    {"Waiting", nil, 40 * time.Minute, 80 * time.Minute, true},
		"waits for a pull of two hours":    {"Waiting", deadline(7200), 0, 2 * time.Hour, false},
		"and that is over":                 {"Waiting", deadline(7200), 0, 131 * time.Minute, true},
		"waits for one without a deadline": {"Waiting", &appsv1beta1.ImageTagPullPolicy{TimeoutSeconds: new(int32(3600))}, 0, 4 * time.Hour, false},
		"pulls since a moment":             {"Pulling", nil, 50 * time.Minute, time.Hour, false},
		"pulls for too long":               {"Pulling", nil, 0, 41 * time.Minute, true},
	} {
		n := imagepulltest.Tagged("n", imagepulltest.Result(tt.phase, 2))
		n.Spec.Images["app"].Tags[0].PullPolicy.ActiveDeadlineSeconds = new(int64(1800))
		if tt.other != nil {
			n.Spec.Images["b"] = appsv1beta1.ImageSpec{Tags: []appsv1beta1.ImageTagSpec{{Tag: "1", CreatedAt: imagepulltest.At(0), PullPolicy: tt.other}}}
			n.Status.ImageStatuses["b"] = appsv1beta1.ImageStatus{Tags: []appsv1beta1.ImageTagStatus{{Tag: "1", Phase: "Pulling"}}}
		}
		s := nodeSnapshot(n, tt.after)
		if tt.progress >= 0 {
			s.Progress = imagepulltest.Noon.Add(tt.progress)
		}
		given := false
		for _, g := range PlanNode(s).GaveUp {
			given = given || g.Image == "app"
		}
		if given != tt.givenUp {
			t.Errorf("%s: given up %v", name, given)
		}
	}
}

// IMG-092: a job that is to end, and that a NodeImage refuses for ever, ends, and says so; one that never
// ends tries on.
func TestAJobThatIsRefusedForEverEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		kind  appsv1beta1.CompletionPolicyType
		since time.Duration
		ends  bool
	}{
		"for a moment":     {appsv1beta1.CompletionAlways, time.Minute, false},
		"for ten minutes":  {appsv1beta1.CompletionAlways, 10 * time.Minute, true},
		"without ever end": {appsv1beta1.CompletionNever, time.Hour, false},
	} {
		job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Spec.CompletionPolicy.Type = tt.kind })
		plan := PlanJob(JobSnapshot{Job: job, Now: imagepulltest.Noon.Add(time.Hour), Nodes: []*appsv1beta1.NodeImage{imagepulltest.Blank("n")},
			Refused: map[string]time.Time{"n": imagepulltest.Noon.Add(time.Hour - tt.since)}})
		ended := plan.Status != nil && plan.Status.CompletionTime != nil
		if ended != tt.ends {
			t.Errorf("%s: ended: got %t, want %t; %+v, assigns %v", name, ended, tt.ends, plan.Status, plan.Assign)
		}
		if ended == (len(plan.Assign) == 1) {
			t.Errorf("%s: ended: got %t, want another value; %+v, assigns %v", name, ended, plan.Status, plan.Assign)
		}
		if ended && plan.Status.Message != "job has completed; 1 NodeImage has refused the image for 10m0s, such as n" {
			t.Errorf("message: got %q, want %q", plan.Status.Message,
				"job has completed; 1 NodeImage has refused the image for 10m0s, such as n")
		}
	}
}
