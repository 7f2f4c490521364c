package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// attempts is how often an update is tried on fresh objects, and how many names a creation tries.
const attempts = 5

// application carries out one plan.
type application struct {
	*session
	plan     *uniteddeployment.Plan
	snapshot *uniteddeployment.Snapshot
	lives    func() error
	// vacant reads once why no child may be created, by subset.
	vacant func() (map[string]error, error)

	mu                         sync.Mutex
	created, adopted, deleted  int
	broken                     []error // errors of the revision
	provision, update, changed []error
}

// apply carries out a plan, and returns when to requeue for what is left.
func apply(
	ctx context.Context, s *session, snapshot *uniteddeployment.Snapshot, plan *uniteddeployment.Plan,
) (time.Duration, error) {
	a := &application{session: s, plan: plan, snapshot: snapshot}
	a.lives = sync.OnceValue(func() error { return a.live(ctx) })
	a.vacant = sync.OnceValues(func() (map[string]error, error) { return a.vacancies(ctx) })

	if plan.Fault == nil {
		if err := a.first(ctx); err != nil {
			return 0, err
		}
		if err := a.revisions(ctx); err != nil {
			if reconcile.IsStalePlan(err) {
				return 0, err
			}
			a.tell(uniteddeployment.EventRevision, err)
			a.broken = append(a.broken, err)
		} else {
			a.tell(uniteddeployment.EventRevision, nil)
			a.carryOut(ctx)
		}
	}
	a.notes()

	outcome := uniteddeployment.Outcome{Provisioned: a.created + a.adopted + a.deleted,
		Provision: words(a.provision), Update: words(append(a.broken, a.update...))}
	plan.Finish(outcome, a.Now())
	after, err := a.WriteStatus(ctx, &a.Object.Status, &plan.Status, a.onlyNumbers())
	return after, errors.Join(append(slices.Concat(a.broken, a.provision, a.update, a.changed), err)...)
}

// words formats errors for a condition.
func words(errs []error) string {
	if len(errs) == 0 {
		return ""
	}
	return wording.Bound(errors.Join(errs...).Error())
}

// onlyNumbers reports whether only numbers change in the status.
func (a *application) onlyNumbers() bool {
	was, is := &a.Object.Status, &a.plan.Status
	return slices.EqualFunc(was.Conditions, is.Conditions,
		func(x, y appsv1beta1.UnitedDeploymentCondition) bool {
			return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason
		}) && was.ObservedGeneration == is.ObservedGeneration && was.CurrentRevision == is.CurrentRevision &&
		was.UpdatedRevision == is.UpdatedRevision
}

// first stores changed conditions of subsets before anything else is done, since another manager must find
// them if this one dies in between.
func (a *application) first(ctx context.Context) error {
	if !a.plan.First {
		return nil
	}
	body, err := reconcile.StatusPatch(a.Object, &a.Object.Status, &a.plan.Status)
	if err != nil || body == nil {
		return err
	}
	if a.Object, err = reconcile.Patch(ctx, a.Writer, a.Object, body, "status"); err != nil {
		return reconcile.StaleIfNotFound(fmt.Errorf("writing status: %w", err))
	}
	return nil
}

// live checks that the object is unchanged in the API server and not being deleted, before it adopts
// anything.
func (a *application) live(ctx context.Context) error {
	now := &appsv1beta1.UnitedDeployment{}
	err := a.Live.Get(ctx, client.ObjectKeyFromObject(a.Object), now)
	switch {
	case err != nil:
		return reconcile.StaleIfNotFound(fmt.Errorf("reading %s from the API server: %w", a.Object.Name, err))
	case now.UID != a.Object.UID || now.Generation != a.Object.Generation || now.DeletionTimestamp != nil:
		return reconcile.ErrStalePlan
	}
	return nil
}

