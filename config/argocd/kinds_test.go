// Package argocd_test compares what is shipped for Argo CD and Flux with the kinds that there are.
package argocd_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/registry"
)

// OPS-127: Argo CD knows the health of every kind that is served, and of no other; its scripts are tested in
// test/monitoring/gitops.
func TestEveryKindHasAHealth(t *testing.T) {
	data, err := os.ReadFile("argocd-cm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var scripts corev1.ConfigMap
	if err := yaml.UnmarshalStrict(data, &scripts); err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for i := range registry.Kinds {
		want = append(want, registry.Kinds[i].Group+"_"+registry.Kinds[i].Name)
	}
	for key := range scripts.Data {
		if kind := regexp.MustCompile(`^resource\.customizations\.health\.(.+)$`).FindStringSubmatch(key); kind != nil {
			got = append(got, kind[1])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kinds and scripts in config/argocd/health differ (-kinds +scripts):\n%s", diff)
	}
}
