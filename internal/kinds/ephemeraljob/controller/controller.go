package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Of the subresource, only the response of a patch is read.
//
// +kubebuilder:rbac:groups=apps.kruise.io,resources=ephemeraljobs,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=apps.kruise.io,resources=ephemeraljobs/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods/ephemeralcontainers,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// subresource is the subresource of pods to which ephemeral containers are added.
	subresource = "ephemeralcontainers"
	// askAgain is how often an API server without ephemeral containers is tried again.
	askAgain = time.Minute
	// mostNamed is how many pods an event names.
	mostNamed = 5
)

// Reconciler carries out plans. Its fields are exported for tests.
type Reconciler struct {
	*reconcile.API
	Events reconcile.Recorder
	Pods   *podindex.Index
	meters *meters
}

type (
	controller = reconcile.Controller[*appsv1alpha1.EphemeralJob, memory]
	session    = reconcile.Session[*appsv1alpha1.EphemeralJob, memory]
)

// memory is what is kept of a job between passes.
type memory struct {
	ledger ephemeraljob.Ledger
	// missed is when it was first noticed that pods are missing which the previous manager had treated.
	missed time.Time
	// failed are the pods whose last attempt failed, and refused those for which the containers are invalid.
	failed  timing.Retries
	refused map[types.UID]string
	// batch is the size of the first batch of the next pass.
	batch int
	// pause delays all pods after some could not be treated, so that a policy that rejects all of them is
	// tried less and less often.
	pause timing.Retry
	// unsupported is why the API server adds no ephemeral containers, and until is when that is tried again.
	unsupported string
	until       time.Time
}

// Setup adds the controller to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options reconcile.Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1alpha1.EphemeralJob{}, unfinished,
		indexUnfinished); err != nil {
		return fmt.Errorf("indexing EphemeralJobs: %w", err)
	}

	r := &Reconciler{API: options.API(mgr),
		Events: reconcile.NewRecorder(mgr.GetEventRecorder("ephemeraljob-controller")), Pods: options.Pods,
		meters: newMeters()}
	return r.controller().Complete("ephemeraljob", options, ctrl.NewControllerManagedBy(mgr).
		For(&appsv1alpha1.EphemeralJob{}, builder.WithPredicates(jobEvents)).
		Watches(&corev1.Pod{}, podEvents(r.API)), r.meters.all()...)
}

func (r *Reconciler) controller() *controller {
	return &controller{API: r.API, Events: r.Events, Pass: r.pass, DeletedUnsettled: true,
		Forgotten: func(name types.NamespacedName, _ types.UID) { r.meters.forget(name) }}
}

// pass reconciles a job once.
func (r *Reconciler) pass(ctx context.Context, s *session) (reconcile.Outcome, error) {
	begin := r.Now()
	plan, err := r.plan(ctx, s)
	if err != nil {
		return reconcile.Outcome{}, err
	}

	done := reconcile.Outcome{Planning: r.Now().Sub(begin), Headline: plan.String(), Record: func() []any {
		return []any{"job", s.Name.String(), "plan", plan.String()}
	}}
	if there, err := apply(ctx, s, plan); err != nil || !there {
		return done, err
	}

	var failure error
	if until, _ := s.Kept.pause.Last(subresource); len(plan.Inject) > 0 && until.After(r.Now()) {
		reconcile.MinRequeue(&plan.After, until.Sub(r.Now()))
	} else if len(plan.Inject) > 0 {
		failure = inject(ctx, s, plan.Inject)
		// The status must show the result, not the intention.
		if plan, err = r.plan(ctx, s); err != nil {
			return done, errors.Join(failure, err)
		}
		if done.Unfinished = len(plan.Inject) > 0; done.Unfinished { // pods that were left out after a failure
			reconcile.MinRequeue(&plan.After, reconcile.RetrySoon)
		}
	}

	done.After = plan.After

	if plan.Status != nil {
		tell(s, plan)
		before := &s.Object.Status
		wait, err := s.WriteStatus(ctx, before, plan.Status, onlyNumbers(before, plan.Status))
		if err != nil {
			return done, errors.Join(failure, err)
		}
		if reconcile.MinRequeue(&done.After, wait); plan.Ended && wait == 0 {
			r.ended(s, plan)
			reconcile.MinRequeue(&done.After, reconcile.RetryAfter) // for the time to live
		}
	}

	r.meters.phase(s.Name, s.Object, plan)
	if ephemeraljob.Finished(s.Object) {
		s.Forget()
	}
	reconcile.MinRequeue(&done.After, s.Again())
	return done, failure
}

