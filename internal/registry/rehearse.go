package registry

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/framework"
	podunavailablebudgetcontroller "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller"
	"github.com/afloat-project/afloat/internal/rehearsal"
)

// Rehearse returns a player that makes passes over objects of a kind on a stage. The stage must contain
// everything that the passes read. more is the number of pods by which each workload exceeds the number that
// the budgets know.
func Rehearse(
	ctx context.Context, e *framework.Environment, kind *framework.Kind, s *rehearsal.Stage, more map[types.UID]int32,
) (rehearsal.Player, error) {
	if kind.Rehearse == nil {
		return nil, fmt.Errorf("no plans are made for a %s", kind.Name)
	}
	if err := podunavailablebudgetcontroller.Rehearse(e, s, more); err != nil {
		return nil, err
	}
	return kind.Rehearse(ctx, e, s)
}
