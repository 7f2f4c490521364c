package explain

import (
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

// OPS-190: what a newer manager has of gates that the plugin does not know is told, and all others count, on
// which side of it they stand.
func TestTheGatesOfANewerManagerCountAsFarAsTheyAreKnown(t *testing.T) {
	for _, list := range []string{"PodUnavailableBudgetDeleteGate=false,GateOfTomorrow=true", "GateOfTomorrow=true, PodUnavailableBudgetDeleteGate=false",
		"AllAlpha=false,GateOfTomorrow=true,PodUnavailableBudgetDeleteGate=false"} {
		s := plugintest.NewIn(t, "shop", "v1beta1", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: kruise-controller-manager, namespace: elsewhere}, spec: {template: {spec: {
containers: [{name: manager, image: m, args: ["--feature-gates=`+list+`"]}]}}}}`)
		reader, _, err := connect(s.Factory(t), "elsewhere")
		if err != nil {
			t.Fatal(err)
		}
		w := &World{}
		e, err := reader.environment(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		if e.Gates.Enabled(features.PodUnavailableBudgetDeleteGate) {
			t.Errorf("%s: the gate is on, want it off", list)
		}
		if len(w.Notes) != 1 || !strings.Contains(w.Notes[0], "GateOfTomorrow") {
			t.Errorf("%s: notes: got %q, want one about the unknown gate", list, w.Notes)
		}
	}
}
