package certificate

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/admission/configuration"
)

// shipped returns the definitions of the manifests.
func shipped(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob("../../../config/crd/bases/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there are no definitions in config/crd/bases")
	}
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			t.Fatal(err)
		}
		crd.Status.StoredVersions = []string{"v1alpha1", "v1beta1"} // as in an older installation
		all = append(all, crd)
	}
	return all
}

// OPS-075, OPS-073 (part): in the shipped definitions the manager changes the bundle of conversion and
// nothing else, so GitOps tools need to ignore only this field. With external certificates it changes
// nothing. The manual says both. The list of stored versions is never changed.
func TestOnlyTheBundleOfDefinitionsIsWritten(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/operate/certificates.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"A GitOps tool", "| the CRDs with conversion | `spec.conversion.webhook.clientConfig.caBundle` |",
		"With gate `EnableExternalCerts` the manager writes neither certificates nor configurations."} {
		if !strings.Contains(string(manual), text) {
			t.Errorf("the manual does not say %q", text)
		}
	}
	for name, external := range map[string]bool{"own certificates": false, "certificates of somebody else": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var names []string
			for _, crd := range shipped(t) {
				names = append(names, crd.Name)
				if err := w.Create(t.Context(), crd); err != nil {
					t.Fatal(err)
				}
			}
			if external {
				if err := w.Create(t.Context(), w.issued(t, "kruise-webhook-service.kruise-system.svc")); err != nil {
					t.Fatal(err)
				}
			}
			k := w.with(t, func(o *Options) {
				o.CRDs, o.Target, o.External, o.FilesOnly = names, configuration.Target{Namespace: "kruise-system", Service: "kruise-webhook-service"},
					external, external
			})
			pass(t, k)
			written := 0
			for _, before := range shipped(t) {
				after := &apiextensionsv1.CustomResourceDefinition{}
				if err := w.Get(context.Background(), client.ObjectKeyFromObject(before), after); err != nil {
					t.Fatal(err)
				}
				if c := after.Spec.Conversion; c != nil && c.Webhook != nil && len(c.Webhook.ClientConfig.CABundle) > 0 {
					written++
					c.Webhook.ClientConfig.CABundle = nil
				}
				after.ResourceVersion, after.TypeMeta = before.ResourceVersion, before.TypeMeta
				if !cmp.Equal(before, after) { // their schemas are long
					t.Errorf("%s is changed (-shipped +after a pass):\n%s", before.Name, cmp.Diff(before.ObjectMeta, after.ObjectMeta)+
						cmp.Diff(before.Spec.Conversion, after.Spec.Conversion)+cmp.Diff(before.Status, after.Status))
				}
			}
			if want := map[bool]int{false: 12, true: 0}[external]; written != want {
				t.Errorf("%d definitions of %v have a bundle, want %d", written, slices.Sorted(slices.Values(names)), want)
			}
		})
	}
}