// revisions writes the revision of the template.
func (a *application) revisions(ctx context.Context) error {
	if r := a.plan.Renumber; r != nil {
		if _, err := reconcile.Merge(ctx, a.Writer, r, nil,
			map[string]any{"revision": a.plan.Number}, ""); err != nil {
			return reconcile.StaleIfNotFound(fmt.Errorf("raising the number of revision %s: %w", r.Name, err))
		}
	}
	if a.plan.NewRevision == nil {
		return nil
	}

	created := a.plan.NewRevision.DeepCopy()
	err := a.CreateTyped(ctx, created)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			err = fmt.Errorf("creating revision %s: %w", created.Name, err)
		}
		return err
	}

	taken := &appsv1.ControllerRevision{}
	if err := a.Read(ctx, client.ObjectKeyFromObject(created), taken); err != nil {
		return reconcile.StaleIfNotFound(fmt.Errorf("reading revision %s, whose name is taken: %w",
			created.Name, err))
	}

	if uniteddeployment.OwnerOf(taken) == a.Object.UID && revision.Equal(taken.Data.Raw, created.Data.Raw) {
		return reconcile.ErrStalePlan // the response of the creation was lost
	}
	if metav1.GetControllerOfNoCopy(taken) == nil && taken.DeletionTimestamp == nil &&
		a.Kept.known.Same(taken, created.Data.Raw) {
		return a.adoptRevision(ctx, taken)
	}

	status := a.Object.Status.DeepCopy()
	count := int32(1)
	if status.CollisionCount != nil {
		count += *status.CollisionCount
	}
	if a.plan.Collisions != nil {
		count = max(count, *a.plan.Collisions+1)
	}
	status.CollisionCount = &count

	if err := a.PatchStatus(ctx, a.Object, &a.Object.Status, status); err != nil {
		return err
	}

	return reconcile.ErrStalePlan
}

// adoptRevision adopts the revision of the template that was left behind when an object of the same name was
// deleted without its children. With a revision of another name, all pods would be recreated.
func (a *application) adoptRevision(ctx context.Context, left *appsv1.ControllerRevision) error {
	if err := a.lives(); err != nil {
		return err
	}
	owners := append(slices.Clone(left.OwnerReferences), uniteddeployment.OwnerReference(a.Object))
	if _, err := reconcile.Merge(ctx, a.Writer, left, map[string]any{"ownerReferences": owners},
		nil, ""); err != nil {
		return reconcile.StaleIfNotFound(fmt.Errorf("adopting revision %s: %w", left.Name, err))
	}
	return reconcile.ErrStalePlan
}

// failed records an error for the condition that it belongs to.
func (a *application) failed(to *[]error, err error) {
	if err == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if reconcile.IsStalePlan(err) {
		to = &a.changed
	}
	*to = append(*to, err)
}

// carryOut carries out the plan, except for its status.
func (a *application) carryOut(ctx context.Context) {
	for _, err := range a.Each(ctx, len(a.plan.Marks),
		func(i int) error { return a.mark(ctx, a.plan.Marks[i]) }) {
		a.failed(&a.update, err)
	}

	for _, release := range a.plan.Release {
		owners := slices.DeleteFunc(slices.Clone(release.Child.Object.GetOwnerReferences()),
			func(o metav1.OwnerReference) bool { return o.UID == a.Object.UID })
		_, err := reconcile.Merge(ctx, a.Writer, of(release.Child), map[string]any{"ownerReferences": owners},
			nil, "")
		a.failed(&a.provision, reconcile.StaleIfNotFound(err))
	}

	a.subsets(ctx)
	if len(a.provision)+len(a.changed) == 0 { // children that cannot be replaced stay
		a.remove(ctx)
	}

	for _, err := range a.Each(ctx, len(a.plan.Restart), func(i int) error {
		pod := a.plan.Restart[i]
		if err := a.Ask(ctx, pod, policyv1beta1.Delete); err != nil {
			return err
		}
		return a.Delete(ctx, pod, client.PropagationPolicy(metav1.DeletePropagationBackground))
	}) {
		a.failed(&a.update, err)
	}

	if len(a.provision)+len(a.update)+len(a.changed) == 0 {
		for _, old := range a.plan.History {
			if err := a.Delete(ctx, old); err != nil {
				a.failed(&a.update, fmt.Errorf("deleting revision %s: %w", old.Name, err))
			}
		}
	}
}

