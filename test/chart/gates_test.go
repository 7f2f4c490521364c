package chart_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/platform/features"
)

// The templates understand every list of feature gates as the manager does, and refuse what it refuses, with
// the name: rights and objects would otherwise not be those that it needs.
func TestGatesAreThoseOfTheManager(t *testing.T) {
	c := load(t)
	c.Templates = append(slices.DeleteFunc(slices.Clone(c.Templates), func(file *common.File) bool { return !strings.Contains(file.Name, "/_") }),
		&common.File{Name: "templates/gates.yaml", Data: []byte(`{{- $values := include "kruise.values" . | fromYaml -}}
kind: Gates
metadata: {name: gates}
gates: {{ include "kruise.gates" (dict "root" . "values" $values) | nindent 2 }}`)})
	var names []string
	for name := range features.Known() {
		names = append(names, string(name))
	}
	for name := range features.Aliases() {
		names = append(names, name)
	}
	names = append(names, "AllAlpha", "AllBeta")
	slices.Sort(names)
	lists := []string{"", " PodWebhook = false , AllAlpha=T,", "NoSuchGate=true", "PodWebhook=perhaps", "PodWebhook", "AllAlpha=0,AllBeta=1"}
	for _, name := range names {
		lists = append(lists, name+"=true", name+"=false")
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // any will do
	for range 100 {
		var list []string
		for range 1 + random.IntN(8) {
			list = append(list, fmt.Sprintf("%s=%t", names[random.IntN(len(names))], random.IntN(2) == 0))
		}
		lists = append(lists, strings.Join(list, ","))
	}
	for _, list := range lists {
		want, err := features.Parse(list)
		got, err2 := render(c, "featureGates: '"+list+"'")
		if err != nil || err2 != nil {
			if err == nil || err2 == nil || !strings.Contains(err2.Error(), strings.Split(list, "=")[0]) {
				t.Errorf("%q: manager: %v, chart: %v", list, err, err2)
			}
			continue
		}
		all := map[string]bool{}
		for name := range features.Known() {
			all[string(name)] = want.Enabled(name)
		}
		var found struct{ Gates map[string]bool }
		text, err := yaml.Marshal(got["Gates gates"])
		if err == nil {
			err = yaml.Unmarshal(text, &found)
		}
		if diff := cmp.Diff(all, found.Gates); diff != "" || err != nil {
			t.Errorf("%q: %v %s", list, err, diff)
		}
	}
}
