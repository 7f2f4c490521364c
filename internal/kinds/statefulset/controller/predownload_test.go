package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
)

// pulling is a set of five pods that run, on a cluster that has ImagePullJobs, or has not.
func pulling(t *testing.T, served bool) *simulated {
	t.Helper()
	features := everything
	features.PreDownload = true
	s := started(t, makeSet(5, inPlace), features)
	if err := s.IndexField(context.Background(), podapply.NewPullJob(), podapply.OwnerIndex, podapply.IndexByController); err != nil {
		t.Fatal(err)
	}
	s.kube.PullJobs = func() bool { return served }
	s.Recorded = nil
	return s
}

func (s *simulated) jobs() (names []string) {
	for _, job := range s.List("ImagePullJob", false) {
		names = append(names, strings.TrimPrefix(job.GetName(), s.set().Status.UpdateRevision+"-"))
	}
	return names
}

func (s *simulated) marks() string {
	revision := s.Get(simulation.Key{Kind: "ControllerRevision", Name: s.set().Status.UpdateRevision})
	return revision.GetLabels()[pub.PreDownloadCreated] + "/" + revision.GetLabels()[pub.PreDownloadIgnored]
}

func partition(n int32) func(*appsv1beta1.StatefulSet) {
	return func(set *appsv1beta1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = &n }
}

// TestImagesArePulledAhead shows ASTS-288, ASTS-291 and ASTS-292, with TestPullJobsEnd: jobs are made once
// for a revision, told of, and gone when the update is complete; what fails stops nothing.
func TestImagesArePulledAhead(t *testing.T) {
	next := func(image string, n int32) func(*appsv1beta1.StatefulSet) {
		return func(set *appsv1beta1.StatefulSet) {
			setTemplate(set, `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":"`+image+`"}]}}`)
			partition(n)(set)
		}
	}
	creates := func(err error) func(*simulation.Request) error {
		return func(r *simulation.Request) error {
			if r.Verb == "create" && r.Key.Kind == podplan.PullJobKind.Kind {
				return err
			}
			return nil
		}
	}
	t.Run("they are made once", func(t *testing.T) {
		s := pulling(t, true)
		s.Edit(next("nginx:2", 2))
		s.ActFor(time.Minute)
		if got := s.jobs(); !slices.Equal(got, []string{"nginx"}) {
			t.Errorf("jobs: got %q, want %q; jobs %q, marks %s, events %q", got, []string{"nginx"}, s.jobs(),
				s.marks(), s.Recorded)
		}
		if got := s.marks(); got != "true/" {
			t.Errorf("marks: got %q, want %q; jobs %q, marks %s, events %q", got, "true/", s.jobs(), s.marks(),
				s.Recorded)
		}
		if got := len(s.EventsWith("Normal CreatedImagePullJob ", "nginx:2")); got != 1 {
			t.Errorf(`number of events CreatedImagePullJob of nginx:2: got %d, want 1; jobs %q, marks %s, events %q`,
				got, s.jobs(),
				s.marks(), s.Recorded)
		}
		s.Remove(simulation.Key{Kind: "ImagePullJob", Name: s.set().Status.UpdateRevision + "-nginx"}) // its time is over
		s.Edit(partition(1))
		s.ActFor(time.Minute)
		if got := len(s.jobs()); got > 0 {
			t.Errorf("made again: jobs: got %d, want none\n%q", got, s.jobs())
		}
		if got := len(s.EventsWith("CreatedImagePullJob")); got != 1 {
			t.Errorf("made again: number of events CreatedImagePullJob: got %d, want 1\n%q", got, s.jobs())
		}
	})
	t.Run("they end", func(t *testing.T) {
		s := pulling(t, true)
		s.Edit(next("nginx:2", 2))
		s.ActFor(time.Minute)
		s.Edit(partition(0))
		s.ActFor(10 * time.Minute)
		status := s.set().Status
		if got := len(s.jobs()); got > 0 {
			t.Errorf("jobs: got %d, want none\n%q\n%s", got, s.jobs(), s.describe())
		}
		if status.UpdatedAvailableReplicas != 5 {
			t.Errorf("updated and available replicas: got %d, want 5\n%q\n%s", status.UpdatedAvailableReplicas,
				s.jobs(), s.describe())
		}
		if status.CurrentRevision != status.UpdateRevision {
			t.Errorf("current revision: got %q, want %q\n%q\n%s", status.CurrentRevision, status.UpdateRevision,
				s.jobs(), s.describe())
		}
	})
	t.Run("they are refused", func(t *testing.T) {
		s := pulling(t, true)
		s.Answer = creates(apierrors.NewForbidden(corev1.Resource("imagepulljobs"), "x", errors.New("no room")))
		s.Edit(next("nginx:2", 1))
		s.ActFor(10 * time.Minute)
		if n := s.set().Status.UpdatedAvailableReplicas; n != 4 {
			t.Errorf("the rollout stands still: %d pods are updated and available, want 4: %s", n, s.describe())
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
		s.ActFor(10 * time.Minute)
		if !slices.Equal(s.jobs(), []string{"nginx"}) {
			t.Errorf("jobs that are made later: got %q, want nginx", s.jobs())
		}
		if s.marks() != "true/" {
			t.Errorf("marks: got %s, want true/", s.marks())
		}
	})
	t.Run("they exist", func(t *testing.T) {
		s := pulling(t, true)
		s.Answer = creates(apierrors.NewAlreadyExists(corev1.Resource("imagepulljobs"), "x"))
		s.Edit(next("nginx:2", 2))
		s.ActFor(time.Minute)
		if got := s.marks(); got != "true/" {
			t.Errorf("marks: got %q, want %q; marks %s, events %q", got, "true/", s.marks(), s.Recorded)
		}
		if got := len(s.EventsWith("ImagePullJob")); got > 0 {
			t.Errorf(`events about ImagePullJobs: got %d, want none; marks %s, events %q`, got, s.marks(), s.Recorded)
		}
	})
	t.Run("their kind is not installed", func(t *testing.T) {
		s := pulling(t, false)
		s.Edit(next("nginx:2", 0))
		s.ActFor(10 * time.Minute)
		if got := s.set().Status.UpdatedAvailableReplicas; got != 5 {
			t.Errorf("updated and available replicas: got %d, want 5\n%q\n%q", got, s.jobs(), s.Recorded)
		}
		if got := len(s.jobs()) + len(s.EventsWith("ImagePullJob")); got > 0 {
			t.Errorf("number of jobs and of events about them: got %d, want 0\n%q\n%q", got, s.jobs(), s.Recorded)
		}
	})
}
