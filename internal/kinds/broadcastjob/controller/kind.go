package controller

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/kinds/broadcastjob"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Kind is what BroadcastJobs do their own way; [podapply.Controller] does everything else.
type Kind struct {
	*Kube
	// Binds: pods are bound to their nodes here, not by the scheduler.
	Binds bool
}

type (
	// Controller brings BroadcastJobs a step further.
	Controller = podapply.Controller[*appsv1beta1.BroadcastJob, *broadcastjob.Plan, kept]
	session    = podapply.Session[*appsv1beta1.BroadcastJob, *broadcastjob.Plan, kept]
)

// kept is what is kept of a job between passes, beside what is kept of every workload.
type kept struct {
	// batch is how large the first batch of creations is (BJ-073).
	batch int
	// template is a hash of the last template; 0 before the first pass.
	template uint64
}

// New returns a controller that reads and writes through the API of the kind.
func New(kind *Kind, events reconcile.Recorder) *Controller {
	c := podapply.New(kind.API, events, kind)
	c.Forgotten = func(name types.NamespacedName, _ types.UID) { kind.rules.Forget(name) }
	c.Absent = kind.rules.Absent
	return c
}

// Plan implements podapply.Kind.
func (k *Kind) Plan(ctx context.Context, s *session, now time.Time) (*broadcastjob.Plan, error) {
	snapshot, err := k.Snapshot(ctx, s.Object, k.Binds)
	if err != nil {
		return nil, err
	}
	s.HoldBack(&snapshot.Snapshot, s.Object.Generation)
	snapshot.Now = now
	return broadcastjob.Make(*snapshot), nil
}

// Apply implements podapply.Kind. When the job ends, nothing else is done before that is written (BJ-065).
func (k *Kind) Apply(ctx context.Context, s *session) *podapply.Result {
	k.recordCounted(s.Object, s.Plan.Counted)
	announce(s)
	result := &podapply.Result{}
	ended, err := first(ctx, s, result)
	result.OwnerWritten = ended || err != nil
	switch {
	case err != nil: // the caches may have to show first what has changed
		result.Unfinished = false
		result.Add(&result.UpdateError, err)
	case !ended:
		s.Kept.batch = s.SlowStart(ctx, result, s.Kept.batch)
		result.Unfinished = result.Unfinished || s.Plan.More && result.Created > 0
	}
	return result
}

// Progress implements podapply.Kind.
func (k *Kind) Progress(plan *broadcastjob.Plan) waiting.Progress {
	return waiting.Progress{Arrived: plan.Done, Complete: plan.Settled()}
}

// Status implements podapply.Kind.
func (k *Kind) Status(s *session, result *podapply.Result, _ time.Time) (any, bool) {
	status, changed := s.Plan.FinalStatus(result.Created, result.Done)
	if !changed {
		return nil, false
	}
	return status, broadcastjob.OnlyNumbers(&s.Object.Status, status)
}

// Fields implements podapply.Kind.
func (k *Kind) Fields(job *appsv1beta1.BroadcastJob) podapply.Fields {
	return podapply.Fields{Selector: &metav1.LabelSelector{}, Status: &job.Status}
}

// first does what is done alone, and tells whether there was any: annotations are written, the job is
// deleted, or its end is written. Another plan is due at once: what follows from the end is decided from what
// is written.
func first(ctx context.Context, s *session, result *podapply.Result) (bool, error) {
	job, plan := s.Object, s.Plan
	result.Unfinished = true
	switch {
	case plan.Annotations != nil:
		_, err := reconcile.Merge(ctx, s.Writer, job, map[string]any{"annotations": plan.Annotations}, nil, "")
		return true, wrapped("writing annotations", err)
	case plan.Expired:
		result.Unfinished = false
		return true, wrapped("deleting the job", s.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	case plan.Ends:
		status, _ := plan.FinalStatus(0, nil)
		err := s.PatchStatus(ctx, job, &job.Status, status)
		s.StatusWritten()
		return true, err
	}
	result.Unfinished = false
	return false, nil
}

func wrapped(doing string, err error) error {
	if err != nil {
		return reconcile.StaleIfNotFound(fmt.Errorf("%s: %w", doing, err))
	}
	return nil
}

// announce records what the plan itself has to say, once for each time that it has it to say; and that a new
// template changes nothing of what there is (BJ-025).
func announce(s *session) {
	for _, reason := range broadcastjob.Told {
		told := s.Plan.Tell[reason]
		s.Once(told.Type, reason, told.Message)
	}
	status := &s.Object.Status
	template := nodes.Hash(string(s.Object.Spec.Template.Raw())) | 1
	if s.Kept.template != 0 && s.Kept.template != template && (status.CompletionTime != nil || status.Active+status.Succeeded+status.Failed > 0) {
		s.Warn("SpecChangeIgnored", "%s", "spec.template changed: pods that were created before stay as they are, "+
			"and a job that has ended does not start again")
	}
	s.Kept.template = template
}