func of(c *uniteddeployment.Child) client.Object {
	object, _ := c.Object.(client.Object)
	return object
}

// mark labels a pod with whether it is reserved.
func (a *application) mark(ctx context.Context, m uniteddeployment.Mark) error {
	_, err := reconcile.Merge(ctx, a.Writer, m.Pod,
		map[string]any{"labels": map[string]any{
			uniteddeployment.ReservedPod: strconv.FormatBool(m.Reserved)}}, nil, "")
	if err != nil {
		return reconcile.StaleIfNotFound(fmt.Errorf("labelling pod %s: %w", m.Pod.Name, err))
	}
	return nil
}

// subsets creates, adopts and updates children in batches of 1, 2, 4 and so on, in the order of their names.
// It stops after a batch in which one fails. Subsets that failed before come last, so that one that is always
// rejected does not hold up the others.
func (a *application) subsets(ctx context.Context) {
	var due []*uniteddeployment.Verdict
	for i := range a.plan.Subsets {
		if v := &a.plan.Subsets[i]; v.Action != uniteddeployment.Hold && !a.verified(v) {
			due = append(due, v)
		}
	}

	failed := map[string]bool{}
	for _, v := range due {
		if name := v.Subset.Name; a.Kept.failed[name] {
			failed[name] = true
		}
	}

	a.Kept.failed = failed
	slices.SortFunc(due, func(x, y *uniteddeployment.Verdict) int {
		if a, b := failed[x.Subset.Name], failed[y.Subset.Name]; a != b {
			if a {
				return 1
			}
			return -1
		}
		return cmp.Compare(x.Subset.Name, y.Subset.Name)
	})

	for batch := 1; len(due) > 0; batch *= 2 {
		some := due[:min(batch, len(due))]
		due = due[len(some):]
		errs := a.Each(ctx, len(some), func(i int) error { return a.subset(ctx, some[i]) })
		for i, err := range errs {
			if delete(failed, some[i].Subset.Name); err != nil {
				failed[some[i].Subset.Name] = true
			}
			if some[i].Action == uniteddeployment.Create || some[i].Action == uniteddeployment.Adopt {
				a.failed(&a.provision, err)
			} else {
				a.failed(&a.update, err)
			}
		}
		if errors.Join(errs...) != nil {
			return
		}
	}
}

func (a *application) subset(ctx context.Context, v *uniteddeployment.Verdict) error {
	switch v.Action {
	case uniteddeployment.Create:
		return a.create(ctx, v)
	case uniteddeployment.Adopt:
		return a.adopt(ctx, v)
	}
	return a.bring(ctx, v)
}

// create creates the child of a subset. If its name is taken, either the response to an earlier creation was
// lost, or somebody else uses the name, by accident or on purpose.
func (a *application) create(ctx context.Context, v *uniteddeployment.Verdict) error {
	kind := a.plan.Template.Kind
	taken, err := a.vacant()
	if err != nil {
		return err
	}
	if err := taken[v.Subset.Name]; err != nil {
		return err
	}
	document, err := a.plan.Template.Build(a.Object, v.Subset, v.Wanted)
	if err != nil {
		return err
	}

	for further := range attempts {
		name := uniteddeployment.NameOf(a.Object.Name, a.Object.UID, kind, v.Subset.Name, further)
		document["metadata"].(map[string]any)["name"] = name //nolint:forcetypeassert // it was built so
		child := object(kind)

		err := a.Create(ctx, document, child)
		if reconcile.IsNamespaceTerminating(err) {
			return nil
		}

		if err == nil {
			a.mu.Lock()
			a.created++
			a.mu.Unlock()
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating %s %s: %w", kind, name, err)
		}

		child = object(kind)
		if err := a.Read(ctx, types.NamespacedName{Namespace: a.Object.Namespace, Name: name},
			child); err != nil {
			return reconcile.StaleIfNotFound(fmt.Errorf("reading %s %s, which exists: %w", kind, name, err))
		}
		ours := uniteddeployment.OwnerOf(child) == a.Object.UID || orphan(child) && a.matches(child)
		if ours && child.GetLabels()[uniteddeployment.SubsetName] == v.Subset.Name {
			return reconcile.ErrStalePlan // the next plan will know it
		}
	}

	return fmt.Errorf("creating %s for subset %s: others have all names of it", kind, v.Subset.Name)
}

