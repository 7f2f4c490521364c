package explain

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/plugin/fakeapi"
)

// OPS-190: what a newer manager has of gates that the plugin does not know is told, and all others count, on
// which side of it they stand.
func TestTheGatesOfANewerManagerCountAsFarAsTheyAreKnown(t *testing.T) {
	for _, list := range []string{"PodUnavailableBudgetDeleteGate=false,GateOfTomorrow=true", "GateOfTomorrow=true, PodUnavailableBudgetDeleteGate=false",
		"AllAlpha=false,GateOfTomorrow=true,PodUnavailableBudgetDeleteGate=false"} {
		s := fakeapi.New(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: kruise-controller-manager, namespace: elsewhere}, spec: {template: {spec: {
containers: [{name: manager, image: m, args: ["--feature-gates=`+list+`"]}]}}}}`)
		reader, _, err := connect(s.Factory(), "elsewhere")
		if err != nil {
			t.Fatal(err)
		}
		w := &World{}
		e, err := reader.environment(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		if e.Gates.Enabled(features.PodUnavailableBudgetDeleteGate) || len(w.Notes) != 1 || !strings.Contains(w.Notes[0], "GateOfTomorrow") {
			t.Errorf("%s: the gate is on, or not told: %v", list, w.Notes)
		}
	}
}

// Names are those that kubectl takes: with a version, with a group, and short.
func TestNamesAreThoseThatKubectlTakes(t *testing.T) {
	s := fakeapi.New(t, `{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web, uid: set}, spec: {replicas: 1,
selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: a}]}}}}`)
	for _, name := range []string{"clone", "cloneset", "CloneSet", "clonesets.apps.kruise.io", "clonesets.v1beta1.apps.kruise.io", "cloneset.v1beta1.apps.kruise.io"} {
		if _, _, err := s.Run(NewWhy, "", "why", name+"/web"); err != nil {
			t.Errorf("why %s/web: %v", name, err)
		}
	}
	for _, name := range []string{"statefulsets.v1beta1.apps.kruise.io", "clonesets.v7.apps.kruise.io", "nothing"} {
		if _, _, err := s.Run(NewWhy, "", "why", name+"/web"); err == nil {
			t.Errorf("why %s/web: no error", name)
		}
	}
}

// What is printed with -o is, as of kubectl, one object alone as it is, and any other number a List: scripts
// find the items of several.
func TestSeveralAreAList(t *testing.T) {
	for name, tt := range map[string]struct {
		values []string
		want   any
	}{
		"none": {nil, map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": []any{}}},
		"one":  {[]string{"a"}, "a"},
		"two":  {[]string{"a", "b"}, map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": []any{"a", "b"}}},
	} {
		var out strings.Builder
		var got any
		if err := document(&out, "json", tt.values); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Error(name, diff)
		}
	}
}