// plan reads what a plan is made from, and makes it. A job that is being deleted or has ended needs no pods.
func (r *Reconciler) plan(ctx context.Context, of *session) (*ephemeraljob.Plan, error) {
	job, m := of.Object, of.Kept
	s := ephemeraljob.Snapshot{Job: job, Ledger: m.ledger, Refused: m.refused, Unsupported: m.unsupported,
		UnsupportedUntil: m.until, Now: r.Now()}
	s.Held = func(pod types.UID) (time.Time, string) { return m.failed.Held(pod, subresource, s.Now) }
	s.Failed = func(pod types.UID) bool { return m.failed.Has(pod, subresource) }

	if job.DeletionTimestamp == nil && !ephemeraljob.Finished(job) {
		var err error
		if s.Pods, err = r.pods(ctx, job); err != nil {
			return nil, err
		}

		there := map[types.UID]bool{}
		for _, pod := range s.Pods {
			there[pod.UID] = true
		}
		m.failed.Keep(func(pod types.UID) bool { return there[pod] })
		for pod := range m.refused {
			if !there[pod] {
				delete(m.refused, pod)
			}
		}
	}

	plan := ephemeraljob.NewPlan(s)
	if plan.Missing > 0 {
		if m.missed.IsZero() {
			m.missed = s.Now
		}
		if left := m.missed.Add(reconcile.DoubtAfter).Sub(s.Now); left > 0 {
			return &ephemeraljob.Plan{After: min(left, reconcile.DoubtAfter), Why: fmt.Sprintf(
				"%s missing that had been treated when the manager started: waiting for the caches to show them",
				wording.Count(plan.Missing, "pod")+wording.Form(plan.Missing, " is", " are"))}, nil
		}
	}

	m.ledger = plan.Ledger
	return plan, nil
}

// pods returns the pods of the namespace that the job selects, and those that it has treated, regardless of
// their present labels.
func (r *Reconciler) pods(ctx context.Context, job *appsv1alpha1.EphemeralJob) ([]*corev1.Pod, error) {
	found, err := r.Pods.TreatedBy(job.Namespace, job.UID)
	if err != nil {
		return nil, err
	}

	known := map[types.UID]bool{}
	for _, pod := range found {
		known[pod.UID] = true
	}

	selector, err := ephemeraljob.SelectorOf(job)
	if err == nil { // otherwise the plan reports what is wrong
		var list corev1.PodList
		if err := r.Client.List(ctx, &list, client.InNamespace(job.Namespace),
			client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing pods: %w", err)
		}
		for i := range list.Items {
			if pod := &list.Items[i]; !known[pod.UID] {
				found = append(found, pod)
			}
		}
	}

	return reconcile.Overlay(r.Own, job.UID, found, func(pod *corev1.Pod) bool {
		return ephemeraljob.Treated(pod, job.UID) || selector.Matches(labels.Set(pod.Labels))
	}), nil
}

// apply adds or removes the finalizer, or deletes the job. It reports whether the job is there, and is not
// being deleted.
func apply(ctx context.Context, s *session, plan *ephemeraljob.Plan) (there bool, err error) {
	finalizers := slices.Clone(s.Object.Finalizers)
	switch {
	case plan.Delete:
		if err := s.Delete(ctx, s.Object); err != nil {
			return false, fmt.Errorf("deleting the finished job: %w", err)
		}
		return false, nil
	case plan.RemoveFinalizer:
		finalizers = slices.DeleteFunc(finalizers,
			func(f string) bool { return f == pub.EphemeralContainersCleanup })
	case plan.AddFinalizer:
		finalizers = append(finalizers, pub.EphemeralContainersCleanup)
	default:
		return true, nil
	}

	job, err := reconcile.Merge(ctx, s.Writer, s.Object, map[string]any{"finalizers": finalizers}, nil, "")
	if err != nil {
		return false, client.IgnoreNotFound(fmt.Errorf("writing the finalizer: %w", err))
	}

	s.Object = job
	return true, nil
}

// injectTime is how long a pass begins further batches: in the meantime the job may have been paused.
const injectTime = 500 * time.Millisecond

// mostAtOnce is the size of the largest batch, which the pass ends before it looks at the job again.
const mostAtOnce = 16