func (a *application) matches(child client.Object) bool {
	selector, err := metav1.LabelSelectorAsSelector(a.Object.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(child.GetLabels()))
}

// adopt makes the object the controller of a workload that has none.
func (a *application) adopt(ctx context.Context, v *uniteddeployment.Verdict) error {
	if err := a.lives(); err != nil {
		return err
	}

	child := of(v.Child)
	owners := append(slices.Clone(child.GetOwnerReferences()), uniteddeployment.OwnerReference(a.Object))
	if _, err := reconcile.Merge(ctx, a.Writer, child, map[string]any{"ownerReferences": owners},
		nil, ""); err != nil {
		return reconcile.StaleIfNotFound(fmt.Errorf("adopting %s: %w", v.Child, err))
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	a.adopted++
	return nil
}

// remove deletes children that are no longer wanted.
func (a *application) remove(ctx context.Context) {
	errs := a.Each(ctx, len(a.plan.Deletes), func(i int) error {
		r := a.plan.Deletes[i]
		if err := a.Delete(ctx, of(r.Child),
			client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return fmt.Errorf("deleting %s: %w", r.Child, err)
		}

		a.mu.Lock()
		defer a.mu.Unlock()
		a.deleted++
		return nil
	})

	var duplicates []error
	for i, err := range errs {
		if err != nil && !reconcile.IsStalePlan(err) && a.plan.Deletes[i].Duplicate {
			duplicates = append(duplicates, err)
		}
		a.failed(&a.provision, err)
	}

	a.tell(uniteddeployment.EventDuplicates, errors.Join(duplicates...))
}

// tell records an event about an error, unless the last one for the reason was the same. A nil error clears
// it.
func (a *application) tell(reason string, err error) {
	message := ""
	if err != nil {
		message = err.Error()
	}
	a.Once(corev1.EventTypeWarning, reason, message)
}

// notes records events about what was done, and about the notes of the plan.
func (a *application) notes() {
	if a.plan.Template != nil {
		kind := a.plan.Template.Kind
		if a.created > 0 {
			a.Event(corev1.EventTypeNormal, uniteddeployment.EventUpdated,
				"created "+wording.Count(a.created, kind.String()))
		}
		if a.adopted > 0 {
			a.Event(corev1.EventTypeNormal, uniteddeployment.EventUpdated,
				"adopted "+wording.Count(a.adopted, kind.String()))
		}
	}
	if a.deleted > 0 {
		a.Event(corev1.EventTypeNormal, uniteddeployment.EventUpdated,
			"deleted "+wording.Count(a.deleted, kindsOf(a.plan)))
	}

	a.tell(uniteddeployment.EventFailed, errors.Join(slices.Concat(a.provision, a.update)...))

	told := map[string]bool{}
	for _, note := range append(a.plan.Notes, fault(a.plan)...) {
		told[note.Reason] = true
		a.Once(note.Type, note.Reason, note.Message)
	}

	for _, reason := range []string{uniteddeployment.EventSpecify, uniteddeployment.EventFind,
		uniteddeployment.EventWithoutSubset} {
		if !told[reason] {
			a.News(reason, "")
		}
	}
}

func fault(plan *uniteddeployment.Plan) []uniteddeployment.Note {
	if plan.Fault == nil {
		return nil
	}
	return []uniteddeployment.Note{*plan.Fault}
}

// kindsOf returns the kind of the deleted children, or a general word if they are of several kinds.
func kindsOf(plan *uniteddeployment.Plan) string {
	kind := plan.Deletes[0].Child.Kind
	for _, r := range plan.Deletes {
		if r.Child.Kind != kind {
			return "workload"
		}
	}
	return kind.String()
}
