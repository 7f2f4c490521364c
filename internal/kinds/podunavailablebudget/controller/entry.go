package controller

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1alpha1 "github.com/afloat-project/afloat/api/policy/v1alpha1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/rehearsal"
)

// PodUnavailableBudget describes the kind.
var PodUnavailableBudget = framework.Kind{
	Group:  policyv1beta1.GroupVersion.Group,
	Name:   "PodUnavailableBudget",
	Plural: "podunavailablebudgets",
	Gates: framework.Gates{{
		features.PodUnavailableBudgetDeleteGate, features.PodUnavailableBudgetUpdateGate,
	}},
	OffCode:  http.StatusBadRequest,
	Webhooks: PodUnavailableBudgets,
	Conversion: framework.Between((*policyv1alpha1.PodUnavailableBudget).ToV1beta1,
		policyv1alpha1.PodUnavailableBudgetFromV1beta1, nil),
	Controller: "podunavailablebudget",
	Workers:    3,
	Access:     framework.Edit,
	Prepare:    prepare,
	Setup:      setUp,
	Absent:     absent,
}

// Watching follows budgets for the webhooks and for all controllers that take pods out of service; it is nil without
// their gates (PUB-016).
var Watching framework.Shared[*Watch]

func prepare(_ context.Context, e *framework.Environment) error {
	options, err := OptionsOf(e)
	if options.Deletes || options.Updates {
		watch := NewWatch(e.Manager, options)
		Watching.Set(e, watch)
		e.Guard = watch.Guard
	}
	return err
}

// OptionsOf returns which operations budgets apply to.
func OptionsOf(e *framework.Environment) (options podunavailablebudget.Options, err error) {
	options.Deletes, options.Updates = e.Gates.Enabled(features.PodUnavailableBudgetDeleteGate),
		e.Gates.Enabled(features.PodUnavailableBudgetUpdateGate)
	if options.Deletes || options.Updates {
		options.Resizes, err = e.Resizes(features.InPlacePodVerticalScaling)
	}
	return options, err
}

// setUp watches budgets, and those of Kubernetes, on every replica and adds the controller that counts their pods.
func setUp(ctx context.Context, e *framework.Environment) error {
	watch := Watching.In(e)
	if err := watch.Follow(ctx, e.Manager); err != nil {
		return err
	}
	if err := followDisruptionBudgets(ctx, e.Gates, e.Manager.GetCache()); err != nil {
		return err
	}
	return Setup(e.Manager, watch, e.Controller("podunavailablebudget"))
}

func absent(e *framework.Environment) { Watching.In(e).Absent() }

// Rehearse makes the budgets on a stage guard its pods. more is the number of pods by which each workload exceeds
// the number that the budgets know.
func Rehearse(e *framework.Environment, s *rehearsal.Stage, more map[types.UID]int32) error {
	options, err := OptionsOf(e)
	if err != nil || !options.Deletes && !options.Updates {
		return err
	}

	const kind = "PodUnavailableBudget"
	found := s.List(kind, false)
	if len(found) == 0 {
		return nil
	}

	budgets := NewRehearsed(s.API(), options)
	totals := map[types.UID]int32{}
	s.Delivered = func(_, after client.Object) {
		if budget, ok := after.(*policyv1beta1.PodUnavailableBudget); ok {
			budgets.Follow(budget)
		}
	}

	for _, object := range found {
		if budget, ok := object.(*policyv1beta1.PodUnavailableBudget); ok {
			if budget.Status.ObservedGeneration > 0 {
				totals[budget.UID] = budget.Status.TotalReplicas
			}
			budgets.Follow(budget)
		}
	}

	s.Guard = budgets.Guard()
	s.Recount = func(ctx context.Context) (again time.Duration, err error) {
		var pods []*corev1.Pod
		for _, object := range s.List("Pod", false) {
			if pod, ok := object.(*corev1.Pod); ok {
				pods = append(pods, pod)
			}
		}
		for _, object := range s.List(kind, false) {
			budget, ok := object.(*policyv1beta1.PodUnavailableBudget)
			if !ok {
				continue
			}
			status, after, err := budgets.Count(ctx, budget, pods, totals, more)
			if err != nil {
				return 0, err
			}
			if after > 0 {
				reconcile.MinRequeue(&again, after)
			}
			if !equality.Semantic.DeepEqual(&budget.Status, status) {
				s.Change(s.KeyOf(kind, budget), func(o client.Object) {
					o.(*policyv1beta1.PodUnavailableBudget).Status = *status
				})
			}
		}
		return again, nil
	}

	return nil
}

// followDisruptionBudgets starts the watch on PodDisruptionBudgets that evictions are checked with, unless no
// budget limits evictions. Without it the cache would begin to read them during the first eviction, which
// would be rejected if that took too long. A replica becomes ready when they are read or the API server
// rejects that.
func followDisruptionBudgets(ctx context.Context, gates *features.Gates, informers cache.Informers) error {
	if !gates.Enabled(features.PodWebhook) || !gates.Enabled(features.PodUnavailableBudgetDeleteGate) {
		return nil
	}
	if _, err := informers.GetInformer(ctx, &policyv1.PodDisruptionBudget{},
		cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watching PodDisruptionBudgets: %w", err)
	}
	return nil
}
