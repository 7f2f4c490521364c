package admission

import (
	"github.com/afloat-project/afloat/internal/framework"
	persistentpodstatecontroller "github.com/afloat-project/afloat/internal/kinds/persistentpodstate/controller"
	podunavailablebudgetcontroller "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller"
	sidecarsetcontroller "github.com/afloat-project/afloat/internal/kinds/sidecarset/controller"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/controller/choose"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	workloadspreadcontroller "github.com/afloat-project/afloat/internal/kinds/workloadspread/controller"
)

// followed is what follows objects that are about pods, on every replica.
type followed struct {
	// Sidecars chooses what SidecarSets inject into pods; it is nil without the gate PodWebhook.
	Sidecars *choose.Watch
	// Spreads books pods for WorkloadSpreads; it is nil without the gate. Pods of the kinds in Versioned are
	// counted by version (WS-184).
	Spreads   *workloadspreadcontroller.Watch
	Versioned workloadspread.Versioned
	// States follows PersistentPodStates.
	States *persistentpodstatecontroller.Watch
	// Budgets follows PodUnavailableBudgets; it is nil without their gates (PUB-016).
	Budgets *podunavailablebudgetcontroller.Watch
}

// followedIn returns what the kinds share in an environment.
func followedIn(e *framework.Environment) followed {
	return followed{
		Sidecars:  sidecarsetcontroller.Watching.In(e),
		Spreads:   workloadspreadcontroller.Watching.In(e),
		Versioned: workloadspreadcontroller.Versioned(e),
		States:    persistentpodstatecontroller.Watching.In(e),
		Budgets:   podunavailablebudgetcontroller.Watching.In(e),
	}
}