// inject adds the containers to the pods in batches of 1, 2, 4 and so on, and stops after a batch in which
// one fails, or when its time is over: the next pass goes on with the batch that it did not begin. It returns
// the errors of writes whose outcome is not known.
func inject(ctx context.Context, s *session, pods []*corev1.Pod) error {
	containers, err := ephemeraljob.Containers(s.Object)
	if err != nil {
		return err
	}

	size, end := max(s.Kept.batch, 1), s.Now().Add(injectTime)
	s.Kept.batch = 1
	for ; len(pods) > 0; size = min(2*size, mostAtOnce) {
		if s.Now().After(end) {
			s.Kept.batch = size
			return nil
		}
		batch := pods[:min(size, len(pods))]
		pods = pods[len(batch):]

		errs := s.Each(ctx, len(batch), func(i int) error {
			body, err := ephemeraljob.Injection(batch[i], containers)
			if err != nil {
				return err
			}
			_, err = reconcile.Patch(ctx, s.Writer, batch[i], body, subresource)
			return err
		})

		if err := answered(s, batch, errs); err != nil {
			return err
		}
		if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			return nil
		}
	}

	return nil
}

// answered records the responses to a batch, and sends events about them.
func answered(s *session, batch []*corev1.Pod, errs []error) error {
	m := s.Kept
	var treated, failed []string
	var why, open, changed error
	for i, err := range errs {
		pod := batch[i]
		switch {
		case err == nil:
			m.failed.Done(pod.UID)
			m.unsupported, m.pause = "", timing.Retry{}
			treated = append(treated, pod.Name)
			continue
		case reconcile.IsNotServed(err):
			m.unsupported = "the API server adds no ephemeral containers to pods, it has no pods/" +
				subresource
			m.until = s.Now().Add(askAgain)
			continue
		case reconcile.IsStalePlan(reconcile.StaleIfNotFound(err)):
			changed = reconcile.ErrStalePlan
			continue
		case invalid(err):
			if m.refused == nil {
				m.refused = map[types.UID]string{}
			}
			m.refused[pod.UID] = err.Error()
		default: // also if a webhook fails, which the API server reports like an error of its own
			m.failed.Failed(pod.UID, subresource, err, s.Now())
			m.pause.Failed(subresource, err, s.Now())
			if !reconcile.IsRejected(err) {
				open = errors.Join(open, fmt.Errorf("adding containers to pod %s: %w", pod.Name, err))
			}
		}
		failed, why = append(failed, pod.Name), err
	}

	if len(treated) > 0 {
		s.Event(corev1.EventTypeNormal, "Injected",
			"added the ephemeral containers to "+wording.Few(treated, mostNamed))
		s.News(ephemeraljob.ReasonCreateFailed, "")
	}
	if len(failed) > 0 {
		s.Once(corev1.EventTypeWarning, ephemeraljob.ReasonCreateFailed, fmt.Sprintf(
			"the ephemeral containers could not be added to %s: %v", wording.Few(failed, mostNamed), why))
	}

	return cmp.Or(open, changed)
}

// invalid reports whether the API server itself finds the containers invalid in a pod, which it reports with
// the field. The decisions of policies and webhooks are not meant, since they may change.
func invalid(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusUnprocessableEntity ||
		status.Status().Details == nil || strings.HasPrefix(status.Status().Message, "admission webhook ") {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes,
		func(c metav1.StatusCause) bool { return c.Field != "" })
}

// onlyNumbers reports whether only numbers change in the status.
func onlyNumbers(before, after *appsv1alpha1.EphemeralJobStatus) bool {
	conditions := func(status *appsv1alpha1.EphemeralJobStatus) (text string) {
		for i := range status.Conditions {
			text += string(status.Conditions[i].Type) + "/" + status.Conditions[i].Reason + " "
		}
		return text
	}
	return before.Phase == after.Phase && before.StartTime.Equal(after.StartTime) &&
		before.CompletionTime.Equal(after.CompletionTime) && conditions(before) == conditions(after)
}

// tell sends an event about pods that are left out, again only if their number changes.
func tell(s *session, plan *ephemeraljob.Plan) {
	about := ""
	if n := len(plan.Taken); n > 0 {
		about = wording.Count(n, "pod")
	}
	if s.News("NameTaken", about) {
		s.Event(corev1.EventTypeWarning, "NameTaken", fmt.Sprintf(
			"%s an ephemeral container of the same name from somebody else, and %s left out: %s",
			about+wording.Form(len(plan.Taken), " has", " have"),
			wording.Form(len(plan.Taken), "is", "are"), wording.Few(plan.Taken, mostNamed)))
	}
}

// ended sends an event about the end of the job.
func (r *Reconciler) ended(s *session, plan *ephemeraljob.Plan) {
	r.meters.ended(plan.Status)
	kind := corev1.EventTypeNormal
	if plan.Status.Phase != appsv1alpha1.EphemeralJobSucceeded {
		kind = corev1.EventTypeWarning
	}
	s.Event(kind, string(plan.Status.Phase), plan.Why)
}
