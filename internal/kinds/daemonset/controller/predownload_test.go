package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
)

// pulling is a set of five pods that run, on a cluster that has ImagePullJobs, or has not.
func pulling(t *testing.T, served bool, options ...option) *simulated {
	t.Helper()
	features := everything
	features.PreDownload = true
	s := started(t, makeSet(options...), features, "n1", "n2", "n3", "n4", "n5")
	if err := s.IndexField(t.Context(), podapply.NewPullJob(), podapply.OwnerIndex, podapply.IndexByController); err != nil {
		t.Fatal(err)
	}
	s.kube.PullJobs = func() bool { return served }
	return s
}

func (s *simulated) jobs() (names []string) {
	for _, job := range s.List("ImagePullJob", false) {
		names = append(names, strings.TrimPrefix(job.GetName(), "agent-"+s.set().Status.UpdateRevision+"-"))
	}
	return names
}

func (s *simulated) marks() string {
	labels := s.Get(revisionKey("agent-" + s.set().Status.UpdateRevision)).GetLabels()
	return labels[pub.PreDownloadCreated] + "/" + labels[pub.PreDownloadIgnored]
}

// TestImagesArePulledAhead shows ADS-180, ADS-186 and ADS-D3 (part), with those of the planner: jobs are made
// once for a revision, told of, and gone when all nodes are updated; what fails stops nothing.
func TestImagesArePulledAhead(t *testing.T) {
	creates := func(err error) func(*simulation.Request) error {
		return func(r *simulation.Request) error {
			if r.Verb == "create" && r.Key.Kind == podplan.PullJobKind.Kind {
				return err
			}
			return nil
		}
	}
	t.Run("they are made once, and end", func(t *testing.T) {
		s := pulling(t, true, partition(2))
		s.Edit(image("agent:2"))
		s.RunFor(5 * time.Minute)
		if got := s.jobs(); !slices.Equal(got, []string{"agent"}) {
			t.Errorf("jobs: got %q, want %q; jobs %q, marks %s, events %q", got, []string{"agent"}, s.jobs(),
				s.marks(), s.Recorded)
		}
		if got := s.marks(); got != "true/" {
			t.Errorf("marks: got %q, want %q; jobs %q, marks %s, events %q", got, "true/", s.jobs(), s.marks(),
				s.Recorded)
		}
		if got := len(s.EventsWith("Normal CreatedImagePullJob ", "agent:2")); got != 1 {
			t.Errorf(`number of events CreatedImagePullJob of agent:2: got %d, want 1; jobs %q, marks %s, events %q`,
				got, s.jobs(),
				s.marks(), s.Recorded)
		}
		job := simulation.Key{Kind: "ImagePullJob", Name: "agent-" + s.set().Status.UpdateRevision + "-agent"}
		kept := s.Get(job)
		s.Remove(job) // its time is over
		s.Edit(partition(1))
		s.RunFor(5 * time.Minute)
		if got := len(s.jobs()); got > 0 {
			t.Errorf("made again: jobs: got %d, want none\n%q", got, s.jobs())
		}
		if got := len(s.EventsWith("CreatedImagePullJob")); got != 1 {
			t.Errorf("made again: number of events CreatedImagePullJob: got %d, want 1\n%q", got, s.jobs())
		}
		s.Store(job, kept)
		s.Edit(partition(0))
		s.RunFor(10 * time.Minute)
		if got := len(s.jobs()); got > 0 {
			t.Errorf("jobs: got %d, want none\n%q\n%s", got, s.jobs(), s.describe())
		}
		if got := s.images(); got != "2 2 2 2 2" {
			t.Errorf("images: got %q, want %q\n%q\n%s", got, "2 2 2 2 2", s.jobs(), s.describe())
		}
	})
	t.Run("they are refused", func(t *testing.T) {
		s := pulling(t, true, partition(1))
		s.Answer = creates(apierrors.NewForbidden(corev1.Resource("imagepulljobs"), "x", errors.New("no room")))
		s.Edit(image("agent:2"))
		s.RunFor(10 * time.Minute)
		if s.images() != "1 2 2 2 2" {
			t.Errorf("the rollout stands still: got images %q, want 1 2 2 2 2: %s", s.images(), s.describe())
		}
		if s.marks() != "/" {
			t.Errorf("marks: got %s, want none", s.marks())
		}
		if conditions := s.set().Status.Conditions; len(conditions) > 0 {
			t.Errorf("conditions: got %+v, want none", conditions)
		}
		if got := len(s.EventsWith("Warning FailedCreateImagePullJob ", "no room")); got == 0 {
			t.Errorf(`events FailedCreateImagePullJob for want of room: got none, want some; events %q`, s.Recorded)
		}
		if got := len(s.EventsWith("CreatedImagePullJob")); got > 0 {
			t.Errorf(`events CreatedImagePullJob: got %d, want none; events %q`, got, s.Recorded)
		}
		s.Answer = nil
		s.RunFor(10 * time.Minute)
		if !slices.Equal(s.jobs(), []string{"agent"}) {
			t.Errorf("jobs that are made later: got %q, want agent", s.jobs())
		}
		if s.marks() != "true/" {
			t.Errorf("marks: got %s, want true/", s.marks())
		}
	})
	t.Run("under OnDelete", func(t *testing.T) {
		s := pulling(t, true, onDelete)
		s.Edit(image("agent:2"))
		s.RunFor(5 * time.Minute)
		if got := len(s.jobs()); got > 0 {
			t.Errorf("jobs: got %d, want none\n%q", got, s.jobs())
		}
		if got := s.marks(); got != "/true" {
			t.Errorf("marks: got %q, want %q\n%q", got, "/true", s.jobs())
		}
	})
	t.Run("their kind is not installed, or the gate is off", func(t *testing.T) {
		for _, gate := range []bool{false, true} {
			s := pulling(t, !gate)
			s.kind.Features.PreDownload = gate
			s.Edit(image("agent:2"))
			s.RunFor(10 * time.Minute)
			if got := s.images(); got != "2 2 2 2 2" {
				t.Errorf("images: got %q, want %q\n%q\n%q", got, "2 2 2 2 2", s.jobs(), s.Recorded)
			}
			if got := len(s.jobs()) + len(s.EventsWith("ImagePullJob")); got > 0 {
				t.Errorf("number of jobs and of events about them: got %d, want 0\n%q\n%q", got, s.jobs(), s.Recorded)
			}
		}
	})
}

// TestTheFirstDeploymentPullsNothing shows ADS-182 (part): nothing is pulled ahead for pods that are made.
func TestTheFirstDeploymentPullsNothing(t *testing.T) {
	features := everything
	features.PreDownload = true
	s := simulate(1, makeSet(), features, "n1", "n2", "n3")
	if err := s.IndexField(t.Context(), podapply.NewPullJob(), podapply.OwnerIndex, podapply.IndexByController); err != nil {
		t.Fatal(err)
	}
	s.kube.PullJobs = func() bool { return true }
	s.RunFor(5 * time.Minute)
	if got := len(s.EventsWith("ImagePullJob")); got > 0 {
		t.Errorf("events about ImagePullJobs: got %d, want none\n%q\n%s", got, s.jobs(), s.describe())
	}
	if got := len(s.jobs()); got > 0 {
		t.Errorf("jobs: got %d, want none\n%q\n%s", got, s.jobs(), s.describe())
	}
	if got := s.images(); got != "1 1 1" {
		t.Errorf("images: got %q, want %q\n%q\n%s", got, "1 1 1", s.jobs(), s.describe())
	}
}
